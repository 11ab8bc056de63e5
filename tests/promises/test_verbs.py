"""Verbs: the installed command answers soon, each function does what its verb does, and a mistake is one line."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny_runs
from typer.main import get_command

import glue_bench
from glue_bench.cli import app

ASKED = tiny_runs.experiment(
    arms=["add", "untied"], tasks=["mnli", "stsb"], seeds=[1, 2], finetuning={"predict": ["validation", "test"]}
)
COMMAND = [str(Path(sys.executable).with_name("glue-bench"))]

# The real entry points


def called(*command: str, **given: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, **given)


@pytest.mark.parametrize("command", [COMMAND, [sys.executable, "-m", "glue_bench"]], ids=["installed", "module"])
def test_a_mistake_in_a_real_process_is_one_line_and_status_2(command, tmp_path):
    done = called(*command, "status", str(tmp_path), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: ")
    assert str(tmp_path) in done.stderr


def test_help_answers_within_half_a_second():
    def seconds(*command: str) -> float:
        before = os.times()
        assert called(*command).returncode == 0
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    # Processor time, and the best of several, in units of Python's own start, which a loaded machine makes longer, too.
    for _ in range(6):
        if seconds(*COMMAND, "--help") <= 0.5 * max(1, seconds(sys.executable, "-c", "pass") / 0.02):
            return
    pytest.fail("no --help took less than half a second")


VERBS = sorted(get_command(app).commands)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_that_fits_a_window(glue_bench, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "100")
    said = glue_bench(verb, "--help")
    assert (said.status, said.err) == (0, "")
    assert f"glue-bench {verb}" in said.out
    assert len(said.out.splitlines()) <= 45
    assert verb in glue_bench("--help").out


# Functions and verbs


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Path:
    """The folder of a finished experiment, to be read."""
    return tiny_runs.run(ASKED, tmp_path_factory.mktemp("ran"))


Verb = Callable[..., str]
"""The command: what it says with these words."""


def same_rows(frame: pd.DataFrame, printed: str, rounding: float = 1e-6) -> None:
    """A frame and the same one as CSV have the same texts, and the same numbers but for their rounding."""
    read, expected = (pd.read_csv(io.StringIO(text)) for text in (printed, frame.to_csv(index=False)))
    pd.testing.assert_frame_equal(read[expected.columns], expected, check_dtype=False, rtol=0, atol=rounding)


def of_run(ran: Path, out: Path, verb: Verb) -> None:
    (out / "tiny.yaml").write_text(json.dumps(ASKED))
    verb("run", out / "tiny.yaml", "--results", out, "--device", "cpu", "--precision", "float32")
    assert tiny_runs.unlike(tiny_runs.bits(ran), tiny_runs.bits(out / "tiny")) == []


def of_plan(ran: Path, out: Path, verb: Verb) -> None:
    more = ASKED | {"seeds": [2, 3], "finetuning": ASKED["finetuning"] | {"weight_decay": 0.5}}
    (out / "tiny.yaml").write_text(json.dumps(more))
    cells = glue_bench.plan(more, results=ran.parent).query("why != ''")
    said = verb("run", out / "tiny.yaml", "--dry-run", "--results", ran.parent).splitlines()
    counts = {f"{count} job{'s' * (count > 1)}: {why}" for why, count in cells["why"].value_counts().items()}
    assert counts | {f"would run {len(cells)} of 8 cells, 0 are done, in {ran}"} == set(said)


def of_status(ran: Path, _: Path, verb: Verb) -> None:
    head, *rows = [line.split() for line in verb("status", ran).splitlines()[:3]]
    done = {row[0]: int(row[head.index("done")]) for row in rows}
    assert glue_bench.status(ran).query("state == 'done'").value_counts("arm").to_dict() == done


def of_leaderboard(ran: Path, _: Path, verb: Verb) -> None:
    """What the verb prints has the baselines below the arms."""
    lines = verb("leaderboard", ran, "--format", "csv").splitlines(keepends=True)
    arms = [line for line in lines if not line.startswith("baseline,")]
    same_rows(glue_bench.leaderboard(ran), "".join(arms), 0.0051)


def of_convert(ran: Path, out: Path, verb: Verb) -> None:
    source = str(next(ran.glob("checkpoints/add-*/step-4")))
    glue_bench.convert(source, out / "function", "untied")
    verb("convert", source, out / "verb", "--variant", "untied")
    for path in (out / "function").iterdir():
        assert path.name == "conversion.json" or path.read_bytes() == (out / "verb" / path.name).read_bytes()


def of_analyse(ran: Path, out: Path, verb: Verb) -> None:
    source = str(next(ran.glob("checkpoints/add-*/step-4")))
    found = glue_bench.analyse([source], only=["order"], sequences=8)
    verb("analyse", source, "--only", "order", "--sequences", "8", "-o", out)
    same_rows(found.measures, (out / "measures.csv").read_text())


def of_verify(ran: Path, _: Path, verb: Verb) -> None:
    (verified,) = glue_bench.verify(ran)
    said = verb("verify", ran)
    assert verified.faults == [check.name for check in verified.checks if check.name not in said] == []


def of_frame(words: str, rounding: float = 1e-6, **given: Any) -> Callable[[Path, Path, Verb], None]:
    """A function that gives a frame of RUNS and a verb that prints one."""
    name, *rest = words.split()

    def both(ran: Path, _: Path, verb: Verb) -> None:
        named = [ran if word == "RUNS" else word for word in rest]
        taken = named[: 1 + (name == "table")]
        same_rows(getattr(glue_bench, name)(*taken, **given), verb(name, *named, "--format", "csv"), rounding)

    return both


def of_file(words: str, suffix: str = ".zip", **given: Any) -> Callable[[Path, Path, Verb], None]:
    """A function and a verb that write a file."""
    name, *rest = words.split()

    def both(ran: Path, out: Path, verb: Verb) -> None:
        getattr(glue_bench, name)(ran, out / f"function{suffix}", **given)
        verb(name, ran, *rest, "-o", out / f"verb{suffix}")
        assert (out / f"function{suffix}").read_bytes() == (out / f"verb{suffix}").read_bytes()

    return both


def of_card(ran: Path, _: Path, verb: Verb) -> None:
    assert glue_bench.card(ran, "add").text == verb("card", ran, "--arm", "add")


PAIRS = {
    **{"run": of_run, "plan": of_plan, "status": of_status, "leaderboard": of_leaderboard, "card": of_card},
    **{"convert": of_convert, "analyse": of_analyse, "verify": of_verify, "export": of_file("export")},
    "statistics": of_frame("statistics RUNS --pairs", pairs=True),
    "statistics of seeds": of_frame("statistics RUNS --difference 9", difference=9.0),
    "table": of_frame("table tupe-1 RUNS", rounding=0.0051),
    "report": of_file("report", ".html"),
    "submit": of_file("submit --arm add --fill", arm="add", fill=True),
}
"""By the function: with a finished experiment, an empty folder and the command, whether both give the same."""
WITHOUT_VERB = {"predictions", "load_plugins"}
FUNCTIONS = {name for name in dir(glue_bench) if callable(getattr(glue_bench, name)) and name.islower()}


@pytest.mark.parametrize("name", PAIRS)
def test_a_function_does_what_its_verb_does(glue_bench, ran, tmp_path, name):
    def verb(*words: object) -> str:
        said = glue_bench(*words)
        assert said.status in (0, 1), said
        return said.out

    PAIRS[name](ran, tmp_path, verb)


def test_every_function_is_compared_with_its_verb_and_few_verbs_have_none():
    assert {name.split()[0] for name in PAIRS} | WITHOUT_VERB == FUNCTIONS
    assert set(VERBS) - FUNCTIONS == {"demo", "init", "data", "variants"}
    assert len(VERBS) == 16


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_says_how_it_is_called_and_what_it_raises(name):
    text = getattr(glue_bench, name).__doc__
    assert f"glue_bench.{name}(" in text
    assert "Raises:" in text


def test_predictions_give_the_scores(ran):
    """The function without a verb, against the tables."""
    frame = glue_bench.predictions(ran, task="MNLI").query("split.str.startswith('validation')")
    right = (frame["predicted"] == frame["label"]).groupby([frame["arm"], frame["split"]]).mean().unstack()
    board = glue_bench.leaderboard(ran).set_index("arm")[["mnli_m", "mnli_mm"]]
    np.testing.assert_allclose(100 * right.loc[board.index], board)


# Refusals: what is wrong, and what the one line must name

WRONG_VALUES: dict[str, list[Any]] = {
    **{"name": ["a b", "", "..", "x" * 300, 3], "limit": [1], "tasks": [[]], "seeds": ["all", [2**32]]},
    **{"scratch.vocab_size": [5], "pretraining.steps": [0], "pretraining.validation_share": [1]},
    **{"finetuning.epochs": [0], "finetuning.max_length": [3], "finetuning.max_steps": [0]},
    **{"finetuning.learning_rates": [[0], [1e-3, 1e-3]], "finetuning.warmup_ratio": [2]},
    **{"finetuning.held_out_share": [0.9], "finetuning.predictions": ["float8"]},
    **{"resources.cpus": [0], "resources.give_up_after": [0]},
}
"""By the key that the line must name."""
TWO_RATES = {"learning_rates": [1e-3, 2e-3]}
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"nam": "x"}, "nam name"),
    ({"epochs": 3}, "epochs finetuning"),
    ({"data": "dem"}, "dem demo"),
    ({"data": "./nowhere"}, "./nowhere"),
    ({"tasks": ["colla"]}, "colla cola"),
    ({"tasks": ["rte", "rte"]}, "rte"),
    ({"seeds": [1, 1]}, "seeds 1"),
    ({"arms": ["conct"]}, "conct concat"),
    ({"arms": ["add", "add"]}, "add"),
    ({"arms": [{"name": "x"}]}, "variant"),
    ({"arms": [{"variant": "add", "options": {"x": 1}}]}, "x add"),
    ({"arms": [{"variant": "concat-split", "options": {"position_share": 2}}]}, "position_share"),
    ({"arms": [{"variant": "native"}]}, "native"),
    ({"arms": [{"variant": "add", "revision": "main"}]}, "revision"),
    ({"arms": ["mine"], "plugins": ["none.py"]}, "none.py"),
    ({"scratch": {"hidden_size": 15}}, "hidden_size 15 num_attention_heads 2"),
    ({"pretraining": {"length": 64}}, "pretraining.length 64 32"),
    ({"pretraining": {"batch_tokens": 8}}, "batch_tokens 8 16"),
    ({"pretraining": {"learning_rate": 1e-3}}, "learning_rate learning_rates"),
    ({"pretraining": TWO_RATES}, "rate_search"),
    ({"pretraining": TWO_RATES | {"rate_search": {"steps": 9}}}, "rate_search.steps 9 4"),
    ({"pretraining": TWO_RATES | {"rate_search": {"steps": 2, "seed": 1}}}, "rate_search seed seeds"),
    ({"pretraining": {"checkpoints": [4]}}, "checkpoints 4"),
    ({"pretraining": {"schedule": "trapezoid"}}, "decay_share"),
    ({"pretraining": {"corpus": None}}, "corpus"),
    ({"pretraining": {"corpus": "none.txt"}}, "none.txt"),
    ({"pretraining": {"from": "checkpoint"}}, "checkpoint"),
    ({"pretraining": None}, "checkpoint"),
    ({"pretraining": None, "checkpoint": "./nowhere"}, "./nowhere"),
    ({"finetuning": {"epoch": 3}}, "epoch epochs"),
    ({"finetuning": {"max_length": 64}}, "max_length 64 32"),
    ({"finetuning": {"from_mnli": ["rte"]}}, "from_mnli mnli"),
    ({"finetuning": {"from_mnli": ["cola"]}}, "cola rte"),
    ({"finetuning": {"mnli_rate": 1e-3}}, "mnli_rate from_mnli"),
    ({"tasks": ["mnli", "rte"], "finetuning": {"from_mnli": ["rte"], "mnli_rate": 5e-3}}, "mnli_rate 0.005"),
    ({"finetuning": {"predict": ["test"]}}, "predict validation"),
    ({"finetuning": {"tasks": {"colla": {}}}}, "colla cola"),
    ({"finetuning": {"learning_rates": [1e-3, 2e-3]}, "protocol": {"rate": "fixed"}}, "protocol.rate stsb"),
    ({"protocol": {"choose_on": "held_out"}}, "choose_on held_out_share"),
    ({"protocol": {"reference": "nobody"}}, "nobody reference"),
    ({"protocol": {"contrasts": [["add", "nobody"]]}}, "nobody contrasts"),
    ({"protocol": {"contrasts": [["add", "add"]]}}, "contrasts"),
    ({"protocol": {"primary": "validation_loss"}, "pretraining": None, "checkpoint": "scratch"}, "primary pretraining"),
    ({"finetuning": {"tasks": {"rte": {"limit": 1}}}}, "finetuning.tasks.rte.limit"),
    ({"resources": {"gpus": 1.5}}, "gpus 1.5"),
    ({"arms": [{"variant": "add", "pretraining_rate": 0}]}, "pretraining_rate"),
    ({"pretraining": TWO_RATES | {"rate_search": {"steps": 2, "seeds": [0, 1]}}}, "rate_search.seeds 1"),
    ({"seeds": list(range(9_000)), "arms": ["add", "none"], "tasks": ["cola", "rte", "stsb"]}, "54,000 50,000"),
]  # fmt: skip


def refusal(said: str, names: str) -> None:
    assert said.count("\n") == 1, said
    assert [name for name in names.split() if name not in said] == [], said


for name, (section, _, key) in ((name, name.partition(".")) for name in WRONG_VALUES):
    MISTAKES += [({section: {key: value} if key else value}, name) for value in WRONG_VALUES[name]]


@pytest.mark.parametrize(("change", "names"), MISTAKES, ids=[str(change)[:60] for change, _ in MISTAKES])
def test_a_mistake_in_an_experiment_is_one_line_that_names_it(refused, tmp_path, monkeypatch, change, names):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(json.dumps(tiny_runs.experiment(**change)))
    refusal(refused("run", "tiny.yaml", "--results", "runs"), names)
    assert not (tmp_path / "runs").exists()


WRONG_WORDS = [
    *((f"{verb} OUT", "OUT") for verb in ("run", "status", "report", "statistics", "table tupe-1", "card", "verify")),
    *(
        tuple(line.split("  ", 1))
        for line in """
