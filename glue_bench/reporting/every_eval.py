"""Results in the schema of Every Eval Ever, version 0.3.0 (https://github.com/evaleval/every_eval_ever).

One log per arm, and beside it one line for each example of a validation split. Both lie where that project's data
repository has them: data/glue-bench/ORGANIZATION/EXPERIMENT-ARM/<uuid>.json and <uuid>_samples.jsonl.
"""

import json
import math
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.hub import REPOSITORY
from glue_bench.data.metrics import decide
from glue_bench.data.schema import TaskData
from glue_bench.data.sources import open_source
from glue_bench.data.tasks import TASKS, titles
from glue_bench.errors import UserError, quoted
from glue_bench.files import whole_file, write_atomically
from glue_bench.records.disk import dump, record_digest
from glue_bench.records.record import Record
from glue_bench.records.store import Store
from glue_bench.reporting.card import METRIC_NAMES
from glue_bench.results.arm_scores import arm_scores
from glue_bench.results.board import Board, make_board
from glue_bench.results.epochs import is_last
from glue_bench.results.protocol import SEEDS, at_rates
from glue_bench.results.submission import median_runs
from glue_bench.stats.outcomes import contributions

SCHEMA = "0.3.0"
Load = Callable[[str], TaskData]
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_-])?")
_RESERVED = {"data", "unknown"}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm of a store: the model's name, `scores` of `arm_scores` that may be published, and its runs by task.

    `earlier` are the runs whose scores are of an earlier epoch than the last, of which their predictions are.
    """

    store: Store
    model: str
    scores: pd.DataFrame
    records: Mapping[str, list[Record]]
    earlier: frozenset[str]

    @property
    def log_id(self) -> str:
        """What tells this evaluation from others; the same records give the same."""
        told = [record_digest(record.document()) for runs in self.records.values() for record in runs]
        return f"glue-bench/{self.model}/{sha256(json.dumps(told).encode()).hexdigest()[:16]}"


def write_logs(stores: Iterable[Store], folder: Path, organization: str, data: str | None = None) -> dict[str, Any]:
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
    for store in stores:
        board = make_board(store)
        if "demo" in board.results.data_source:
            left_out[board.results.experiment] = "its data are made up"
            continue
        if partial := board.results.partial_tasks:
            left_out[board.results.experiment] = f"run on a part of the official rows: {titles(partial)}"
        for arm in _arms(store, board, organization):
            files += _write(arm, folder, organization, load)
    if not files:
        why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items()) or "no run has finished"
        raise UserError(f"nothing to export as a benchmark's score ({why})")
    return {"files": files, "left_out": left_out}


def _arms(store: Store, board: Board, organization: str) -> Iterator[Arm]:
    """The arms of which something can be stated."""
    cells = at_rates(board.results.cells, board.rates).sort_values(SEEDS)
    cells = cells[cells["finished"] & ~cells["task"].isin(board.results.partial_tasks)]
    for name in dict.fromkeys(board.results.cells["arm"]):
        mine = cells[cells["arm"] == name]
        if mine.empty:
            continue
        scores = arm_scores(board, name, median_runs(board, name))
        records = {
            str(task): [store.read_record(cell) for cell in group["cell_id"]]
            for task, group in mine.groupby("task", sort=False)
        }
        yield Arm(
            store=store,
            model=f"{organization}/{board.results.experiment}-{name}",
            scores=scores[scores["task"].isin(mine["task"]) & scores["mean"].notna()],
            records=records,
            earlier=frozenset(
                record.cell_id
                for runs in records.values()
                for record in runs
                if not is_last(record, board.results.protocol)
            ),
        )


def _write(arm: Arm, folder: Path, organization: str, load: Load | None) -> list[str]:
    """Write the log of an arm, its examples first; the paths, which begin with data/."""
    identity = str(uuid.UUID(bytes=sha256(arm.log_id.encode()).digest()[:16], version=4))
    place = f"data/glue-bench/{arm.model}/{identity}"
    log, written = _log(arm, organization), []
    try:
        if load is not None:
            rows, total = 0, sha256()
            with whole_file(folder / f"{place}_samples.jsonl") as file:
                for sample in _samples(arm, load):
                    line = (json.dumps(sample, ensure_ascii=False, allow_nan=False) + "\n").encode()
                    file.write(line)
                    total.update(line)
                    rows += 1
            log["detailed_evaluation_results"] = {
                "format": "jsonl",
                "file_path": f"{place}_samples.jsonl",
                "hash_algorithm": "sha256",
                "checksum": total.hexdigest(),
                "total_rows": rows,
            }
            written.append(f"{place}_samples.jsonl")
        write_atomically(folder / f"{place}.json", dump(log))
    except OSError as error:
        raise UserError(f"cannot write '{folder}': {error.strerror or error}") from error
    return [f"{place}.json", *written]


def _log(arm: Arm, organization: str) -> dict[str, Any]:
    first = next(iter(arm.records.values()))[0]
    version = first.environment.glue_bench or "unknown"
    details: dict[str, Any] = {
        "deployment_type": "self_deployed",
        "model_availability": "unknown",
        "variant": first.cell.variant,
        "options": first.options,
        "origin": first.origin,
        "parameters": first.parameters,
        "fine_tuned": "a model for each task",
    }
    if first.checkpoint.revision is not None:  # else the name may be that of a folder
        details["base_model"] = f"{first.checkpoint.name}@{first.checkpoint.revision}"
    return {
        "schema_version": SCHEMA,
        "evaluation_id": arm.log_id,
        "retrieved_timestamp": str(int(time.time())),
        "source_metadata": {
            "source_name": "glue-bench",
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": "first_party",
        },
        "eval_library": {"name": "glue-bench", "version": version},
        "model_info": {
            "name": arm.model.partition("/")[2],
            "id": arm.model,
            "developer": organization,
            "inference_engine": {"name": "glue-bench", "version": version},
            "additional_details": _texts(details),
        },
        "evaluation_results": [_result(arm, row) for row in arm.scores.to_dict("records")],
    }


def _result(arm: Arm, row: Mapping[Any, Any]) -> dict[str, Any]:
    task, metric, records = TASKS[row["task"]], row["metric"], arm.records[row["task"]]
    share = metric in ("accuracy", "f1")
    data = {"config": task.name, "digest": records[0].data.digest}
    if records[0].data.revision:
        data["revision"] = records[0].data.revision
    over = f"mean over {row['n']} independent runs" if row["n"] > 1 else "of one run"
    details: dict[str, Any] = {"score": over, "runs": [record.cell_id for record in records]}
    score: dict[str, Any] = {"score": float(row["mean"])}
    if row["n"] > 1:
        score["uncertainty"] = {
            "standard_error": {
                "value": float(row["error"]),
                "method": "standard deviation over independent runs / sqrt(number of runs)",
            },
            "standard_deviation": float(row["error"]) * math.sqrt(row["n"]),
            "num_samples": int(row["n"]),
        }
    elif metric == task.metrics[0] and (error := _over_examples(arm, records[0], row["split"])):
        score["uncertainty"] = error
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
        "score_details": score | {"details": _texts(details | {"learning_rate": records[0].cell.learning_rate})},
    }


def _over_examples(arm: Arm, record: Record, split: str) -> dict[str, Any]:
    """The standard error of one run's main score over the examples; nothing without its predictions and labels."""
    labels = arm.store.read_labels(record.cell.task, record.data.digest).get(split)
    if labels is None or not arm.store.has_predictions(record.cell_id) or record.cell_id in arm.earlier:
        return {}
    said = _said(arm.store, record, split, len(labels))
    values = contributions(TASKS[record.cell.task].metrics[0], said[None], labels)
    error = float(values.std(ddof=1)) / math.sqrt(len(labels)) / 100
    return {"standard_error": {"value": error, "method": "jackknife over the examples"}, "num_samples": len(labels)}


