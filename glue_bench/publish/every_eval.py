"""Results in the schema of Every Eval Ever, version 0.3.0.

https://github.com/evaleval/every_eval_ever. There is one log per arm, and beside it a file with the
predictions on single examples. They lie where that project's data repository has them:
data/glue-bench/ORGANIZATION/EXPERIMENT-ARM/<uuid>.json and <uuid>_samples.jsonl.
"""

import json
import re
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.board.aggregation import BOTH_SEEDS
from glue_bench.board.board import Board
from glue_bench.board.chosen import arm_scores
from glue_bench.board.column_runs import read_outcomes
from glue_bench.config import FINISHED
from glue_bench.data.hub import repository_of
from glue_bench.data.measures import SHARES
from glue_bench.data.tasks import find_task, titles
from glue_bench.errors import UserError, quoted
from glue_bench.files import ELSEWHERE, results_written_to, write_atomically
from glue_bench.pages.render import json_text
from glue_bench.publish.samples import SampleSource, write_samples
from glue_bench.stats.runs import ColumnRuns

SCHEMA = "0.3.0"
SEPARATE_FOLDERS = "export each to a place of its own with -o"
ORGANIZATION = re.compile(r"(?!(?:data|unknown)$)[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?")


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log of one arm: its place, what it says, and what its file of samples is made of."""

    path: str
    document: dict[str, Any]
    samples: SampleSource

    @property
    def samples_path(self) -> str:
        """The place of the file of samples."""
        return f"{self.path.removesuffix('.json')}_samples.jsonl"


def write_logs(boards: Iterable[Board], folder: Path, organization: str) -> dict[str, Any]:
    """Write the logs of all arms below a folder.

    A score is the mean over the runs at the reported rate, with its standard error over independent
    runs. Made-up and partial data are left out, because a log states a benchmark's score.

    Args:
        boards: The boards of the experiments.
        folder: The folder to write to.
        organization: Who states the scores.

    Returns:
        `files`, the paths of the logs, `samples`, the paths of the files with predictions, and
        `left_out`, the reasons by experiment.

    Raises:
        UserError: the organization cannot be part of a path, there is nothing to state, a model
            has another log in the folder, whose scores would stand beside the new ones, or the disk
            cannot be written.
    """
    if not ORGANIZATION.fullmatch(organization):
        raise UserError(
            f"organization {quoted(organization)}: "
            "give letters, digits, dots, dashes and underscores"
        )

    logs: list[Log] = []
    left_out: dict[str, str] = {}
    for board in boards:
        experiment = board.results.experiment
        partial = board.results.partial_tasks
        if board.results.is_made_up:
            left_out[experiment] = "its data are made up"
            continue
        if partial:
            left_out[experiment] = _describe_partial(board)
        cells = board.reported.sort_values(BOTH_SEEDS)
        cells = cells[~cells["task"].isin(partial)]
        outcomes = list(read_outcomes(board))
        for arm in board.arms:
            of_arm = cells[cells["arm"] == arm]
            if len(of_arm):
                logs.append(_make_log(board, organization, arm, of_arm, outcomes))

    if not logs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise UserError(
            f"nothing to export as a benchmark's score ({reasons or 'no run has finished'})"
        )

    _check_other_logs([log.path for log in logs], folder)

    samples: list[str] = []
    with results_written_to(folder, ELSEWHERE):
        for log in logs:
            facts = write_samples(log.samples, folder, log.samples_path)
            document = log.document
            if facts is not None:
                samples.append(log.samples_path)
                document = document | {"detailed_evaluation_results": facts}
            write_atomically(folder / log.path, json_text(document).encode())

    return {"files": [log.path for log in logs], "samples": samples, "left_out": left_out}


def _check_other_logs(paths: Iterable[str], folder: Path) -> None:
    """Raise UserError if a model has another log, in the folder or among the new ones.

    Nobody could tell which of the two counts.
    """
    models: set[Path] = set()
    for path in paths:
        model = (folder / path).parent
        if model in models:
            raise UserError(
                f"two of the folders have an experiment and an arm of one name ({model.name}); "
                f"{SEPARATE_FOLDERS}"
            )
        models.add(model)
        for log in sorted(model.glob("[!.]*.json")):
            if log != folder / path:
                raise UserError(
                    f"'{log}' is another log of the same model; delete it, or {ELSEWHERE}"
                )


def _describe_partial(board: Board) -> str:
    """Say why tasks are left out: rows are missing, or are not exactly the official ones."""
    tasks = board.results.tasks
    differ = tasks["differences"].map(len) > 0
    groups = {
        "run on a part of the official rows": tasks.index[tasks["partial"] & ~differ],
        "run on other rows than the official ones": tasks.index[tasks["partial"] & differ],
    }
    reasons = [
        f"{reason}: {titles(tuple(names))}" for reason, names in groups.items() if len(names)
    ]
    return "; ".join(reasons)


def _make_log(
    board: Board,
    organization: str,
    arm: str,
    cells: pd.DataFrame,
    outcomes: Sequence[ColumnRuns],
) -> Log:
    """Return an arm's log.

    Its name is a hash over all that it says, so that equal logs have one name.

    Args:
        board: The board of the experiment.
        organization: Who states the scores.
        arm: The name of the arm.
        cells: The arm's reported runs, without those of partial tasks.
        outcomes: The runs of all arms with their predictions.
    """
    content = _log_content(board, organization, arm, cells)
    digest = sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    folder = f"glue-bench/{organization}/{board.results.experiment}-{arm}"
    evaluation_id = f"{folder}/{digest}"
    file_id = uuid.UUID(bytes=sha256(evaluation_id.encode()).digest()[:16], version=4)
    shared = {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation_id,
        "model_id": content["model_info"]["id"],
    }
    document = {
        "schema_version": SCHEMA,
        "evaluation_id": evaluation_id,
        "retrieved_timestamp": str(int(time.time())),
        **content,
    }
    samples = SampleSource(outcomes=outcomes, arm=arm, tasks=set(cells["task"]), shared=shared)
    return Log(path=f"data/{folder}/{file_id}.json", document=document, samples=samples)


def _log_content(board: Board, organization: str, arm: str, cells: pd.DataFrame) -> dict[str, Any]:
    """Return an arm's log without its name and the time. See `_make_log` for the parameters."""
    facts = board.results.arms.loc[arm]
    first = cells.iloc[0]
    name = f"{board.results.experiment}-{arm}"
    details: dict[str, Any] = {
        "deployment_type": "self_deployed",
        "model_availability": "unknown",
        "variant": facts["variant"],
        "options": facts["options"],
        "origin": facts["origin"],
        "parameters": int(first["parameters"]),
        "fine_tuned": "a model for each task",
        "epoch": f"the {board.protocol.epoch} epoch of each run",
    }

    if facts["variant"] == FINISHED:
        details |= {"fine_tuned": "elsewhere", "epoch": "not known"}
    if first["base_model"]:
        details["base_model"] = first["base_model"]
    engine = {"name": "glue-bench", "version": first["environment"].glue_bench or "unknown"}

    scores = arm_scores(board, arm)
    stated = scores[scores["task"].isin(cells["task"]) & scores["mean"].notna()]
    unchecked = board.results.tasks["unchecked"]

    results = []
    for row in stated.to_dict("records"):
        runs = cells[cells["task"] == row["task"]]
        is_checked = row["split"] not in unchecked[row["task"]]
        results.append(_result(row, runs, is_checked=is_checked))

    return {
        "source_metadata": {
            "source_name": "glue-bench",
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": "first_party",
        },
        "eval_library": engine,
        "model_info": {
            "name": name,
            "id": f"{organization}/{name}",
            "developer": organization,
            "inference_engine": engine,
            "additional_details": _texts(details),
        },
        "evaluation_results": results,
    }


