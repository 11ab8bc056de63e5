"""The verbs that run experiments: what they print, where, and their exit statuses."""

import json
import re
import signal
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from helpers.classifiers import save_classifier

from glue_bench import status
from glue_bench.config import load_experiment
from glue_bench.config.shipped import DEMO_FILE
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.records.values import Failure, Progress

GOES_ON = "finished jobs are kept; the same command goes on from here\n"
TIMES = re.compile(r"about [\d.]+ s, one after another, by (one|\d+) timed steps? on this machine")
"""How long a run takes on whatever machine."""
pytestmark = pytest.mark.usefixtures("small_demo")


@pytest.fixture
def classifier(tmp_path) -> Path:
    """A classifier of RTE that was fine-tuned elsewhere."""
    return save_classifier(tmp_path / "mine", ("entailment", "not_entailment"))


@pytest.fixture
def moody_config(tiny, write_yaml, small_demo) -> Path:  # noqa: ARG001
    """An experiment of two cells on a small demo; the second one does what `moody` says."""
    return write_yaml(tiny(arms=["add", "moody"], tasks=["cola"]))


@pytest.fixture
def run_tiny(glue_bench, tiny, write_yaml, tmp_path):
    """A function that runs an experiment of two arms on CoLA in the folder `runs`."""
    config = write_yaml(tiny(tasks=["cola"]))
    return lambda: glue_bench("run", config, "--results", tmp_path / "runs")


def test_run_prints_the_leaderboard_and_what_was_done(run_tiny, tmp_path):
    folder = tmp_path / "runs" / "tiny"
    result = run_tiny()
    assert result.status == 0
    assert "‡ one answer to everything\n" in result.out
    assert "cells run: 2, done before: 0, failed: 0, left: 0\n" in result.out
    files = "leaderboard.md, leaderboard.csv, scores.csv, cells/"
    assert f"results: {folder} ({files})\n" in result.out


def test_run_ends_with_the_page_and_the_next_command(run_tiny, tmp_path):
    folder = tmp_path / "runs" / "tiny"
    page, step = run_tiny().out.splitlines()[-2:]
    advice = "the intervals behind the marks; --seed 1,2,3 (in a file seeds: [1, 2, 3]) tell more"
    assert page == f"page: {folder / 'report.html'}"
    assert step == f"next: glue-bench statistics {folder}  # {advice}"


def test_lines_of_run_fit_80_columns_unless_they_have_a_path(run_tiny, tmp_path):
    lines = run_tiny().out.splitlines()[:-1]
    assert [line for line in lines if len(line) > 80 and str(tmp_path) not in line] == []


def test_run_counts_the_cells_as_they_end(run_tiny):
    assert "[2/2] none on cola" in run_tiny().err


def test_a_second_run_does_nothing_again(run_tiny):
    run_tiny()
    assert "cells run: 0, done before: 2, failed: 0, left: 0\n" in run_tiny().out


def test_the_page_is_written_after_the_tables(run_tiny, tmp_path, monkeypatch):
    leaderboard = tmp_path / "runs" / "tiny" / "leaderboard.md"
    has_leaderboard = []
    write_page = Mock(side_effect=lambda _: has_leaderboard.append(leaderboard.is_file()))
    monkeypatch.setattr("glue_bench.api.experiments.write_page", write_page)
    run_tiny()
    assert has_leaderboard == [True]


@pytest.fixture
def failed_run(glue_bench, moody_config, tmp_path, moody):
    """The output of a run of two cells, of which one failed."""
    moody.side_effect = RuntimeError("out of luck")
    return glue_bench("run", moody_config, "--results", tmp_path)


def test_a_failing_cell_is_named_and_the_status_is_1(failed_run):
    assert failed_run.status == 1
    assert "cells run: 1, done before: 0, failed: 1, left: 0\n" in failed_run.out
    assert "failed: moody-cola-lr0.001-s1-" in failed_run.err
    assert "RuntimeError: out of luck" in failed_run.err
    assert "Traceback" not in failed_run.err


def test_a_run_with_a_failing_cell_ends_with_the_command_that_tells_why(failed_run, tmp_path):
    command = f"glue-bench status {tmp_path / 'tiny'}"
    assert failed_run.out.endswith(f"next: {command}  # why runs have failed\n")


@pytest.mark.usefixtures("failed_run")
def test_status_tells_why_a_cell_failed(glue_bench, tmp_path):
    printed = glue_bench("status", tmp_path / "tiny").out
    assert "failed: moody on cola, rate 0.001, seed 1: RuntimeError: out of luck" in printed


@pytest.mark.usefixtures("failed_run")
def test_a_dry_run_counts_a_failed_cell_with_its_error(glue_bench, moody_config, tmp_path):
    printed = glue_bench("run", moody_config, "--results", tmp_path, "--dry-run").out
    count, reason = printed.splitlines()[1].split(maxsplit=1)
    assert count == "1"
    assert reason == "it failed: RuntimeError: out of luck"


