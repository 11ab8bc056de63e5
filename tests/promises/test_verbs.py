"""Verbs: the installed command answers soon, each function does what its verb does, and a
mistake is one line.
"""

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
from helpers import tiny_runs
from helpers.classifiers import save_classifier
from typer.main import get_command

import glue_bench
from glue_bench.cli import app
from glue_bench.config.plain_yaml import parse_yaml
from glue_bench.errors import UserError

ASKED = tiny_runs.experiment(
    arms=["add", "untied"],
    tasks=["mnli", "stsb"],
    seeds=[1, 2],
    finetuning={"predict": ["validation", "test"]},
)
COMMAND = [str(Path(sys.executable).with_name("glue-bench"))]

# The real entry points


def called(*command: str, **given: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, **given
    )


@pytest.mark.parametrize(
    "command", [COMMAND, [sys.executable, "-m", "glue_bench"]], ids=["installed", "module"]
)
def test_a_mistake_in_a_real_process_is_one_line_and_status_2(command, tmp_path):
    done = called(*command, "status", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")
    assert str(tmp_path) in done.stderr


def test_help_answers_within_half_a_second():
    def seconds(*command: str) -> float:
        before = os.times()
        assert called(*command).returncode == 0
        after = os.times()
        return (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )

    # Processor time, and the best of several, in units of Python's own start, which a loaded
    # machine makes longer, too.
    for _ in range(6):
        if seconds(*COMMAND, "--help") <= 0.5 * max(
            1, seconds(sys.executable, "-c", "pass") / 0.02
        ):
            return
    pytest.fail("no --help took less than half a second")


VERBS = sorted(get_command(app).commands)


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_that_fits_a_window(glue_bench, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "100")
    output = glue_bench(verb, "--help")
    assert output.status == 0
    assert output.err == ""
    assert f"glue-bench {verb}" in output.out
    assert len(output.out.splitlines()) <= 45
    assert verb in glue_bench("-h").out


# Functions and verbs


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Path:
    """The folder of a finished experiment, to be read."""
    return tiny_runs.run(ASKED, tmp_path_factory.mktemp("ran"))


Verb = Callable[..., str]
"""The command: what it says with these words."""


def same_rows(frame: pd.DataFrame, printed: str, rounding: float = 1e-6) -> None:
    """Check that a frame and the same one as CSV have the same texts, and the same numbers but
    for their rounding.
    """
    read = pd.read_csv(io.StringIO(printed))
    expected = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    pd.testing.assert_frame_equal(
        read[expected.columns], expected, check_dtype=False, rtol=0, atol=rounding
    )


def of_run(ran: Path, out: Path, verb: Verb) -> None:
    (out / "tiny.yaml").write_text(json.dumps(ASKED))
    verb("run", out / "tiny.yaml", "--results", out, "--device", "cpu", "--precision", "float32")
    assert tiny_runs.differing_files(tiny_runs.bits(ran), tiny_runs.bits(out / "tiny")) == []


def of_plan(ran: Path, out: Path, verb: Verb) -> None:
    finetuning = ASKED["finetuning"] | {"tasks": {"stsb": {"epochs": 2}}}
    changed = ASKED | {"seeds": [1, 2, 3], "finetuning": finetuning}
    (out / "tiny.yaml").write_text(json.dumps(changed))
    cells = glue_bench.plan(changed, results=ran.parent).query("why != ''")
    reasons = {f"{count} {reason}" for reason, count in cells["why"].value_counts().items()}
    printed = verb("run", out / "tiny.yaml", "--dry-run", "--results", ran.parent)
    _, *jobs, _, summary = printed.splitlines()
    assert {" ".join(line.split()) for line in jobs} == reasons
    assert summary == f"would run 8 of 12 cells, 4 are done, in {ran}"


def of_status(ran: Path, _: Path, verb: Verb) -> None:
    head, *rows = [line.split() for line in verb("status", ran).splitlines()[:3]]
    done = {row[0]: int(row[head.index("done")]) for row in rows}
    assert glue_bench.status(ran).query("state == 'done'").value_counts("arm").to_dict() == done


def of_convert(ran: Path, out: Path, verb: Verb) -> None:
    source = str(next(ran.glob("checkpoints/add-*/step-4")))
    glue_bench.convert(source, out / "function", "untied")
    verb("convert", source, out / "verb", "--variant", "untied")
    for path in (out / "function").iterdir():
        if path.name != "conversion.json":
            assert path.read_bytes() == (out / "verb" / path.name).read_bytes(), path.name


def of_analyse(ran: Path, out: Path, verb: Verb) -> None:
    source = str(next(ran.glob("checkpoints/add-*/step-4")))
    measures = glue_bench.analyse([source], only=["subspaces"], sequences=8)
    printed = verb("analyse", source, "--only", "subspaces", "--sequences", "8", "-o", out)
    assert printed == (out / "analysis.md").read_text()
    assert {path.stem for path in out.glob("*.svg")} == {"subspace_curve"}
    same_rows(measures.measures, (out / "measures.csv").read_text())


def of_verify(ran: Path, _: Path, verb: Verb) -> None:
    (verified,) = glue_bench.verify(ran)
    printed = verb("verify", ran)
    assert verified.faults == []
    assert [check.name for check in verified.checks if check.name not in printed] == []


def of_evaluate(_: Path, out: Path, verb: Verb) -> None:
    model = save_classifier(out / "model-of-rte", ["entailment", "not_entailment"])
    places = {"data": "demo", "limit": 8, "name": "same", "max_length": 32}
    summary = glue_bench.evaluate(str(model), tasks=["rte"], results=out / "function", **places)
    options = [f"--{key.replace('_', '-')}={value}" for key, value in places.items()]
    verb("evaluate", model, "--task", "rte", "--results", out / "verb", *options)
    by_verb = (out / "verb" / "same" / "leaderboard.csv").read_bytes()
    assert by_verb == (summary.folder / "leaderboard.csv").read_bytes()


def of_frame(
    words: str, rounding: float = 1e-6, **given: Any
) -> Callable[[Path, Path, Verb], None]:
    """A function that gives a frame of RUNS and a verb that prints one."""
    name, *rest = words.split()

    def both(ran: Path, _: Path, verb: Verb) -> None:
        words = [ran if word == "RUNS" else word for word in rest]
        parameters = words[:2] if name == "table" else words[:1]
        frame = getattr(glue_bench, name)(*parameters, **given)
        same_rows(frame, verb(name, *words, "--format", "csv"), rounding)

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
    "run": of_run,
    "evaluate": of_evaluate,
    "plan": of_plan,
    "status": of_status,
    "card": of_card,
    "convert": of_convert,
    "analyse": of_analyse,
    "verify": of_verify,
    "export": of_file("export"),
    "leaderboard": of_frame("leaderboard RUNS", rounding=0.0051),
    "statistics": of_frame("statistics RUNS --equivalent 5", equivalent=5.0),
    "compare": of_frame("compare RUNS"),
    "statistics of seeds": of_frame("statistics RUNS --difference 9", difference=9.0),
    "table": of_frame("table tupe-1 RUNS", rounding=0.0051),
    "report": of_file("report", ".html"),
    "submit": of_file("submit --arm add --fill", arm="add", fill=True),
}
"""By the function: with a finished experiment, an empty folder and the command, whether both
give the same.
"""
WITHOUT_VERB = {"predictions", "load_plugins", "describe", "recipes"}
FUNCTIONS = {
    name for name in dir(glue_bench) if callable(getattr(glue_bench, name)) and name.islower()
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_function_does_what_its_verb_does(glue_bench, ran, tmp_path, name):
    def verb(*words: object) -> str:
        output = glue_bench(*words)
        assert output.status in (0, 1), output
        return output.out

    compare = PAIRS[name]
    compare(ran, tmp_path, verb)


def test_every_function_is_compared_with_its_verb_and_few_verbs_have_none():
    assert {name.split()[0] for name in PAIRS} | WITHOUT_VERB == FUNCTIONS
    assert set(VERBS) - FUNCTIONS == {"demo", "init", "data", "variants"}
    assert len(VERBS) == 19


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_says_how_it_is_called_and_what_it_raises(name):
    text = getattr(glue_bench, name).__doc__
    assert f"glue_bench.{name}(" in text
    assert "Raises:" in text


def test_predictions_give_the_scores(ran):
    """The function without a verb, against the tables."""
    frame = glue_bench.predictions(ran, task="MNLI").query("split.str.startswith('validation')")
    is_right = frame["predicted"] == frame["label"]
    accuracy = is_right.groupby([frame["arm"], frame["split"]]).mean().unstack()
    board = glue_bench.leaderboard(ran).set_index("arm")[["mnli_m", "mnli_mm"]]
    np.testing.assert_allclose(100 * accuracy, board.loc[accuracy.index])


CALLS: dict[str, tuple[Callable[[Path], object], str]] = {
    "load_plugins": (lambda _: glue_bench.load_plugins("none.py"), "none.py"),
    "analyse only": (lambda _: glue_bench.analyse("none", only="odour"), "odour"),
    "run only": (lambda _: glue_bench.run(ASKED, only="arm=nobody"), "nobody"),
    "run plugins": (lambda _: glue_bench.run(ASKED, plugins="none.py"), "none.py"),
    "run track": (lambda _: glue_bench.run(ASKED, track="diary"), "diary"),
    "export": (lambda _: glue_bench.export("none", "out.zip"), "none"),
    "statistics": (
        lambda ran: glue_bench.statistics(ran, equivalent=1, difference=1),
        "difference stands alone",
    ),
}
"""Calls with a text where a list may stand, and what their refusals name."""


@pytest.mark.parametrize(("call", "names"), CALLS.values(), ids=CALLS)
def test_a_function_takes_a_text_for_a_list_of_one_and_refuses_what_its_verb_refuses(
    ran, call, names
):
    with pytest.raises(UserError, match=names):
        call(ran)


# Refusals: what is wrong -> what the one line must name

MISTAKES = {
    "": """
name: a b -> name
name: "" -> name
name: .. -> name
name: 3 -> name
nam: x -> nam name
epochs: 3 -> epochs finetuning
data: dem -> dem demo
data: ./nowhere -> ./nowhere
limit: 1 -> limit
data: "\\x9b2J" -> data pattern
seeds: [true] -> seeds.0 integer
tasks: [colla] -> colla cola
tasks: [] -> tasks
tasks: [rte, RTE] -> twice rte
seeds: all -> seeds all
seeds: [1, 1] -> seeds 1
seeds: [4294967296] -> seeds
arms: [conct] -> conct concat
arms: [add, add] -> add
arms: [{name: x}] -> variant
arms: [{variant: add, options: {x: 1}}] -> x add
arms: [{variant: native}] -> native
arms: [{variant: concat-split, options: {position_share: 2}}] -> position_share
arms: [{variant: add, options: [x]}] -> arms.0.options dictionary
arms: [{variant: add, options: {a: [[1]]}}] -> 'a'
arms: [add, {variant: none, tokeniser: t}] -> tokeniser arms.1 tokenizer
arms: [add, none], protocol: {contrasts: [[add, none], [none, add]]} -> contrasts twice
arms: [{variant: add, checkpoint: base, embedding_size: 64}] -> base embedding_size
arms: [{variant: add, revision: main}] -> revision
arms: [{variant: add, pretraining_rate: 0}] -> pretraining_rate
arms: [mine], plugins: [none.py] -> none.py
pretraining: null -> checkpoint
tokenizer: a, pretraining: {corpus: demo, steps: 9, tokenizer: b} -> pretraining.tokenizer
pretraining: null, checkpoint: ./nowhere -> ./nowhere
pretraining: null, checkpoint: scratch, protocol: {primary: validation_loss} -> primary pretraining
tasks: [mnli, rte], finetuning: {from_mnli: [rte], mnli_rate: 5e-3} -> mnli_rate 0.005
finetuning: {learning_rates: [1e-3, 2e-3]}, protocol: {rate: fixed} -> protocol.rate stsb
""",
    "scratch": """
vocab_size: 5 -> scratch.vocab_size
hidden_size: 15 -> hidden_size 15 num_attention_heads 2
""",
    "pretraining": """
steps: 0 -> pretraining.steps
length: 64 -> pretraining.length 64 32
batch_tokens: 8 -> batch_tokens 8 16
learning_rate: 1e-3 -> learning_rate learning_rates
validation_share: 1 -> validation_share
checkpoints: [4] -> checkpoints 4
schedule: trapezoid -> decay_share
corpus: null -> corpus
corpus: none.txt -> none.txt
from: checkpoint -> checkpoint
learning_rates: [1e-3, 2e-3] -> rate_search
learning_rates: [1e-3, 2e-3], rate_search: {steps: 9} -> rate_search.steps 9 4
learning_rates: [1e-3, 2e-3], rate_search: {steps: 2, seed: 1} -> rate_search seed seeds
learning_rates: [1e-3, 2e-3], rate_search: {steps: 2, seeds: [0, 1]} -> rate_search.seeds 1
""",
    "finetuning": """
epochs: 0 -> finetuning.epochs
epoch: 3 -> epoch epochs
max_steps: 0 -> finetuning.max_steps
max_length: 3 -> finetuning.max_length
max_length: 64 -> max_length 64 32
warmup_ratio: 2 -> finetuning.warmup_ratio
learning_rates: [0] -> finetuning.learning_rates
learning_rates: [1e-3, 1e-3] -> finetuning.learning_rates 0.001
held_out_share: 0.9 -> finetuning.held_out_share
predictions: float8 -> finetuning.predictions float16
predict: [test] -> predict validation
from_mnli: [rte] -> from_mnli mnli
from_mnli: [cola] -> cola rte
mnli_rate: 1e-3 -> mnli_rate from_mnli
tasks: {colla: {}} -> colla cola
epochs: 10000000000 -> finetuning.epochs 10000
tasks: {rte: {limit: 1}} -> finetuning.tasks.rte.limit
tasks: {rte: {learning_rate: [1]}} -> learning_rate finetuning.tasks.rte learning_rates
""",
    "protocol": """
choose_on: held_out -> choose_on held_out_share
reference: nobody -> nobody reference
contrasts: [[add, nobody]] -> nobody contrasts
contrasts: [[add, add]] -> contrasts
""",
    "resources": """
cpus: 0 -> resources.cpus
gpus: 1.5 -> gpus 1.5
give_up_after: 0 -> resources.give_up_after
""",
}
"""By the section of an experiment (none: of all)."""


def cases(text: str) -> list[list[str]]:
    return [case.split(" -> ") for case in text.strip().splitlines()]


def refusal(message: str, names: str) -> None:
    assert message.count("\n") == 1, message
    assert [name for name in names.split() if name not in message] == [], message


CHANGES = [(section, *case) for section, text in MISTAKES.items() for case in cases(text)]


@pytest.mark.parametrize(("section", "change", "names"), CHANGES)
def test_a_mistake_in_an_experiment_is_one_line_that_names_it(
    refused, tmp_path, monkeypatch, section, change, names
):
    changes = parse_yaml(f"{{{change}}}", "case")
    values = tiny_runs.experiment(**{section: changes} if section else changes)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(json.dumps(values))
    refusal(refused("run", "tiny.yaml", "--results", "runs"), names)
    assert not (tmp_path / "runs").exists()


WRONG_WORDS = """
rnu -> rnu
run -> --checkpoint
run none.yaml -> none.yaml
run tiny.yaml x -> x
run tiny.yaml --only -> --only
run tiny.yaml --data= -> empty
run tiny.yaml --only task=colla -> colla stsb --only
run tiny.yaml --only task -> task
run tiny.yaml --only tsk=rte -> tsk task
run tiny.yaml --only seed=9 -> seed 9
run tiny.yaml --data dem -> dem demo
run tiny.yaml --data ./none -> ./none
run tiny.yaml --corpus none.txt -> none.txt
run tiny.yaml --limit 1 -> --limit 2
run tiny.yaml --workers 0 -> workers 0
run tiny.yaml --address nowhere -> --address nowhere
run tiny.yaml --slurm a=1,a=2 -> --slurm a
run tiny.yaml --slurm b=END,FAIL,c=n[1,3] --workers 2 -> --slurm --workers
run tiny.yaml --device tpu -> tpu cpu
run tiny.yaml --track diary -> diary tensorboard
run --arm add -> --checkpoint
run tiny.yaml --plugin none.py -> none.py
run tiny.yaml --checkpoint x -> --checkpoint CONFIG
run tiny.yaml --results tiny.yaml -> tiny.yaml --results
run tiny.yaml --results s3://x/y -> s3
run --checkpoint a --checkpoint a -> name a file
run --checkpoint a --seed 1,x -> --seed x
run --checkpoint a --task rte,colla -> colla cola
run broken.yaml -> broken.yaml
run list.yaml -> list.yaml
run twice.yaml -> twice.yaml
run OUT -> OUT folder
init -> NAME
init tiny -> tiny.yaml
status -> DIR
status OUT -> OUT
status RUNS/.. -> tiny
status RUNS --format yml -> yml json
leaderboard none -> none such
leaderboard RUNS --format cvs -> cvs csv
leaderboard RUNS -o none/board.md -> none/board.md
leaderboard RUNS --protocol seeds=max -> seeds max
leaderboard RUNS --protocol sed=mean -> sed seeds
leaderboard RUNS --protocol reference=nobody -> nobody
leaderboard RUNS --protocol choose_on=held_out -> held_out
leaderboard RUNS --diagnostic none -> none
report OUT -> OUT
report RUNS -o a.pdf -> .html
statistics OUT -> OUT
statistics RUNS --equivalent -1 -> -1
statistics RUNS --difference 0 -> 0
statistics RUNS --difference 1 --power 2 -> 2
table tupe-9 -> tupe-9
statistics RUNS --difference 1 --equivalent 1 -> --difference --equivalent
table tupe-1 OUT -> OUT
submit -> --check
submit RUNS -> -o
submit RUNS --arm ad -o a.zip -> ad add
submit RUNS --arm add -o a.tar -> .zip
submit RUNS --arm add -o a.zip -> --fill
submit --check none.zip -> none.zip
submit --check a.zip --fill -> --check
card RUNS -> add untied
card OUT -> OUT
export RUNS -> -o
export RUNS -o a.tar -> .zip
export OUT -o a.zip -> OUT
export RUNS -o a --format eee -> --organization
export RUNS -o a.zip --organization us -> organization eee
verify none -> none
verify OUT -> OUT
data nothing -> nothing
variants --plugin none.py -> none.py
convert none c --variant add -> none
convert CHECKPOINT c -> --variant
convert CHECKPOINT c --variant ad -> ad add
convert CHECKPOINT c --variant diet-abs --option rank=many -> rank diet-abs many
convert CHECKPOINT c --variant diet-abs --option rank=4 --option rank=5 -> rank twice
convert CHECKPOINT c --variant add --option x=2020-13-45 -> x=2020-13-45 YAML
convert CHECKPOINT c --variant add --option x=2020-01-01 -> 'x' finite
convert CHECKPOINT c --variant add --option x=.nan -> 'x' finite
convert CHECKPOINT c --variant add --option x=1 -> x add
convert CHECKPOINT c --variant add --option =4 -> KEY=VALUE
convert CHECKPOINT OUT --variant add -> OUT exist
convert CHECKPOINT c --variant add --option rank= -> KEY=VALUE
convert CHECKPOINT tiny.yaml --variant add -> tiny.yaml
convert CHECKPOINT RUNS --variant add -> RUNS
convert CHECKPOINT c --variant add --tokenizer none -> none
analyse -> SOURCE
analyse CHECKPOINT --only odour -> odour order
analyse CHECKPOINT --sequences 7 -> --sequences 8
analyse CHECKPOINT -o tiny.yaml -> tiny.yaml
statistics RUNS --power 0.8 -> --power --difference
"""
"""RUNS is a finished experiment, CHECKPOINT an encoder, OUT an empty folder."""
FILES = {
    "broken.yaml": "a: [",
    "list.yaml": "- a",
    "twice.yaml": "name: a\nname: b\n",
    "tiny.yaml": json.dumps(tiny_runs.experiment()),
}


@pytest.mark.parametrize(("words", "names"), cases(WRONG_WORDS))
def test_a_mistake_on_the_command_line_is_one_line_that_names_it(
    refused, ran, tmp_path, monkeypatch, words, names
):
    (tmp_path / "empty").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    places = {
        "RUNS": ran,
        "OUT": tmp_path / "empty",
        "CHECKPOINT": next(ran.glob("checkpoints/add-*/step-4")),
    }
    for name, place in places.items():
        words = words.replace(name, str(place))
        names = names.replace(name, str(place))
    refusal(refused(*words.split()), names)
    assert {path.name for path in tmp_path.iterdir()} == FILES.keys() | {"empty"}
