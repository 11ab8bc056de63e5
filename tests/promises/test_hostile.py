"""Whatever comes from outside, a verb ends as documented, says it in one line, and harms nothing.

Every odd file, text and number in the place of every kind of input, and generated inputs: some in
the default suite, the same ones each time; thousands under `-m slow`, others each time.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random
from secrets import randbits
from typing import Any

import pytest
from helpers import tiny_runs
from helpers.hostile import (
    JSON_TEXTS,
    NAMES,
    ODD_FILES,
    YAML_TEXTS,
    names_alone,
    signed,
    spoil,
    zipped,
)
from helpers.tiny_models import save_tupe
from helpers.verdict import complaints

FEW, MANY = 6, 1000
HEAD = "index\tsentence1\tsentence2\tlabel\n"
CHECKPOINTS = {"bert": "untied", "own": "untied", "tupe.pt": "untied-relative"}
"""The layouts of checkpoints, and a variant that each can be converted to."""
CALLS = {
    "tiny": [
        "status IT",
        "leaderboard IT",
        "statistics IT",
        "verify IT",
        "card IT --arm add",
        "report IT -o page.html",
        "export IT -o out.zip",
        "submit IT --arm add -o x.zip --fill",
    ],
    "glue": ["data IT", "run ../glue.yaml --dry-run --results runs"],
    "bundle.zip": ["verify IT"],
    "submission.zip": ["submit --check IT"],
    "experiment.yaml": ["run IT --dry-run --results runs"],
}
"""By the kind of an input the calls that read IT."""
for checkpoint, variant in CHECKPOINTS.items():
    CALLS[checkpoint] = [
        f"convert IT out --variant {variant}",
        "analyse IT --only order --sequences 8 -o inside",
        f"run ../{checkpoint}.yaml --dry-run --results runs",
    ]
READ = {kind: {call.split()[0]: call.split() for call in calls} for kind, calls in CALLS.items()}
"""By the kind of an input and by verb the words of a call."""


def experiments_of(base: Path) -> dict[str, dict[str, Any]]:
    """Return by file name the experiments that are run: the one that makes results, and one per
    kind of input.
    """
    work = base / "work"
    second_arm = {"name": "other", "variant": "untied", "options": {"segments": "scores"}}

    experiments = {
        "experiment": tiny_runs.experiment(
            arms=["add", second_arm],
            seeds=[1, 2],
            protocol={"contrasts": [["other", "add"]]},
            finetuning={"predict": ["validation", "test"], "tasks": {"rte": {"epochs": 2}}},
        ),
        "glue": tiny_runs.experiment(
            pretraining=None,
            data=str(work / "glue"),
            tasks=["rte", "stsb"],
            limit=None,
            checkpoint="scratch",
        ),
    }

    for kind, variant in CHECKPOINTS.items():
        experiments[kind] = tiny_runs.experiment(
            pretraining=None,
            finetuning={"max_length": 16},
            checkpoint=str(work / kind),
            tokenizer=str(base / "own"),
            arms=[variant],
            scratch=None,
        )

    return experiments


def make_results(base: Path, experiment: dict[str, Any]) -> None:
    """Run an experiment, and make a bundle, a submission and a checkpoint of it."""
    import glue_bench

    runs = tiny_runs.run(experiment, base)
    record = next(runs.glob("cells/*/record.json")).read_bytes()
    assert signed(json.loads(record)) == record, "the package signs in another way: change `signed`"
    glue_bench.export(runs, base / "bundle.zip")
    glue_bench.submit(runs, base / "submission.zip", arm="add", fill=True)
    shutil.copytree(next(runs.glob("checkpoints/add-*/step-4")), base / "own")


def make_checkpoints(base: Path) -> None:
    """Save a BERT with the tokenizer of our own checkpoint, and a TUPE."""
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = json.loads((base / "own" / "tokenizer.json").read_bytes())
    words = len(tokenizer["model"]["vocab"])
    config = BertConfig(vocab_size=words, **tiny_runs.SIZES, max_position_embeddings=32)
    BertForMaskedLM(config).save_pretrained(base / "bert")
    for path in (base / "own").glob("tokenizer*"):
        shutil.copy(path, base / "bert")
    save_tupe(base / "tupe.pt")


def make_data(base: Path) -> None:
    """Write STS-B and RTE in the classic layout."""
    shutil.copytree(tiny_runs.glue(), base / "glue")
    (base / "glue" / "RTE").mkdir()
    lines = [HEAD]
    for row in range(18):
        label = "entailment" if row % 2 else "not_entailment"
        lines.append(f"{row}\tthe cat\ta dog {row}\t{label}\n")
    for split in ("train", "dev"):
        (base / "glue" / "RTE" / f"{split}.tsv").write_text("".join(lines))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with each kind of input as it should be."""
    import glue_bench

    base = tmp_path_factory.mktemp("hostile")
    started_in = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.setenv(name, "1")
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        for name in ("HOME", "TMPDIR"):
            (base / name).mkdir()
            patch.setenv(name, str(base / name))
        patch.setattr("tempfile.tempdir", None)
        patch.setattr("sys.dont_write_bytecode", True)
        import matplotlib.font_manager  # noqa: F401 (writes a list of fonts, once for each home)

        experiments = experiments_of(base)
        for name, values in experiments.items():
            (base / f"{name}.yaml").write_text(json.dumps(values))
        make_results(base, experiments["experiment"])
        make_checkpoints(base)
        make_data(base)
        # This imports torch and transformers.
        glue_bench.convert(str(base / "bert"), base / "first", "add")
        yield base
        os.chdir(started_in)
    tempfile.tempdir = None


