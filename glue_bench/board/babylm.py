"""Predictions of BabyLM's evaluation pipeline, with the right answers of its evaluation data.

The pipeline (2025 and 2026, strict tracks) writes a `predictions.json` for each task:

    {"SUBTASK": {"predictions": [{"id": "SUBTASK_0", "pred": ANSWER}, ...]}, ...}

It has no right answers. They are in the folder of JSON lines that the model was evaluated on, such
as `evaluation_data/full_eval/blimp_filtered`. Prediction n belongs to row n of its subtask.
"""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from glue_bench.data.tables import FORMATS, read_table_file
from glue_bench.errors import UserError, quoted
from glue_bench.files import read_file

MAX_BYTES = 2**30
COMPS_SUBTASKS = {
    "comps_base": "base",
    "comps_wugs": "wugs",
    "comps_wugs_dist-before": "wugs_dist_before",
    "comps_wugs_dist-in-between": "wugs_dist_in_between",
}
"""The subtasks of COMPS by the names of their files."""


class Prediction(BaseModel):
    """The answer to one row of the evaluation data."""

    id: str | int
    pred: str | int | float


class Predictions(BaseModel):
    """The answers of one subtask."""

    predictions: list[Prediction]


PREDICTIONS = TypeAdapter(Annotated[dict[str, Predictions], Field(min_length=1)])
"""A whole `predictions.json`, by subtask."""


def read_babylm(path: Path, answers_by_subtask: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return a row for each prediction of a file: 1 if it is the right answer, else 0.

    The system is the model in the pipeline's `MODEL/REVISION/zero_shot/...`, with a revision other
    than `main`; elsewhere it is the folder of the file.

    Args:
        path: A `predictions.json`.
        answers_by_subtask: The right answers, as `read_answers` returns them.

    Raises:
        UserError: The file is of another format; there are no right answers, or not one for each
            prediction.
    """
    try:
        document = PREDICTIONS.validate_json(read_file(path, MAX_BYTES))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "its content"
        raise UserError(
            f"'{path}' is no file of BabyLM's predictions; {place}: {problem['msg']}; save other "
            f"rows as {', '.join(FORMATS)}"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from error

    if not answers_by_subtask:
        raise UserError(
            f"'{path}' has no right answers; give --gold FOLDER, the folder of BabyLM's evaluation "
            "data that it was predicted from"
        )

    system = _system_of(path)
    rows: list[dict[str, Any]] = []

    for subtask, results in document.items():
        answers = answers_by_subtask.get(subtask, [])
        if len(results.predictions) != len(answers):
            raise UserError(
                f"'{path}' has {len(results.predictions):,} predictions of {quoted(subtask)}, and "
                f"the folder of --gold has {len(answers):,} rows of it"
            )
        for prediction, answer in zip(results.predictions, answers, strict=True):
            is_right = str(prediction.pred).strip() == answer
            row = {"task": subtask, "id": prediction.id, "outcome": float(is_right)}
            rows.append(row)

    return pd.DataFrame(rows, columns=["task", "id", "outcome"]).assign(system=system)


def _system_of(path: Path) -> str:
    """Return the name of the model that made a file's predictions."""
    parts = path.absolute().parts
    for kind in ("zero_shot", "finetune"):
        place = parts.index(kind) if kind in parts else 0
        if place >= 2:
            model, revision = parts[place - 2 : place]
            return model if revision == "main" else f"{model} {revision}"
    return path.absolute().parent.name


def read_answers(folder: Path) -> dict[str, list[str]]:
    """Return the right answers of each subtask, in the order of the rows of its file.

    `folder` has the JSON lines that a model was evaluated on. Raises UserError if it has none, or
    for a row without a right answer.
    """
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise UserError(f"--gold: there is no .jsonl file in '{folder}'")
    answers_by_subtask: dict[str, list[str]] = {}
    for file in files:
        stem = file.name.split(".")[0]
        table = read_table_file(file, ())
        rows = pd.DataFrame(table.columns, dtype=object).to_dict("records")
        for place, row in zip(table.row_names, rows, strict=True):
            try:
                subtask, answer = _answer_of(row, stem)
            except (LookupError, TypeError) as error:
                raise UserError(f"'{file}', {place}: no row with a right answer") from error
            answers_by_subtask.setdefault(subtask, []).append(answer.strip())
    return answers_by_subtask


def _answer_of(row: Mapping[Hashable, Any], stem: str) -> tuple[str, str]:
    """Return the subtask of a row and its right answer; `stem` is the name of its file."""
    if "sentence_good" in row:  # BLiMP and its supplement
        return str(row.get("UID") or stem), str(row["sentence_good"])
    if "Target1" in row:  # EWoK
        return row["Domain"], row["Target1"]
    if "options" in row:  # entity tracking
        return f"{stem}_{row['numops']}_ops", row["options"][0]
    if "prefix_acceptable" in row:  # COMPS
        return COMPS_SUBTASKS[stem], f"{row['prefix_acceptable']} {row['property_phrase']}"
    return stem, str(row["label"])  # GLUE and SuperGLUE
