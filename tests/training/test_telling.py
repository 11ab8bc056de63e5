"""How far a job is: written while it runs, read by others, gone afterwards."""

import json
import shutil

import pytest

from glue_bench.training import progress
from glue_bench.training.progress import read_progress, tell, telling


@pytest.fixture
def clock(monkeypatch):
    """The seconds that `time.monotonic` says."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_steps_loss_and_time_left_are_there_while_a_job_runs(tmp_path, clock):
    asked = []

    def loss():
        asked.append(1)
        return 0.51234

    with telling(tmp_path, "one"):
        for step in range(1, 11):
            tell(step, 40, loss)
            clock[0] += 0.5
        found = read_progress(tmp_path, "one")
        assert found is not None
        # Step 9 was told 4 s after the first one: eight steps in 4 s, 31 are left.
        assert (found.step, found.steps, found.loss) == (9, 40, 0.51234)
        assert found.seconds_left == pytest.approx(31 * 0.5)
        assert len(asked) == 3
    assert read_progress(tmp_path, "one") is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_goes_on_from_a_state_counts_from_there(tmp_path, clock):
    with telling(tmp_path, "one"):
        tell(501, 601, lambda: 1.0)
        clock[0] += 10
        tell(511, 601, lambda: 1.0)
        found = read_progress(tmp_path, "one")
    assert found is not None
    assert found.seconds_left == pytest.approx(90)


def test_nothing_is_told_outside_of_a_job_and_a_folder_that_cannot_be_written_is_no_fault(tmp_path):
    tell(1, 2, lambda: 1 / 0)
    (tmp_path / "progress").write_text("a file in its place")
    with telling(tmp_path, "one"):
        tell(1, 2, lambda: 1.0)
    assert read_progress(tmp_path, "one") is None


def test_the_folder_may_go_with_a_job_that_ends(tmp_path):
    with telling(tmp_path, "one"):
        shutil.rmtree(tmp_path / "progress", ignore_errors=True)
        tell(1, 2, lambda: 1.0)
        assert read_progress(tmp_path, "one") is not None


def test_damaged_files_say_nothing(tmp_path):
    (tmp_path / "progress").mkdir()
    for content in ("{", json.dumps({"step": 1}), "[]"):
        (tmp_path / "progress" / "one.json").write_text(content)
        assert read_progress(tmp_path, "one") is None
