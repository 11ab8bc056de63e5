"""What decides a pretraining, and what is refused before one begins."""

import re

import pytest
from older_results import OLDER, older_experiment
from stored import documents

from glue_bench.config import parse_experiment
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.training import inputs as inputs_module
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")


# Identity


@pytest.fixture
def id_of(values):
    """The id of the only cell."""

    def one(pretraining=(), **changes):
        experiment = parse_experiment(values(pretraining, **{"arms": ["add"]} | changes))
        (cell,) = experiment.cells()
        return Inputs(experiment).cell_identity(cell).start

    return one


@pytest.mark.parametrize(
    "changes",
    [{"steps": 11}, {"batch_tokens": 512}, {"length": 16}, {"mask_probability": 0.2}, {"learning_rate": 2e-3},
     {"warmup_ratio": 0.5}, {"weight_decay": 0.0}, {"adam_epsilon": 1e-8}, {"clip_norm": 2.0}, {"seed": 2},
     {"validation_share": 0.1}, {"documents": "blank_lines"}, {"segments": "pairs"}, {"dropout": 0.2},
     {"schedule": "trapezoid", "decay_share": 0.2}],
    ids=str,
)  # fmt: skip
def test_whatever_changes_the_weights_changes_the_start(id_of, changes):
    assert id_of(changes) != id_of()


def test_other_encoders_and_other_text_change_the_start(id_of, small_demo):
    ids = {id_of(), id_of(arms=["none"]), id_of(scratch={"hidden_size": 32}), id_of(scratch={"vocab_size": 150})}
    ids.add(id_of(arms=[{"variant": "add", "options": {"segments": "none"}}]))
    small_demo(train=40)
    ids.add(id_of())
    assert len(ids) == 6


@pytest.mark.parametrize(
    "changes",
    [{"checkpoints": [5]}, {"validations": 5}, {"micro_batch_tokens": 256}, {"micro_batch_tokens": 999}],
    ids=str,
)
def test_what_only_watches_or_cuts_nothing_keeps_the_start(id_of, changes):
    assert id_of(changes) == id_of()


def test_parts_of_a_batch_change_the_start_where_dropout_is_drawn_for_each_of_them(id_of):
    whole, parts, same = id_of(), id_of({"micro_batch_tokens": 64}), id_of({"micro_batch_tokens": 95})
    assert whole != parts == same  # two rows of 32
    still = {"scratch": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}}
    assert id_of({"micro_batch_tokens": 64}, **still) == id_of(**still)
    assert id_of({"micro_batch_tokens": 64, "dropout": 0.0}) == id_of({"dropout": 0.0})
    assert id_of({"micro_batch_tokens": 64, "dropout": 0.1}, **still) != id_of({"dropout": 0.1}, **still)


def test_the_order_of_the_rates_of_a_search_changes_nothing(id_of):
    search = {"rate_search": {"steps": 4}}
    one, other = (id_of(search | {"learning_rates": rates}) for rates in ([1e-4, 1e-3], [1e-3, 1e-4]))
    assert one == other != id_of(search | {"learning_rates": [1e-4, 2e-3]})


