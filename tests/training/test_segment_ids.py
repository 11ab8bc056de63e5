"""Encoders whose tokenizer tells other segments apart than they have rows for."""

import io
import json

import pytest
import torch
from rich.console import Console
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, PreTrainedTokenizerFast

from glue_bench.api import run
from glue_bench.config import parse_experiment
from glue_bench.errors import UserError
from glue_bench.sweep.plan import plan_cells
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokenizers import SPECIAL, train_tokenizer

pytestmark = pytest.mark.usefixtures("small_demo")

SIZES = {"vocab_size": 250, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXTS = ("a cat sat on the mat", "the dog ran")


def save(folder, segment_of_the_second_text=1, types=2):
    """A BERT with so many rows, and a tokenizer that puts second texts into this segment."""
    torch.manual_seed(0)
    config = BertConfig(**SIZES, intermediate_size=32, max_position_embeddings=32, type_vocab_size=types)
    BertModel(config).save_pretrained(folder)
    state = json.loads(train_tokenizer(TEXTS, 200).backend_tokenizer.to_str())
    for part in state["post_processor"]["pair"]:
        values = next(iter(part.values()))
        values["type_id"] *= segment_of_the_second_text
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(state)), **SPECIAL).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def experiment(tiny):
    return lambda checkpoint: tiny(checkpoint=checkpoint, arms=["add"], tasks=["rte"])


@pytest.mark.parametrize(("second", "types"), [(2, 2), (9, 3)])
def test_a_segment_without_a_row_is_refused_before_any_compute(experiment, tmp_path, second, types):
    made = parse_experiment(experiment(save(tmp_path / "bert", second, types)))
    said = (
        f"arm 'add': the tokenizer tells {second + 1} segments apart but the checkpoint '.*bert' embeds {types}; give"
    )
    with pytest.raises(UserError, match=said):
        plan_cells(made, Inputs(made))


def test_an_encoder_with_one_segment_gets_no_other_and_it_is_said(experiment, tmp_path):
    values, console = experiment(save(tmp_path / "bert", types=1)), Console(file=io.StringIO(), width=200)
    summary = run(values, results=tmp_path, console=console)
    assert (summary.finished, summary.failed) == (1, {})
    assert "both texts of a pair are segment 0, because the encoder has no other: add" in console.file.getvalue()
    made = parse_experiment(values)
    tokens = Inputs(made).tokens(next(made.cells()))
    assert not any(split.segments.any() for split in tokens.splits.values())
    assert all(len(split.segments) == len(split.ids) for split in tokens.splits.values())


def test_arms_that_share_a_tokenizer_keep_their_own_segments(tiny, tmp_path):
    arms = [{"name": f"of-{types}", "variant": "add", "checkpoint": save(tmp_path / f"of-{types}", types=types)}
            for types in (1, 2)]  # fmt: skip
    made = parse_experiment(tiny(arms=arms, tasks=["rte"]))
    inputs = Inputs(made)
    one, two = (inputs.tokens(cell).splits["train"] for cell in made.cells())
    assert (one.ids == two.ids).all()
    assert (one.segments.max(), two.segments.max()) == (0, 1)


def test_an_encoder_without_segments_needs_none(experiment, tmp_path):
    folder = save(tmp_path / "distilbert")
    config = DistilBertConfig(vocab_size=250, dim=16, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=32)
    DistilBertModel(config).save_pretrained(folder)
    console = Console(file=io.StringIO(), width=200)
    run(experiment(folder), results=tmp_path, console=console, dry_run=True)
    assert "both texts of a pair are segment 0, because the encoder has no other: add" in console.file.getvalue()
