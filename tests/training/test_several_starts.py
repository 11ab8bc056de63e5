"""Cells of two pretraining seeds, two steps, two rates and two seeds at once: each starts from its
own weights.
"""

from itertools import product
from pathlib import Path

import pytest
import torch
from helpers.tiny_pretraining import CPU, LENGTH, SIZES, counting, word_tokenizer
from safetensors.torch import load_file

from glue_bench.config import load_experiment
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.inputs import MAX_CACHED_STARTS, Inputs
from glue_bench.training.pretrain import pretrain

SEEDS = (3, 8)
STEPS = (2, 4)
RATES = (1e-3, 2e-3)
FINE_SEEDS = (1, 5)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Inputs:
    """What cells start from once two arms are pretrained with two seeds each, and are kept after
    two steps.
    """
    folder = tmp_path_factory.mktemp("several")
    (folder / "text.txt").write_text("\n".join(counting()))
    word_tokenizer().save_pretrained(folder / "words")

    values = {
        "name": "several",
        "data": "demo",
        "tasks": ["cola"],
        "seeds": list(FINE_SEEDS),
        "checkpoint": "scratch",
        "scratch": {**SIZES, "vocab_size": 100},
        "arms": ["add", "untied"],
        "pretraining": {
            "corpus": [str(folder / "text.txt")],
            "tokenizer": str(folder / "words"),
            "steps": STEPS[1],
            "checkpoints": [STEPS[0]],
            "finetune_checkpoints": True,
            "seeds": list(SEEDS),
            "length": LENGTH,
            "batch_tokens": 8 * LENGTH,
            "learning_rates": [3e-3],
            "validation_share": 0.1,
        },
        "finetuning": {"learning_rates": list(RATES), "max_length": LENGTH},
    }

    inputs = Inputs(load_experiment(values), folder / "results")
    inputs.store.prepare()
    jobs, _ = settle_jobs(inputs)
    for job in jobs:
        outcome = pretrain(job, inputs, CPU)
        inputs.store.write(outcome.record, losses=outcome.validation)
    return inputs


def test_there_is_a_cell_for_each_value_of_each_axis(pretrained):
    _, cells = settle_jobs(pretrained)
    axes = [
        (cell.arm, cell.pretraining_seed, cell.steps, cell.settings.learning_rate, cell.seed)
        for cell in cells
    ]
    assert sorted(axes) == sorted(product(("add", "untied"), SEEDS, STEPS, RATES, FINE_SEEDS))
    assert len({cell.id for cell in cells}) == len(cells)


def test_each_cell_starts_from_the_weights_of_its_arm_seed_and_step(pretrained):
    """Each cell is asked for twice, in opposite orders."""
    jobs, cells = settle_jobs(pretrained)
    by_id = {job.id: job for job in jobs}
    for cell in [*cells, *reversed(cells)]:
        job = by_id[cell.pretraining]
        assert (job.arm, job.seed) == (cell.arm, cell.pretraining_seed), cell.id
        weights = pretrained.cell_start(cell).weights
        kept = load_file(
            pretrained.store.checkpoints.at_step(job.id, cell.steps) / "model.safetensors"
        )
        table = "variant.words.weight"
        assert torch.equal(weights[table], kept[f"base.{table}"]), cell.id


def test_the_last_few_starts_stay_in_memory(pretrained):
    _, cells = settle_jobs(pretrained)
    cell_of_checkpoint = {(cell.pretraining, cell.steps): cell for cell in cells}
    last_cells = list(cell_of_checkpoint.values())[: MAX_CACHED_STARTS + 1]
    starts = [pretrained.cell_start(cell) for cell in last_cells]
    for cell, start in zip(last_cells[1:], starts[1:], strict=True):
        assert pretrained.cell_start(cell) is start
    assert pretrained.cell_start(last_cells[0]) is not starts[0]


def test_all_checkpoints_differ(pretrained):
    jobs, _ = settle_jobs(pretrained)
    kept = product(jobs, STEPS)
    digests = [pretrained.store.pretraining(job.id).weights[step] for job, step in kept]
    expected = 2 * len(SEEDS) * len(STEPS)
    assert len(set(digests)) == expected


def test_tokens_of_cells_are_shared_and_their_places_are_not_the_store(pretrained):
    """The rate, the seed and the pretraining change no token."""
    _, cells = settle_jobs(pretrained)
    first = pretrained.tokens(cells[0]).splits["train"]
    for cell in cells:
        split = pretrained.tokens(cell).splits["train"]
        assert split.ids is first.ids, cell.id
    assert Path(pretrained.store.folder).name == "results"
