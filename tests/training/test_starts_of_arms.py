"""Arms that differ in one thing start from different things: options, widths, revisions, and models
of MNLI.
"""

from pathlib import Path

import pytest
import torch
import transformers
from helpers.tiny_pretraining import CPU

from glue_bench.config import load_experiment
from glue_bench.data.tasks import TASKS
from glue_bench.model.start import weights_digest
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokenizers import train_tokenizer

pytestmark = pytest.mark.usefixtures("small_demo")
TEXTS = ("the old cat chased a dog", "anna sleeps")
REVISIONS = ("a" * 40, "b" * 40)


@pytest.fixture
def inputs_of(tiny, tmp_path):
    return lambda **changes: Inputs(load_experiment(tiny(**changes)), tmp_path / "results")


def test_two_arms_of_one_variant_have_options_and_widths_of_their_own(inputs_of):
    arms = [
        {"name": "plain", "variant": "untied"},
        {"name": "apart", "variant": "untied", "options": {"share": False}},
        {"name": "narrow", "variant": "untied", "embedding_size": 8},
    ]

    inputs = inputs_of(arms=arms)
    configs = {name: arm.start.config for name, arm in inputs.arms.items()}

    assert {name: config.variant_options for name, config in configs.items()} == {
        "plain": {},
        "apart": {"share": False},
        "narrow": {},
    }
    assert {name: config.embedding_size for name, config in configs.items()} == {
        "plain": 16,
        "apart": 16,
        "narrow": 8,
    }

    _, cells = settle_jobs(inputs)
    ids = {cell.id for cell in cells}
    assert len(ids) == len(cells)


@pytest.fixture
def two_revisions(tmp_path, monkeypatch, make_bert) -> str:
    """A repository of the hub in the cache, in two revisions that have other weights and another
    tokenizer.
    """
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository = tmp_path / "hub" / "models--org--model"
    (repository / "snapshots").mkdir(parents=True)
    for seed, revision in enumerate(REVISIONS):
        folder = make_bert(f"bert-{seed}", seed=seed)
        train_tokenizer(TEXTS[: 1 + seed], 200).save_pretrained(folder)
        folder.rename(repository / "snapshots" / revision)
    return "org/model"


def test_two_revisions_of_a_checkpoint_have_weights_tokenizers_and_digests_of_their_own(
    inputs_of, two_revisions
):
    arms = []
    for variant in ("add", "untied"):
        for revision in REVISIONS:
            arm = {"variant": variant, "checkpoint": two_revisions, "revision": revision}
            arms.append({"name": f"{variant}-{revision[0]}", **arm})
    inputs = inputs_of(arms=arms, checkpoint=None)
    starts = {name: arm.start.weights["blocks.0.up.weight"] for name, arm in inputs.arms.items()}
    digests = {name: arm.start_digest for name, arm in inputs.arms.items()}
    tokens = {name: arm.tokenizer_digest for name, arm in inputs.arms.items()}
    for variant in ("add", "untied"):
        first = f"{variant}-a"
        second = f"{variant}-b"
        assert not torch.equal(starts[first], starts[second]), variant
        assert digests[first] != digests[second], variant
        assert tokens[first] != tokens[second], variant
    assert torch.equal(starts["add-b"], starts["untied-b"])


def test_the_limit_of_a_task_and_the_limit_of_all_tasks_both_hold(inputs_of):
    """Train has the smaller of both limits, and validation has the limit of all tasks."""
    finetuning = {"tasks": {"rte": {"limit": 6}}}
    inputs = inputs_of(arms=["add"], tasks=["rte", "cola"], limit=10, finetuning=finetuning)
    rows: dict[str, dict[str, int]] = {}
    for task in ("rte", "cola"):
        splits = inputs.tasks.data(task).splits
        rows[task] = {name: len(split) for name, split in splits.items()}
    assert rows["rte"]["train"] == 6
    assert rows["rte"]["validation"] == 10
    assert rows["cola"]["train"] == 10
    assert rows["cola"]["validation"] == 10


def test_a_start_from_a_model_of_mnli_keeps_the_facts_of_its_arm(inputs_of, make_bert):
    """A graft that has lost something says so, and the weights are those of the model that was
    kept.
    """
    folder = make_bert(texts=TEXTS)
    finetuning = {"from_mnli": ["rte"], "keep": "all"}
    inputs = inputs_of(
        arms=["concat-split"], checkpoint=str(folder), tasks=["mnli", "rte"], finetuning=finetuning
    )

    inputs.store.prepare()
    _, cells = settle_jobs(inputs)
    of_task = {cell.task: cell for cell in cells}
    outcome = finetune(of_task["mnli"], inputs, CPU)
    kept = outcome.model.base.state_dict()
    facts = outcome.record.model_copy(update={"weights": weights_digest(kept)})
    inputs.store.write(facts, outcome.model.save_pretrained, logits=outcome.predictions)

    before = inputs.first_arm.start
    start = inputs.cell_start(of_task["rte"])
    assert start.origin == "grafted"
    assert start.exact is False
    assert dict(start.variance_kept) == dict(before.variance_kept)
    assert set(start.variance_kept) == {"tokens", "positions", "segments"}
    for name, weight in kept.items():
        assert torch.equal(start.weights[name], weight), name

    facts = finetune(of_task["rte"], inputs, CPU).record
    assert facts.started_from == start.digest
    assert facts.graft_is_exact is False


# Native arms


NATIVE_RATES = {
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.4,
    "classifier_dropout": 0.6,
}


@pytest.fixture
def save_native(tmp_path):
    """Save a BERT of transformers whose rates of dropout all differ, with a tokenizer that takes so
    many tokens.
    """

    def save(positions: int = 32, longest: int = 10**9) -> Path:
        sizes = {
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
        }
        config = transformers.BertConfig(
            **sizes, **NATIVE_RATES, vocab_size=250, max_position_embeddings=positions
        )
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(tmp_path / "native")
        tokenizer = train_tokenizer(TEXTS, 200)
        tokenizer.model_max_length = longest
        tokenizer.save_pretrained(tmp_path / "native")
        return tmp_path / "native"

    return save


def native_start(inputs_of, folder):
    inputs = inputs_of(
        arms=[{"name": "it", "variant": "native", "checkpoint": str(folder)}], checkpoint=None
    )
    return inputs.first_arm.start


def test_a_native_model_keeps_each_rate_of_dropout_where_it_was(inputs_of, save_native):
    folder = save_native()
    model = native_start(inputs_of, folder).classifier(TASKS["rte"].labels, 1).model
    original = transformers.AutoModelForSequenceClassification.from_pretrained(folder)

    def rates(model: torch.nn.Module) -> dict[str, float]:
        return {
            name: part.p
            for name, part in model.named_modules()
            if isinstance(part, torch.nn.Dropout)
        }

    assert rates(model) == rates(original)
    used_rates = set(rates(model).values())
    assert used_rates == set(NATIVE_RATES.values())


@pytest.mark.parametrize(
    ("positions", "longest", "expected"), [(32, 20, 20), (18, 20, 18), (18, 10**9, 18)]
)
def test_the_longest_text_of_a_native_model_is_the_smaller_limit(
    inputs_of, save_native, positions, longest, expected
):
    assert native_start(inputs_of, save_native(positions, longest)).positions == expected
