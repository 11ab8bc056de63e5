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
def moody_config(tiny, write_yaml) -> Path:
    return write_yaml(tiny(arms=["add", "moody"], tasks=["cola"]))


def test_run_prints_the_leaderboard_and_what_was_done(
    glue_bench, tiny, write_yaml, tmp_path, monkeypatch
):
    written = []
    folder = tmp_path / "runs" / "tiny"
    config = write_yaml(tiny(tasks=["cola"]))

    def write_page(_: object) -> None:
        written.append((folder / "leaderboard.md").is_file())

    monkeypatch.setattr("glue_bench.api.experiments.write_page", write_page)
    result = glue_bench("run", config, "--results", tmp_path / "runs")
    assert result.status == 0
    assert "‡ one answer to everything\n" in result.out
    for line in result.out.splitlines()[:-2]:
        assert len(line) <= 80 or str(tmp_path) in line
    assert "cells run: 2, done before: 0, failed: 0, left: 0\n" in result.out
    assert (
        f"results: {folder} (leaderboard.md, leaderboard.csv, scores.csv, cells/)\n" in result.out
    )
    page = f"page: {folder / 'report.html'}\n"
    last = f"{page}next: glue-bench statistics {folder}  # the intervals behind the marks"
    assert result.out.endswith(f"{last}; --seed 1,2,3 (in a file seeds: [1, 2, 3]) tell more\n")
    assert written == [True]  # the page is the last thing
    assert "[2/2] none on cola" in result.err
    second = glue_bench("run", config, "--results", tmp_path / "runs")
    assert "cells run: 0, done before: 2, failed: 0, left: 0\n" in second.out


def test_a_failing_cell_is_named_and_the_status_is_1(glue_bench, moody_config, tmp_path, moody):
    moody.side_effect = RuntimeError("out of luck")
    result = glue_bench("run", moody_config, "--results", tmp_path)
    assert result.status == 1
    assert "cells run: 1, done before: 0, failed: 1, left: 0\n" in result.out
    assert result.out.endswith(
        f"next: glue-bench status {tmp_path / 'tiny'}  # why runs have failed\n"
    )
    assert "failed: moody-cola-lr0.001-s1-" in result.err
    assert "RuntimeError: out of luck" in result.err
    assert "Traceback" not in result.err
    counted = glue_bench("status", tmp_path / "tiny").out
    assert "failed: moody on cola, rate 0.001, seed 1: RuntimeError: out of luck" in counted
    dry_run = glue_bench("run", moody_config, "--results", tmp_path, "--dry-run")
    assert dry_run.out.splitlines()[1].split(maxsplit=1) == [
        "1",
        "it failed: RuntimeError: out of luck",
    ]


ENDS = {"interrupted": (signal.SIGINT, 130), "terminated": (signal.SIGTERM, 143)}


@pytest.mark.parametrize("cause", ENDS)
def test_what_is_finished_is_kept_when_a_run_is_ended(
    glue_bench, moody_config, tmp_path, moody, monkeypatch, cause
):
    """The signal comes before any cell, when the cache is looked for, and within a cell."""
    number, expected = ENDS[cause]
    before = signal.getsignal(signal.SIGTERM)
    moody.side_effect = lambda: signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.delenv("GLUE_BENCH_CACHE")
        patch.setattr("glue_bench.files.user_cache_path", lambda _: signal.raise_signal(number))
        result = glue_bench("run", moody_config, "--results", tmp_path)

    assert result.status == expected
    assert "Traceback" not in result.err

    result = glue_bench("run", moody_config, "--results", tmp_path)
    assert result.status == expected
    assert "cells run: 1, done before: 0, failed: 0, left: 1\n" in result.out
    assert result.err.endswith(f"{cause}: {GOES_ON}")

    ending = "this process ends"
    if cause == "interrupted":
        ending = "ending what runs, then writing"
    assert f"{cause}: {ending}" in result.err

    has_tables = cause == "interrupted"
    assert (tmp_path / "tiny" / "leaderboard.md").exists() == has_tables
    assert ("Arm" in result.out) == has_tables
    assert ("(leaderboard.md, " in result.out) == has_tables

    assert signal.getsignal(signal.SIGTERM) is before


# Without a file


def test_a_run_without_a_file_is_the_experiment_that_it_prints_once_it_is_checked(
    glue_bench, refused, make_bert, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "minilm").mkdir()
    make_bert("minilm/model", texts=("one two three",), positions=128)

    words = ["run", "--checkpoint", "minilm/model", "--arm", "add", "--arm", "native", "--seed", 1]
    words += ["--data", "demo", "--limit", 16, "--dry-run"]

    assert refused(*words, "--task", "x").startswith(
        "experiment: tasks: unknown task 'x'; known: cola, sst2, "
    )

    result = glue_bench(*words, "--task", "RTE")
    assert result.out.endswith("would run 8 of 8 cells, 0 are done, in runs/minilm-model\n")
    printed = result.err.split("experiment:\n")[1]
    assert printed.endswith('finetuning: {"learning_rates": [2e-05, 3e-05, 4e-05, 5e-05]}\n\n')

    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path / "minilm" / "model")
    )
    assert glue_bench("run", "--checkpoint", "org/model", *words[3:]).out.endswith(
        "in runs/org-model\n"
    )

    (tmp_path / "printed.yaml").write_text(printed)
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