def fresh(world: Path, kind: str) -> Path:
    """Copy an input into the folder for examples, where nothing else is."""
    place = world / "work"
    source = world / kind
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    os.chdir(place)
    if source.is_dir():
        return Path(shutil.copytree(source, place / kind))
    return Path(shutil.copy(source, place / kind))


def words_for(path: Path, verb: str) -> list[object]:
    """Return the words of the call of a verb that reads a copy of an input."""
    return [path if word == "IT" else word for word in READ[path.name][verb]]


Content = str | Callable[[bytes], bytes]
"""What a file holds, or a function that makes this from what it should hold."""
LARGE_AND_ODD: list[Content] = [
    lambda _: zipped({"AX.tsv": bytes(320 * 2**20)}),
    lambda _: zipped({"manifest.json": b" " * 65 * 2**20}),
    lambda _: names_alone(30 * 10**6),
    lambda _: zipped({"AX.tsv": b"\n" * 2**23}),
    lambda _: zipped({"STS-B.tsv": b"index\tprediction\n0\t" + b"1" * 2**22 + b"x\n"}),
    lambda _: zipped({"../../up.tsv": b"x", "/etc/passwd": b"x", "a\x1b[2J/plan.json": b"{}"}),
]
ODD_SETTINGS = {
    "num_attention_heads": 0,
    "hidden_size": -8,
    "vocab_size": 10**11,
    "max_position_embeddings": 10**9,
    "num_hidden_layers": 10**7,
    "hidden_dropout_prob": 5,
    "layer_norm_eps": "x",
    "origin": [1],
    "pad_token_id": -1,
}
"""Values that no config.json should hold."""


def with_setting(key: str, value: object, content: bytes) -> bytes:
    """Return a config.json with one setting changed."""
    return json.dumps(json.loads(content) | {key: value}).encode()


ODD_CONFIGS: list[Content] = [
    partial(with_setting, key, value) for key, value in ODD_SETTINGS.items()
]


def way_out(content: bytes) -> bytes:
    """Return a plan with an id that leads out of the folder."""
    plan = json.loads(content)
    plan["cells"][0]["id"] = "../../../etc/passwd"
    return signed(plan)


def with_large_id(content: bytes) -> bytes:
    """Return a tokenizer.json with an id that no vocabulary has."""
    return re.sub(rb'("cat": )\d+', rb"\g<1>1000000000", content)


LONG_ROWS = [f"{HEAD}0\t{'w' * size}\tb\tentailment\n" for size in (2**20, 2 * 10**7)]
PLACES: dict[str, Iterable[Content]] = {
    "tiny cells/*/record.json verify": (),
    "tiny cells/*/record.json status": JSON_TEXTS,
    "tiny plan.json status": JSON_TEXTS,
    "tiny cells/*/record.json leaderboard": (),
    "tiny pretrainings/*/record.json verify": (),
    "tiny cells/*/logits.safetensors verify": (),
    "tiny labels/* export": (),
    "tupe.pt convert": (),
    "bert config.json convert": ODD_CONFIGS,
    "own config.json convert": [*ODD_CONFIGS, *JSON_TEXTS],
    "bert model.safetensors convert": (),
    "glue RTE/train.tsv data": (),
    "experiment.yaml run": [*YAML_TEXTS, lambda _: b"\xff\xfe\0"],
    "bert tokenizer.json convert": [*JSON_TEXTS, with_large_id],
    "bundle.zip verify": LARGE_AND_ODD,
    "submission.zip submit": LARGE_AND_ODD,
    "glue RTE/train.tsv run": LONG_ROWS,
}
"""By the input, perhaps where a file lies there, and the verb that reads it: what the file may
hold.
"""
CASES: list[tuple[str, Content]] = []
for place, contents in PLACES.items():
    CASES += [(place, content) for content in (*ODD_FILES, *contents)]
