"""How far a job is: written while it runs, read by others, gone afterwards."""

import os
import shutil

import pytest

from glue_bench.sweep import progress
from glue_bench.sweep.progress import read_progress, telling
from glue_bench.watch.view import describe_progress


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

    with telling(tmp_path, "one") as tell:
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
    with telling(tmp_path, "one") as tell:
        tell(501, 601, lambda: 1.0)
        clock[0] += 10
        tell(511, 601, lambda: 1.0)
        found = read_progress(tmp_path, "one")
    assert found is not None
    assert found.seconds_left == pytest.approx(90)


def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path):
    (tmp_path / "progress").write_text("a file in its place")
    with telling(tmp_path, "one") as tell:
        tell(1, 2, lambda: 1.0)
    assert read_progress(tmp_path, "one") is None


def test_the_folder_may_go_with_a_job_that_ends(tmp_path):
    with telling(tmp_path, "one") as tell:
        shutil.rmtree(tmp_path / "progress", ignore_errors=True)
        tell(1, 2, lambda: 1.0)
        assert read_progress(tmp_path, "one") is not None


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", '{"step": 1}', "[" * 3000, '{"step": "a", "steps": 2, "loss": 1.0, "seconds_left": null}'),
        '{"step": 1, "steps": 2, "loss": Infinity, "seconds_left": null}',
        '{"step": 1, "steps": 2, "loss": 1.0, "seconds_left": 1e999}',
        '{"step": 1, "steps": ' + "9" * 30 + ', "loss": 1.0, "seconds_left": null}',
        '{"step": 1, "steps": 2, "loss": 1.0, "seconds_left": null}' + " " * 4096,
    ],
)
def test_files_of_others_that_are_none_say_nothing(tmp_path, content):
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / "one.json").write_text(content)
    assert read_progress(tmp_path, "one") is None


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    (tmp_path / "progress").mkdir()
    os.mkfifo(tmp_path / "progress" / "one.json")
    assert read_progress(tmp_path, "one") is None


def test_a_loss_that_is_not_finite_is_told_as_such(tmp_path):
    with telling(tmp_path, "one") as tell:
        tell(1, 2, lambda: float("nan"))
        assert describe_progress(read_progress(tmp_path, "one")) == "step 1 of 2, loss NaN"


@pytest.mark.skipif(os.name != "posix", reason="needs links")
@pytest.mark.parametrize("name", ["one.part", "one.json"])
def test_nothing_is_written_through_a_link(tmp_path, name):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / name).symlink_to(tmp_path / "precious")
    with telling(tmp_path, "one") as tell:
        tell(1, 2, lambda: 1.0)
        assert read_progress(tmp_path, "one") is not None
    assert (tmp_path / "precious").read_text() == "kept"
