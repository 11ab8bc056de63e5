"""Whatever comes from outside, a verb ends as documented, says it in one line, and harms nothing.

Every odd file, text and number in the place of every kind of input, and generated inputs: some in the default suite,
the same ones each time; thousands under `-m slow`, others each time.
"""

import argparse
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from random import Random
from secrets import randbits

import pytest
import tiny_runs
from hostile_inputs import (
    CALLS,
    EXPERIMENT,
    GENERATORS,
    JSON_TEXTS,
    ODD_FILES,
    READERS,
    YAML_TEXTS,
    World,
    checked,
    named,
    names_alone,
    signed,
    zipped,
)
from hostile_oracle import complaints
from tiny_models import TUPE_ARGS, tupe_shapes

FEW, MANY = 8, 1000


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    base, here = tmp_path_factory.mktemp("hostile"), Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.setenv(name, "1")
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        for name in ("HOME", "TMPDIR"):
            (base / name).mkdir()
            patch.setenv(name, str(base / name))
        patch.setattr("tempfile.tempdir", None)
        patch.setattr("sys.dont_write_bytecode", True)
        import matplotlib.font_manager  # noqa: F401 (which writes a list of fonts, once for each home)

        made = _made(base)
        for words in (checked(made), ["convert", made.bert, made.place / "c", "--variant", "add"]):
            assert not complaints(words, made.place)  # the first ones import torch and transformers
        yield made
        os.chdir(here)
    tempfile.tempdir = None


def _made(base: Path) -> World:
    """A finished experiment, its bundle and submission, checkpoints of three layouts, and data."""
    import glue_bench

    runs = tiny_runs.run(EXPERIMENT, base / "results")
    record = next(runs.glob("cells/*/record.json")).read_bytes()
    assert signed(json.loads(record)) == record, "the package signs in another way: change `signed`"
    glue_bench.export(runs, base / "bundle.zip")
    glue_bench.submit(runs, base / "submission.zip", arm="add", fill=True)
    own = next(runs.glob("checkpoints/add-*/step-4"))
    names = ("bundle.zip", "submission.zip", "bert", "own", "tupe.pt", "glue")
    world = World(base / "work", runs, *(base / name for name in names))
    shutil.copytree(own, world.own)
    _write_others(world, own)
    shutil.copytree(tiny_runs.glue(), world.glue)
    (world.glue / "RTE").mkdir()
    for split in ("train", "dev"):
        rows = [
            f"{row}\tthe cat\ta dog {row}\t{label}" for row, label in enumerate(["entailment", "not_entailment"] * 9)
        ]
        (world.glue / "RTE" / f"{split}.tsv").write_text(
            "\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n"
        )
    world.fresh()
    return world


