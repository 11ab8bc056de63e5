"""Experiments with pretraining: checkpoints first, then cells that start from them, and what it all cost."""

import csv
import json
import re

import pytest
from safetensors.torch import load_file
from stored import documents, weights
from transformers import AutoModelForMaskedLM

from glue_bench.config import parse_experiment
from glue_bench.data.demo import generate
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.tables.board import leaderboard, open_board, steps_frame
from glue_bench.training import pretrain as training
from glue_bench.training.inputs import Inputs
from glue_bench.training.loop import NonFiniteLossError

pytestmark = pytest.mark.usefixtures("small_demo")


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


# From scratch


def test_arms_are_pretrained_and_their_cells_start_from_that(finished, values):
    summary = finished(values())
    assert (summary.planned, summary.finished, summary.failed) == (2, 2, {})
    assert {path.name for path in summary.folder.iterdir()} == {
        "budget.csv", "budget.md", "checkpoints", "failures", "intrinsic", "intrinsic.csv", "labels",
        "leaderboard.csv", "leaderboard.md", "losses.csv", "plan.json", "predictions", "pretraining", "records",
        "scores.csv", "statistics.csv", "statistics.md",
    }  # fmt: skip
    store = Store(summary.folder)
    for record in documents(store):
        assert record["cell"]["steps"] == 10
        assert record["origin"] == "pretrained"
        assert re.fullmatch(r"pretraining [0-9a-f]{12} step 10", record["checkpoint"]["digest"])
        assert "-s1-step10-" in record["cell_id"]
        assert record["shape"] == store.read_plan().arms[record["cell"]["arm"]].shape.document()
    table = leaderboard(summary.folder)
    assert table["origin"].tolist() == ["pretrained"] * 2
    assert set(table["start"]) == {"fresh weights of this shape, then 10 steps of pretraining"}
    for record in documents(store, "pretraining"):
        folder = summary.folder / "checkpoints" / record["pretraining_id"]
        assert sorted(path.name for path in folder.iterdir()) == ["identity.json", "step-10"]
        assert AutoModelForMaskedLM.from_pretrained(folder / "step-10").config.variant == record["arm"]
        assert record["identity"] == json.loads((folder / "identity.json").read_text())
        assert record["environment"]["device"] == "cpu"


def test_progress_names_arms_steps_and_losses(finished, values):
    finished(values())
    _, first, *lines = finished.said.splitlines()
    assert "2 cells to run; 2 pretrainings come first" in first
    losses = r"loss \d\.\d{3}, validation loss \d\.\d{3}"
    line = rf"pretraining add: step (\d+) of 10, [\d,]+ tokens, {losses}, [\d,]+ tokens/s"
    assert [re.fullmatch(line, text)[1] for text in lines[:2]] == ["5", "10"]
    assert " [1/2] add after 10 steps on cola, rate 0.001, seed 1: " in lines[4]
    assert len(lines) == 6


def test_cells_start_from_their_arms_own_checkpoint(values, finished):
    summary = finished(values())
    inputs = Inputs(parse_experiment(values()), summary.folder / "checkpoints")
    for cell in inputs.experiment.cells():
        run = inputs.experiment.pretraining_of(cell)
        start = inputs.pretrained(run, 10)
        stored = load_file(inputs.pretraining_folder(run).checkpoint(10) / "model.safetensors")
        assert start.config.variant == cell.arm.variant
        assert (stored["base.blocks.0.up.weight"] == start.weights["blocks.0.up.weight"]).all()
        assert not [name for name in start.weights if name.startswith("pooler.")]


def test_a_second_run_does_nothing(sweep, failing, finished, values):
    folder = finished(values()).folder
    before = contents(folder)
    started = failing({})
    again = sweep()
    assert (again.skipped, again.finished, started) == (2, 0, [])
    assert contents(folder) == before


@pytest.mark.usefixtures("no_tables")
def test_only_the_arms_of_waiting_cells_are_pretrained(sweep, failing):
    started = failing({})
    summary = sweep(only=["arm=untied"])
    assert (summary.finished, started) == (1, ["untied"])
    sweep()
    assert started == ["untied", "add"]
    sweep(seeds=[1, 2])
    assert started == ["untied", "add"]