def _result(row: dict[Any, Any], runs: pd.DataFrame, *, is_checked: bool) -> dict[str, Any]:
    """Return one entry of `evaluation_results`.

    Args:
        row: A row of `arm_scores`.
        runs: The runs behind it.
        is_checked: Whether the rows of the split were compared with the hub's dataset. Only then
            the entry names that dataset.
    """
    name = f"{find_task(row['task']).place}.{row['split']}"
    return {
        "evaluation_result_id": f"{name}.{row['metric']}",
        "evaluation_name": name,
        "source_data": _source_data(row, runs, is_checked=is_checked),
        "metric_config": _metric_config(row),
        "score_details": _score_details(row, runs),
    }


def _source_data(row: dict[Any, Any], runs: pd.DataFrame, *, is_checked: bool) -> dict[str, Any]:
    """Return the field `source_data` of a score: the rows, and whether they were checked."""
    task = find_task(row["task"])
    split = row["split"]
    repository = repository_of(task)
    source: dict[str, Any] = {"dataset_name": task.full_title, "source_type": "other"}
    details = {"config": task.name, "digest": runs["data"].iloc[0]}

    if is_checked and repository:
        source["source_type"] = "hf_dataset"
        source["hf_repo"] = repository
        source["hf_split"] = split
        if task.splits[split].rows:
            source["samples_number"] = task.splits[split].rows
    elif not repository:
        details["split"] = split
        details["content"] = "files of whoever made the runs"
    else:
        details["split"] = split
        details["content"] = "complete by count, not compared with the official rows"

    if row["revision"]:
        details["revision"] = row["revision"]
    source["additional_details"] = details
    return source


def _metric_config(row: dict[Any, Any]) -> dict[str, Any]:
    """Return the field `metric_config` of a score."""
    metric = row["metric"]
    is_proportion = metric in SHARES
    return {
        "evaluation_description": find_task(row["task"]).summary,
        "metric_id": metric,
        "metric_name": row["name"],
        "metric_kind": metric,
        "metric_unit": "proportion" if is_proportion else "coefficient",
        "lower_is_better": False,
        "score_type": "continuous",
        "min_score": 0.0 if is_proportion else -1.0,
        "max_score": 1.0,
    }


def _score_details(row: dict[Any, Any], runs: pd.DataFrame) -> dict[str, Any]:
    """Return the field `score_details`: the mean over runs, with its standard error."""
    n = row["n"]
    details = {
        "score": f"mean over {n} independent runs" if n > 1 else "of one run",
        "runs": runs["cell_id"].tolist(),
        "records": runs["digest"].tolist(),
    }

    if row["learning_rate"]:  # what was fine-tuned elsewhere has 0
        details["learning_rate"] = row["learning_rate"]
    score: dict[str, Any] = {"score": row["mean"]}

    if n > 1:
        error = {
            "value": row["error"],
            "method": "standard deviation over independent runs / sqrt(number of runs)",
        }
        score["uncertainty"] = {
            "standard_error": error,
            "num_samples": n,
            "standard_deviation": row["std"],
        }

    score["details"] = _texts(details)
    return score


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """Write values as texts, which `additional_details` has to have."""
    texts: dict[str, str] = {}
    for name, value in values.items():
        texts[name] = value if isinstance(value, str) else json.dumps(value)
    return texts
