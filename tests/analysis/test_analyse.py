"""All measures of all kinds of encoders: rows or reasons, the same for the same input, and bad input."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
import transformers
from helpers.stored import Bench, digest
from helpers.tiny_models import SENTENCES
from torch.overrides import TorchFunctionMode

import glue_bench as package
from glue_bench.analysis.subject import find_sources
from glue_bench.errors import UserError
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.testing import encoder_config, random_model
from glue_bench.training.tokenizers import train_tokenizer

POSITIONS = 24
FOUR = tuple(
    f"terms.share.{term}"
    for term in ("word_word", "word_position", "position_word", "position_position")
)
SHARED = ("subspaces.overlap", "subspaces.mean_abs_cosine", "dimensions.spearman")
OF_POSITIONS = ("positions.absolute_mae", "positions.scores.toeplitz")
OF_SUM = ("tables.participation_ratio.words", "dimensions.share_95", "decoding.sum.word_accuracy")
NAMES = {*SHARED, *OF_POSITIONS, *OF_SUM, *FOUR, "terms.kl.word_word", "order.swap.1"}
SMALL = {
    "probes": {
        "WORD_PAIRS": 200,
        "FEWER_WORD_PAIRS": 100,
        "TEST_PAIRS": 200,
        "SUMS": 200,
        "DRAWS": 2,
    },
    "positions": {
        "RANDOM_TABLES": 2,
        "ORDER_PAIRS": 300,
        "SCORE_ORDERS": 3,
        "ATTENTION_ORDERS": 20,
    },
    "subspaces": {"PERMUTATIONS": 100, "SPREAD_DRAWS": 50, "ROTATIONS": 20},
    "terms": {"DRAWS": 2},
    "layers": {"DRAWS": 2},
    "word_order": {"ORDER_SEQUENCES": 8},
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Few draws: what is asked here is not how wide the bands are."""
    for room, values in SMALL.items():
        for name, value in values.items():
            monkeypatch.setattr(f"glue_bench.analysis.{room}.{name}", value)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """A BERT with its head, one of ours of several kinds, and one without a head."""
    folder, tokenizer = tmp_path_factory.mktemp("checkpoints"), train_tokenizer(SENTENCES, 150)
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS}
    torch.manual_seed(0)
    small = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    bert = transformers.BertForMaskedLM(
        transformers.BertConfig(**small, **sizes, initializer_range=0.3)
    )
    models = {"bert": bert, "headless": random_model(EncoderModel, encoder_config("add", **sizes))}
    for variant in ("none", "multiply", "untied", "rotary"):
        models[variant] = random_model(EncoderForMaskedLM, encoder_config(variant, **sizes))
    narrow = encoder_config(
        "concat-split", variant_options={"position_share": 1 / 32}, **sizes
    )  # one dimension
    models["concat-split"] = random_model(EncoderForMaskedLM, narrow)
    models["norm first"] = random_model(
        EncoderForMaskedLM, encoder_config("add", norm_first=True, **sizes)
    )
    scored = encoder_config("none", variant_options={"segments": "scores"}, **sizes)
    models["segments"] = random_model(EncoderForMaskedLM, scored)
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in models}


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(SENTENCES))
    return path


def first_of_each(found, label: str) -> pd.DataFrame:
    """The rows of a checkpoint by measure, of the lowest layer."""
    return (
        found.measures[found.measures["checkpoint"] == label]
        .drop_duplicates("measure")
        .set_index("measure")
    )


class _WithoutFloat64(TorchFunctionMode):
    """As on an Apple GPU: a tensor becomes float64 only once it was copied to the CPU."""

    def __torch_function__(self, function, types, given=(), named=None):
        values = (*given[1:], *(named or {}).values())
        wide = function is torch.Tensor.double or any(value is torch.float64 for value in values)
        if wide and isinstance(given[0], torch.Tensor) and not hasattr(given[0], "on_cpu"):
            raise TypeError("the device has no float64")
        made = function(*given, **(named or {}))
        if function is torch.Tensor.cpu:
            made.on_cpu = True
        return made


