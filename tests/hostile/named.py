"""Inputs that once were taken badly: how each is made, the verb that is called on it, and what is to be said of it."""

import copy
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from inputs import Call, signed
from worlds import EXPERIMENT, World

Case = tuple[Callable[[World], Call], str]
"""How the input is made, and what is said: a part of it."""
CASES: dict[str, Case] = {}


def case(name: str, says: str) -> Callable[[Callable[[World], Call]], Callable[[World], Call]]:
    def add(make: Callable[[World], Call]) -> Callable[[World], Call]:
        CASES[name] = make, says
        return make

    return add


# Zips for the GLUE site


def _check(world: World, content: bytes) -> Call:
    world.clear()
    (world.place / "s.zip").write_bytes(content)
    return ["submit", "--check", world.place / "s.zip"], []


@case("a zip of 30 entries of 16 MiB", "AX.tsv: more than 8388608 bytes when unpacked")
def _many_large(world: World) -> Call:
    from glue_bench.data.submission import FILES

    return _check(world, _zipped(dict.fromkeys([*FILES, *map(str, range(19))], bytes(16 * 2**20))))


@case("a head that understates its size", "AX.tsv: cannot be unpacked (Bad CRC-32")
def _understated(world: World) -> Call:
    content = _zipped({"AX.tsv": bytes(300 * 2**20)})
    at = content.index(b"PK\x01\x02") + 24  # the size, in the central directory
    return _check(world, content[:at] + struct.pack("<I", 10) + content[at + 4 :])


@case("a zip of names alone", "entries; expected the eleven files")
def _names_alone(world: World) -> Call:
    return _check(world, _list_of_names(2**24 - 100))


def _list_of_names(size: int) -> bytes:
    """A zip of about so many bytes that has entries' names, and nothing else."""
    head = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 3, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    count = size // len(head)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, count * len(head), 0, 0)
    return head * count + end


@case("a file of eight million lines", "AX.tsv: 8388608 lines; expected 1105")
def _lines_alone(world: World) -> Call:
    return _check(world, _zipped({"AX.tsv": b"\n" * 2**23}))


@case("digits without end", "is no prediction; expected a number from 0 to 5")
def _digits(world: World) -> Call:
    return _check(world, _zipped({"STS-B.tsv": b"index\tprediction\n0\t" + b"1" * 2**22 + b"x\n"}))


