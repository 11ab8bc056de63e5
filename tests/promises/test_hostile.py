"""Whatever comes from outside, a verb ends as documented, says it in one line, and harms nothing.

Every odd file, text and number in the place of every kind of input, and generated inputs: some in the default suite,
the same ones each time; thousands under `-m slow`, others each time.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from random import Random
from secrets import randbits

import pytest
from helpers import tiny_runs
from helpers.hostile import (
    JSON_TEXTS,
    NAMES,
    ODD_FILES,
    YAML_TEXTS,
    complaints,
    names_alone,
    signed,
    spoil,
    zipped,
)
from helpers.tiny_models import save_tupe

FEW, MANY = 6, 1000
HEAD = "index\tsentence1\tsentence2\tlabel\n"
CHECKPOINTS = {"bert": "untied", "own": "untied", "tupe.pt": "untied-relative"}
"""The layouts of checkpoints, and a variant that each can be converted to."""
CALLS = {
    "tiny": "status IT, leaderboard IT, statistics IT, verify IT, card IT --arm add, report IT -o page.html, "
    "export IT -o out.zip, submit IT --arm add -o x.zip --fill",
    "glue": "data IT, run ../glue.yaml --dry-run --results runs",
    **{
        kind: f"convert IT out --variant {variant}, analyse IT --only order --sequences 8 -o inside, "
        f"run ../{kind}.yaml --dry-run --results runs"
        for kind, variant in CHECKPOINTS.items()
    },
    "bundle.zip": "verify IT",
    "submission.zip": "submit --check IT",
    "experiment.yaml": "run IT --dry-run --results runs",
}
READ = {
    kind: {call.split()[0]: call.split() for call in calls.split(", ")}
    for kind, calls in CALLS.items()
}
"""By the kind of an input, the words of each verb that reads IT."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with each kind of input as it should be."""
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
        from transformers import BertConfig, BertForMaskedLM

        other = {"name": "other", "variant": "untied", "options": {"segments": "scores"}}
        asked = {
            "arms": ["add", other],
            "seeds": [1, 2],
            "protocol": {"contrasts": [["other", "add"]]},
        }
        predicted = {"predict": ["validation", "test"], "tasks": {"rte": {"epochs": 2}}}
        experiment, work = tiny_runs.experiment(finetuning=predicted, **asked), base / "work"
        data = {
            "data": str(work / "glue"),
            "tasks": ["rte", "stsb"],
            "limit": None,
            "checkpoint": "scratch",
        }
        written = {"experiment": experiment, "glue": tiny_runs.experiment(pretraining=None, **data)}
        for kind, variant in CHECKPOINTS.items():
            given = {
                "checkpoint": str(work / kind),
                "tokenizer": str(base / "own"),
                "arms": [variant],
                "scratch": None,
            }
            written[kind] = tiny_runs.experiment(
                pretraining=None, finetuning={"max_length": 16}, **given
            )
        for name, values in written.items():
            (base / f"{name}.yaml").write_text(json.dumps(values))
        runs = tiny_runs.run(experiment, base)
        record = next(runs.glob("cells/*/record.json")).read_bytes()
        assert signed(json.loads(record)) == record, (
            "the package signs in another way: change `signed`"
        )
        glue_bench.export(runs, base / "bundle.zip")
        glue_bench.submit(runs, base / "submission.zip", arm="add", fill=True)
        own = shutil.copytree(next(runs.glob("checkpoints/add-*/step-4")), base / "own")
        words = len(json.loads((own / "tokenizer.json").read_bytes())["model"]["vocab"])
        config = BertConfig(vocab_size=words, **tiny_runs.SIZES, max_position_embeddings=32)
        BertForMaskedLM(config).save_pretrained(base / "bert")
        for path in own.glob("tokenizer*"):
            shutil.copy(path, base / "bert")
        save_tupe(base / "tupe.pt")
        rows = [
            f"{row}\tthe cat\ta dog {row}\t{('not_', '')[row % 2]}entailment\n" for row in range(18)
        ]
        shutil.copytree(tiny_runs.glue(), base / "glue")
        (base / "glue" / "RTE").mkdir()
        for split in ("train", "dev"):
            (base / "glue" / "RTE" / f"{split}.tsv").write_text("".join([HEAD, *rows]))
        glue_bench.convert(
            str(base / "bert"), base / "first", "add"
        )  # which imports torch and transformers
        yield base
        os.chdir(here)
    tempfile.tempdir = None


def fresh(world: Path, kind: str) -> Path:
    """A copy of an input in the folder for examples, where nothing else is."""
    place, source = world / "work", world / kind
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    os.chdir(place)
    return Path(
        shutil.copytree(source, place / kind)
        if source.is_dir()
        else shutil.copy(source, place / kind)
    )


def read(whole: Path, verb: str) -> list[object]:
    return [whole if word == "IT" else word for word in READ[whole.name][verb]]


LARGE_AND_ODD = [
    lambda _: zipped({"AX.tsv": bytes(320 * 2**20)}),
    lambda _: zipped({"manifest.json": b" " * 65 * 2**20}),
    lambda _: names_alone(30 * 10**6),
    lambda _: zipped({"AX.tsv": b"\n" * 2**23}),
    lambda _: zipped({"STS-B.tsv": b"index\tprediction\n0\t" + b"1" * 2**22 + b"x\n"}),
    lambda _: zipped({"../../up.tsv": b"x", "/etc/passwd": b"x", "a\x1b[2J/plan.json": b"{}"}),
]
NUMBERS = {
    **{
        "num_attention_heads": 0,
        "hidden_size": -8,
        "vocab_size": 10**11,
        "max_position_embeddings": 10**9,
    },
    **{
        "num_hidden_layers": 10**7,
        "hidden_dropout_prob": 5,
        "layer_norm_eps": "x",
        "origin": [1],
        "pad_token_id": -1,
    },
}
CONFIGS = [
    lambda given, one=one: json.dumps(json.loads(given) | dict([one])).encode()
    for one in NUMBERS.items()
]


