"""The proof of the GPU path runs without a GPU, too; and it refutes what is not so."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import typer

import gpu
import gpu_cells
import gpu_failures
from glue_bench.sweep.jobs import Failure
from glue_bench.training.engine import Engine
from gpu_results import Results, run_items, verdict
from gpu_table import to_table

ROOT = Path(__file__).resolve().parents[2]
VALUES = {"data": "demo", "corpus": "demo", "checkpoint": "scratch-tiny", "tiny": True}


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "gpu.json", time.time())


@pytest.fixture
def run(results, tmp_path, monkeypatch, small_demo):
    """Run a part of the proof for one variant and return the statuses of its items."""
    small_demo(train=160, validation=16)
    monkeypatch.setattr(gpu_cells, "FEW_VARIANTS", ("untied",))

    def call(part):
        assert gpu.run_here(results, part, VALUES | {"aside": str(tmp_path)}, time.time() + 600)
        return {name: record["status"] for name, record in results.items(part).items()}

    return call


@pytest.mark.parametrize("part", ["gradients", "losses", "bf16", "recorded", "pretraining-losses", "failures"])
def test_every_check_passes_here(run, results, part):
    statuses = run(part)
    assert set(statuses.values()) == {"passed"}, results.items(part)
    assert json.loads(results.path.read_text())["parts"][part]["items"].keys() == statuses.keys()


def test_the_checks_have_padding_and_two_lengths(small_demo):
    small_demo(train=160, validation=16)
    case = gpu_cells.Cases(steps=10).case("add")
    for split in case.tokens.splits.values():
        assert split.lengths.min() < 16 < split.lengths.max() <= gpu_cells.LONGEST
    assert not case.batch(torch.device("cpu")).mask.all()
    training = gpu_cells.ResidentTraining(case.classifier(), case.cell, case.tokens, None, torch.device("cpu"))
    assert set(training._plan(1)[1]) == {16, 32}
    long = gpu_cells.Cases(steps=10, longest=256).case("add")
    training = gpu_cells.ResidentTraining(long.classifier(), long.cell, long.tokens, None, torch.device("cpu"))
    assert {128, 256} <= set(training._plan(1)[1])


def test_a_failure_for_another_reason_is_no_lack_of_memory(monkeypatch, small_demo):
    small_demo(train=160, validation=16)
    plan = gpu_cells.Plan(device="cpu", aside="", **VALUES)
    monkeypatch.setattr(gpu_failures, "attempt_cell", lambda *_: Failure("ValueError: shapes differ", ""))
    with pytest.raises(AssertionError, match="shapes differ"):
        gpu_failures._fill_and_run(plan)


def test_moments_of_the_cell_before_are_found(run, results, monkeypatch):
    monkeypatch.setattr(Engine, "load", lambda self, model: self.model.load_state_dict(model.state_dict()) and None)
    # Of the long one differences are counted, because not all of torch's kernels repeat there.
    assert run("recorded") == {"untied": "refuted", "untied, up to 256 tokens": "passed"}
    assert results.items("recorded")["untied, up to 256 tokens"]["figures"]["second_cell"] > 0


def test_a_wrong_gradient_is_found(run, monkeypatch):
    calls = []

    def wrong(*arguments):
        loss, found = kept(*arguments)
        calls.append(loss)
        if len(calls) == 2:
            next(iter(found.values()))[0] += 1e-3
        return loss, found

    kept = gpu_cells.gradients
    monkeypatch.setattr("gpu_correctness.gradients", wrong)
    assert run("gradients") == {"untied": "refuted"}


def test_a_loss_that_drifts_is_found(run, monkeypatch):
    kept = Engine._backward
    drift = iter([1.001] * 6 + [1.0] * 6)  # six steps of the first of two trainings
    monkeypatch.setattr(Engine, "_backward", lambda self, batch: kept(self, batch) * next(drift))
    assert run("losses") == {"untied": "refuted"}


def test_dropout_that_draws_the_same_each_time_is_found(run, monkeypatch):
    kept = Engine.step

    def seeded(self, batch, rate):
        torch.manual_seed(0)
        return kept(self, batch, rate)

    monkeypatch.setattr(Engine, "step", seeded)
    assert run("recorded") == {"untied": "refuted", "untied, up to 256 tokens": "refuted"}


def test_a_figure_that_is_no_number_is_within_no_limit():
    assert verdict({"figures": {"a": 1.0}, "limits": {"a": 1.0}}) == "passed"
    assert verdict({"figures": {"a": float("nan")}, "limits": {"a": 1.0}}) == "refuted"
    assert verdict({"figures": {"a": 1.0}}) == "measured"


def test_what_fails_is_kept_with_its_traceback_and_stops_nothing(results):
    def fail():
        raise ValueError("too bad")

    items = {"bad": fail, "good": lambda: {"figures": {"n": 1}}}
    assert run_items(results, "part", items, time.time() + 60, print)
    bad, good = results.items("part").values()
    assert (bad["status"], bad["error"]) == ("failed", "ValueError: too bad")
    assert "in fail" in bad["traceback"]
    assert (good["status"], good["figures"]) == ("measured", {"n": 1})
    assert not results.good("part")


def test_a_later_run_goes_on_with_what_is_not_done(results, tmp_path):
    calls = []
    items = {name: lambda name=name: calls.append(name) or {"figures": {}} for name in ("first", "second")}
    run_items(results, "part", {"first": items["first"]}, time.time() + 60, print)
    run_items(results, "part", items, time.time() - 1, print)
    assert results.items("part")["second"]["status"] == "not reached"
    assert not results.good("part")
    later = Results(tmp_path / "gpu.json", time.time())
    run_items(later, "part", items, time.time() + 60, print)
    assert calls == ["first", "second"]
    assert later.good("part")
    run_items(Results(tmp_path / "gpu.json", time.time(), again=True), "part", items, time.time() + 60, print)
    assert calls == ["first", "second", "first", "second"]


def test_what_was_done_without_a_gpu_is_not_done_on_one(results, tmp_path):
    calls = []
    items = {"item": lambda: calls.append(1) or {"figures": {"a": 0}, "limits": {"a": 0}}}
    results.where = {"device": "cpu", "tiny": True}
    run_items(results, "part", items, time.time() + 60, print)
    for device, tiny, runs in (("cpu", True, 1), ("H100", False, 2), ("H100", False, 2), ("A100", False, 3)):
        later = Results(tmp_path / "gpu.json", time.time())
        later.where = {"device": device, "tiny": tiny}
        run_items(later, "part", items, time.time() + 60, print)
        assert len(calls) == runs
        record = later.items("part")["item"]
        assert record | later.where == record


def test_without_a_gpu_nothing_is_run_unless_it_is_tiny(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(typer.Exit) as ended:
        gpu.main(out=tmp_path / "gpu.json")
    assert ended.value.exit_code == 2
    assert re.fullmatch(r"no GPU: PyTorch \S+ sees none; .*--tiny.*\n", capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_a_process_is_told_when_its_time_is_over_and_stopped_some_time_after(results, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "__file__", str(tmp_path / "part.py"))
    (tmp_path / "part.py").write_text("import sys; sys.exit(' '.join(sys.argv))")
    ends = time.time() + 600
    status, said = gpu._process(results, "part", VALUES, ends)
    assert status == 1
    assert f"--ends={ends}" in said.split()
    (tmp_path / "part.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(gpu, "GRACE", 0.0)
    assert gpu._process(results, "part", VALUES, time.time()) == (None, "")


def test_a_slow_item_is_not_reached_and_no_failure(results, monkeypatch):
    def process(results, part, _, ends):
        if not results.items(part):
            results.put(part, "slow", "running")
            return None, ""
        items = dict.fromkeys(("slow", "last"), lambda: pytest.fail("its time is over"))
        return 0 if run_items(results, part, items, ends, print) else 1, ""

    monkeypatch.setattr(gpu, "_process", process)
    gpu.run_aside(results, "part", VALUES, time.time() - 1)
    assert [record["status"] for record in results.items("part").values()] == ["not reached", "not reached"]
    assert not results.good("part")


def test_a_process_that_dies_costs_the_item_it_was_in(results, monkeypatch):
    names = iter(["one", "two", "three"])

    def process(results, part, *_):
        name = next(names)
        results.put(part, name, "measured" if name == "three" else "running", figures={})
        return (0 if name == "three" else -11), "Segmentation fault"

    monkeypatch.setattr(gpu, "_process", process)
    gpu.run_aside(results, "part", VALUES, time.time() + 60)
    assert [record["status"] for record in results.items("part").values()] == ["failed", "failed", "measured"]
    assert "exit status -11: Segmentation fault" in results.items("part")["one"]["error"]


def test_a_process_that_cannot_even_start_is_said_once(results, monkeypatch):
    monkeypatch.setattr(gpu, "_process", lambda *_: (1, "ModuleNotFoundError: torch"))
    gpu.run_aside(results, "part", VALUES, time.time() + 60)
    assert results.items("part")["start"]["error"] == "ModuleNotFoundError: torch"
    assert not results.good("part")


def test_parts_are_chosen_by_letter_or_name():
    assert gpu.chosen("e, b") == ["finetune-minilm", "finetune-base", "glue"]
    assert gpu.chosen("losses") == ["losses"]
    assert gpu.chosen("") == list(gpu.PARTS)
    with pytest.raises(Exception, match="not f"):
        gpu.chosen("a,f")


def test_the_table_is_short():
    speed = {"tokens_per_second": 1000.0, "of_peak": 0.25, "peak_mib": 512.0}
    speed |= {"first_cell_seconds": 60.0, "later_cell_seconds": 2.0}
    items = {
        "losses": {
            "add": {"status": "passed", "figures": {"five": 5e-5, "n": 0}, "limits": {"five": 1e-4, "n": 0}},
            "shaw": {"status": "refuted", "figures": {"five": 1.0}, "limits": {"five": 1e-4}},
        },
        "finetune-base": {
            "rte, Trainer": {"status": "measured", "figures": speed},
            "rte, glue-bench": {"status": "measured", "figures": speed | {"tokens_per_second": 3000.0}},
        },
        "together": {
            "rte": {
                "status": "measured",
                "figures": {"at_once": 5.0, "one_after_another": 10.0, "times_faster": 2.0, "cells": 4},
            }
        },
        "glue": {
            "rte": {
                "status": "measured",
                "figures": {"train": 0.01, "trained_rows": 5000, "score": 0.001, "scored_rows": 10_000},
            }
        },
    }
    text = to_table({"parts": {part: {"items": found} for part, found in items.items()}})
    rows = dict([cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines())
    assert rows["losses"] == "1 of 2, at most 0.5 of a limit; shaw refuted"
    assert rows["finetune-base: rte, Trainer"] == (
        "1,000 tokens/s, ours 3.00 times that, 25% of peak, 512 MiB, first cell 60.0 s, later 2.00 s"
    )
    assert rows["together: rte"] == "4 cells in 5.0 s at once, 10.0 s one after another: 2.00 times as fast"
    assert rows["glue: in all"].startswith("1.0 minutes for three epochs of 1 tasks; without CoLA, SST-2")


@pytest.mark.slow
def test_all_of_it_runs_from_the_command_line(tmp_path):
    out = tmp_path / "all.json"
    command = [sys.executable, ROOT / "benchmarks" / "gpu.py", "--tiny", "--out", out]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = json.loads(out.read_text())["parts"]
    assert list(parts) == list(gpu.PARTS)
    assert all(f"| {name}" in done.stdout for name in parts)


@pytest.mark.slow
def test_a_part_runs_in_a_process_of_its_own(results, tmp_path):
    gpu.run_aside(results, "gradients", VALUES | {"aside": str(tmp_path)}, time.time() + 300)
    assert results.good("gradients"), results.items("gradients")
