"""From an experiment to one arm's submission: which run stands for the arm on a task, and what it predicted."""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.metrics import METRICS
from glue_bench.data.submission import FILES, MAJORITY, fill_file, make_zip, write_file
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError, unknown
from glue_bench.files import ELSEWHERE, results_written_to, write_atomically
from glue_bench.records.done import OTHER_DIAGNOSTIC, predicts_other_diagnostic
from glue_bench.tables.board import BOTH_SEEDS, Board, aggregate, main_scores
from glue_bench.tables.table import json_text

METRIC_NAMES = {name: name.replace("_", " ").capitalize() for name in METRICS}
METRIC_NAMES |= {"pearson": "Pearson correlation", "spearmanr": "Spearman correlation"}
HOW = "set `finetuning: {predict: [validation, test]}` and run the experiment again, on data that has test files"
MORE_DATA = "complete the data with the test files that it has not, then run the experiment again"
RUN_RULE = (
    "of the finished runs at the rate reported for the task, the one whose main validation score (the mean over its "
    "scored splits) is the median over seeds; of an even number the lower of the middle two, of equals the lower seed"
)


def write_submission(board: Board, output: Path, arm: str | None = None, *, fill: bool = False) -> dict[str, Any]:
    """Write the zip of an arm's stored test predictions, and beside it as JSON its manifest, which is returned.

    The manifest has the SHA-256 of the zip, and of each of its `files` the run that it comes from, with the validation
    score of that run's last epoch, of which its predictions are. With `fill` the majority class of training (of STS-B
    the mean) stands in place of files that have no predictions. The only arm needs no name. Raises UserError for an
    unknown arm, predictions that are missing or cannot be read, a name that does not end in .zip, and a full disk.
    """
    if output.suffix != ".zip":  # the manifest of `add.json` would replace it
        raise UserError(f"'{output}': the name of a submission ends in .zip")
    arm, results = known_arm(board, arm), board.results
    how = MORE_DATA if results.plan.experiment.finetuning.predicts_test else HOW
    files, origins, missing = _predicted(board, arm)
    if not files:
        raise UserError(f"arm '{arm}' of '{results.folder}' has no test predictions at all; {how}")
    if missing and not fill:
        reasons = ", ".join(f"{name} ({why})" for name, why in missing.items())
        raise UserError(
            f"arm '{arm}' has no predictions for {len(missing)} of the eleven files: {reasons}; run what is missing, "
            f"or give --fill for the majority class in their place. Test predictions: {how}"
        )
    files |= {name: fill_file(FILES[name]) for name in missing}
    origins |= {name: {"rows": FILES[name].rows, "filled": MAJORITY[FILES[name].task]} for name in missing}
    content = make_zip(files)
    manifest: dict[str, Any] = {"zip": output.name, "sha256": hashlib.sha256(content).hexdigest()}
    manifest |= {"experiment": results.experiment, "arm": arm, "data_source": results.data_source}
    manifest |= {"steps": board.steps, "run": RUN_RULE, "files": {name: origins[name] for name in FILES}}
    with results_written_to(output.parent, ELSEWHERE):
        write_atomically(output, content)
        write_atomically(output.with_suffix(".json"), json_text(manifest).encode())
    return manifest


def _predicted(board: Board, arm: str) -> tuple[dict[str, bytes], dict[str, dict[str, Any]], dict[str, str]]:
    """The files that the stored predictions of an arm give, what each is made of, and why the others are missing."""
    runs: dict[Any, dict[Any, Any]] = median_runs(board, arm).to_dict("index")
    results, cells = board.results, board.cells.set_index("cell_id")
    scored = aggregate(main_scores(arm_scores(board, arm)), ["task"])["mean"]
    files, origins, missing = dict[str, bytes](), dict[str, dict[str, Any]](), dict[str, str]()
    for name, file in FILES.items():
        if (run := runs.get(file.model)) is None:
            missing[name] = f"no finished run of {file.model}"
            continue
        cell_id, own = run["cell_id"], file.task == file.model
        if not own and predicts_other_diagnostic(results.finished.records[cell_id], results.plan.tasks[file.model]):
            missing[name] = f"'{cell_id}': {OTHER_DIAGNOSTIC}"
            continue
        if (logits := results.logits(cell_id, test=True).get(file.split)) is None:
            what = f"split '{file.split}'" if own else TASKS[file.task].title
            missing[name] = f"'{cell_id}' has predicted no {what}"
            continue
        try:
            files[name] = write_file(file, logits)
        except ValueError as error:
            raise UserError(f"predictions of '{cell_id}', split '{file.split}': {error}") from error
        value = 100 * float(scored[file.model])
        origins[name] = {
            "rows": len(logits),
            "cell_id": cell_id,
            "split": file.split,
            "data": cells["data" if own else "diagnostic"][cell_id],
            "learning_rate": run["learning_rate"],
            "seed": run["seed"],
            # JSON has no NaN; an undefined validation score is null, as in a record.
            "validation": None if math.isnan(value) else round(value, 4),
        }
    return files, origins, missing