ENDS = {"interrupted": (signal.SIGINT, 130), "terminated": (signal.SIGTERM, 143)}


@pytest.mark.parametrize("cause", ENDS)
def test_a_signal_before_any_cell_ends_a_run_without_a_traceback(
    glue_bench, moody_config, tmp_path, monkeypatch, cause
):
    """The signal comes when the cache is looked for."""
    number, status = ENDS[cause]
    monkeypatch.delenv("GLUE_BENCH_CACHE")
    monkeypatch.setattr("glue_bench.files.user_cache_path", lambda _: signal.raise_signal(number))
    result = glue_bench("run", moody_config, "--results", tmp_path)
    assert result.status == status
    assert "Traceback" not in result.err


@pytest.fixture(params=ENDS)
def ended_run(request, glue_bench, moody_config, tmp_path, moody):
    """A run of two cells, which a signal ends within the second one: the cause and the output."""
    number, _ = ENDS[request.param]
    moody.side_effect = lambda: signal.raise_signal(number)
    return request.param, glue_bench("run", moody_config, "--results", tmp_path)


def test_what_is_finished_is_kept_when_a_run_is_ended(ended_run):
    cause, result = ended_run
    _, status = ENDS[cause]
    assert result.status == status
    assert "cells run: 1, done before: 0, failed: 0, left: 1\n" in result.out
    assert result.err.endswith(f"{cause}: {GOES_ON}")


def test_a_run_says_at_once_how_it_ends(ended_run):
    cause, result = ended_run
    lines = {
        "interrupted": "interrupted: ending what runs, then writing",
        "terminated": "terminated: this process ends",
    }
    assert lines[cause] in result.err


def test_an_interrupted_run_has_tables_and_a_terminated_one_has_none(ended_run, tmp_path):
    cause, result = ended_run
    has_tables = cause == "interrupted"
    assert (tmp_path / "tiny" / "leaderboard.md").exists() == has_tables
    assert ("Arm" in result.out) == has_tables
    assert ("(leaderboard.md, " in result.out) == has_tables


