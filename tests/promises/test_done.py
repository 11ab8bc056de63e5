"""Sweep, tables, verify and submit agree on what of a plan is done, whatever happens to what a
record came from.

A record outlives what it came from: a checkpoint, the record of a pretraining or of an MNLI cell,
the diagnostic set, the splits that were asked for, or the precision of the machine. One experiment
is run; each test changes one of these in a copy of its folder, and asks all four.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers import tiny_runs
from helpers.stored import digest

import glue_bench
from glue_bench.board.leaderboard import open_leaderboard
from glue_bench.board.results import read_results
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.render import to_markdown
from glue_bench.records.done import START_REPLACED
from glue_bench.records.store import Store
from glue_bench.records.values import Failure, Plan, PretrainingRecord, Record
from glue_bench.sweep.run import Summary

ROWS = {"train": 24, "dev": 12, "test": 6}
"""Rows of each file, by the first word of its name."""
AGAIN = "run the experiment again"


@dataclass(frozen=True)
class Study:
    """The experiment's data and results, to be changed."""

    place: Path

    @property
    def folder(self) -> Path:
        return self.place / "runs" / "tiny"

    @property
    def store(self) -> Store:
        return Store(self.folder)

    @property
    def ax(self) -> Path:
        return self.place / "glue" / "AX" / "diagnostic.tsv"

    def values(self, **finetuning: Any) -> dict[str, Any]:
        """Return the experiment: MNLI, and RTE from it, after two pretrainings of one arm.

        Test splits are predicted.
        """
        usual: dict[str, Any] = {"from_mnli": ["rte"], "predict": ["validation", "test"]}
        experiment = tiny_runs.experiment(
            data=str(self.place / "glue"),
            limit=None,
            tasks=["mnli", "rte"],
            pretraining={"seeds": [1, 2], "validation_share": 0.7},
        )
        experiment["finetuning"] |= usual | finetuning
        return experiment

    def run(self, values: dict[str, Any] | None = None, **options: Any) -> Summary:
        """Return what a run did, or would do."""
        given = {"results": self.place / "runs", "device": "cpu", "precision": "float32"} | options
        return glue_bench.run(values or self.values(), **given)

    def record(self, task: str, seed: int = 1) -> Record:
        """Return the record of the cell on a task after the pretraining of a seed."""
        for record in self.store.finished(self.plan).records.values():
            if record.cell.task == task and record.cell.pretraining_seed == seed:
                return record
        raise LookupError(f"no record of {task} after seed {seed}")

    def pretraining(self, seed: int = 1) -> PretrainingRecord:
        """Return the record of the pretraining of a seed."""
        records = self.store.finished(self.plan).pretrainings.values()
        return next(record for record in records if record.pretraining.seed == seed)

    @property
    def plan(self) -> Plan:
        return self.store.plan()


