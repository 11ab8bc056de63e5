"""Results in the schema of Every Eval Ever, version 0.3.0 (https://github.com/evaleval/every_eval_ever).

One log per arm, and beside it one line for each example of a validation split. Both lie where that project's data
repository has them: data/glue-bench/ORGANIZATION/EXPERIMENT-ARM/<uuid>.json and <uuid>_samples.jsonl.
"""

import json
import math
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.hub import REPOSITORY
from glue_bench.data.metrics import decide
from glue_bench.data.sources import open_source
from glue_bench.data.task_data import TaskData
from glue_bench.data.tasks import TASKS, titles
from glue_bench.errors import UserError, quoted
from glue_bench.files import whole_file, write_atomically
from glue_bench.stats.outcomes import contributions
from glue_bench.tables.board import SEEDS, Board
from glue_bench.tables.card import METRIC_NAMES
from glue_bench.tables.submission import arm_scores

SCHEMA = "0.3.0"
Load = Callable[[str], TaskData]
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?")
_RESERVED = {"data", "unknown"}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm of a board: its `scores` (of `arm_scores`) and its `cells` that may be published.

    `earlier` are the cells whose scores are of an earlier epoch than the last, of which their predictions are.
    """

    board: Board
    organization: str
    name: str
    scores: pd.DataFrame
    cells: pd.DataFrame
    earlier: frozenset[str]

    @property
    def model(self) -> str:
        """The name under which its model is known."""
        return f"{self.organization}/{self.board.results.experiment}-{self.name}"

    def predicted(self, cell_id: str, task: str, split: str, rows: int) -> np.ndarray:
        """Classes or scores that a run predicted, (rows,)."""
        logits = self.board.results.arrays.logits(cell_id).get(split)
        if logits is None or len(logits) != rows or not np.isfinite(logits).all():
            raise UserError(f"'{cell_id}' has diverged, or has no predictions for each of {split}'s {rows} rows")
        return decide(task, logits)


def write_logs(boards: Iterable[Board], folder: Path, organization: str, data: str | None = None) -> dict[str, Any]:
    """Write the logs of all arms below `folder`; `files` that were written, and by experiment what was `left_out`.

    A score is the mean over the runs at the reported rate, with its standard error over independent runs; the main
    score of one run alone has one over the examples. Made-up and partial data are left out, because a log states a
    benchmark's score. `organization` is who states it. With `data`, the source of the texts, there is a line for each
    example: what every run answered, and the share of runs that is right.

    Raises:
        UserError: a name that cannot be part of a path, nothing that can be stated, other data than the runs were made
            with, predictions that are missing, damaged or of another epoch, or a disk that cannot be written.
    """
    if not _NAME.fullmatch(organization) or organization in _RESERVED:
        raise UserError(f"organization {quoted(organization)}: give letters, digits, dots, dashes and underscores")
    load = cache(open_source(data).load) if data else None  # all arms have the same tasks
    files, left_out = list[str](), dict[str, str]()
    for board in boards:
        if "demo" in board.results.data_source:
            left_out[board.results.experiment] = "its data are made up"
            continue
        if partial := board.results.partial_tasks:
            left_out[board.results.experiment] = f"run on a part of the official rows: {titles(partial)}"
        for arm in _arms(board, organization):
            files += _write(arm, folder, load)
    if not files:
        why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items()) or "no run has finished"
        raise UserError(f"nothing to export as a benchmark's score ({why})")
    return {"files": files, "left_out": left_out}


def _arms(board: Board, organization: str) -> Iterator[Arm]:
    """The arms of which something can be stated."""
    cells = board.reported.sort_values(SEEDS)
    cells = cells[~cells["task"].isin(board.results.partial_tasks)]
    early = frozenset(board.runs.loc[~board.runs["last"], "cell_id"])
    for name in (name for name in board.arms if name in {*cells["arm"]}):
        mine, scores = cells[cells["arm"] == name], arm_scores(board, name)
        stated = scores[scores["task"].isin(mine["task"]) & scores["mean"].notna()]
        facts: dict[str, Any] = {"board": board, "organization": organization, "name": name}
        yield Arm(**facts, scores=stated, cells=mine, earlier=early & {*mine["cell_id"]})


def _write(arm: Arm, folder: Path, load: Load | None) -> list[str]:
    """Write the log of an arm, its examples first; the paths, which begin with data/.

    Equal logs have one name: what it hashes is all that the log says.
    """
    content = _log(arm)
    name = f"glue-bench/{arm.model}/{sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]}"
    place = f"data/glue-bench/{arm.model}/{uuid.UUID(bytes=sha256(name.encode()).digest()[:16], version=4)}"
    log = {"schema_version": SCHEMA, "evaluation_id": name, "retrieved_timestamp": str(int(time.time())), **content}
    written = [f"{place}.json"]
    try:
        if load is not None:
            written.append(f"{place}_samples.jsonl")
            rows, total = 0, sha256()
            with whole_file(folder / written[-1]) as file:
                for sample in _samples(arm, name, load):
                    line = (json.dumps(sample, ensure_ascii=False, allow_nan=False) + "\n").encode()
                    file.write(line)
                    total.update(line)
                    rows += 1
            facts = {"format": "jsonl", "file_path": written[-1], "hash_algorithm": "sha256"}
            log["detailed_evaluation_results"] = facts | {"checksum": total.hexdigest(), "total_rows": rows}
        text = json.dumps(log, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(folder / written[0], text.encode())
    except OSError as error:
        raise UserError(f"cannot write '{folder}': {error.strerror or error}") from error
    return written


def _log(arm: Arm) -> dict[str, Any]:
    """What the log says but for its name and the time."""
    facts, first = arm.board.results.arms.loc[arm.name], arm.cells.iloc[0]
    version = first["environment"].glue_bench or "unknown"
    details: dict[str, Any] = {
        "deployment_type": "self_deployed",
        "model_availability": "unknown",
        **{name: facts[name] for name in ("variant", "options", "origin")},
        "parameters": int(first["parameters"]),
        "fine_tuned": "a model for each task",
        "epoch": f"the {arm.board.protocol.epoch} epoch of each run",
    }
    if first["base_model"]:
        details["base_model"] = first["base_model"]
    return {
        "source_metadata": {
            "source_name": "glue-bench",
            "source_type": "evaluation_run",
            "source_organization_name": arm.organization,
            "evaluator_relationship": "first_party",
        },
        "eval_library": {"name": "glue-bench", "version": version},
        "model_info": {
            "name": arm.model.partition("/")[2],
            "id": arm.model,
            "developer": arm.organization,
            "inference_engine": {"name": "glue-bench", "version": version},
            "additional_details": _texts(details),
        },
        "evaluation_results": [_result(arm, row) for row in arm.scores.to_dict("records")],
    }


def _result(arm: Arm, row: dict[Any, Any]) -> dict[str, Any]:
    task, metric, runs = TASKS[row["task"]], row["metric"], arm.cells[arm.cells["task"] == row["task"]]
    share, revision = metric in ("accuracy", "f1"), arm.board.results.tasks["revision"][task.name]
    data = {"config": task.name, "digest": runs["data"].iloc[0]} | ({"revision": revision} if revision else {})
    details = {
        "score": f"mean over {row['n']} independent runs" if row["n"] > 1 else "of one run",
        "runs": runs["cell_id"].tolist(),
        "records": runs["digest"].tolist(),
        "learning_rate": runs["learning_rate"].iloc[0],
    }
    uncertainty = _uncertainty(arm, row, runs.iloc[0])
    return {
        "evaluation_result_id": f"{_name(task.name, row['split'])}.{metric}",
        "evaluation_name": _name(task.name, row["split"]),
        "source_data": {
            "dataset_name": f"GLUE {task.title}",
            "source_type": "hf_dataset",
            "hf_repo": REPOSITORY,
            "hf_split": row["split"],
            "samples_number": task.splits[row["split"]].rows,
            "additional_details": data,
        },
        "metric_config": {
            "evaluation_description": task.summary,
            "metric_id": metric,
            "metric_name": METRIC_NAMES[metric],
            "metric_kind": metric,
            "metric_unit": "proportion" if share else "coefficient",
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0 if share else -1.0,
            "max_score": 1.0,
        },
        "score_details": {
            "score": float(row["mean"]),
            **({"uncertainty": uncertainty} if uncertainty else {}),
            "details": _texts(details),
        },
    }


def _uncertainty(arm: Arm, row: dict[Any, Any], run: pd.Series) -> dict[str, Any]:
    """Over runs; of one run alone its main score's over the examples, if there are its predictions and labels."""
    if row["n"] > 1:
        method = "standard deviation over independent runs / sqrt(number of runs)"
        return {
            "standard_error": {"value": float(row["error"]), "method": method},
            "standard_deviation": float(row["error"]) * math.sqrt(row["n"]),
            "num_samples": int(row["n"]),
        }
    arrays, metric, split = arm.board.results.arrays, TASKS[row["task"]].metrics[0], row["split"]
    labels = arrays.gold(row["task"], run["data"]).get(split)
    known = run["cell_id"] not in arm.earlier and split in arrays.logits(run["cell_id"])
    if row["metric"] != metric or labels is None or not known:
        return {}
    answers = arm.predicted(run["cell_id"], row["task"], split, len(labels))
    error = float(contributions(metric, answers[None], labels).std(ddof=1)) / math.sqrt(len(labels)) / 100
    return {"standard_error": {"value": error, "method": "jackknife over the examples"}, "num_samples": len(labels)}