def _write_others(world: World, tokenizer: Path) -> None:
    """BERT's own layout and TUPE's, of these sizes."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    words = len(json.loads((tokenizer / "tokenizer.json").read_bytes())["model"]["vocab"])
    BertForMaskedLM(BertConfig(vocab_size=words, **tiny_runs.SIZES, max_position_embeddings=32)).save_pretrained(
        world.bert
    )
    for path in tokenizer.glob("tokenizer*"):
        shutil.copy(path, world.bert)
    model = {key: torch.zeros(shape) for key, shape in tupe_shapes().items()}
    torch.save({"args": argparse.Namespace(**TUPE_ARGS), "model": model}, world.tupe)


def convert(folder: Path) -> list[object]:
    return ["convert", folder, folder.parent / "out", "--variant", "none"]


RECORD = "cells/*/record.json"
PLACES = {
    **{f"a record, {verb}": ("runs", RECORD, [verb, ..., *READERS[verb]]) for verb in ("leaderboard", "verify")},
    "a pretraining, verify": ("runs", "pretrainings/*/record.json", ["verify", ...]),
    "predictions, verify": ("runs", "cells/*/logits.safetensors", ["verify", ...]),
    "a plan": ("runs", "plan.json", ["status", ...]),
    "gold labels": ("runs", "labels/*", ["export", ..., "-o", "out.zip"]),
    "BERT's config": ("bert", "config.json", None),
    "BERT's weights": ("bert", "model.safetensors", None),
    "our config": ("own", "config.json", None),
    "a tokenizer": ("bert", "tokenizer.json", None),
    "a TUPE file": ("tupe", "", None),
    "a bundle": ("bundle", "", ["verify", ...]),
    "a submission": ("submission", "", ["submit", "--check", ...]),
    "a table": ("glue", "RTE/train.tsv", ["data", ...]),
    "an experiment": ("glue", "RTE/dev.tsv", ["run", ...]),
}
"""By the kind of a file: what it is part of, where it lies there, and the verb that reads it (None: convert)."""


def put(world: World, place: str, write) -> list[object]:
    """Write something in the place of a file; the words that read it."""
    kind, pattern, words = PLACES[place]
    whole = world.fresh(kind)
    path = min(whole.glob(pattern)) if pattern else whole
    path.unlink()
    write(path)
    given = path if words and words[0] == "run" else whole
    return [given if word is ... else word for word in words] if words else convert(whole)


def yaml_text(world: World, text: str) -> list[object]:
    path = world.fresh() / "experiment.yaml"
    path.write_text(text)
    return ["run", path, "--dry-run", "--results", world.place / "runs"]


CONFIG = {
    **{"num_attention_heads": 0, "hidden_size": -8, "vocab_size": 10**11, "max_position_embeddings": 10**9},
    **{"num_hidden_layers": 10**7, "hidden_dropout_prob": 5, "layer_norm_eps": "x", "origin": [1], "pad_token_id": -1},
}


def config(world: World, kind: str, key: str) -> list[object]:
    """A checkpoint whose config has an impossible value."""
    path = world.fresh(kind) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {key: CONFIG[key]}))
    return convert(path.parent)


def tokenizer(world: World) -> list[object]:
    """One with an id beyond memory."""
    path = world.fresh("bert") / "tokenizer.json"
    path.write_text(re.sub(r'("cat": )\d+', rf"\g<1>{10**9}", path.read_text()))
    return [*convert(path.parent), "--tokenizer", path.parent]


def long_word(world: World, size: int) -> list[object]:
    folder = world.fresh("glue")
    (folder / "RTE" / "train.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n0\t{'w' * size}\tb\tentailment\n")
    return checked(world, data=str(folder), tasks=["rte"])


def way_out(world: World, verb: str) -> list[object]:
    """A plan with an id that leads out of the folder."""
    folder = world.fresh("runs")
    plan = json.loads((folder / "plan.json").read_bytes())
    plan["cells"][0]["id"] = "../../../etc/passwd"
    (folder / "plan.json").write_bytes(signed(plan))
    return [verb, folder, *READERS[verb]]


ZIPS = {
    "an entry of 400 MiB": lambda: zipped({"AX.tsv": bytes(400 * 2**20)}),
    "a manifest of 65 MiB": lambda: zipped({"manifest.json": b" " * 65 * 2**20}),
    "a million names": lambda: names_alone(47 * 10**6),
    "eight million lines": lambda: zipped({"AX.tsv": b"\n" * 2**23}),
    "digits without end": lambda: zipped({"STS-B.tsv": b"index\tprediction\n0\t" + b"1" * 2**22 + b"x\n"}),
    "ways out": lambda: zipped({"../../up.tsv": b"x", "/etc/passwd": b"x", "a\x1b[2J/plan.json": b"{}"}),
}
NAMED = "\x1b[2Jtwo\nlines" + "x" * 300
CASES = {
    **{("no file", place, odd): (put, place, ODD_FILES[odd]) for place in PLACES for odd in ODD_FILES},
    **{
        ("JSON", place, number): (put, place, lambda path, text=text: path.write_text(text))
        for place in ("a record, verify", "a plan", "our config", "a tokenizer")
        for number, text in enumerate(JSON_TEXTS)
    },
    **{
        ("zip", place, name): (put, place, lambda path, made=made: path.write_bytes(made()))
        for place in ("a bundle", "a submission")
        for name, made in ZIPS.items()
    },
    **{("YAML", number): (yaml_text, text) for number, text in enumerate(YAML_TEXTS)},
    **{("config", kind, key): (config, kind, key) for kind in ("bert", "own") for key in CONFIG},
    **{("name", *call): (named, call, NAMED) for call in CALLS},
    **{("long word", size): (long_word, size) for size in (2**20, 2 * 10**7)},
    **{("way out", verb): (way_out, verb) for verb in READERS},
    ("tokenizer",): (tokenizer,),
}
"""What makes an input, and gives the words that read it."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_whatever_it_is_a_verb_takes_it_well(world, case):
    make, *given = CASES[case]
    assert not complaints(make(world, *given), world.place)


@pytest.mark.parametrize("number", range(FEW))
@pytest.mark.parametrize("kind", GENERATORS)
def test_no_input_harms_hangs_or_confuses(world, kind, number):
    assert not complaints(GENERATORS[kind](world, Random(f"{kind} {number}")), world.place)


@pytest.mark.slow
@pytest.mark.parametrize("kind", GENERATORS)
def test_none_of_a_thousand_does(world, kind):
    base = randbits(64)
    tried = (f"{base} {number}" for number in range(MANY))
    found = {seed: complaints(GENERATORS[kind](world, Random(seed)), world.place) for seed in tried}
    assert not [f"{seed}: {said}" for seed, said in found.items() if said]
