"""Weights that cells started from are lost, and an arm is pretrained once more, here or on another processor."""

import shutil
from dataclasses import replace

import pytest
from stored import weights

from glue_bench.files import CHECKSUMS, write_checksums
from glue_bench.sweep import attempts as module
from glue_bench.tables.board import open_board
from glue_bench.training import pretrain as training

pytestmark = pytest.mark.usefixtures("small_demo")
SEVERAL = {"checkpoints": [3], "finetune_checkpoints": True}


@pytest.mark.usefixtures("no_tables")
def test_a_checkpoint_that_was_lost_is_made_again(sweep, failing, finished, values):
    folder = finished(values()).folder
    before = weights(folder)
    shutil.rmtree(next((folder / "checkpoints").glob("add-*")) / "step-10")
    started = failing({})
    sweep(seeds=[1, 2])
    assert started == ["add"]
    assert weights(folder) == before


@pytest.fixture
def elsewhere(monkeypatch):
    """Go to another processor, which rounds otherwise: weights that begin a little larger stand in for it."""
    build = training.build_masked_lm

    def rounded_otherwise(start, *rest):
        larger = {"initializer_range": 1.001 * start.config.initializer_range}
        config = type(start.config).from_dict(start.config.to_dict() | larger)
        return build(replace(start, config=config), *rest)

    return lambda: monkeypatch.setattr(training, "build_masked_lm", rounded_otherwise)


@pytest.fixture
def lost(finished, values):
    """The folder of a finished experiment without the weights that its cells started from."""
    folder = finished(values()).folder
    shutil.rmtree(next((folder / "checkpoints").glob("add-*")) / "step-10")
    return folder


@pytest.mark.parametrize("moved", [False, True])
def test_runs_of_lost_weights_are_told_where_others_took_their_place(sweep, lost, elsewhere, moved):
    if moved:
        elsewhere()
    sweep(seeds=[1, 2])
    line = "pretrained once more: add (gone are the weights that 1 finished cell started from)"
    assert line in sweep.said
    page = (lost / "leaderboard.md").read_text()
    assert ("Some runs (1 of `add`) started from weights that were lost" in page) == moved
    cells = open_board(lost).cells
    assert cells["of_lost_weights"].sum() == moved
    assert (cells["processor"] == "").sum() == moved


def test_weights_of_a_second_pretraining_that_was_cut_off_are_not_those_of_the_first(
    sweep, lost, elsewhere, monkeypatch
):
    elsewhere()
    with monkeypatch.context() as cut:
        cut.setattr(module, "measure_quietly", interrupted)  # the weights are there, their record is not
        assert sweep(seeds=[1, 2]).finished == 0
    sweep(seeds=[1, 2])
    assert open_board(lost).cells["of_lost_weights"].sum() == 1


def interrupted(*_):
    raise KeyboardInterrupt


def cut_at(patch, step):
    """The run is interrupted before this step, the first state being saved after the last one."""
    batch = training.training_batch
    patch.setattr(training, "training_batch", lambda *a, **o: interrupted() if o["step"] == step else batch(*a, **o))


def of_lost_weights(folder) -> int:
    return open_board(folder).cells["of_lost_weights"].sum()


def test_a_checkpoint_whose_state_was_not_saved_is_not_that_of_the_record(sweep, lost, elsewhere, monkeypatch):
    elsewhere()
    with monkeypatch.context() as cut:
        cut.setattr(training.PretrainingFolder, "save_state", interrupted)
        assert sweep(seeds=[1, 2]).finished == 0
    sweep(seeds=[1, 2])
    assert of_lost_weights(lost) == 1


def test_checkpoints_of_two_runs_are_not_taken_for_one(sweep, elsewhere, monkeypatch):
    """One of two is lost and made anew; the run is cut off before it replaces the other one."""
    arms = {"arms": ["add"]}
    folder = sweep(SEVERAL, **arms).folder
    before = weights(folder)
    shutil.rmtree(next((folder / "checkpoints").glob("add-*")) / "step-3")
    elsewhere()
    with monkeypatch.context() as cut:
        cut_at(cut, 7)
        sweep(SEVERAL, **arms, seeds=[1, 2])
    assert {path.split("/")[-2] for path in before if weights(folder)[path] != before[path]} == {"step-3"}
    sweep(SEVERAL, **arms, seeds=[1, 2])
    assert not any(weights(folder)[path] == before[path] for path in before)
    assert of_lost_weights(folder) == 1  # the cell of the last step: tables have the others apart


@pytest.mark.usefixtures("no_tables")
def test_a_checkpoint_of_the_record_stays_where_a_later_run_was_given_up(sweep, failing, elsewhere, monkeypatch):
    """An earlier checkpoint is asked for, its run is interrupted on another processor, and it is wanted no more."""
    folder = sweep(arms=["add"]).folder
    before = weights(folder)
    monkeypatch.setattr(training, "SAVE_SECONDS", 0)
    with monkeypatch.context() as moved:
        elsewhere()
        cut_at(moved, 7)
        sweep(SEVERAL, arms=["add"])
    assert list(folder.glob("checkpoints/*/resume.pt"))
    started = failing({})
    sweep(arms=["add"], seeds=[1, 2])
    assert not started
    assert before.items() <= weights(folder).items()
    assert of_lost_weights(folder) == 0


def test_checkpoints_of_earlier_versions_say_nothing_of_their_run_and_stay(sweep, failing):
    folder = sweep(arms=["add"]).folder
    for path in folder.glob("checkpoints/*/step-*"):
        for name in ("curve", CHECKSUMS):
            (path / name).unlink()
        write_checksums(path)
    started = failing({})
    assert sweep(arms=["add"], seeds=[1, 2]).finished == 1
    assert not started