def test_where_the_text_lies_does_not_matter(id_of, tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("\n".join(generate("cola")["train"]["text_a"]))
    here, there = (id_of({"corpus": str(tmp_path / name)}) for name in ("here", "there"))
    assert here == there


# Mistakes


@pytest.mark.parametrize(
    ("pretraining", "changes", "said"),
    [
        ({"checkpoints": [5, 10]}, {}, "checkpoints [10] are not before the last step, 10, which is always kept"),
        ({"checkpoints": [5, 5]}, {}, "given twice: 5"),
        ({"batch_tokens": 31}, {}, "batch_tokens 31 holds no sequence of length 32"),
        ({"micro_batch_tokens": 31}, {}, "micro_batch_tokens 31 holds no sequence of length 32"),
        ({"length": 33, "batch_tokens": 99}, {}, "pretraining.length 33 exceeds the 32 positions of scratch"),
        ({"schedule": "cosine"}, {}, "pretraining.schedule: input should be 'linear' or 'trapezoid', not 'cosine'"),
        ({"schedule": "trapezoid"}, {}, "schedule: trapezoid needs decay_share, the part of the steps at the end"),
        ({"decay_share": 0.2}, {}, "decay_share belongs to schedule: trapezoid"),
        ({"schedule": "trapezoid", "decay_share": 1.5}, {}, "decay_share: input should be less than or equal to 1"),
        ({"schedule": "trapezoid", "decay_share": 0}, {}, "decay_share: input should be greater than 0"),
        ({"schedule": "trapezoid", "decay_share": 0.9, "warmup_ratio": 0.2}, {},
         "warmup_ratio 0.2 and decay_share 0.9 are together more than 1"),
        ({"segments": "two"}, {}, "pretraining.segments: input should be 'one' or 'pairs', not 'two'"),
        ({"documents": "lines"}, {}, "pretraining.documents: input should be 'files' or 'blank_lines', not 'lines'"),
        ({"dropout": 1.0}, {}, "pretraining.dropout: input should be less than 1"),
        ({"stepps": 5}, {}, "unknown key 'stepps' in pretraining; did you mean 'steps'?"),
        ({"from": "nothing"}, {}, "pretraining.from: input should be 'scratch' or 'checkpoint', not 'nothing'"),
        ({"corpus": []}, {}, "pretraining.corpus: list should have at least 1 item"),
        ({"corpus": ["a", "a"]}, {}, "given twice: a"),
        ({}, {"checkpoint": "some/bert"}, "arm 'add' starts from 'some/bert', but pretraining is from: scratch"),
        ({"from": "checkpoint"}, {}, "arm 'add' starts from 'scratch', but pretraining is from: checkpoint"),
        ({"from": "checkpoint", "tokenizer": "x"}, {"checkpoint": "b"}, "tokenizer is that of each arm's checkpoint"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_mistake_in_the_settings_is_named(values, pretraining, changes, said):
    with pytest.raises(UserError) as caught:
        parse_experiment(values(pretraining, **changes))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("pretraining", "said"),
    [
        (
            {"corpus": "nowhere.txt"},
            "corpus 'nowhere.txt' does not exist; give a text file, a folder, hub:NAME or demo",
        ),
        ({"tokenizer": "./nowhere"}, "no checkpoint folder './nowhere'"),
        ({"validation_share": 1e-6}, "corpus 'demo' is too small: nothing left for validation; add text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_ends_before_anything_is_written(sweep, tmp_path, pretraining, said):
    with pytest.raises(UserError, match=re.escape(said)):
        sweep(pretraining)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "pretraining", "said"),
    [
        ("One line and no more", {}, "is too small: nothing left for validation; add text"),
        ("\n".join(["A cat sat and another dog ran home"] * 40), {"segments": "pairs", "length": 8},
         "has two sentences to cut between; give each sentence a line or a full stop"),
    ],
    ids=["a line", "no cut"],
)  # fmt: skip
def test_text_that_is_too_little_is_refused_before_anything_is_written(sweep, tmp_path, text, pretraining, said):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(UserError, match=re.escape(said)):
        sweep({"corpus": str(tmp_path / "a.txt"), **pretraining})
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("segments", "said"), [((1, 2), "tokenizer tells 1"), ((2, 0), "encoder embeds 0")], ids=str)
def test_pairs_need_a_tokenizer_and_an_encoder_of_two_segments(sweep, monkeypatch, segments, said):
    monkeypatch.setattr(Inputs, "segments", lambda *_: segments)
    with pytest.raises(
        UserError, match=f"arm 'add': pretraining.segments: pairs, but its {said} segments, not 2; leave"
    ):
        sweep({"segments": "pairs"})


def test_newer_keys_at_their_defaults_are_no_part_of_an_id():
    """The settings that older pretrainings' ids are hashes of are those that their file gives today."""
    settings = older_experiment().pretraining.hashed()
    stored = documents(Store(OLDER), "pretraining")
    assert len(stored) == 3
    assert all(record["identity"]["settings"] == settings for record in stored)


def test_arms_with_different_tokenizers_cannot_be_compared(sweep, make_bert):
    texts = tuple(generate("cola")["train"]["text_a"])
    one, other = make_bert("one", texts=texts), make_bert("other", texts=texts[:9])
    arms = [{"variant": "add", "checkpoint": str(one)}, {"variant": "none", "checkpoint": str(other)}]
    with pytest.raises(
        UserError, match="arms 'add' and 'none' have different tokenizers, so they cannot be pretrained"
    ):
        sweep({"from": "checkpoint"}, arms=arms)


def test_a_length_beyond_a_checkpoints_positions_is_refused_before_the_text_is_packed(sweep, make_bert, monkeypatch):
    bert = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    monkeypatch.setattr(inputs_module, "pack", None)
    with pytest.raises(UserError, match=r"arm 'add': pretraining.length 33 exceeds its 32 positions"):
        sweep({"from": "checkpoint", "length": 33}, checkpoint=str(bert))