def test_a_dry_run_pretrains_nothing(sweep, failing, tmp_path):
    started = failing({})
    summary = sweep(dry_run=True)
    assert len(summary.waiting) == 2
    assert not started
    assert not (tmp_path / "runs").exists()


# Several checkpoints


def test_every_kept_checkpoint_can_be_fine_tuned(sweep):
    several = {"checkpoints": [6, 3], "finetune_checkpoints": True}
    summary = sweep(several)
    assert summary.finished == 6
    found = rows(summary.folder / "steps.csv")
    assert [(row["arm"], row["steps"]) for row in found] == [
        (arm, steps) for steps in ("3", "6", "10") for arm in ("add", "untied")
    ]
    records = documents(Store(summary.folder))
    scores = {(r["cell"]["arm"], str(r["cell"]["steps"])): r["scores"]["validation"] for r in records}
    for row in found:
        value = 100 * scores[row["arm"], row["steps"]]["matthews_correlation"]
        assert float(row["cola"]) == pytest.approx(value, abs=0.006)
        assert (row["origin"], row["cola_n"]) == ("pretrained", "1")
    assert "## Against steps of pretraining" in (summary.folder / "leaderboard.md").read_text()
    assert steps_frame(open_board(summary.folder))["steps"].tolist() == [3, 3, 6, 6, 10, 10]
    assert len(leaderboard(summary.folder)) == 2
    again = sweep(several)
    assert (again.skipped, again.finished) == (6, 0)


@pytest.mark.usefixtures("no_tables")
def test_cells_of_one_checkpoint_can_be_chosen(sweep):
    summary = sweep({"checkpoints": [6], "finetune_checkpoints": True}, only=["steps=6", "arm=add"])
    assert [record["cell"]["steps"] for record in documents(Store(summary.folder))] == [6]


def test_without_being_asked_for_only_the_last_checkpoint_is_fine_tuned(sweep):
    summary = sweep({"checkpoints": [6]})
    assert summary.finished == 2
    assert not (summary.folder / "steps.csv").exists()
    assert len(list(summary.folder.glob("checkpoints/*/step-6"))) == 2


@pytest.mark.usefixtures("no_tables")
def test_checkpoints_wanted_later_are_made_then_with_the_same_weights(sweep, failing, finished, values):
    folder = finished(values(arms=["add"])).folder
    before = weights(folder)
    started = failing({})
    summary = sweep({"checkpoints": [6], "finetune_checkpoints": True}, arms=["add"])
    assert (summary.skipped, summary.finished, started) == (1, 1, ["add"])
    assert before.items() <= weights(folder).items()


# From a checkpoint


def test_grafted_arms_become_adapted_and_the_checkpoints_own_stays_pretrained(sweep, make_bert):
    bert = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    summary = sweep({"from": "checkpoint"}, checkpoint=str(bert), arms=["add", "concat", "none"])
    records = documents(Store(summary.folder))
    origins = {"add": "pretrained", "concat": "adapted", "none": "adapted"}
    assert {record["cell"]["arm"]: record["origin"] for record in records} == origins
    assert {record["arm"]: record["origin"] for record in documents(Store(summary.folder), "pretraining")} == origins
    for folder in (summary.folder / "checkpoints").iterdir():
        stored = json.loads((folder / "step-10" / "config.json").read_text())
        assert stored["origin"] == origins[stored["variant"]]
    assert {row["arm"]: row["origin"] for row in rows(summary.folder / "budget.csv")} == origins
    text = (summary.folder / "leaderboard.md").read_text()
    assert text.index("## Pretrained") < text.index("| add") < text.index("## Adapted") < text.index("| concat")


@pytest.mark.usefixtures("no_tables")
def test_pretraining_starts_from_the_checkpoints_weights(sweep, make_bert):
    bert = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    still = {"from": "checkpoint", "learning_rate": 1e-12, "weight_decay": 0.0}
    folder = sweep(still, checkpoint=str(bert), arms=["add"]).folder
    (path,) = folder.glob("checkpoints/*/step-10/model.safetensors")
    theirs, ours = load_file(bert / "model.safetensors"), load_file(path)
    assert (theirs["embeddings.word_embeddings.weight"] - ours["base.variant.words.weight"]).abs().max() < 1e-8


# Failures and interruptions