def median_runs(board: Board, arm: str) -> pd.DataFrame:
    """The run by RUN_RULE that stands for an arm on a task (the index); an undefined score is lower than any other.

    cell_id, learning_rate, seed, and `value`, its main validation score as reported, 0 to 100.
    """
    scores = main_scores(board.runs[board.runs["arm"] == arm])
    runs = aggregate(scores, ["task", "cell_id", "learning_rate", *BOTH_SEEDS])["mean"].rename("value").reset_index()
    # The order of summation must not decide between equals.
    runs = runs.assign(rank=runs["value"].fillna(-np.inf).round(9)).sort_values(["rank", *BOTH_SEEDS])
    middle = runs.groupby("task")["rank"].transform(lambda ranks: ranks.iloc[(len(ranks) - 1) // 2])
    chosen = runs[runs["rank"] == middle].drop_duplicates("task").set_index("task").loc[scores["task"].unique()]
    return chosen[["cell_id", "learning_rate", "seed", "value"]]


def chosen_runs(board: Board) -> set[str]:
    """The ids of `median_runs` of all arms."""
    return {cell_id for arm in board.arms for cell_id in median_runs(board, arm)["cell_id"]}


def arm_scores(board: Board, arm: str) -> pd.DataFrame:
    """What one arm scored, at the reported rates: a row for each task, split and metric.

    task, split, metric, their names as `title` and `name`, and the `revision` of the data; `learning_rate`, `seed` and
    `value` of the run that stands for the task (`median_runs`), after its last epoch; the `mean` of what is reported
    over `n` `independent` runs, with its `std` and standard error `error` (NaN for one run). Scores are 0 to 1. An
    undefined one makes all three NaN, as in the tables.
    """
    places = ["task", "split", "metric"]
    last = board.results.scores[board.results.scores["last"]]
    runs = median_runs(board, arm)[["cell_id", "learning_rate", "seed"]]
    titles = {n: t.title for n, t in TASKS.items()}
    scores = independent(board.runs[board.runs["arm"] == arm], places).reset_index()
    scores = scores.assign(title=scores["task"].map(titles), name=scores["metric"].map(METRIC_NAMES))
    scores = scores.join(board.results.tasks["revision"], on="task").join(runs, on="task")
    scores = scores.merge(last[["cell_id", *places[1:], "value"]], how="left", on=["cell_id", *places[1:]])
    scores["error"] = scores["std"] / np.sqrt(scores["n"])
    scores[["value", "mean", "std", "error"]] /= 100
    return scores


def independent(values: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """`aggregate` over independent runs: of those that start from the same one of several pretrainings the mean."""
    several = values.groupby(by)["pretraining_seed"].transform("nunique") > 1
    units = values.assign(unit=values["seed"].where(~several, values["pretraining_seed"]))
    return aggregate(aggregate(units, [*by, "unit"])["mean"].rename("value").reset_index(), by)


def known_arm(board: Board, arm: str | None) -> str:
    """The arm of this name, or the only one; raises UserError where there is none, or several and none is named."""
    if arm is None and len(board.arms) > 1:
        raise UserError(f"--arm says which arm: {', '.join(board.arms)}")
    if arm is not None and arm not in board.arms:
        raise unknown("arm", arm, board.arms, board.results.experiment)
    return arm or board.arms[0]
