"""All measures of all kinds of encoders: the keys that others rely on, reasons instead of zeros, and bad input."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers

import glue_bench as package
from glue_bench.analysis import order
from glue_bench.analysis.analyse import Analysis
from glue_bench.analysis.reading import DEFAULT_TEXT, Reading
from glue_bench.analysis.sources import trained_positions
from glue_bench.errors import UserError
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.reporting.analysis_page import analysis_page, write_analysis
from glue_bench.reporting.formats import render_page
from glue_bench.testing import encoder_config, random_model
from glue_bench.training.convert import SENTENCES
from glue_bench.training.corpus import open_corpus
from glue_bench.training.tokenizers import train_tokenizer

POSITIONS = 24
FOUR = ("word_word", "word_position", "position_word", "position_position")
KEYS = (
    *("subspaces.overlap", "subspaces.overlap_random", "subspaces.mean_abs_cosine", "subspaces.mean_abs_cosine_random"),
    *("tables.participation_ratio.words", "tables.participation_ratio.positions"),
    *("decoding.sum.word_accuracy", "decoding.sum.position_accuracy", "decoding.sum.position_mae"),
    "decoding.random.position_accuracy",
    *(f"terms.share.{term}" for term in FOUR),
    "order.swap.1",
)
SMALL = {
    **{f"decoding.{name}": small for name, small in {"PAIRS": 200, "FEWER": 100, "TESTS": 200, "SUMS": 200}.items()},
    **{"decoding.DRAWS": 2, "measure_terms.DRAWS": 2, "positions.DRAWS": 2, "positions.PAIRS": 300},
    **{"dimensions.PERMUTATIONS": 100, "dimensions.DRAWS": 50, "subspaces.ROTATIONS": 20, "layers.DRAWS": 2},
    **{"position_scores.DRAWS": 3, "attention.DRAWS": 20, "order.SEQUENCES": 8},
}


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Few draws: what is asked here is not how wide the bands are."""
    for name, value in SMALL.items():
        monkeypatch.setattr(f"glue_bench.analysis.{name}", value)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """A BERT with its head, one of ours of several kinds, and one without a head."""
    folder, tokenizer = tmp_path_factory.mktemp("checkpoints"), train_tokenizer(SENTENCES, 150)
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS}
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    bert = transformers.BertForMaskedLM(transformers.BertConfig(**small, **sizes, initializer_range=0.3))
    models = {"bert": bert, "headless": random_model(EncoderModel, encoder_config("add", **sizes))}
    for variant in ("none", "multiply", "untied", "rotary", "concat-split"):
        models[variant] = random_model(EncoderForMaskedLM, encoder_config(variant, **sizes))
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


def at(numbers, place: str):
    for name in place.split("."):
        numbers = numbers[name]
    return numbers


def test_every_key_is_a_number_or_null_with_a_reason(checkpoints, text):
    found = package.analyse(list(checkpoints.values()), corpus=text)
    numbers = found.document["checkpoints"]
    assert list(numbers) == list(checkpoints)
    null = {name: [key for key in KEYS if at(one, key) is None] for name, one in numbers.items()}
    assert null["bert"] == []
    assert null["headless"] == ["order.swap.1"]
    assert null["concat-split"] == [key for key in KEYS if key.startswith("subspaces")]
    split = numbers["concat-split"]["dimensions"]
    assert (split["spearman"], split["left_out"]) == (None, "words and positions have dimensions of their own")
    assert split["share_95"] > 0
    rises = numbers["bert"]["terms"]["loss_rise_interval"]
    assert all(low <= numbers["bert"]["terms"]["loss_rise"][name] <= high for name, (low, high) in rises.items())
    assert set(rises) == set(FOUR)
    assert "mixed" not in numbers["untied"]["terms"]
    assert "mixed" in numbers["bert"]["terms"]
    for name in ("none", "multiply", "rotary", "segments"):
        assert set(KEYS) - set(null[name]) == {"order.swap.1"}
    assert set(KEYS) - set(null["untied"]) == {"terms.share.word_word", "terms.share.position_position", "order.swap.1"}
    for name, keys in null.items():
        for key in keys:
            assert at(numbers[name], key.rpartition(".")[0])["left_out"], (name, key)
    assert "no masked-LM head" in numbers["headless"]["order"]["swap"]["left_out"]
    assert numbers["none"]["order"]["swap"]["1"] == 0.5
    assert numbers["bert"]["terms"]["sum_error"] < 1e-5
    assert sum(numbers["bert"]["terms"]["share"].values()) == pytest.approx(1, abs=1e-4)
    check_frames(found)