def test_the_handler_of_a_signal_is_restored_after_a_run(glue_bench, moody_config, tmp_path, moody):
    before = signal.getsignal(signal.SIGTERM)
    moody.side_effect = lambda: signal.raise_signal(signal.SIGTERM)
    glue_bench("run", moody_config, "--results", tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before


# Without a file


@pytest.fixture
def minilm(make_bert, monkeypatch, tmp_path) -> Path:
    """A checkpoint `minilm/model` in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minilm").mkdir()
    return make_bert("minilm/model", texts=("one two three",), positions=128)


def words_of_run(checkpoint: str, task: str) -> list[object]:
    """Return the words of a dry run without a file: two arms, one seed, few rows of the demo."""
    arms = ["--arm", "add", "--arm", "native"]
    size = ["--seed", 1, "--data", "demo", "--limit", 16]
    return ["run", "--checkpoint", checkpoint, *arms, *size, "--task", task, "--dry-run"]


@pytest.mark.usefixtures("minilm")
def test_a_run_without_a_file_is_checked_before_its_experiment_is_printed(refused):
    message = refused(*words_of_run("minilm/model", "x"))
    assert message.startswith("experiment: tasks: unknown task 'x'; known: cola, sst2, ")


@pytest.mark.usefixtures("minilm")
def test_a_run_without_a_file_has_the_name_of_its_checkpoint(glue_bench):
    printed = glue_bench(*words_of_run("minilm/model", "RTE")).out
    assert printed.endswith("would run 8 of 8 cells, 0 are done, in runs/minilm-model\n")


def test_a_run_without_a_file_has_the_name_of_its_hub_id(glue_bench, minilm, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(minilm))
    assert glue_bench(*words_of_run("org/model", "RTE")).out.endswith("in runs/org-model\n")


@pytest.mark.usefixtures("minilm")
def test_the_experiment_that_a_run_without_a_file_prints_is_a_file_of_the_same_run(glue_bench):
    result = glue_bench(*words_of_run("minilm/model", "RTE"))
    experiment = result.err.split("experiment:\n")[1]
    assert experiment.endswith('finetuning: {"learning_rates": [2e-05, 3e-05, 4e-05, 5e-05]}\n\n')
    Path("printed.yaml").write_text(experiment)
    again = glue_bench("run", "printed.yaml", "--dry-run").out
    assert TIMES.sub("TIME", again) == TIMES.sub("TIME", result.out)


def test_options_of_slurm_are_texts_but_for_the_numbers_and_lists_of_submitit(
    glue_bench, monkeypatch
):
    monkeypatch.setattr("glue_bench.api.run", asked := Mock(side_effect=UserError("enough")))
    texts = {
        "account": "00123",
        "mem": "1e3",
        "begin": "2026-01-01",
        "constraint": "[a|b]",
        "minutes": "30",
    }
    options = ",".join(f"{name}={text}" for name, text in texts.items())
    glue_bench(
        "run", "mine.yaml", "--slurm", f"{options},exclusive=true,timeout_min=90,setup=[a, b]"
    )
    assert asked.call_args.kwargs["slurm"] == texts | {
        "exclusive": True,
        "timeout_min": 90,
        "setup": ["a", "b"],
    }


def test_a_dry_run_of_an_evaluation_says_how_long_it_takes(
    glue_bench, classifier, tmp_path, monkeypatch
):
    monkeypatch.setattr("glue_bench.sweep.expected_time.TRIAL_SECONDS", 60.0)
    words = ["evaluate", classifier, "--task", "rte", "--data", "demo", "--limit", 24]
    words += ["--max-length", 32, "--results", tmp_path, "--dry-run"]
    out = glue_bench(*words).out
    assert "evaluation: 24 rows in all; TIME\n" in TIMES.sub("TIME", out)


def test_a_dry_run_says_why_and_how_much(glue_bench, tiny, write_yaml, tmp_path, monkeypatch):
    monkeypatch.setattr("glue_bench.sweep.expected_time.TRIAL_SECONDS", 60.0)
    pretraining = {"corpus": "demo", "steps": 10, "batch_tokens": 256, "length": 32}
    output = glue_bench(
        "run", write_yaml(tiny(pretraining=pretraining)), "--results", tmp_path, "--dry-run"
    ).out
    assert [" ".join(line.split()) for line in output.splitlines()[:2]] == [
        "jobs why",
        "6 not run yet",
    ]
    line = "would run 4 of 4 cells, 0 are done, after pretraining on 5,120 tokens"
    assert TIMES.sub("TIME", output).splitlines()[2:] == [
        "pretraining: 5,120 tokens in all; TIME",
        "fine-tuning: 1 epochs a cell, 12 updates in all; TIME",
        f"{line}, in {tmp_path / 'tiny'}",
    ]


# init


def test_init_writes_an_experiment_that_is_valid_and_overwrites_nothing(
    glue_bench, refused, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "x" * 100):
        assert f"glue-bench run {name}.yaml" in glue_bench("init", name).out
        experiment = load_experiment(f"{name}.yaml")
        assert experiment.name == name
        assert [arm.variant for arm in experiment.arms] == ["add", "untied", "native"]
    text = Path("mine.yaml").read_text()
    assert "nothing is overwritten" in refused("init", "mine")
    assert Path("mine.yaml").read_text() == text
    for name in ("../mine", "x" * 101):
        assert "no name of an experiment" in refused("init", name)


def test_init_with_pretraining_writes_the_demo_under_another_name(
    glue_bench, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert "glue-bench run mine.yaml --dry-run" in glue_bench("init", "mine", "--pretrain").out
    demo = load_experiment(DEMO_FILE)
    assert load_experiment("mine.yaml") == demo.model_copy(update={"name": "mine"})
    assert "concat" in [arm.variant for arm in demo.arms]


# status


def test_status_says_what_is_done_runs_has_failed_and_is_missing(
    glue_bench, tiny, write_yaml, tmp_path
):
    config = write_yaml(tiny(arms=["add"], tasks=["cola"], seeds=[1, 2, 3]))
    part = tmp_path / "tiny"
    assert glue_bench("run", config, "--results", tmp_path, "--only", "seed=1").status == 0

    store = Store(part)
    now = time.time()
    _, second, third = (cell.id for cell in store.plan().cells)
    store.progress.write(
        Progress(id=second, worker="here:1", began=now - 9, updated=now, step=3, steps=9, loss=0.5)
    )
    store.write_failure(Failure(id=third, error="out of luck"))

    lines = glue_bench("status", part).out.splitlines()
    assert [" ".join(line.split()) for line in lines[:2]] == [
        "arm done running failed missing",
        "add 1 1 1 0",
    ]
    assert lines[2:-1] == [
        "running: add on cola, rate 0.001, seed 2, step 3 of 9, loss 0.500 (here:1)",
        "failed: add on cola, rate 0.001, seed 3: out of luck",
    ]
    assert lines[-1] == f"1 of 3 cells done, 1 running, 1 failed, 0 missing in {part}"

    document = json.loads(glue_bench("status", part, "--format", "json").out)
    expected = {"done": 1, "running": 1, "failed": 1, "missing": 0}
    assert document["cells"] == expected
    assert status(part)["state"].tolist() == ["done", "running", "failed"]