@pytest.mark.parametrize(
    "error",
    [
        NonFiniteLossError("masked-LM loss is nan at step 3"),
        RuntimeError("out of luck"),
        PermissionError(13, "Permission denied", "/text"),
    ],
)
def test_a_failing_pretraining_fails_its_own_cells_alone(sweep, failing, error):
    started = failing({"add": error})
    summary = sweep(seeds=[1, 2])
    expected = f"{type(error).__name__} in pretraining: {error}"
    assert (summary.finished, set(summary.failed.values())) == (2, {expected})
    assert all(cell_id.startswith("add-") for cell_id in summary.failed)
    store = Store(summary.folder)
    assert {failure["arm"] for failure in documents(store, "failures")} == {"add"}
    assert all("Traceback" in failure["traceback"] for failure in documents(store, "failures"))
    assert f"pretraining add: FAILED {expected}" in sweep.said
    row, other = rows(summary.folder / "budget.csv")
    assert (row["arm"], row["tokens"], other["arm"], other["steps"]) == ("add", "", "untied", "10.0")
    failing({})
    again = sweep(seeds=[1, 2])
    assert (again.finished, again.skipped, again.failed) == (2, 2, {})
    assert started == ["add", "untied", "add"]


@pytest.mark.usefixtures("no_tables")
def test_a_real_divergence_is_a_failure(sweep):
    summary = sweep({"learning_rate": 100.0, "weight_decay": 1e9, "warmup_ratio": 0.0}, arms=["add"])
    (error,) = summary.failed.values()
    assert error.startswith("NonFiniteLossError in pretraining: masked-LM loss is nan at step ")
    assert not list(summary.folder.glob("checkpoints/*/step-10"))


@pytest.mark.usefixtures("no_tables")
def test_a_full_disk_is_one_message(sweep, failing):
    failing({"untied": OSError(28, "No space left on device")})
    with pytest.raises(UserError, match=r"^cannot write, to the results .*No space left .*the same command goes on"):
        sweep()
    failing({})
    assert sweep().finished == 2


def test_ctrl_c_keeps_the_state_and_the_next_run_ends_with_the_same_weights(sweep, monkeypatch, finished, values):
    whole = weights(finished(values(), "whole").folder)
    batch, asked = training.training_batch, []

    def interrupted(*arguments, **options):
        asked.append(options["step"])
        if asked[10:] == list(range(8)):  # in the second arm
            raise KeyboardInterrupt
        return batch(*arguments, **options)

    monkeypatch.setattr(training, "SAVE_SECONDS", 0)
    monkeypatch.setattr(training, "training_batch", interrupted)
    summary = sweep()
    assert (summary.interrupted, summary.finished, summary.failed) == (True, 0, {})
    assert len(list(summary.folder.glob("checkpoints/*/resume.pt"))) == 1
    again = sweep()
    assert (again.interrupted, again.finished) == (False, 2)
    assert asked[18:] == [7, 8, 9]
    assert weights(again.folder) == whole
    assert not list(summary.folder.glob("checkpoints/*/resume.pt"))


def test_a_damaged_state_ends_the_sweep_with_a_message(sweep, finished, values):
    folder = finished(values(arms=["add"])).folder
    (checkpoint,) = (folder / "checkpoints").iterdir()
    (checkpoint / "resume.pt").write_bytes(b"half a state")
    next((folder / "pretraining").glob("*.json")).unlink()
    with pytest.raises(UserError, match=r"cannot read '.*resume.pt' \(.*\); delete it to start this arm anew"):
        sweep(arms=["add"], seeds=[1, 2])


def test_a_folder_of_another_configuration_ends_the_sweep_with_a_message(sweep, finished, values):
    folder = finished(values(arms=["add"])).folder
    (checkpoint,) = (folder / "checkpoints").iterdir()
    identity = json.loads((checkpoint / "identity.json").read_text())
    (checkpoint / "identity.json").write_text(json.dumps(identity | {"corpus": "another"}))
    next((folder / "pretraining").glob("*.json")).unlink()
    before = contents(folder)
    with pytest.raises(UserError, match=r"holds a pretraining of another configuration \(it differs in corpus\)"):
        sweep(arms=["add"], seeds=[1, 2])
    assert contents(folder) == before
