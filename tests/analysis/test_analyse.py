"""All measures of all kinds of encoders: rows or reasons, and bad input."""

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
FOUR = [
    "terms.share.word_word",
    "terms.share.word_position",
    "terms.share.position_word",
    "terms.share.position_position",
]
OF_COMMON_DIMENSIONS = {"subspaces.overlap", "subspaces.mean_abs_cosine", "dimensions.spearman"}
OF_POSITIONS = {"positions.absolute_mae", "positions.scores.toeplitz"}
OF_SUM = {"tables.participation_ratio.words", "dimensions.share_95", "decoding.sum.word_accuracy"}
NAMES = {
    *OF_COMMON_DIMENSIONS,
    *OF_POSITIONS,
    *OF_SUM,
    *FOUR,
    "terms.kl.word_word",
    "order.swap.1",
}
"""One row or more of every measure."""
SMALL = {
    "probes": {
        "WORD_PAIRS": 200,
        "FEWER_WORD_PAIRS": 100,
        "TEST_PAIRS": 200,
        "SEARCHED_SUMS": 200,
        "POSITION_DRAWS": 2,
    },
    "positions": {
        "RANDOM_TABLES": 2,
        "ORDER_PAIRS": 300,
        "SCORE_ORDERS": 3,
        "ATTENTION_ORDERS": 20,
    },
    "subspaces": {"PERMUTATIONS": 100, "SPREAD_DRAWS": 50, "ROTATIONS": 20},
    "terms": {"ROTATION_DRAWS": 2},
    "layers": {"LAYER_DRAWS": 2},
    "word_order": {"ORDER_SEQUENCES": 8},
}


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Set few draws, because these tests do not look at the width of bands."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module, sizes in SMALL.items():
            for name, size in sizes.items():
                monkeypatch.setattr(f"glue_bench.analysis.{module}.{name}", size)
        yield


def our_models(sizes) -> dict[str, torch.nn.Module]:
    """Make encoders of several kinds, and one without a head."""
    configs = {
        name: encoder_config(name, **sizes) for name in ("none", "multiply", "untied", "rotary")
    }
    # Positions have one dimension.
    options = {"position_share": 1 / 32}
    configs["concat-split"] = encoder_config("concat-split", variant_options=options, **sizes)
    configs["norm first"] = encoder_config("add", norm_first=True, **sizes)
    options = {"segments": "scores"}
    configs["segments"] = encoder_config("none", variant_options=options, **sizes)
    models = {name: random_model(EncoderForMaskedLM, config) for name, config in configs.items()}
    models["headless"] = random_model(EncoderModel, encoder_config("add", **sizes))
    return models


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """A BERT with its head, and encoders of ours."""
    folder = tmp_path_factory.mktemp("checkpoints")
    tokenizer = train_tokenizer(SENTENCES, 150)
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS}
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.3,
        **sizes,
    )
    models = {"bert": transformers.BertForMaskedLM(config), **our_models(sizes)}
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in models}


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(SENTENCES))
    return path


class _WithoutFloat64(TorchFunctionMode):
    """A tensor of an Apple GPU: it becomes float64 only after it was copied to the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        values = (*args[1:], *(kwargs or {}).values())
        is_wide = function is torch.Tensor.double or any(value is torch.float64 for value in values)
        if is_wide and isinstance(args[0], torch.Tensor) and not hasattr(args[0], "on_cpu"):
            raise TypeError("the device has no float64")
        result = function(*args, **(kwargs or {}))
        if function is torch.Tensor.cpu:
            result.on_cpu = True
        return result


@pytest.fixture(scope="module")
def analysis(checkpoints, text):
    """All measures of all checkpoints."""
    with _WithoutFloat64():
        return package.analyse(list(checkpoints.values()), corpus=text)


def lowest_rows(analysis, label: str) -> pd.DataFrame:
    """Return the rows of a checkpoint's lowest layer, by measure."""
    rows = analysis.measures[analysis.measures["checkpoint"] == label]
    return rows.drop_duplicates("measure").set_index("measure")


def test_every_checkpoint_is_measured(analysis, checkpoints):
    assert analysis.subjects["checkpoint"].tolist() == list(checkpoints)


SCORES_OF_WORDS = {FOUR[0], FOUR[3], "order.swap.1"}
ABSENT = {
    "bert": set(),
    "norm first": set(),
    "headless": {"order.swap.1"},
    "concat-split": OF_COMMON_DIMENSIONS,
    "untied": NAMES - SCORES_OF_WORDS - OF_POSITIONS,
    "none": NAMES - {"order.swap.1"},
    "multiply": NAMES - {"order.swap.1"},
    "rotary": NAMES - {"order.swap.1"},
    "segments": NAMES - {"order.swap.1"},
}
"""The rows that a checkpoint does not have."""


@pytest.mark.parametrize("label", ABSENT)
def test_every_measure_of_every_encoder_has_a_row_or_a_reason(analysis, label):
    absent = NAMES - set(lowest_rows(analysis, label).index)
    assert absent == ABSENT[label]
    left_out = analysis.left_out[analysis.left_out["checkpoint"] == label]
    beginnings = tuple(left_out["measure"])
    for name in absent:
        assert name.startswith(beginnings), name
    assert (left_out["reason"].str.len() > 10).all()


def test_the_terms_of_bert_add_up_and_have_intervals(analysis):
    bert = lowest_rows(analysis, "bert")
    assert bert.loc["terms.sum_error", "value"] < 1e-5
    assert bert.loc["layers.rank", "n"] == bert.loc["terms.share.word_word", "n"] >= 8
    rises = bert.loc[[name.replace("share", "loss_rise") for name in FOUR]]
    assert (rises["low"] <= rises["value"]).all()
    assert (rises["value"] <= rises["high"]).all()