def test_every_measure_of_every_encoder_has_a_row_or_a_reason(checkpoints, text):
    with _WithoutFloat64():
        found = package.analyse(list(checkpoints.values()), corpus=text)
    assert found.subjects["checkpoint"].tolist() == list(checkpoints)
    absent = {label: NAMES - set(first_of_each(found, label).index) for label in checkpoints}
    assert absent["bert"] == absent["norm first"] == set()
    assert absent["headless"] == {"order.swap.1"}
    assert absent["concat-split"] == set(SHARED)
    assert absent["untied"] == NAMES - {FOUR[0], FOUR[3], "order.swap.1", *OF_POSITIONS}
    for label in ("none", "multiply", "rotary", "segments"):
        assert absent[label] == NAMES - {"order.swap.1"}, label
    reasons = found.left_out.set_index("checkpoint")
    for label, names in absent.items():
        said = tuple(reasons.loc[[label], "measure"]) if names else ()
        assert all(name.startswith(said) for name in names), (label, names, said)
    assert reasons["reason"].str.len().min() > 10
    bert, none = first_of_each(found, "bert"), first_of_each(found, "none").loc["order.swap.1"]
    assert bert.loc["terms.sum_error", "value"] < 1e-5
    assert bert.loc["layers.rank", "n"] == bert.loc["terms.share.word_word", "n"] >= 8
    rises = bert.loc[[name.replace("share", "loss_rise") for name in FOUR]]
    assert (rises["low"].le(rises["value"]) & rises["value"].le(rises["high"])).all()
    assert none["value"] == none["chance_low"] == 0.5
    assert bert.loc["terms.mixed", "value"] == pytest.approx(
        bert.loc[list(FOUR[1:3]), "value"].sum()
    )
    assert "terms.mixed" not in first_of_each(found, "untied").index
    rows = found.measures
    assert not rows.duplicated(["checkpoint", "measure", "layer"]).any()
    assert rows["value"].notna().all()
    for low, high in (("low", "high"), ("chance_low", "chance_high")):
        assert ((rows[low] <= rows[high]) | (rows[low].isna() & rows[high].isna())).all()
    sums = (
        rows[rows["measure"].str.startswith("terms.share.")]
        .groupby(["checkpoint", "layer"])["value"]
        .sum()
    )
    assert sums.to_numpy() == pytest.approx(1, abs=1e-4)
    assert [layer for label, layer in sums.index if label in ("bert", "untied")] == [1, 1, 2]
    decoded = rows.query("checkpoint == 'bert' and measure == 'decoding.layers.word_accuracy'")[
        "layer"
    ]
    assert decoded.tolist() == [0, 1, 2]


def test_a_text_that_is_too_short_leaves_the_measures_of_tables(checkpoints, text, tmp_path):
    found = package.analyse(
        [checkpoints["bert"], checkpoints["none"]], corpus=text, only=["subspaces"], sequences=9
    )
    (tmp_path / "short.txt").write_text(SENTENCES[0])
    short = package.analyse(
        checkpoints["bert"], corpus=tmp_path / "short.txt", only=["terms", "subspaces"]
    )
    assert (
        short.subjects["weights"].item()
        == found.subjects["weights"][0]
        != found.subjects["weights"][1]
    )
    pd.testing.assert_frame_equal(short.measures, found.measures.query("checkpoint == 'bert'"))
    assert "give more text" in short.left_out.set_index("measure").loc["terms.share", "reason"]


def test_an_experiment_is_analysed_by_its_arms_and_says_which_are_gone(checkpoints, text, tmp_path):
    bench, weights = Bench(tmp_path / "toy"), {5: digest("headless")}
    for arm in ("here", "gone"):
        bench.pretrain(arm, steps=5, settings={"length": 20}, weights=weights)
    bench.pretrain("add", 2, finished=False)
    bench.plan()
    kept = bench.store.checkpoints.at_step("here-1", 5)
    shutil.copytree(checkpoints["headless"], kept)
    (kept / "weights.digest").write_text(weights[5])
    found = package.analyse(bench.path, corpus=text, only=["subspaces"])
    facts = found.subjects.iloc[0]
    assert (facts["checkpoint"], facts["positions"]) == ("here", 20)
    assert found.gone[0].startswith("gone; add, seed 2: no checkpoint of its record in")
    (kept / "weights.digest").write_text(digest("of another run"))
    with pytest.raises(
        UserError, match="nothing to analyse: here; gone; add, seed 2: no checkpoint of its record"
    ):
        package.analyse(bench.path, corpus=text)


def test_bad_input_is_refused_before_the_first_is_measured(checkpoints, text, monkeypatch):
    monkeypatch.setattr("glue_bench.analysis.analyse.MEASURES", {"terms": {"terms": None}})
    with pytest.raises(UserError, match="no checkpoint folder"):
        package.analyse([checkpoints["bert"], "./typo"], corpus=text)


def test_names_of_checkpoints_are_short_and_their_own(checkpoints, monkeypatch):
    monkeypatch.chdir(checkpoints["bert"])
    names = [
        ".",
        "../none/../headless",
        "one/bert",
        "two/bert",
        "runs/checkpoints/add-1/step-9",
        "a/b",
        "c/b",
    ]
    assert list(find_sources(names[:2] + names[4:])[0]) == [
        "bert",
        "headless",
        "add-1/step-9",
        "a/b",
        "c/b",
    ]
    assert find_sources(names[2:4])[0] == {name: name for name in names[2:4]}