def _samples(arm: Arm, name: str, load: Load) -> Iterator[dict[str, Any]]:
    """A line for each example of each scored split, about the task's main metric; `name` is that of the log."""
    if arm.earlier:
        raise UserError(
            f"the score of '{min(arm.earlier)}' is of an earlier epoch than its predictions (`protocol.epoch: best`); "
            "leave --data out, or set `epoch: last`"
        )
    same = {"schema_version": SCHEMA, "evaluation_id": name, "model_id": arm.model}
    for task in arm.cells["task"].unique():
        data, runs = load(task), arm.cells[arm.cells["task"] == task]
        ids = runs["cell_id"]
        if (runs["data"] != data.digest).any():
            raise UserError(f"the data of {task} are not those that '{ids.iloc[0]}' was made with")
        for split in TASKS[task].validation_splits:
            frame, named = data.splits[split], _name(task, split)
            about = {"evaluation_name": named, "evaluation_result_id": f"{named}.{TASKS[task].metrics[0]}"}
            answers = np.stack([arm.predicted(cell_id, task, split, len(frame)) for cell_id in ids], axis=1)
            texts = [column for column in ("text_a", "text_b") if column in frame]
            for row, (*inputs, gold) in enumerate(frame[[*texts, "label"]].itertuples(index=False)):
                yield {**same, **about, "sample_id": f"{named}.{row}", **_answered(task, inputs, gold, answers[row])}