def write_split(path: Path, task: str, kind: str, word: str = "row") -> None:
    """Write a file of a task in the classic layout."""
    labels = TASKS[task].written or TASKS[task].labels or ()
    lines = [f"index\tsentence1\tsentence2\t{TASKS[task].tsv_label}"]
    for row in range(ROWS[kind]):
        lines.append(f"{row}\ta cat {word} {row}\ta dog {row % 5}\t{labels[row % len(labels)]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def finished_study(tmp_path_factory) -> Study:
    """The experiment, run once."""
    study = Study(tmp_path_factory.mktemp("finished"))
    for task, title in (("mnli", "MNLI"), ("rte", "RTE")):
        for split in TASKS[task].splits.values():
            kind = split.file.partition(".")[0].partition("_")[0]
            write_split(study.place / "glue" / title / split.file, task, kind)
    write_split(study.ax, "ax", "test")
    assert study.run().failed == {}
    return study


@pytest.fixture
def study(finished_study, tmp_path) -> Study:
    """A copy of it."""
    return Study(shutil.copytree(finished_study.place, tmp_path / "copy"))


def unfinished(study: Study) -> set[str]:
    """Return the planned cells that tables have not."""
    cells = read_results(study.folder).cells
    return {*cells["cell_id"][~cells["finished"]]}


LEFT_OUT = re.compile(
    r"(\d+) finished runs left out, which started from weights that were made again since"
)


def left_out(study: Study) -> int:
    """Return how many finished runs the leaderboard leaves out, as their starts were made again."""
    page = to_markdown(leaderboard_page(open_leaderboard(study.folder)))
    counts = {int(count) for count in LEFT_OUT.findall(page)}
    assert len(counts) <= 1, counts
    return counts.pop() if counts else 0


def faults(study: Study) -> list[str]:
    """Return what verify says of records; tables are as they were written."""
    (verified,) = glue_bench.verify(study.folder)
    return [fault for check in verified.checks if check.name != "tables" for fault in check.faults]


def refusal(study: Study) -> str:
    """Return what submit says of the files that it has no predictions for."""
    with pytest.raises(UserError) as caught:
        glue_bench.submit(study.folder, study.place / "add.zip")
    return str(caught.value)


def change_weights(study: Study, seed: int) -> set[str]:
    """As if the pretraining had been made again on another machine: its record names other
    weights.
    """
    pretraining = study.pretraining(seed)
    weights = {step: digest(f"other {step}") for step in pretraining.weights or {}}
    changed = pretraining.model_copy(update={"weights": weights})
    study.store.write(
        changed, losses=study.store.losses(pretraining), sums=study.store.measure_sums(pretraining)
    )
    return of_seed(study, seed)


def of_seed(study: Study, seed: int, *tasks: str) -> set[str]:
    """Return the cells after the pretraining of a seed."""
    cells: set[str] = set()
    for cell in study.plan.cells:
        if cell.pretraining_seed == seed and cell.task in (tasks or ("mnli", "rte")):
            cells.add(cell.id)
    return cells


def change_mnli(study: Study) -> set[str]:
    """As if the MNLI cell had been run again on another machine."""
    record = study.record("mnli")
    changed = record.model_copy(update={"weights": digest("other")})
    logits = study.store.logits(record)
    tests = study.store.logits(record, test=True)
    study.store.write(changed, logits=logits, tests=tests)
    return of_seed(study, 1, "rte")


OUTDATED: dict[str, Callable[[Study], set[str]]] = {
    "the first pretraining": lambda study: change_weights(study, 1),
    "the second pretraining": lambda study: change_weights(study, 2),
    "the MNLI cell": change_mnli,
}
"""What was made again with other weights: a change that returns the cells whose weights are gone
by it.
"""


@pytest.fixture(params=OUTDATED)
def outdated(request, study) -> tuple[Study, set[str]]:
    """A study in which something was made again, and the cells that started from what it
    replaced.
    """
    change = OUTDATED[request.param]
    cells = change(study)
    return study, cells


def test_a_whole_study_is_done_for_everyone(study):
    assert study.run(dry_run=True).waiting == ()
    assert unfinished(study) == set()
    assert faults(study) == []


def test_tables_leave_out_what_started_from_weights_that_were_made_again(outdated):
    study, cells = outdated
    assert unfinished(study) == cells


def test_status_counts_what_started_from_weights_that_were_made_again_as_missing(outdated):
    study, cells = outdated
    states = glue_bench.status(study.folder)
    assert {*states["cell_id"][states["state"] == "missing"]} == cells


def test_a_sweep_runs_again_what_started_from_weights_that_were_made_again(outdated):
    study, cells = outdated
    summary = study.run(dry_run=True)
    assert {*summary.waiting} >= cells
    assert any("made again" in reason for reason in summary.reasons)


@pytest.mark.parametrize(
    ("change", "start"),
    [(lambda study: change_weights(study, 1), "a pretraining"), (change_mnli, "an MNLI run")],
    ids=["pretraining", "MNLI"],
)
def test_a_dry_run_names_the_kind_of_run_whose_weights_were_made_again(study, change, start):
    cells = change(study)
    reasons = study.run(dry_run=True).reasons
    assert reasons.get(START_REPLACED.format(start=start)) == len(cells)


def test_a_run_that_fails_where_its_older_record_counts_no_more_is_told_everywhere(study):
    cell = min(change_weights(study, 1))
    study.store.write_failure(Failure(id=cell, error="no luck"))
    states = glue_bench.status(study.folder).set_index("cell_id")["state"]
    (verified,) = glue_bench.verify(study.folder)
    verified_failures = {check.name: check.result for check in verified.checks}["failures"]
    reasons = study.run(dry_run=True).reasons
    assert states[cell] == "failed"
    assert reasons.get("it failed: no luck") == 1
    assert verified_failures == "1 say why"


def test_verify_names_what_started_from_weights_that_were_made_again(outdated):
    study, cells = outdated
    lines = [fault for fault in faults(study) if "made again" in fault]
    assert {line.partition(":")[0].removeprefix("cells/") for line in lines} == cells


def test_submit_takes_nothing_of_weights_that_were_made_again(outdated):
    study, cells = outdated
    zipped = glue_bench.submit(study.folder, study.place / "add.zip", fill=True)
    assert {run.get("cell_id") for run in zipped["files"].values()} & cells == set()


def test_the_page_counts_what_it_leaves_out(outdated):
    study, cells = outdated
    assert left_out(study) == len(cells)


# One upstream thing is lost or changed, and the same command is given again


def lose_checkpoint(study: Study) -> None:
    shutil.rmtree(study.folder / "checkpoints" / study.pretraining(1).pretraining.id)


def lose_pretraining(study: Study) -> None:
    name = study.pretraining(2).pretraining.id
    shutil.rmtree(study.folder / "pretrainings" / name)
    shutil.rmtree(study.folder / "checkpoints" / name)


def lose_mnli(study: Study) -> None:
    shutil.rmtree(study.folder / "cells" / study.record("mnli").cell.id)


def lose_mnli_and_checkpoint(study: Study) -> None:
    name = study.record("mnli").cell.id
    lose_checkpoint(study)
    shutil.rmtree(study.folder / "cells" / name)


def change_ax(study: Study) -> None:
    write_split(study.ax, "ax", "test", word="other")


def lose_ax(study: Study) -> None:
    shutil.rmtree(study.ax.parent)


CHANGES: list[tuple[Callable[[Study], object], str]] = [
    (lambda study: change_weights(study, 1), "float32"),
    (change_mnli, "float32"),
    (lose_checkpoint, "bf16"),
    (lose_pretraining, "float32"),
    (lose_pretraining, "bf16"),
    (lose_mnli, "bf16"),
    (lose_mnli_and_checkpoint, "bf16"),
    (change_ax, "bf16"),
    (lose_ax, "bf16"),
]
"""What is changed, and the precision of the next run: bf16 stands for a machine that makes other
weights.
"""


@pytest.mark.parametrize(("change", "precision"), CHANGES)
def test_after_one_more_command_all_agree_that_all_is_done(study, change, precision):
    change(study)
    waiting = {*study.run(precision=precision, dry_run=True).waiting}
    assert unfinished(study) <= waiting
    summary = study.run(precision=precision)
    assert summary.failed == {}
    assert study.run(precision=precision, dry_run=True).reasons == {}
    assert unfinished(study) == set()
    assert faults(study) == []
    assert left_out(study) == 0


# The diagnostic set, and the splits that are asked for


def run_without_ax(study: Study) -> None:
    """As if the study had been run before there was an AX."""
    lose_ax(study)
    shutil.rmtree(study.folder)
    study.run()


@pytest.mark.parametrize("change", [change_ax, run_without_ax])
def test_ax_that_is_added_or_changed_later_is_predicted_by_the_next_command(study, change):
    before = study.run(dry_run=True).waiting
    change(study)
    write_split(study.ax, "ax", "test", word="other")
    summary = study.run()
    assert before == ()
    assert len(summary.waiting) == 1  # the run that a submission takes
    (taken,) = summary.waiting
    frame = pd.read_csv(study.ax, sep="\t")
    assert len(study.store.logits(study.store.record(taken), test=True)["test_ax"]) == len(frame)
    assert study.run(dry_run=True).reasons == {}


def test_a_dry_run_says_that_another_ax_is_to_be_predicted(study):
    change_ax(study)
    (reason,) = study.run(dry_run=True).reasons
    assert "AX" in reason


def test_a_submission_has_no_predictions_of_an_ax_that_was_replaced(study):
    change_ax(study)
    plan = study.plan
    new_plan = tiny_runs.plan(study.values())
    study.store.write_plan(new_plan, {})  # as a run that was ended before its first cell leaves it
    assert new_plan.tasks["mnli"] != plan.tasks["mnli"]
    assert "AX.tsv" in refusal(study).partition("eleven files: ")[2]


def test_submit_advises_to_run_again_only_where_that_does_something(study):
    lose_ax(study)
    shutil.rmtree(study.folder)
    study.run()
    assert study.run(dry_run=True).waiting == ()
    assert AGAIN not in refusal(study).partition("eleven files: ")[2].partition("AX.tsv")[0]


def test_test_splits_that_are_asked_for_later_are_predicted_by_the_runs_of_a_submission(study):
    shutil.rmtree(study.folder)
    study.run(study.values(predict=["validation"]))
    summary = study.run()
    assert summary.waiting
    unpredicted = [name for name in summary.waiting if not study.store.record(name).tests]
    assert unpredicted == []
    assert study.run(dry_run=True).reasons == {}
