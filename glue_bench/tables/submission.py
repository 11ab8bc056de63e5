"""From an experiment to one arm's submission: which run each file comes from, and what is missing."""

import hashlib
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.config import HELD_OUT
from glue_bench.data.submission import FILES, MAJORITY, File, fill_file, make_zip, write_file
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError, unknown
from glue_bench.files import write_atomically
from glue_bench.tables.averages import SEEDS, aggregate, main_scores
from glue_bench.tables.board import Board

HOW = "set `finetuning: {predict: [validation, test]}` and run the experiment again, on data that has test files"
RUN_RULE = (
    "of the finished runs at the rate reported for the task, the one whose main validation score (the mean over its "
    "scored splits) is the median over seeds; of an even number the lower of the middle two, of equals the lower seed"
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run whose test predictions are handed in; `value` is its main validation score, 0 to 100."""

    cell_id: str
    learning_rate: float
    seed: int
    value: float


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One arm's files by name, the run that each comes from, and why the others are missing.

    A run's value is that of its last epoch, of which its predictions are, also where an earlier epoch is reported.
    `digests` are those of the data that was predicted.
    """

    experiment: str
    arm: str
    data_source: str
    steps: int | None
    files: dict[str, bytes]
    runs: dict[str, Run]
    digests: dict[str, str]
    missing: dict[str, str]
    filled: tuple[str, ...] = ()

    @property
    def is_demo(self) -> bool:
        """Whether any of it was made from made-up data."""
        return "demo" in self.data_source

    def zip(self) -> bytes:
        """The zip to hand in."""
        return make_zip(self.files)


def gather(board: Board, arm: str | None = None) -> Submission:
    """The files that the stored predictions of an arm give; the only arm needs no name.

    Raises:
        UserError: no such arm, an arm without any test prediction, or predictions that cannot be read.
    """
    arm, results = known_arm(board, arm), board.results
    runs = median_runs(board, arm)
    found = {name: _file(board, file, runs.get(file.model)) for name, file in FILES.items()}
    files = {name: content for name, content in found.items() if isinstance(content, bytes)}
    if not files:
        raise UserError(f"arm '{arm}' of '{results.folder}' has no test predictions at all; {HOW}")
    last = main_scores(results.scores[results.scores["last"]].merge(board.cells[["cell_id", "task"]], on="cell_id"))
    values = aggregate(last[last["split"] != HELD_OUT], ["cell_id"])["mean"]
    cells = board.cells.set_index("cell_id")
    ids = {name: runs[FILES[name].model].cell_id for name in files}
    return Submission(
        experiment=results.experiment,
        arm=arm,
        data_source=results.data_source,
        steps=board.steps,
        files=files,
        runs={name: replace(runs[FILES[name].model], value=float(values[cell])) for name, cell in ids.items()},
        digests={
            name: cells["data" if FILES[name].task == FILES[name].model else "diagnostic"][cell]
            for name, cell in ids.items()
        },
        missing={name: why for name, why in found.items() if isinstance(why, str)},
    )


def lacking(board: Board, arm: str | None = None) -> list[str]:
    """The runs that the files of an arm come from and that have not predicted what these need: at most one per task.

    Raises:
        UserError: as `gather`, but for an arm without any test prediction.
    """
    runs, predicted = median_runs(board, known_arm(board, arm)), board.results.arrays.predicted
    files = [(runs[file.model].cell_id, file.split) for file in FILES.values() if file.model in runs]
    return list(dict.fromkeys(cell for cell, split in files if split not in predicted(cell)))


def fill(submission: Submission) -> Submission:
    """The submission with the majority class (STS-B: the mean) of training in place of each missing file."""
    fillers = {name: fill_file(FILES[name]) for name in submission.missing}
    return replace(submission, files=submission.files | fillers, missing={}, filled=tuple(fillers))


def complete(submission: Submission, *, filling: bool) -> Submission:
    """The submission if it has all files; `filling` puts the majority class in place of those that are missing.

    Raises:
        UserError: files are missing and are not to be filled.
    """
    if not submission.missing or filling:
        return fill(submission)
    missing = ", ".join(f"{name} ({why})" for name, why in submission.missing.items())
    raise UserError(
        f"arm '{submission.arm}' has no predictions for {len(submission.missing)} of the eleven files: {missing}; "
        f"run what is missing, or give --fill for the majority class in their place. Test predictions: {HOW}"
    )


def write_submission(submission: Submission, output: Path) -> dict[str, Any]:
    """Write the zip, and beside it as JSON its `manifest`, which is returned.

    Raises:
        UserError: the name does not end in .zip, or they cannot be written.
    """
    if output.suffix != ".zip":  # the manifest of `add.json` would replace it
        raise UserError(f"'{output}': the name of a submission ends in .zip")
    told = manifest(submission, output.name)
    text = json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        write_atomically(output, submission.zip())
        write_atomically(output.with_suffix(".json"), text.encode())
    except OSError as error:
        raise UserError(f"cannot write '{output}': {error.strerror}") from error
    return told


def manifest(submission: Submission, name: str) -> dict[str, Any]:
    """What the zip called `name` is made of: its SHA-256, and the run or the majority class behind each file."""
    return {
        "zip": name,
        "sha256": hashlib.sha256(submission.zip()).hexdigest(),
        "experiment": submission.experiment,
        "arm": submission.arm,
        "data_source": submission.data_source,
        "steps": submission.steps,
        "run": RUN_RULE,
        "files": {name: _origin(submission, name) for name in FILES if name in submission.files},
    }


def _origin(submission: Submission, name: str) -> dict[str, Any]:
    rows = submission.files[name].count(b"\n") - 1
    if name in submission.filled:
        return {"rows": rows, "filled": MAJORITY[FILES[name].task]}
    run, file = submission.runs[name], FILES[name]
    return {
        "rows": rows,
        "cell_id": run.cell_id,
        "split": file.split,
        "data": submission.digests[name],
        "learning_rate": run.learning_rate,
        "seed": run.seed,
        # JSON has no NaN; an undefined validation score is null, as in a record.
        "validation": None if np.isnan(run.value) else round(run.value, 4),
    }


def median_runs(board: Board, arm: str) -> dict[str, Run]:
    """The run of each task by RUN_RULE; an undefined score is lower than any other."""
    runs = main_scores(board.runs[board.runs["arm"] == arm])
    values = aggregate(runs, ["task", "cell_id", "learning_rate", *SEEDS])["mean"].rename("value").reset_index()
    return {str(task): _median(group) for task, group in values.groupby("task", sort=False)}


def chosen_runs(board: Board) -> set[str]:
    """The ids of `median_runs` of all arms."""
    return {run.cell_id for arm in board.arms for run in median_runs(board, arm).values()}


def arm_scores(board: Board, arm: str) -> pd.DataFrame:
    """What one arm scored, at the reported rates: a row for each task, split and metric.

    task, split, metric, the reported `epoch` of the run that stands for the task (`median_runs`), the `value` of that
    run, `mean` over `n` independent runs and its standard error `error` (NaN for one run); all 0 to 1. An undefined
    score makes both NaN, as in the tables. Runs that start from the same pretrained weights are not independent: where
    there are several pretraining seeds, `n` counts these, and their means are averaged.
    """
    runs, rows = median_runs(board, arm), []
    mine = board.runs[board.runs["arm"] == arm]
    for (task, split, metric), group in mine.groupby(["task", "split", "metric"], sort=False):
        independent = group["value"]
        if group["pretraining_seed"].nunique() > 1:
            independent = aggregate(group, ["pretraining_seed"])["mean"]
        chosen = group[group["cell_id"] == runs[str(task)].cell_id].iloc[0]
        rows.append(
            {
                **{"task": task, "split": split, "metric": metric, "epoch": chosen["epoch"]},
                "value": chosen["value"] / 100,
                "mean": independent.mean(skipna=False) / 100,
                "error": independent.std(ddof=1, skipna=False) / math.sqrt(len(independent)) / 100,
                "n": len(independent),
            }
        )
    return pd.DataFrame(rows, columns=["task", "split", "metric", "epoch", "value", "mean", "error", "n"])


def _median(runs: pd.DataFrame) -> Run:
    rounded = runs["value"].fillna(-np.inf).round(9)  # the order of summation must not decide between equals
    middle = rounded.sort_values().iloc[(len(runs) - 1) // 2]
    row = runs[rounded == middle].sort_values(SEEDS).iloc[0]
    return Run(
        cell_id=str(row["cell_id"]),
        learning_rate=float(row["learning_rate"]),
        seed=int(row["seed"]),
        value=float(row["value"]),
    )


def known_arm(board: Board, arm: str | None) -> str:
    """The arm of this name, or the only one.

    Raises:
        UserError: there is no such arm, or several and none is named.
    """
    if arm is None and len(board.arms) == 1:
        return board.arms[0]
    if arm is None:
        raise UserError(f"--arm says which arm: {', '.join(board.arms)}")
    if arm not in board.arms:
        raise unknown("arm", arm, board.arms, board.results.experiment)
    return arm


def _file(board: Board, file: File, run: Run | None) -> bytes | str:
    """The file's content, or why there is none."""
    if run is None:
        return f"no finished run of {file.model}"
    logits = board.results.arrays.predicted(run.cell_id).get(file.split)
    if logits is None:
        what = f"split '{file.split}'" if file.task == file.model else TASKS[file.task].title
        return f"'{run.cell_id}' has predicted no {what}"
    try:
        return write_file(file, logits)
    except ValueError as error:
        raise UserError(f"predictions of '{run.cell_id}', split '{file.split}': {error}") from error
