"""Results in the schema of Every Eval Ever, version 0.3.0 (https://github.com/evaleval/every_eval_ever).

One log per arm, which lies where that project's data repository has it:
data/glue-bench/ORGANIZATION/EXPERIMENT-ARM/<uuid>.json.
"""

import json
import re
import time
import uuid
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.board.board import BOTH_SEEDS, Board
from glue_bench.board.chosen import arm_scores
from glue_bench.data.hub import REPOSITORY
from glue_bench.data.tasks import TASKS, titles
from glue_bench.errors import UserError, quoted
from glue_bench.files import ELSEWHERE, results_written_to, write_atomically
from glue_bench.pages.render import json_text

SCHEMA = "0.3.0"
ASUNDER = "export each to a place of its own with -o"
_NAME = re.compile(r"(?!(?:data|unknown)$)[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?")


def write_logs(boards: Iterable[Board], folder: Path, organization: str) -> dict[str, Any]:
    """Write the logs of all arms below `folder`; `files` that were written, and by experiment what was `left_out`.

    A score is the mean over the runs at the reported rate, with its standard error over independent runs. Made-up and
    partial data are left out, because a log states a benchmark's score. `organization` is who states it. Raises
    UserError for a name that cannot be part of a path, for nothing to state, for a model of which another log lies
    there, whose scores would stand beside the new ones, and for a disk that cannot be written.
    """
    if not _NAME.fullmatch(organization):
        raise UserError(
            f"organization {quoted(organization)}: give letters, digits, dots, dashes and underscores"
        )
    logs: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    for board in boards:
        experiment = board.results.experiment
        if board.results.is_made_up:
            left_out[experiment] = "its data are made up"
            continue
        if partial := board.results.partial_tasks:
            left_out[experiment] = _left_out(board)
        cells = board.reported.sort_values(BOTH_SEEDS)
        cells = cells[~cells["task"].isin(partial)]
        for arm in (arm for arm in board.arms if arm in {*cells["arm"]}):
            model = f"{organization}/{experiment}-{arm}"
            log = _log(board, organization, arm, cells)
            # Equal logs have one name: what it hashes is all that the log says.
            name = f"glue-bench/{model}/{sha256(json.dumps(log, sort_keys=True).encode()).hexdigest()[:16]}"
            place = f"data/glue-bench/{model}/{uuid.UUID(bytes=sha256(name.encode()).digest()[:16], version=4)}.json"
            about = {
                "schema_version": SCHEMA,
                "evaluation_id": name,
                "retrieved_timestamp": str(int(time.time())),
            }
            logs[place] = json_text(about | log).encode()
    if not logs:
        why = (
            "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
            or "no run has finished"
        )
        raise UserError(f"nothing to export as a benchmark's score ({why})")
    _check_others(logs, folder)
    with results_written_to(folder, ELSEWHERE):
        for place, content in logs.items():
            write_atomically(folder / place, content)
    return {"files": [*logs], "left_out": left_out}


def _check_others(logs: Iterable[str], folder: Path) -> None:
    """Raise UserError where a model has another log, in the folder or among `logs`: nobody could tell which counts."""
    by_model: dict[Path, str] = {}
    for place in logs:
        model = (folder / place).parent
        if model in by_model:
            raise UserError(
                f"two of the folders have an experiment and an arm of one name ({model.name}); {ASUNDER}"
            )
        by_model[model] = place
        others = sorted(path for path in model.glob("[!.]*.json") if path != folder / place)
        if others:
            raise UserError(
                f"'{others[0]}' is another log of the same model; delete it, or {ELSEWHERE}"
            )


def _left_out(board: Board) -> str:
    """Why tasks of an experiment are left out: their rows are not all, or not exactly, the official ones."""
    tasks = board.results.tasks
    differ = tasks["differences"].map(len) > 0
    groups = {
        "run on a part of the official rows": tasks.index[tasks["partial"] & ~differ],
        "run on other rows than the official ones": tasks.index[tasks["partial"] & differ],
    }
    return "; ".join(
        f"{reason}: {titles(tuple(names))}" for reason, names in groups.items() if len(names)
    )