def test_mixed_terms_are_the_sum_of_both_and_only_where_terms_are_mixed(analysis):
    bert = lowest_rows(analysis, "bert")
    both_mixed = bert.loc[FOUR[1:3], "value"].sum()
    assert bert.loc["terms.mixed", "value"] == pytest.approx(both_mixed)
    assert "terms.mixed" not in lowest_rows(analysis, "untied").index


def test_the_swap_test_without_positions_is_chance(analysis):
    row = lowest_rows(analysis, "none").loc["order.swap.1"]
    assert row["value"] == row["chance_low"] == 0.5


def test_every_row_is_there_once_with_a_value_and_ordered_bounds(analysis):
    rows = analysis.measures
    assert not rows.duplicated(["checkpoint", "measure", "layer"]).any()
    assert rows["value"].notna().all()
    for low, high in (("low", "high"), ("chance_low", "chance_high")):
        is_ordered = rows[low] <= rows[high]
        is_absent = rows[low].isna() & rows[high].isna()
        assert (is_ordered | is_absent).all()


def test_shares_of_terms_add_up_in_each_layer(analysis):
    rows = analysis.measures
    shares = rows[rows["measure"].str.startswith("terms.share.")]
    totals = shares.groupby(["checkpoint", "layer"])["value"].sum()
    assert totals.to_numpy() == pytest.approx(1, abs=1e-4)
    assert totals["bert"].index.tolist() == [1]
    assert totals["untied"].index.tolist() == [1, 2]


def test_words_are_decoded_in_every_layer(analysis):
    rows = analysis.measures.query("checkpoint == 'bert'").set_index("measure")
    assert rows.loc["decoding.layers.word_accuracy", "layer"].tolist() == [0, 1, 2]


def test_a_text_that_is_too_short_leaves_the_measures_of_tables(checkpoints, text, tmp_path):
    sources = [checkpoints["bert"], checkpoints["none"]]
    long = package.analyse(sources, corpus=text, only=["subspaces"], sequences=9)
    (tmp_path / "short.txt").write_text(SENTENCES[0])
    short = package.analyse(sources[0], corpus=tmp_path / "short.txt", only=["terms", "subspaces"])
    pd.testing.assert_frame_equal(short.measures, long.measures.query("checkpoint == 'bert'"))
    reason = short.left_out.set_index("measure").loc["terms.share", "reason"]
    assert "give more text" in reason


def test_the_digest_of_weights_equals_the_checkpoints(checkpoints, text):
    sources = [checkpoints["bert"], checkpoints["none"]]
    pair = package.analyse(sources, corpus=text, only=["subspaces"])
    single = package.analyse(sources[0], corpus=text, only=["dimensions"])
    digests = pair.subjects["weights"].tolist()
    assert single.subjects["weights"].tolist() == digests[:1]
    assert digests[0] != digests[1]


WEIGHTS = {5: digest("headless")}


@pytest.fixture
def experiment(checkpoints, tmp_path) -> Bench:
    """Two finished pretrainings, `gone` without its checkpoint, and one that has not ended."""
    bench = Bench(tmp_path / "toy")
    for arm in ("here", "gone"):
        bench.pretrain(arm, steps=5, settings={"length": 20}, weights=WEIGHTS)
    bench.pretrain("add", seed=2, finished=False)
    bench.plan()
    folder = bench.store.checkpoints.at_step("here-1", 5)
    shutil.copytree(checkpoints["headless"], folder)
    (folder / "weights.digest").write_text(WEIGHTS[5])
    return bench


def test_an_experiment_is_analysed_by_its_arms_and_names_missing_checkpoints(experiment, text):
    analysis = package.analyse(experiment.path, corpus=text, only=["subspaces"])
    facts = analysis.subjects.iloc[0]
    assert facts["checkpoint"] == "here"
    assert facts["positions"] == 20
    assert analysis.gone[0].startswith("gone; add, seed 2: no checkpoint of its record in")


def test_a_checkpoint_of_another_run_is_gone(experiment, text):
    folder = experiment.store.checkpoints.at_step("here-1", 5)
    (folder / "weights.digest").write_text(digest("of another run"))
    line = "nothing to analyse: here; gone; add, seed 2: no checkpoint of its record"
    with pytest.raises(UserError, match=line):
        package.analyse(experiment.path, corpus=text)


def test_a_tokenizer_that_is_named_and_not_there_is_refused(checkpoints, text):
    with pytest.raises(UserError, match=r"no checkpoint folder './nowhere'"):
        package.analyse(checkpoints["bert"], corpus=text, tokenizer="./nowhere")


def test_bad_input_is_refused_before_the_first_is_measured(checkpoints, text, monkeypatch):
    monkeypatch.setattr("glue_bench.analysis.analyse.ENCODER_MEASURES", {"terms": {"terms": None}})
    with pytest.raises(UserError, match="no checkpoint folder"):
        package.analyse([checkpoints["bert"], "./typo"], corpus=text)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (".", "bert"),
        ("../none/../headless", "headless"),
        ("runs/checkpoints/add-1/step-9", "add-1/step-9"),
    ],
)
def test_labels_of_checkpoints_are_short(checkpoints, monkeypatch, name, label):
    monkeypatch.chdir(checkpoints["bert"])
    assert find_sources([name])[0] == {label: name}


def test_checkpoints_of_one_label_have_their_whole_names():
    sources = {"a/b": "a/b", "c/b": "c/b"}
    assert find_sources(list(sources))[0] == sources