def _answered(task: str, inputs: list[str], gold: float, predicted: np.ndarray) -> dict[str, Any]:
    """One example: its texts, its label, and what each run answered.

    The score is the share of runs that are right; of STS-B it is the mean absolute error below 0, and an answer counts
    as correct within half a point.
    """
    names = TASKS[task].labels
    if names:
        reference, answers = names[int(gold)], [names[each] for each in predicted]
        score = float(np.mean(predicted == gold))
        correct = score > 0.5
    else:
        reference, answers = f"{gold:g}", [f"{each:.4f}" for each in predicted]
        score = -float(np.mean(np.abs(predicted - gold)))
        correct = score >= -0.5
    asked = {"raw": "\n".join(inputs), "reference": [reference]}
    canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    how = {"extraction_method": "argmax of the logits" if names else "the head's output", "is_terminal": True}
    return {
        "sample_hash": sha256(canonical.encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": asked | ({"choices": list(names)} if names else {}),
        "output": {"raw": answers},
        "answer_attribution": [
            {"turn_idx": 0, "source": f"output.raw[{run}]", "extracted_value": answer, **how}
            for run, answer in enumerate(answers)
        ],
        "evaluation": {"score": score, "is_correct": correct},
    }


def _name(task: str, split: str) -> str:
    return f"glue.{task}.{split}"


def _texts(values: dict[str, Any]) -> dict[str, str]:
    """Values of `additional_details`, which have to be texts."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