def check_frames(found: Analysis) -> None:
    assert all(frame.columns[0] == "checkpoint" and len(frame) for frame in found.frames.values())
    layers = found.frames["decoding"].query("checkpoint == 'bert' and what == 'word'")["layer"].tolist()
    assert layers == ["sum", "norm", "0", "1", "2"]
    shares = found.frames["terms_share"]
    assert shares.groupby(["checkpoint", "block", "head"])["share"].sum().to_numpy() == pytest.approx(1, abs=1e-4)
    assert set(shares.query("checkpoint == 'untied'")["block"]) == {1, 2}
    assert set(shares.query("checkpoint == 'bert'")["block"]) == {1}
    assert "rotary" not in set(shares["checkpoint"])


def test_the_same_input_gives_the_same_bytes(checkpoints, text, tmp_path):
    for folder in ("first", "second"):
        found = package.analyse(checkpoints["bert"], corpus=text, only=["terms", "subspaces", "dimensions"])
        write_analysis(found.document, found.frames, tmp_path / folder)
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert {"analysis.json", "analysis.md", "terms.csv", "terms_share.csv", "subspace_curve.csv"} <= set(files)
    for name in files:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name


def test_layers_positions_and_sequences_are_those_that_are_asked_for(checkpoints, text):
    found = package.analyse([checkpoints["untied"]], corpus=text, only=["terms"], layers=[2], positions=12, sequences=9)
    numbers = found.document["checkpoints"]["untied"]
    assert (numbers["positions"], numbers["terms"]["block"], numbers["terms"]["sequences"]) == (12, 2, 9)
    assert set(found.frames["terms_share"]["block"]) == {2}
    assert found.frames["layers"]["layer"].unique().tolist() == [0, 2]


def test_the_default_text_has_512_sequences_and_a_source():
    tokenizer = train_tokenizer(SENTENCES, 8_000)
    tokenizer.model_max_length = 512
    reading = Reading.of(open_corpus([str(DEFAULT_TEXT)]), tokenizer, 128, 512)
    assert reading.ids.shape == (512, 128)
    assert (reading.ids[:, 0] == tokenizer.cls_token_id).all()
    assert (reading.ids[:, -1] == tokenizer.sep_token_id).all()
    assert 250_000 < DEFAULT_TEXT.stat().st_size < 350_000
    assert "William Morris" in (DEFAULT_TEXT.parent / "README.md").read_text()


def test_a_text_that_is_too_short_leaves_the_measures_of_tables(checkpoints, tmp_path):
    (tmp_path / "short.txt").write_text(SENTENCES[0])
    found = package.analyse(checkpoints["bert"], corpus=tmp_path / "short.txt", only=["terms", "subspaces"])
    numbers = found.document["checkpoints"]["bert"]
    assert numbers["subspaces"]["overlap"] > 0
    assert "give more text" in numbers["terms"]["share"]["left_out"]


