"""Every family that transformers has a classifier of is trained and evaluated right, or refused
before compute.
"""

import copy
import io
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_families import FAMILIES, save_tokenizer, tiny_model
from helpers.tiny_pretraining import BF16, CPU
from rich.console import Console
from torch import Tensor, nn

import glue_bench
from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.model.native import NativeClassifier
from glue_bench.sweep.plan import make_plan, settle_jobs
from glue_bench.training.finetune import finetune
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import part_losses, predict, used_rows_only
from glue_bench.training.tokens import TokenisedSplit, TokenisedTask, collate, evaluation_batches
from glue_bench.training.trial import compute_of

pytestmark = [pytest.mark.usefixtures("small_demo"), pytest.mark.filterwarnings("ignore")]

QUICK = {"bart", "bert", "fnet", "gpt2", "mpnet", "t5"}
FLOAT32_ALONE = {"deberta", "xmod"}
"""The families that cannot be trained in bf16."""
REFUSED = {
    "big_bird": "when it reads the text again after others.* set attention_type to original",
    "bigbird_pegasus": "other logits when it reads the text again after others",
    "reformer": "its model cannot be trained: ValueError: If training, sequence length",
}
"""The tiny models that no cell can use, and the reasons.

After one short text, BigBird attends to all places forever.
"""
LONGEST = 32


def families(*without: str) -> list:
    """Return all families: a few in the default suite, the others in the slow one."""
    names = [name for name in FAMILIES if name not in without]
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def model_of(family: str) -> nn.Module:
    model = tiny_model(family)
    if model is None:
        pytest.skip("its sizes have other names")
    return model


@pytest.fixture(scope="module")
def tokens() -> TokenisedTask:
    """Uneven texts that begin with [CLS], end with [SEP], and hold a part of the vocabulary."""
    generator = np.random.default_rng(0)
    texts = [
        np.array([2, *generator.integers(5, 60, size=length - 2), 3]) for length in (LONGEST, 11, 7)
    ]
    lengths = [len(text) for text in texts]
    split = TokenisedSplit(
        ids=np.concatenate(texts).astype(np.int32),
        offsets=np.cumsum([0, *lengths]),
        segments=np.zeros(sum(lengths), np.uint8),
        labels=np.array([0, 1, 0]),
    )
    return TokenisedTask({"train": split}, 0)


def without_dropout(model: nn.Module) -> nn.Module:
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    return model


def after_a_step(model: NativeClassifier, tokens: TokenisedTask, table_of) -> dict[str, Tensor]:
    """Return the weights after one step of plain gradient descent on all texts."""
    model = without_dropout(copy.deepcopy(model))
    with table_of(model, tokens):
        torch.manual_seed(1)
        model.train()
        [loss] = part_losses(
            model, collate(tokens.splits["train"], np.arange(3), tokens.padding_id), CPU
        )
        loss.backward()
        torch.optim.SGD(
            [weight for weight in model.parameters() if weight.requires_grad], 0.5
        ).step()
    return {name: weight.detach() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("family", families("reformer"))  # it hashes at random
def test_a_step_with_the_used_rows_alone_equals_a_step_with_the_whole_table(family, tokens):
    model = NativeClassifier(model_of(family), reads_segments=False, pads_left=family == "xlnet")
    short = after_a_step(model, tokens, used_rows_only)
    of_whole_table = after_a_step(model, tokens, lambda *_: nullcontext())
    torch.testing.assert_close(short, of_whole_table, rtol=1e-5, atol=1e-6)


def test_an_id_that_was_not_announced_is_an_error_in_training(tokens):
    model = NativeClassifier(model_of("bert"), reads_segments=False, pads_left=False)
    with used_rows_only(model, tokens), pytest.raises(IndexError):
        model.train()(torch.tensor([[2, 99, 3]]), None, torch.zeros(1, 3, dtype=torch.long))


@pytest.fixture
def inputs_of(tiny, tmp_path):
    """An experiment on RTE with the tiny model of a family as a native arm."""

    def of(family: str, side: str = "") -> Inputs:
        model_of(family).save_pretrained(tmp_path / family)
        side = side or ("left" if family == "xlnet" else "right")
        save_tokenizer(
            tmp_path / family, tuple(generate("rte")["train"]["text_a"]), segments=False, side=side
        )
        arm = {"name": family, "variant": "native", "checkpoint": str(tmp_path / family)}
        return Inputs(
            load_experiment(tiny(arms=[arm], checkpoint=None, tasks=["rte"])), Path("none")
        )

    return of


@pytest.mark.parametrize("family", families())
def test_a_planned_cell_has_the_logits_that_each_text_has_alone(family, inputs_of):
    inputs = inputs_of(family)
    if family in REFUSED:
        with pytest.raises(UserError, match=REFUSED[family]):
            make_plan(inputs)
        return
    [cell] = make_plan(inputs).cells
    outcome = finetune(cell, inputs, CPU)
    start = inputs.cell_start(cell)
    split = inputs.tokens(cell).splits["validation"]
    model = NativeClassifier(
        outcome.model, reads_segments=start.reads_segments, pads_left=start.pads_left
    )
    padded = (lambda _: cell.settings.max_length) if start.reads_padding else int
    alone = predict(model, evaluation_batches(split, 0, 1, padded), CPU)
    np.testing.assert_allclose(outcome.predictions["validation"], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "side"), [("bert", "left"), ("gpt2", "left"), ("xlnet", "right")]
)
def test_no_text_depends_on_others_whatever_side_the_tokenizer_pads(family, side, inputs_of):
    assert make_plan(inputs_of(family, side)).cells


@pytest.mark.parametrize("family", ["deberta", *families("deberta", *REFUSED)])
def test_a_cell_is_trained_in_bf16_or_says_that_it_was_trained_in_float32(family, inputs_of):
    inputs = inputs_of(family)
    _, [cell] = settle_jobs(inputs)
    compute = compute_of(inputs.arms[cell.arm], BF16)
    facts = finetune(cell, inputs, BF16).record
    assert (compute.precision, facts.precision) == (
        ("float32", "float32") if family in FLOAT32_ALONE else ("bf16", None)
    )


def test_arms_that_compute_in_float32_are_named_before_compute(inputs_of, tmp_path):
    console = Console(file=io.StringIO(), width=200)
    values = inputs_of("deberta").experiment
    glue_bench.run(
        values, results=tmp_path, console=console, device="cpu", precision="bf16", dry_run=True
    )
    line = "computed in float32, because their models cannot be trained in bf16: deberta"
    assert line in console.file.getvalue()
