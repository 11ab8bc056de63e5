"""Whatever comes from outside, a verb ends as documented, says it in one line, and harms nothing.

Every odd file, text and number in the place of every kind of input, and generated inputs: some in the default suite,
the same ones each time; thousands under `-m slow`, others each time.
"""

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
from hostile import (
    CALLS,
    EXPERIMENT,
    GENERATORS,
    JSON_TEXTS,
    ODD_FILES,
    READERS,
    YAML_TEXTS,
    checked,
    complaints,
    fresh,
    named,
    names_alone,
    signed,
    zipped,
)
from tiny_models import save_tupe

FEW, MANY = 8, 1000


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a finished experiment, its bundle and submission, checkpoints of three layouts, and data."""
    import glue_bench

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

        runs = tiny_runs.run(EXPERIMENT, base)
        record = next(runs.glob("cells/*/record.json")).read_bytes()
        assert signed(json.loads(record)) == record, "the package signs in another way: change `signed`"
        glue_bench.export(runs, base / "bundle.zip")
        glue_bench.submit(runs, base / "submission.zip", arm="add", fill=True)
        shutil.copytree(next(runs.glob("checkpoints/add-*/step-4")), base / "own")
        write_bert(base)
        save_tupe(base / "tupe.pt")
        rows = [f"{row}\tthe cat\ta dog {row}\t{('not_', '')[row % 2]}entailment\n" for row in range(18)]
        shutil.copytree(tiny_runs.glue(), base / "glue")
        (base / "glue" / "RTE").mkdir()
        for split in ("train", "dev"):
            text = "index\tsentence1\tsentence2\tlabel\n" + "".join(rows)
            (base / "glue" / "RTE" / f"{split}.tsv").write_text(text)
        glue_bench.convert(str(base / "bert"), base / "first", "add")  # which imports torch and transformers
        yield base
        os.chdir(here)
    tempfile.tempdir = None


def write_bert(base: Path) -> None:
    """A checkpoint in BERT's own layout, with the tokenizer of `own`."""
    from transformers import BertConfig, BertForMaskedLM

    words = len(json.loads((base / "own" / "tokenizer.json").read_bytes())["model"]["vocab"])
    config = BertConfig(vocab_size=words, **tiny_runs.SIZES, max_position_embeddings=32)
    BertForMaskedLM(config).save_pretrained(base / "bert")
    for path in (base / "own").glob("tokenizer*"):
        shutil.copy(path, base / "bert")


def convert(folder: Path) -> list[object]:
    return ["convert", folder, folder.parent / "out", "--variant", "none"]


RECORD = "cells/*/record.json"
PLACES = {
    **{f"a record, {verb}": ("tiny", RECORD, [verb, ..., *READERS[verb]]) for verb in ("leaderboard", "verify")},
    "a pretraining, verify": ("tiny", "pretrainings/*/record.json", ["verify", ...]),
    "predictions, verify": ("tiny", "cells/*/logits.safetensors", ["verify", ...]),
    "a plan": ("tiny", "plan.json", ["status", ...]),
    "gold labels": ("tiny", "labels/*", ["export", ..., "-o", "out.zip"]),
    "BERT's config": ("bert", "config.json", None),
    "BERT's weights": ("bert", "model.safetensors", None),
    "our config": ("own", "config.json", None),
    "a tokenizer": ("bert", "tokenizer.json", None),
    "a TUPE file": ("tupe.pt", "", None),
    "a bundle": ("bundle.zip", "", ["verify", ...]),
    "a submission": ("submission.zip", "", ["submit", "--check", ...]),
    "a table": ("glue", "RTE/train.tsv", ["data", ...]),
    "an experiment": ("glue", "RTE/dev.tsv", ["run", ...]),
}
"""By the kind of a file: what it is part of, where it lies there, and the verb that reads it (None: convert)."""


def put(world, place: str, write) -> list[object]:
    """Write something in the place of a file; the words that read it."""
    kind, pattern, words = PLACES[place]
    whole = fresh(world, kind)
    path = min(whole.glob(pattern)) if pattern else whole
    path.unlink()
    write(path)
    given = path if words and words[0] == "run" else whole
    return [given if word is ... else word for word in words] if words else convert(whole)


def yaml_text(world, text: str) -> list[object]:
    (fresh(world) / "experiment.yaml").write_text(text)
    return ["run", "experiment.yaml", "--dry-run", "--results", "runs"]


CONFIG = {
    **{"num_attention_heads": 0, "hidden_size": -8, "vocab_size": 10**11, "max_position_embeddings": 10**9},
    **{"num_hidden_layers": 10**7, "hidden_dropout_prob": 5, "layer_norm_eps": "x", "origin": [1], "pad_token_id": -1},
}


def config(world, kind: str, key: str) -> list[object]:
    """A checkpoint whose config has an impossible value."""
    path = fresh(world, kind) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {key: CONFIG[key]}))
    return convert(path.parent)


def tokenizer(world) -> list[object]:
    """One with an id beyond memory."""
    path = fresh(world, "bert") / "tokenizer.json"
    path.write_text(re.sub(r'("cat": )\d+', rf"\g<1>{10**9}", path.read_text()))
    return [*convert(path.parent), "--tokenizer", path.parent]


def long_word(world, size: int) -> list[object]:
    folder = fresh(world, "glue")
    (folder / "RTE" / "train.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n0\t{'w' * size}\tb\tentailment\n")
    return checked(data=str(folder), tasks=["rte"])


def way_out(world, verb: str) -> list[object]:
    """A plan with an id that leads out of the folder."""
    folder = fresh(world, "tiny")
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
    **{("name", call.strip()): (named, call, NAMED) for call in CALLS},
    **{("long word", size): (long_word, size) for size in (2**20, 2 * 10**7)},
    **{("way out", verb): (way_out, verb) for verb in READERS},
    ("tokenizer",): (tokenizer,),
}
"""What makes an input, and gives the words that read it."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case)))
def test_whatever_it_is_a_verb_takes_it_well(world, case, capfd):
    make, *given = CASES[case]
    assert not complaints(capfd, world, make(world, *given))


@pytest.mark.parametrize("number", range(FEW))
@pytest.mark.parametrize("kind", GENERATORS)
def test_no_input_harms_hangs_or_confuses(world, kind, number, capfd):
    assert not complaints(capfd, world, GENERATORS[kind](world, Random(f"{kind} {number}")))


@pytest.mark.slow
@pytest.mark.parametrize("kind", GENERATORS)
def test_none_of_a_thousand_does(world, kind, capfd):
    base = randbits(64)
    tried = (f"{base} {number}" for number in range(MANY))
    found = {seed: complaints(capfd, world, GENERATORS[kind](world, Random(seed))) for seed in tried}
    assert not [f"{seed}: {said}" for seed, said in found.items() if said]