def test_an_experiment_is_analysed_by_its_arms_and_says_which_are_gone(checkpoints, text, tmp_path):
    pretrainings = [{"pretraining_id": f"{arm}-0", "arm": arm, "seed": 1} for arm in ("here", "gone")]
    plan = {"schema_version": 1, "pretrainings": pretrainings, "cells": []}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    kept = tmp_path / "checkpoints" / "here-0"
    kept.mkdir(parents=True)
    (kept / "identity.json").write_text(json.dumps({"settings": {"length": 20}}))
    (kept / "step-5").symlink_to(checkpoints["headless"])
    found = package.analyse(tmp_path, corpus=text, only=["subspaces"])
    assert list(found.document["checkpoints"]) == ["here"]
    assert found.document["checkpoints"]["here"]["positions"] == 20
    assert len(found.gone) == 1
    assert found.gone[0].startswith("gone: no checkpoint in")
    many = [{"pretraining_id": f"add-{seed}", "arm": "add", "seed": seed} for seed in range(1, 9)]
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "pretrainings": [*pretrainings, *many]}))
    assert package.analyse(tmp_path, corpus=text, only=["subspaces"]).gone[0].startswith("gone; add; add, seed 2; add")
    assert "seed 4 and 4 more: no checkpoint in" in package.analyse(tmp_path, corpus=text, only=["subspaces"]).gone[0]
    newer = {"pretraining_id": "here-1", "arm": "here", "seed": 1}
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "pretrainings": [*pretrainings, newer]}))
    found = package.analyse(tmp_path, corpus=text, only=["subspaces"])
    assert list(found.document["checkpoints"]) == ["here"]  # what the newer version has yet to train hides nothing
    newest = shutil.copytree(kept, tmp_path / "checkpoints" / "here-1", symlinks=True)
    found = package.analyse(tmp_path, corpus=text, only=["subspaces"])
    assert list(found.document["checkpoints"]) == ["here"]  # one of the two, as tables have one row
    shutil.rmtree(newest)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (kept / "step-5").unlink()
    with pytest.raises(UserError, match="nothing to analyse: here; gone: no checkpoint in"):
        package.analyse(tmp_path, corpus=text)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"only": ["term"]}, "unknown measure 'term'; did you mean 'terms'"),
        ({"layers": [3]}, "--layers 3: this encoder has blocks 1 to 2"),
        ({"corpus": "nowhere.txt"}, "does not exist"),
        ({"positions": 2}, "--positions 2: too few to measure anything; give 8 or more"),
        ({"sequences": 4}, "--sequences 4: too few"),
        ({"sequences": -1}, "--sequences -1: too few"),
    ],
)
def test_bad_input_is_one_line(given, said, checkpoints, text):
    with pytest.raises(UserError, match=said) as raised:
        package.analyse(checkpoints["bert"], **{"corpus": text, "only": ["subspaces"]} | given)
    assert len(str(raised.value).splitlines()) == 1


def test_a_second_name_that_stands_for_nothing_is_refused_before_the_first_is_measured(checkpoints, text, monkeypatch):
    monkeypatch.setattr("glue_bench.analysis.analyse._measured", None)
    with pytest.raises(UserError, match="no checkpoint folder"):
        package.analyse([checkpoints["bert"], "./typo"], corpus=text, only=["subspaces"])


def test_the_folder_that_one_stands_in_has_its_name(checkpoints, text, monkeypatch):
    monkeypatch.chdir(checkpoints["bert"])
    for name in (".", "../headless/.."):
        assert trained_positions(name) is None
    assert list(package.analyse(".", corpus=text, only=["subspaces"]).document["checkpoints"]) == ["bert"]


def test_where_one_sequence_alone_has_two_words_to_swap_there_is_a_page_without_an_interval(
    checkpoints, text, monkeypatch
):
    real = order.intrinsic_sums

    def of_one(*given):
        found = real(*given)
        found["swap_1"].counts[1:] = 0
        del found["swap_2"]
        return found

    monkeypatch.setattr(order, "intrinsic_sums", of_one)
    found = package.analyse(checkpoints["bert"], corpus=text, only=["order"])
    numbers = found.document["checkpoints"]["bert"]["order"]
    assert "1" not in numbers["swap_interval"]
    assert len(numbers["swap_interval"]["4"]) == 2
    assert numbers["swap"]["2"] is None
    assert "no two words to swap at a distance of 2" in numbers["swap"]["left_out"]
    assert "order.swap (the text has no two words" in render_page(analysis_page(found.document))
    numbers["swap_interval"]["1"] = [None, None]  # as an older analysis has it
    assert "How much does the model use the order" in render_page(analysis_page(found.document))
