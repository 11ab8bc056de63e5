"""An arm's submission to the GLUE site: a zip of test predictions, and a manifest of its runs."""

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glue_bench.board.aggregation import aggregate, main_scores
from glue_bench.board.board import Board
from glue_bench.board.chosen import PREDICT_TEST_ADVICE, RUN_RULE, arm_scores, find_arm, median_runs
from glue_bench.board.results import Results
from glue_bench.data.official import OFFICIAL, LabelOrder, label_order
from glue_bench.data.submission import FILES, MAJORITY_LABELS, fill_file, make_zip, write_file
from glue_bench.data.tasks import find_task
from glue_bench.errors import UserError
from glue_bench.files import ELSEWHERE, results_written_to, whole_file
from glue_bench.pages.render import json_text
from glue_bench.records.done import OTHER_DIAGNOSTIC, predicts_other_diagnostic
from glue_bench.records.values import Cell

MORE_DATA = "complete the data with the test files that it has not, then run the experiment again"


@dataclass(frozen=True)
class Predictions:
    """The files of a submission that an arm's stored predictions give, by name.

    `origins` has the run of each file, and `missing` the reason for each file that there is not.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    origins: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def write_submission(
    board: Board, output: Path, arm: str | None = None, *, fill: bool = False
) -> dict[str, Any]:
    """Write the zip of an arm's stored test predictions, and beside it its manifest as JSON.

    Classes are written by their names, also where the data number them in another order than GLUE.

    Args:
        board: The board of the experiment.
        output: The zip to write. Its name ends in .zip.
        arm: The name of the arm. The only arm needs no name.
        fill: Write the majority class of training (of STS-B the mean) in place of files that have
            no predictions.

    Returns:
        The manifest. It has the SHA-256 of the zip, and the run of each of its `files`, with the
        validation score of that run's last epoch, which made the predictions.

    Raises:
        UserError: the arm is unknown, predictions are missing or cannot be read, two splits of the
            data number the labels in two orders, the name does not end in .zip, or the disk is
            full.
    """
    if output.suffix != ".zip":  # the manifest of `add.json` would replace it
        raise UserError(f"'{output}': the name of a submission ends in .zip")
    arm = find_arm(board, arm)

    results = board.results
    if not any(find_task(task).benchmark == "GLUE" for task in results.tasks.index):
        raise UserError(
            f"'{results.experiment}' has no task of GLUE, so that there is nothing to submit to "
            "the GLUE site"
        )

    predictions = _read_predictions(board, arm)
    _check_missing(predictions, results, arm, fill=fill)
    files = dict(predictions.files)

    origins = dict(predictions.origins)
    for name in predictions.missing:
        file = FILES[name]
        files[name] = fill_file(file)
        origins[name] = {
            "rows": file.rows,
            "filled": MAJORITY_LABELS[file.task],
            "planned": file.model in results.plan.tasks,
        }

    content = make_zip(files)
    manifest: dict[str, Any] = {
        "zip": output.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "experiment": results.experiment,
        "arm": arm,
        "data_source": results.data_source,
        "made_up": results.is_made_up,
        "partial_tasks": list(results.partial_tasks),
        "steps": board.steps,
        "run": RUN_RULE,
        "files": {name: origins[name] for name in FILES},
    }

    _write_both(output, content, manifest)
    return manifest


def _write_both(output: Path, content: bytes, manifest: dict[str, Any]) -> None:
    """Write a zip and its manifest: both, or neither.

    Both files are written before one of them gets its name. The zip gets its name last.
    """
    with (
        results_written_to(output.parent, ELSEWHERE),
        whole_file(output) as zip_file,
        whole_file(output.with_suffix(".json")) as json_file,
    ):
        zip_file.write(content)
        zip_file.flush()
        json_file.write(json_text(manifest).encode())


def _order_of(cell: Cell, results: Results) -> LabelOrder | None:
    """Return the order of a run's outputs, if it is not GLUE's own.

    It is that in which the data of a trained model number the labels, in the splits that can be
    compared with the official ones. A finished model's outputs are in GLUE's order. Raises
    UserError if splits have two orders, because nobody knows then what an output means.
    """
    if not cell.is_trained:
        return None
    task = cell.task
    row = find_task(task)
    facts = results.plan.tasks[task]
    if not facts.differences:
        return None

    own_order = tuple(range(len(row.labels)))
    splits_by_order: dict[LabelOrder, str] = {}
    for split in OFFICIAL[task].keys() - set(row.test_splits):
        order = None
        if split in facts.differences:
            order = label_order(task, facts.differences[split])
        elif facts.rows.get(split) == row.splits[split].rows:
            order = own_order
        if order is not None:
            splits_by_order[order] = split

    if len(splits_by_order) > 1:
        official = ", ".join(f"{number} {label}" for number, label in enumerate(row.labels))
        splits = " and ".join(sorted(splits_by_order.values()))
        raise UserError(
            f"{row.title}: its splits {splits} number the labels in two orders, so that no "
            f"prediction has a meaning; number the labels {official} in both, and run the "
            "experiment again"
        )

    order = next(iter(splits_by_order), own_order)
    return None if order == own_order else order


def _check_missing(predictions: Predictions, results: Results, arm: str, *, fill: bool) -> None:
    """Raise UserError if all files are missing, or some that are not to be filled."""
    predicts_test = results.plan.experiment.finetuning.predicts_test
    advice = MORE_DATA if predicts_test else PREDICT_TEST_ADVICE
    if not predictions.files:
        raise UserError(
            f"arm '{arm}' of '{results.folder}' has no test predictions at all; {advice}"
        )
    missing = predictions.missing
    if missing and not fill:
        reasons = ", ".join(f"{name} ({reason})" for name, reason in missing.items())
        raise UserError(
            f"arm '{arm}' has no predictions for {len(missing)} of the eleven files: {reasons}; "
            "run what is missing, or give --fill for the majority class in their place. "
            f"Test predictions: {advice}"
        )


def _read_predictions(board: Board, arm: str) -> Predictions:
    """Make the files of a submission from the stored predictions of an arm's median runs."""
    runs: dict[Any, dict[Any, Any]] = median_runs(board, arm).to_dict("index")
    results = board.results
    cells = board.cells.set_index("cell_id")
    validation = aggregate(main_scores(arm_scores(board, arm)), ["task"])["mean"]
    predictions = Predictions()

    for name, file in FILES.items():
        run = runs.get(file.model)
        if run is None:
            predictions.missing[name] = f"no finished run of {file.model}"
            continue

        cell_id = run["cell_id"]
        is_diagnostic = file.task != file.model
        record = results.finished.records[cell_id]
        if is_diagnostic and predicts_other_diagnostic(record, results.plan.tasks[file.model]):
            predictions.missing[name] = f"'{cell_id}': {OTHER_DIAGNOSTIC}"
            continue

        logits = results.logits(cell_id, test=True).get(file.split)
        if logits is None:
            target = find_task(file.task).title if is_diagnostic else f"split '{file.split}'"
            predictions.missing[name] = f"'{cell_id}' has predicted no {target}"
            continue

        try:
            predictions.files[name] = write_file(file, logits, _order_of(record.cell, results))
        except ValueError as error:
            raise UserError(f"predictions of '{cell_id}', split '{file.split}': {error}") from error

        predictions.origins[name] = {
            "rows": len(logits),
            "cell_id": cell_id,
            "split": file.split,
            "data": cells["diagnostic" if is_diagnostic else "data"][cell_id],
            "learning_rate": run["learning_rate"],
            "seed": run["seed"],
            "validation": _json_score(validation[file.model]),
        }
    return predictions


def _json_score(value: float) -> float | None:
    """Return a validation score in points. JSON has no NaN: undefined is null, as in a record."""
    score = 100 * float(value)
    return None if math.isnan(score) else round(score, 4)