def way_out(given: bytes) -> bytes:
    """A plan with an id that leads out of the folder."""
    plan = json.loads(given)
    plan["cells"][0]["id"] = "../../../etc/passwd"
    return signed(plan)


PLACES: dict[str, Iterable[str | Callable[[bytes], bytes]]] = {
    **{"tiny cells/*/record.json verify": JSON_TEXTS, "tiny plan.json status": JSON_TEXTS},
    **{"tiny cells/*/record.json leaderboard": (), "tiny pretrainings/*/record.json verify": ()},
    **{
        "tiny cells/*/logits.safetensors verify": (),
        "tiny labels/* export": (),
        "tupe.pt convert": (),
    },
    **{"bert config.json convert": CONFIGS, "own config.json convert": [*CONFIGS, *JSON_TEXTS]},
    **{"bert model.safetensors convert": (), "glue RTE/train.tsv data": ()},
    "experiment.yaml run": [*YAML_TEXTS, lambda _: b"\xff\xfe\0"],
    "bert tokenizer.json convert": [
        *JSON_TEXTS,
        lambda given: re.sub(rb'("cat": )\d+', rb"\g<1>1000000000", given),
    ],
    **{"bundle.zip verify": LARGE_AND_ODD, "submission.zip submit": LARGE_AND_ODD},
    "glue RTE/train.tsv run": [
        f"{HEAD}0\t{'w' * size}\tb\tentailment\n" for size in (2**20, 2 * 10**7)
    ],
}
"""By the input, perhaps where a file lies there, and the verb that reads it: what it may hold, or what makes this."""
CASES = [(place, what) for place, contents in PLACES.items() for what in (*ODD_FILES, *contents)]


@pytest.mark.parametrize(("kind", "verb"), [(kind, verb) for kind in READ for verb in READ[kind]])
def test_an_input_as_it_should_be_is_read(glue_bench, world, kind, verb):
    said = glue_bench(*read(fresh(world, kind), verb))
    assert said.status in (0, int(verb == "submit")), said  # whose rows are few


@pytest.mark.parametrize(
    ("place", "what"),
    [*CASES, *product([f"tiny plan.json {verb}" for verb in READ["tiny"]], [way_out])],
    ids=lambda one: one[:40] if isinstance(one, str) else "made",
)
def test_whatever_stands_in_the_place_of_a_file_is_taken_well(world, place, what, capfd):
    kind, *pattern, verb = place.split()
    whole = fresh(world, kind)
    path = min(whole.glob(*pattern)) if pattern else whole
    if what in ODD_FILES:
        path.unlink()
        ODD_FILES[what](path)
    else:
        path.write_bytes(what(path.read_bytes()) if callable(what) else what.encode())
    assert not complaints(capfd, world, read(whole, verb))


WITH_NAMES = """
verify NAME, status NAME, report NAME, data NAME, init NAME, run NAME, NAME, verify --NAME, leaderboard NAME RUNS,
leaderboard RUNS --format NAME, leaderboard RUNS --protocol NAME, leaderboard RUNS --protocol reference=NAME,
table NAME RUNS, submit --check NAME, submit RUNS --arm NAME -o x.zip, export RUNS -o NAME, status RUNS --format NAME,
card RUNS --arm NAME, convert NAME c --variant add, convert BERT c --variant NAME, statistics RUNS --difference NAME,
convert BERT c --variant add --option NAME=NAME, convert BERT NAME --variant add, variants --plugin NAME,
analyse NAME --corpus NAME, analyse NAME -o analysis, leaderboard RUNS --diagnostic NAME,
run --checkpoint NAME --dry-run, run NAME --slurm NAME, run NAME --slurm partition=NAME
""".strip().split(",")


def named(world: Path, call: str, name: str) -> list[object]:
    """A call with this name on the command line."""
    fresh(world, "experiment.yaml")
    places = {"NAME": name, "RUNS": str(world / "tiny"), "BERT": str(world / "bert")}
    return [re.sub("NAME|RUNS|BERT", lambda found: places[found[0]], word) for word in call.split()]


@pytest.mark.parametrize("call", WITH_NAMES, ids=str.strip)
def test_a_name_that_moves_the_cursor_is_taken_well_wherever_a_verb_takes_one(world, call, capfd):
    assert not complaints(capfd, world, named(world, call, "\x9b2J\u202etwo\nlines" + "x" * 300))


def generated(world: Path, kind: str, random: Random) -> list[object]:
    """The words that read an input of a kind, one to three files of which are spoiled."""
    if kind == "words":
        return named(world, random.choice(WITH_NAMES), random.choice(NAMES))
    whole = fresh(world, kind)
    for _ in range(random.randint(1, 3) if whole.is_dir() else 1):
        files = sorted(path for path in whole.rglob("*") if path.is_file()) or [whole]
        suffix = random.choice(sorted({path.suffix for path in files}))
        spoil(random.choice([path for path in files if path.suffix == suffix]), random)
    return read(whole, random.choice(list(READ[kind])))


@pytest.mark.parametrize("kind", [*READ, "words"])
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_input_harms_hangs_or_confuses(world, kind, count, capfd):
    base = f"{kind} " if count == FEW else f"{randbits(64)} "
    tried = (f"{base}{number}" for number in range(count))
    found = {seed: complaints(capfd, world, generated(world, kind, Random(seed))) for seed in tried}
    assert not [f"{seed}: {said}" for seed, said in found.items() if said]
