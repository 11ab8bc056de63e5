"""The log for machines: every event a line, whatever ends the sweep; a log that breaks costs no cell."""

import io
import json
import os
import re
import signal
import socket

import pytest
from rich.console import Console

from glue_bench.api import run
from glue_bench.errors import UserError
from glue_bench.sweep import attempts
from glue_bench.sweep.events import SweepEnded
from glue_bench.watch.json_log import JsonLog
from glue_bench.watch.tally import Tally

pytestmark = pytest.mark.usefixtures("small_demo")


@pytest.fixture
def logged(tmp_path):
    """Run an experiment with a log; its summary, the log's lines, and what the console said."""

    def run_it(values, log=None):
        path, console = log or tmp_path / "log.jsonl", Console(file=io.StringIO(), width=200)
        summary = run(values, results=tmp_path / "runs", console=console, json_log=path)
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        return summary, lines, console.file.getvalue()

    return run_it


def names(lines) -> list[str]:
    return [line["event"] for line in lines]


def test_a_sweep_is_told_from_its_start_to_its_end(logged, tiny, monkeypatch):
    finetune = attempts.finetune

    def perhaps(cell, *arguments):
        if cell.arm.name == "none":
            raise RuntimeError("out of luck")
        return finetune(cell, *arguments)

    monkeypatch.setattr(attempts, "finetune", perhaps)
    summary, lines, _ = logged(tiny(tasks=["cola"]))
    assert names(lines) == [
        "sweep_started", "cell_started", "cell_finished", "cell_started", "cell_failed", "sweep_ended",
    ]  # fmt: skip
    here = f"{socket.gethostname()}:{os.getpid()}"
    start, begun, finished, _, failed, end = lines
    assert len({line["sweep"] for line in lines}) == 1
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
    assert (start["experiment"], start["cells"], start["done_before"], start["workers"]) == ("tiny", 2, 0, 1)
    assert start["folder"] == str(summary.folder)
    assert begun["worker"] == finished["worker"] == here
    assert {key: finished[key] for key in ("arm", "task", "learning_rate", "seed")} == {
        "arm": "add", "task": "cola", "learning_rate": 1e-3, "seed": 1,
    }  # fmt: skip
    record = json.loads((summary.folder / "records" / f"{finished['cell']}.json").read_text())
    assert (finished["scores"], finished["seconds"]) == (record["scores"], record["seconds"]["total"])
    assert finished["tokens"] == record["tokens"]["training"]
    assert finished["counts"] == {"done": 1, "running": 0, "failed": 0, "queued": 1}
    assert failed["error"] == "RuntimeError: out of luck"
    assert end["counts"] == {"done": 1, "running": 0, "failed": 1, "queued": 0}
    assert end["error"] is None


def test_another_run_is_appended(logged, tiny):
    _, first, _ = logged(tiny(arms=["add"], tasks=["cola"]))
    _, both, _ = logged(tiny(arms=["add"], tasks=["cola"]))
    assert both[: len(first)] == first
    assert names(both[len(first) :]) == ["sweep_started", "sweep_ended"]
    assert both[-2]["done_before"] == 1
    assert both[0]["sweep"] != both[-1]["sweep"]


def test_pretraining_is_told_too(logged, tiny):
    settings = {"corpus": "demo", "steps": 4, "batch_tokens": 128, "length": 32, "validations": 1}
    _, lines, _ = logged(tiny(arms=["add"], tasks=["cola"], pretraining=settings))
    assert names(lines)[:2] == ["sweep_started", "pretraining_started"]
    points = [line for line in lines if line["event"] == "pretraining_point"]
    assert [point["step"] for point in points] == [1, 2, 3, 4]
    assert set(points[-1]) >= {"arm", "tokens", "train_loss", "validation_loss", "seconds"}
    assert names(lines)[6:] == ["pretraining_finished", "cell_started", "cell_finished", "sweep_ended"]
    assert lines[0]["pretraining"] == [points[0]["pretraining"]]
    assert (points[0]["arm"], points[0]["pretraining_seed"], points[0]["learning_rate"]) == ("add", 1, 1e-4)


def test_ctrl_c_and_an_error_that_ends_the_sweep_are_told(logged, tiny, tmp_path, monkeypatch):
    finetune = attempts.finetune

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return finetune(*arguments)

    monkeypatch.setattr(attempts, "finetune", interrupted)
    _, lines, _ = logged(tiny(tasks=["cola"]))
    assert names(lines)[-3:] == ["cell_finished", "sweep_interrupted", "sweep_ended"]
    assert lines[-1]["counts"]["queued"] == 1

    def full(*_):
        raise OSError(28, "No space left on device", "/cache")

    monkeypatch.setattr(attempts, "finetune", full)
    with pytest.raises(UserError):
        logged(tiny(tasks=["cola"]))
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["error"][:43]) == ("sweep_ended", "cannot write '/cache': No space left on dev")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("nowhere/log.jsonl", r"^cannot write the log '.*nowhere/log.jsonl': no folder '.*nowhere'; create it first$"),
        ("", r"^cannot write the log '.*': it is a folder$"),
    ],
)
def test_a_log_that_cannot_be_written_is_refused_before_anything(tiny, tmp_path, log, said):
    for dry_run in (True, False):
        with pytest.raises(UserError, match=said):
            run(tiny(), results=tmp_path / "runs", json_log=tmp_path / log, dry_run=dry_run)
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_under_the_log_is_said_once_and_costs_no_cell(logged, tiny, tmp_path):
    (tmp_path / "full.jsonl").symlink_to("/dev/full")
    summary, _, said = logged(tiny(tasks=["cola"]), tmp_path / "full.jsonl")
    assert (summary.finished, summary.failed) == (2, {})
    assert said.count("cannot write to the log") == 1
    assert "No space left on device; the sweep goes on, lines of the log are missing" in said


def test_a_torn_line_spoils_no_other(tmp_path, monkeypatch):
    log = JsonLog(tmp_path / "log.jsonl", Tally(), Console(file=io.StringIO()))
    short_by_one = len('{"event": "also torn"}\n')  # the line that ends the torn one is written before it
    write, room = os.write, [short_by_one, 10]

    def short(handle, content):
        return write(handle, content[: room.pop()] if room else content)

    monkeypatch.setattr(os, "write", short)
    log._append({"event": "torn"})
    log._append({"event": "also torn"})
    log._append({"event": "whole"})
    log.hear(SweepEnded())
    torn, also_torn, whole, end = (tmp_path / "log.jsonl").read_text().splitlines()
    assert len(torn) == 10
    assert len(also_torn) == short_by_one - 1
    assert json.loads(whole) == {"event": "whole"}
    assert json.loads(end)["event"] == "sweep_ended"
