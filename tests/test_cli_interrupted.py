"""What ends `glue-bench run` early, or takes its records away: one line and a documented exit status."""

import shutil
import signal

import pytest
import typer

from glue_bench.cli.printing import agreement
from glue_bench.sweep import attempts, executors
from glue_bench.sweep.executors import ClusterLostError

pytestmark = pytest.mark.usefixtures("small_demo")
GOES_ON = "finished cells are kept; the same command goes on from here\n"


@pytest.fixture
def run(glue_bench, tiny, write_yaml, tmp_path):
    """Run two cells, of `add` and of `none`, into the same folder each time."""
    config = write_yaml(tiny(tasks=["cola"]))
    return lambda *words: glue_bench("run", config, "--results", tmp_path, *words)


def terminate(*_: object, **__: object) -> None:
    signal.raise_signal(signal.SIGTERM)


def test_sigterm_in_a_cell_ends_without_tables(run, tmp_path, monkeypatch):
    monkeypatch.setattr(attempts, "finetune", terminate)
    said = run()
    assert said.status == 143
    assert said.err.endswith(f"terminated: {GOES_ON}")
    assert not (tmp_path / "tiny" / "leaderboard.md").exists()
    assert not (tmp_path / "tiny" / "claims").exists()


def test_sigterm_before_any_cell(run, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("glue_bench.sweep.work.plan_cells", terminate)
    said = run()
    assert (said.status, "Traceback" in said.err) == (143, False)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_lost_cluster_ends_as_ctrl_c_does(run, tmp_path, monkeypatch):
    attempt = executors.attempt

    def lost(job, *rest):
        if job.arm == "none":
            raise ClusterLostError("the head is gone")
        return attempt(job, *rest)

    monkeypatch.setattr(executors, "attempt", lost)
    said = run()
    assert said.status == 1
    assert f"\nthe head is gone: {GOES_ON}" in said.err
    assert "1 cells run, 0 were done before, 0 failed, 1 left" in said.out
    assert "add" in (tmp_path / "tiny" / "leaderboard.md").read_text()


def test_records_that_are_taken_away_under_a_run_are_missed(run, tmp_path, monkeypatch):
    run("--only", "arm=add")
    finetune = attempts.finetune

    def without_records(*arguments, **options):
        shutil.rmtree(tmp_path / "tiny" / "records")
        return finetune(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(attempts, "finetune", without_records)
        said = run()
    assert said.status == 1
    assert f"gone: 1 records that were in {tmp_path}/tiny/records are missing: add-cola-lr0.001-s1-" in said.err
    again = run()
    assert (again.status, "1 cells run, 1 were done before" in again.out) == (0, True)


def test_ctrl_c_at_the_question_is_a_no(monkeypatch):
    def interrupt(*_, **__):
        raise typer.Abort

    monkeypatch.setattr(typer, "confirm", interrupt)
    assert agreement(False, "a kept model")(["a"], 5.0) is False