def _log(board: Board, organization: str, arm: str, cells: pd.DataFrame) -> dict[str, Any]:
    """What the log of an arm says but for its name and the time."""
    facts = board.results.arms.loc[arm]
    cells = cells[cells["arm"] == arm]
    scores = arm_scores(board, arm)
    first, stated = (
        cells.iloc[0],
        scores[scores["task"].isin(cells["task"]) & scores["mean"].notna()],
    )
    unchecked = board.results.tasks["unchecked"]
    name = f"{board.results.experiment}-{arm}"
    details: dict[str, Any] = {"deployment_type": "self_deployed", "model_availability": "unknown"}
    details |= {name: facts[name] for name in ("variant", "options", "origin")}
    details |= {"parameters": int(first["parameters"]), "fine_tuned": "a model for each task"}
    details |= {"epoch": f"the {board.protocol.epoch} epoch of each run"}
    details |= {"base_model": first["base_model"]} if first["base_model"] else {}
    source = {"source_name": "glue-bench", "source_type": "evaluation_run"}
    source |= {"source_organization_name": organization, "evaluator_relationship": "first_party"}
    engine = {"name": "glue-bench", "version": first["environment"].glue_bench or "unknown"}
    model = {
        "name": name,
        "id": f"{organization}/{name}",
        "developer": organization,
        "inference_engine": engine,
    }
    return {
        "source_metadata": source,
        "eval_library": engine,
        "model_info": model | {"additional_details": _texts(details)},
        "evaluation_results": [
            _result(
                row,
                cells[cells["task"] == row["task"]],
                is_checked=row["split"] not in unchecked[row["task"]],
            )
            for row in stated.to_dict("records")
        ],
    }


def _result(row: dict[Any, Any], runs: pd.DataFrame, *, is_checked: bool) -> dict[str, Any]:
    """What a row of `arm_scores` says, of these runs.

    The hub's dataset is stated where the rows of the split were compared with it, so that `is_checked` is true.
    """
    task = TASKS[row["task"]]
    metric = row["metric"]
    n = row["n"]
    name = f"glue.{row['task']}.{row['split']}"
    source: dict[str, Any] = {"dataset_name": f"GLUE {task.title}", "source_type": "other"}
    data = {"config": task.name, "digest": runs["data"].iloc[0]}
    if is_checked:
        source |= {"source_type": "hf_dataset", "hf_repo": REPOSITORY, "hf_split": row["split"]}
        source |= {"samples_number": task.splits[row["split"]].rows}
    else:
        data |= {
            "split": row["split"],
            "content": "complete by count, not compared with the official rows",
        }
    data |= {"revision": row["revision"]} if row["revision"] else {}
    unit, least = ("proportion", 0.0) if metric in ("accuracy", "f1") else ("coefficient", -1.0)
    metric_of = {
        "evaluation_description": task.summary,
        "metric_id": metric,
        "metric_name": row["name"],
    }
    metric_of |= {
        "metric_kind": metric,
        "metric_unit": unit,
        "lower_is_better": False,
        "score_type": "continuous",
    }
    error = {
        "value": row["error"],
        "method": "standard deviation over independent runs / sqrt(number of runs)",
    }
    spread = {"standard_error": error, "num_samples": n, "standard_deviation": row["std"]}
    score = {"score": row["mean"]} | ({"uncertainty": spread} if n > 1 else {})
    details = {
        "score": f"mean over {n} independent runs" if n > 1 else "of one run",
        "runs": runs["cell_id"].tolist(),
    }
    details |= {"records": runs["digest"].tolist(), "learning_rate": row["learning_rate"]}
    return {
        "evaluation_result_id": f"{name}.{metric}",
        "evaluation_name": name,
        "source_data": source | {"additional_details": data},
        "metric_config": metric_of | {"min_score": least, "max_score": 1.0},
        "score_details": score | {"details": _texts(details)},
    }


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """Values of `additional_details`, which have to be texts."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
    }