CASES += [(f"tiny plan.json {verb}", way_out) for verb in READ["tiny"]]
VERBS_BY_KIND = [(kind, verb) for kind, verbs in READ.items() for verb in verbs]


@pytest.mark.parametrize(("kind", "verb"), VERBS_BY_KIND)
def test_an_input_as_it_should_be_is_read(glue_bench, world, kind, verb):
    output = glue_bench(*words_for(fresh(world, kind), verb))
    statuses = (0, 1) if verb == "submit" else (0,)  # whose rows are few
    assert output.status in statuses, output


@pytest.mark.parametrize(
    ("place", "content"),
    CASES,
    ids=lambda value: value[:40] if isinstance(value, str) else "made",
)
def test_whatever_stands_in_the_place_of_a_file_is_taken_well(world, place, content, capfd):
    kind, *pattern, verb = place.split()
    copied = fresh(world, kind)
    path = min(copied.glob(*pattern)) if pattern else copied
    if content in ODD_FILES:
        path.unlink()
        put_odd_file = ODD_FILES[content]
        put_odd_file(path)
    elif callable(content):
        path.write_bytes(content(path.read_bytes()))
    else:
        path.write_bytes(content.encode())
    assert not complaints(capfd, world, words_for(copied, verb))


WITH_NAMES = [
    "verify NAME",
    "status NAME",
    "report NAME",
    "data NAME",
    "init NAME",
    "run NAME",
    "NAME",
    "verify --NAME",
    "leaderboard NAME RUNS",
    "leaderboard RUNS --format NAME",
    "leaderboard RUNS --protocol NAME",
    "leaderboard RUNS --protocol reference=NAME",
    "table NAME RUNS",
    "submit --check NAME",
    "submit RUNS --arm NAME -o x.zip",
    "export RUNS -o NAME",
    "status RUNS --format NAME",
    "card RUNS --arm NAME",
    "convert NAME c --variant add",
    "convert BERT c --variant NAME",
    "statistics RUNS --difference NAME",
    "convert BERT c --variant add --option NAME=NAME",
    "convert BERT NAME --variant add",
    "variants --plugin NAME",
    "analyse NAME --corpus NAME",
    "analyse NAME -o analysis",
    "leaderboard RUNS --diagnostic NAME",
    "run --checkpoint NAME --dry-run",
    "run NAME --slurm NAME",
    "run NAME --slurm partition=NAME",
]


def call_with_name(world: Path, call: str, name: str) -> list[object]:
    """Return the words of a call with this name on the command line."""
    fresh(world, "experiment.yaml")
    if call.startswith("convert BERT NAME"):
        name = name.replace("../", "")  # a conversion lies where the user says, also outside
    places = {"NAME": name, "RUNS": str(world / "tiny"), "BERT": str(world / "bert")}
    fill = partial(re.sub, "NAME|RUNS|BERT", lambda match: places[match[0]])
    return [fill(word) for word in call.split()]


@pytest.mark.parametrize("call", WITH_NAMES)
def test_a_name_that_moves_the_cursor_is_taken_well_wherever_a_verb_takes_one(world, call, capfd):
    name = "\x9b2J\u202etwo\nlines" + "x" * 300
    assert not complaints(capfd, world, call_with_name(world, call, name))


def generated(world: Path, kind: str, random: Random) -> list[object]:
    """Spoil one to three files of an input, and return the words of a call that reads it."""
    if kind == "words":
        return call_with_name(world, random.choice(WITH_NAMES), random.choice(NAMES))
    copied = fresh(world, kind)
    for _ in range(random.randint(1, 3) if copied.is_dir() else 1):
        files = sorted(path for path in copied.rglob("*") if path.is_file()) or [copied]
        suffix = random.choice(sorted({path.suffix for path in files}))
        spoil(random.choice([path for path in files if path.suffix == suffix]), random)
    return words_for(copied, random.choice(list(READ[kind])))


@pytest.mark.parametrize("kind", [*READ, "words"])
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_input_harms_hangs_or_confuses(world, kind, count, capfd):
    base = kind if count == FEW else str(randbits(64))
    complaints_by_seed: dict[str, str] = {}
    for number in range(count):
        seed = f"{base} {number}"
        complaints_by_seed[seed] = complaints(capfd, world, generated(world, kind, Random(seed)))
    assert {seed: text for seed, text in complaints_by_seed.items() if text} == {}