rnu                                                                rnu
run                                                                --checkpoint
run none.yaml                                                      none.yaml
run tiny.yaml x                                                    x
run tiny.yaml --only                                               --only
run tiny.yaml --data=                                              empty
run tiny.yaml --only task=colla                                    colla stsb --only
run tiny.yaml --only task                                          task
run tiny.yaml --only tsk=rte                                       tsk task
run tiny.yaml --only seed=9                                        seed 9
run tiny.yaml --data dem                                           dem demo
run tiny.yaml --data ./none                                        ./none
run tiny.yaml --corpus none.txt                                    none.txt
run tiny.yaml --limit 1                                            --limit 2
run tiny.yaml --workers 0                                          workers 0
run tiny.yaml --address nowhere                                    --address nowhere
run tiny.yaml --slurm a=1,a=2                                      --slurm a
run tiny.yaml --slurm partition=x --workers 2                      --slurm --workers
run tiny.yaml --device tpu                                         tpu cpu
run tiny.yaml --track diary                                        diary tensorboard
run tiny.yaml --plugin none.py                                     none.py
run tiny.yaml --checkpoint x                                       --checkpoint CONFIG
run --arm add                                                      --checkpoint
run tiny.yaml --results tiny.yaml                                  tiny.yaml --results
run broken.yaml                                                    broken.yaml
run list.yaml                                                      list.yaml
run twice.yaml                                                     twice.yaml
run tiny.yaml --results s3://x/y                                   s3
init                                                               NAME
init tiny                                                          tiny.yaml
status                                                             DIR
status RUNS/..                                                     tiny
status RUNS --format yml                                           yml json
leaderboard none                                                   none
leaderboard RUNS --format cvs                                      cvs csv
leaderboard RUNS -o none/board.md                                  none/board.md
leaderboard RUNS --protocol seeds=max                              seeds max
leaderboard RUNS --protocol sed=mean                               sed seeds
leaderboard RUNS --protocol reference=nobody                       nobody
leaderboard RUNS --protocol choose_on=held_out                     held_out
report RUNS -o a.pdf                                               .html
statistics RUNS --equivalent -1                                    -1
statistics RUNS --difference 0                                     0
statistics RUNS --difference 1 --power 2                           2
statistics RUNS --difference 1 --pairs                             --difference --pairs
table tupe-9                                                       tupe-9
submit                                                             --check
submit RUNS                                                        -o
submit RUNS --arm ad -o a.zip                                      ad add
submit RUNS --arm add -o a.tar                                     .zip
submit RUNS --arm add -o a.zip                                     --fill
submit --check none.zip                                            none.zip
submit --check a.zip --fill                                        --check
leaderboard RUNS --diagnostic none                                 none
card RUNS                                                          add untied
export RUNS                                                        -o
export RUNS -o a.tar                                               .zip
export RUNS -o a --format eee                                      --organization
export RUNS -o a.zip --organization us                             organization eee
export OUT -o a.zip                                                OUT
verify none                                                        none
data nothing                                                       nothing
variants --plugin none.py                                          none.py
convert none c --variant add                                       none
convert CHECKPOINT c                                               --variant
convert CHECKPOINT c --variant ad                                  ad add
convert CHECKPOINT c --variant diet-abs --option rank=many         rank diet-abs many
convert CHECKPOINT c --variant add --option x=1                    x add
convert CHECKPOINT tiny.yaml --variant add                         tiny.yaml
convert CHECKPOINT RUNS --variant add                              RUNS
convert CHECKPOINT c --variant add --tokenizer none                none
analyse                                                            SOURCE
analyse CHECKPOINT --only odour                                    odour order
analyse CHECKPOINT --sequences 7                                   --sequences 8
analyse CHECKPOINT -o tiny.yaml                                    tiny.yaml
""".strip().splitlines()
    ),
]
"""The words, and what the line must name. RUNS is a finished experiment, CHECKPOINT an encoder, OUT an empty folder."""
FILES = {
    "broken.yaml": "a: [",
    "list.yaml": "- a",
    "twice.yaml": "name: a\nname: b\n",
    "tiny.yaml": json.dumps(tiny_runs.experiment()),
}


@pytest.mark.parametrize(("words", "names"), WRONG_WORDS, ids=[words for words, _ in WRONG_WORDS])
def test_a_mistake_on_the_command_line_is_one_line_that_names_it(refused, ran, tmp_path, monkeypatch, words, names):
    (tmp_path / "empty").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    places = {"RUNS": ran, "OUT": tmp_path / "empty", "CHECKPOINT": next(ran.glob("checkpoints/add-*/step-4"))}
    for name, place in places.items():
        words, names = (text.replace(name, str(place)) for text in (words, names))
    refusal(refused(*words.split()), names)
    assert {path.name for path in tmp_path.iterdir()} == FILES.keys() | {"empty"}