def _samples(arm: Arm, load: Load) -> Iterator[dict[str, Any]]:
    """A line for each example of each scored split, about the task's main metric."""
    if arm.earlier:
        raise UserError(
            f"the score of '{min(arm.earlier)}' is of an earlier epoch than its predictions (`protocol.epoch: best`); "
            "leave --data out, or set `epoch: last`"
        )
    same = {"schema_version": SCHEMA, "evaluation_id": arm.log_id, "model_id": arm.model}
    for task, records in arm.records.items():
        data = load(task)
        if any(record.data.digest != data.digest for record in records):
            raise UserError(f"the data of {task} are not those that '{records[0].cell_id}' was made with")
        for split in TASKS[task].validation_splits:
            frame, name = data.splits[split], _name(task, split)
            about = {"evaluation_name": name, "evaluation_result_id": f"{name}.{TASKS[task].metrics[0]}"}
            said = np.stack([_said(arm.store, record, split, len(frame)) for record in records], axis=1)
            texts = [column for column in ("text_a", "text_b") if column in frame]
            for row, (*inputs, gold) in enumerate(frame[[*texts, "label"]].itertuples(index=False)):
                yield {**same, **about, "sample_id": f"{name}.{row}", **_answered(task, inputs, gold, said[row])}


def _said(store: Store, record: Record, split: str, rows: int) -> np.ndarray:
    """What a run predicted of a split: classes or scores, (rows,)."""
    logits = store.read_predictions(record.cell_id).get(split)
    if logits is None or len(logits) != rows or not np.isfinite(logits).all():
        raise UserError(f"'{record.cell_id}' has diverged, or has no predictions for each of {split}'s {rows} rows")
    return decide(record.cell.task, logits)


def _answered(task: str, inputs: list[str], gold: float, said: np.ndarray) -> dict[str, Any]:
    """One example: its texts, its label, and what each run said of it.

    The score is the share of runs that are right; of STS-B it is the mean absolute error below 0, and an answer counts
    as correct within half a point.
    """
    names = TASKS[task].labels
    if names:
        reference, answers = names[int(gold)], [names[each] for each in said]
        score = float(np.mean(said == gold))
        correct = score > 0.5
    else:
        reference, answers = f"{gold:g}", [f"{each:.4f}" for each in said]
        score = -float(np.mean(np.abs(said - gold)))
        correct = score >= -0.5
    asked = {"raw": "\n".join(inputs), "reference": [reference]}
    canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return {
        "sample_hash": sha256(canonical.encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": asked | ({"choices": list(names)} if names else {}),
        "output": {"raw": answers},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": f"output.raw[{run}]",
                "extracted_value": answer,
                "extraction_method": "argmax of the logits" if names else "the head's output",
                "is_terminal": True,
            }
            for run, answer in enumerate(answers)
        ],
        "evaluation": {"score": score, "is_correct": correct},
    }


def _name(task: str, split: str) -> str:
    return f"glue.{task}.{split}"


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Values of `additional_details`, which have to be texts."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