def _zipped(entries: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


# Results


def _results(verb: str, spoil: Callable[[Path], Any]) -> Callable[[World], Call]:
    def make(world: World) -> Call:
        folder = world.fresh("runs")
        spoil(folder)
        more = ["-o", world.place / "out.zip"] if verb == "export" else []
        return [verb, folder, *more], [world.place]

    return make


def _first(folder: Path, kind: str = "records") -> Path:
    return sorted((folder / kind).glob("*.json"))[0]


def _looped(folder: Path) -> None:
    path = _first(folder)
    path.unlink()
    path.symlink_to(path.name)


def _piped(folder: Path) -> None:
    path = _first(folder)
    path.unlink()
    os.mkfifo(path)
    os.mkfifo(folder / "more.md")
    (folder / "claims").mkdir(exist_ok=True)
    os.mkfifo(folder / "claims" / "x")


def _edited(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        record = json.loads(_first(folder).read_bytes()) | changes
        signed(record)
        _first(folder).write_text(json.dumps(record))

    return edit


FOLDERS: dict[str, Callable[[Path], Any]] = {
    "nested 100,000 deep": lambda folder: _first(folder).write_text("[" * 100_000),
    "null": lambda folder: _first(folder).write_text("null"),
    "a loop of links": _looped,
    "pipes": _piped,
    "seconds that are text": _edited(seconds="x"),
    "a number without end": lambda folder: _first(folder).write_text('{"schema_version": ' + "1" * 5000 + "}"),
    "a record of ten million values": lambda folder: _first(folder).write_text("[" + "{}," * 10**7 + "0]"),
    "a record of 50 GiB": lambda folder: os.truncate(_first(folder), 50 * 2**30),
}
SAYS = {
    "verify": "fault: ",
    "leaderboard": "1 of 8 planned runs",
    "status": "cells done",
    "statistics": "",
    "export": "",
}
for _verb, _said in SAYS.items():
    for _name, _spoil in FOLDERS.items():
        CASES[f"{_verb}: {_name}"] = _results(_verb, _spoil), _said


@case("a plan that leads to other folders", "plan.json: edited since the run wrote it")
def _leading_out(world: World) -> Call:
    folder = world.fresh("runs")
    plan = json.loads((folder / "plan.json").read_bytes())
    plan["cells"][0]["cell_id"] = "../../../../etc/passwd"
    (folder / "plan.json").write_text(json.dumps(plan))
    return ["status", folder], []


@case("a bundle with more folders, signed anew", "small/more/\\x1b[31m.json: cannot be read (a bundle has no file")
def _more_folders(world: World) -> Call:
    from glue_bench.audit.bundle import summed

    path = world.fresh("bundle")
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(entries.pop("manifest.json"))
    entries |= {"small/more/\x1b[31m.json": b"{}", "\x1b]0;x\x07/plan.json": b"{}"}
    manifest["files"] = {name: summed(content) for name, content in entries.items()}
    signed(manifest)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (entries | {"manifest.json": json.dumps(manifest).encode()}).items():
            archive.writestr(name, content)
    return ["verify", path], []


@case("a bundle of a million names", "bytes, at most 16777216 are read at once)")
def _long_list(world: World) -> Call:
    world.clear()
    (world.place / "bundle.zip").write_bytes(_list_of_names(47 * 10**6))
    return ["verify", world.place / "bundle.zip"], []


@case("a bundle that is a pipe", "cannot unpack")
def _piped_bundle(world: World) -> Call:
    world.clear()
    os.mkfifo(world.place / "bundle.zip")
    return ["verify", world.place / "bundle.zip"], []


# Checkpoints


def _checkpoint(**changes: Any) -> Callable[[World], Call]:
    def make(world: World) -> Call:
        folder = world.fresh("own" if "own" in changes else "bert")
        config = json.loads((folder / "config.json").read_bytes()) | changes
        (folder / "config.json").write_text(json.dumps(config))
        return ["convert", folder, world.place / "out", "--variant", "none"], [world.place]

    return make


for _key, _value in {
    "num_attention_heads": 0,
    "hidden_size": -8,
    "vocab_size": 10**11,
    "max_position_embeddings": 10**9,
    "num_hidden_layers": 10**7,
    "hidden_dropout_prob": 5,
    "layer_norm_eps": "x",
}.items():
    for _own in ({}, {"own": True}):
        _where = "our own" if _own else "BERT's"
        CASES[f"{_where} {_key} of {_value}"] = _checkpoint(**{_key: _value}, **_own), "config.json does not fit"


CASES["our own origin that is a list"] = _checkpoint(origin=[1], own=True), "config.json does not fit"


def _odd_file(name: str, make: Callable[[Path], Any]) -> Callable[[World], Call]:
    def spoil(world: World) -> Call:
        folder = world.fresh("bert")
        (folder / name).unlink()
        make(folder / name)
        return ["convert", folder, world.place / "out", "--variant", "none"], [world.place]

    return spoil


CASES["a config that is a pipe"] = _odd_file("config.json", os.mkfifo), "config.json': not a plain file"
CASES["a config that is a loop"] = _odd_file("config.json", lambda path: path.symlink_to(path.name)), "Too many levels"
CASES["a deep config"] = _odd_file("config.json", lambda path: path.write_text("[" * 100_000)), "not valid JSON"
CASES["weights that are a pipe"] = _odd_file("model.safetensors", os.mkfifo), "not a plain file"
CASES["weights without end"] = _odd_file("model.safetensors", lambda path: path.symlink_to("/dev/zero")), "not a plain"


@case("a tokenizer's id of 10^9", "has ids beyond 10,000,000")
def _large_id(world: World) -> Call:
    path = world.fresh("bert") / "tokenizer.json"
    tokenizer = json.loads(path.read_bytes())
    tokenizer["model"]["vocab"]["cat"] = 10**9
    path.write_text(json.dumps(tokenizer))
    return ["convert", path.parent, world.place / "out", "--variant", "none", "--tokenizer", path.parent], [world.place]


# Progress


def _progress(make: Callable[[Path], Any]) -> Callable[[World], Call]:
    def spoil(world: World) -> Call:
        path = next((world.fresh("runs") / "progress").iterdir())
        path.unlink()
        make(path)
        return ["status", path.parents[1]], []

    return spoil


RUNNING = "running: pretraining add-1.json ("
CASES["progress that is a pipe"] = _progress(os.mkfifo), RUNNING
for _value in ("a", "[" * 100_000, '{"step": "a", "steps": 2, "loss": 1.0, "seconds_left": null}'):
    CASES[f"progress of {_value[:12]}"] = _progress(lambda path, text=_value: path.write_text(text)), RUNNING


# Data


def _data(task: str, spoil: Callable[[Path], Any]) -> Callable[[World], Call]:
    def make(world: World) -> Call:
        spoil(world.fresh("glue") / task / "train.tsv")
        tree = {key: value for key, value in EXPERIMENT.items() if key not in ("pretraining", "protocol")}
        tree |= {"data": str(world.place / "glue"), "checkpoint": "scratch", "tasks": [task.lower()]}
        return _run(world, yaml.safe_dump(tree))

    return make


def _run(world: World, text: str) -> Call:
    (world.place / "experiment.yaml").write_text(text)
    return ["run", world.place / "experiment.yaml", "--dry-run", "--results", world.place / "runs"], []


def _rows(header: str, row: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(f"{header}\n{row}\n")


RTE = "index\tsentence1\tsentence2\tlabel"
CASES |= {
    "a column that stands twice": (
        _data("RTE", _rows(RTE.replace("index", "sentence1"), "0\ta\tb\tentailment")),
        "line 1: 2 columns are called 'sentence1'; expected one",
    ),
    "no train split, from scratch": (_data("RTE", os.unlink), "task 'rte' has no train split"),
    "a label of 900 KB": (_data("RTE", _rows(RTE, "0\ta\tb\t" + "y" * 900_000)), "bad label 'yyyyy"),
    "a word of 20 MB": (_data("RTE", _rows(RTE, f"0\t{'w' * 20_000_000}\tb\tentailment")), "more than 1,000,000 char"),
}


# Experiments


def _text(text: str) -> Callable[[World], Call]:
    def make(world: World) -> Call:
        world.clear()
        return _run(world, text)

    return make


def _changed(**changes: Any) -> Callable[[World], Call]:
    tree = copy.deepcopy(EXPERIMENT)
    for place, value in changes.items():
        section, _, key = place.rpartition("__")
        (tree[section] if section else tree)[key] = value
    return _text(yaml.safe_dump(tree))


LAUGHS = "\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))])
CASES |= {
    "YAML 5,000 deep": (_text("[" * 5000), "nested too deeply"),
    "YAML within itself": (_text("a: &a [*a]"), "nested too deeply"),
    "a billion laughs": (_text(LAUGHS), "more than 10,000 values"),
    "a vocabulary of 10^11": (_changed(scratch__vocab_size=10**11), "scratch.vocab_size: input should be less than"),
    "epochs of 10^24": (_changed(finetuning__epochs=10**24), "is too large a number"),
    "a trillion parameters": (_changed(scratch__hidden_size=2**14, scratch__num_hidden_layers=256), "1e+10 parameters"),
    "120,000 cells": (
        _changed(seeds=list(range(5000)), finetuning__learning_rates=[1e-5, 2e-5, 3e-5, 4e-5, 5e-5, 6e-5]),
        "120,000 cells, but at most 50,000",
    ),
    "an arm's name of 215 characters": (_changed(arms=[{"name": "a" * 215, "variant": "add"}]), "at most 100 char"),
    "an experiment's name of 215 characters": (_changed(name="a" * 215), "at most 100 characters"),
    "data nowhere": (_changed(data=""), "data: string should have at least 1 character"),
    "a tokenizer nowhere": (_changed(pretraining__tokenizer=""), "pretraining.tokenizer: string should have at least"),
    "a key of control characters": (_text("'\\e[31m': 1"), "error: "),
    "a name with a line break": (_text('name: "a\\nb"'), "has characters that cannot be printed"),
    "a file of 10 MB": (_text("#" * 10_000_000), "it has 10000000 bytes, expected 131072 at most"),
    "a key of another section": (_changed(epochs=3), "unknown key 'epochs'; it belongs to finetuning"),
    "a key at the top": (_changed(tokeniser="x"), "did you mean 'tokenizer'?"),
    "a short key": (_changed(pretraining__learning_rat=1e-3), "did you mean 'learning_rate'?"),
}
