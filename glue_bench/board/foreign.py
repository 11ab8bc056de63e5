"""Runs of anyone's systems: tables and per-example files of other harnesses, as one tidy frame.

A row is either a run with its `score`, or one example of a run with an `outcome` (0 and 1, or any
number) or a pair of `prediction` and `label`. Each format is one function that makes such rows.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.board.babylm import read_answers, read_babylm
from glue_bench.data.tables import FORMATS, read_table_file
from glue_bench.errors import UserError, quoted

RUN = ["system", "task", "metric", "block", "seed"]
"""What names a run. `block` is a pretraining: runs of one block share what chance did to it."""
DEFAULTS = {"metric": "score", "block": "1", "seed": "1"}
SPELLINGS = {"model": "system", "example": "id", "sample_id": "id", "correct": "outcome"}
"""The spellings of column names that are read, and the names that they stand for."""
TIDY_COLUMNS = {
    "score": ("system", "task"),
    "outcome": ("system", "task", "id"),
    "prediction": ("system", "task", "id", "prediction", "label"),
}
"""The columns that a row must have, by the column that holds its value."""
MAX_ROWS = 5_000_000
TRUTH_VALUES = {"true": 1.0, "false": 0.0}
LM_EVAL_KEYS = {"doc_id": int | str, "metrics": list}
EVERY_EVAL_KEYS = {"model_id": str, "evaluation_name": str, "sample_id": str, "evaluation": dict}
"""The keys by which a format is recognised, and the types of their values."""
NAMES = ("system", "task", "metric")
"""The columns whose texts stay as they are. In others 1.0 becomes 1, as files differ in this."""
WHOLE_NUMBER = r"^(-?\d+)\.0$"
SAMPLES_FILE = re.compile(r"samples_(.+?)(?:_\d{4}-\d\d-\d\dT[\d.\-]+)?\.jsonl")


def read_frames(
    paths: Sequence[str | Path], cluster: str | None = None, gold: str | Path | None = None
) -> pd.DataFrame:
    """Read files and folders of files into one tidy frame.

    Args:
        paths: CSV, TSV, JSONL or Parquet files, BabyLM's `predictions.json`, or folders with these
            or with lm-eval's `samples_*.jsonl`.
        cluster: The column that says which examples belong together; it becomes `cluster`.
        gold: The folder of BabyLM's evaluation data with the right answers.

    Returns:
        RUN as texts, `file`, and either `score`, or `id` with `outcome`, or `id` with `prediction`
        and `label`.

    Raises:
        UserError: A file that cannot be read, or is of no known format; more than MAX_ROWS rows;
            files of different kinds; a run or an example that is there twice; a value that is
            missing or no number.
    """
    answers = {} if gold is None else read_answers(Path(gold))
    frames: list[pd.DataFrame] = []
    files_by_kind: dict[str, Path] = {}
    for file in _files(paths):
        if file.suffix.lower() == ".json":
            frame = read_babylm(file, answers)
        else:
            frame = _read_rows(file, cluster)
        kind = _kind(frame, file)
        files_by_kind.setdefault(kind, file)
        tidy = _tidy(frame, kind, file, cluster)
        frames.append(tidy.assign(file=str(file)))
    if len(files_by_kind) > 1:
        (first, first_file), (second, second_file) = list(files_by_kind.items())[:2]
        raise UserError(
            f"'{first_file}' has the column {first} and '{second_file}' the column {second}; "
            "compare files of one kind"
        )
    frame = pd.concat(frames, ignore_index=True)
    if frame.empty:
        raise UserError(f"there is no row in {', '.join(map(str, paths))}")
    if len(frame) > MAX_ROWS:
        raise UserError(f"the files have {len(frame):,} rows; at most {MAX_ROWS:,} are compared")
    _check_repeated(frame)
    return frame


def _files(paths: Sequence[str | Path]) -> Iterator[Path]:
    """Yield the named files, and in each named folder the files of lm-eval and of BabyLM."""
    for name in paths:
        path = Path(name)
        if not path.exists():
            raise UserError(f"'{path}' does not exist")
        if path.is_file():
            yield path
            continue
        if not path.is_dir():
            formats = ", ".join(FORMATS)
            raise UserError(f"'{path}' is a pipe or a device; write its rows to a file ({formats})")
        files = [*path.rglob("samples_*.jsonl"), *path.rglob("predictions.json")]
        if not files:
            raise UserError(
                f"'{path}' is no folder of an experiment and has no samples_*.jsonl of lm-eval and "
                f"no predictions.json of BabyLM; give files ({', '.join(FORMATS)}) or such folders"
            )
        yield from sorted(files)


def _read_rows(path: Path, cluster: str | None) -> pd.DataFrame:
    """Read one table. The index has what messages call a row, such as "line 2"."""
    wanted_columns = [*RUN, *SPELLINGS, *TIDY_COLUMNS, "id", "label", cluster or ""]
    table = read_table_file(path, wanted_columns, MAX_ROWS)
    frame = pd.DataFrame(table.columns, index=pd.Index(table.row_names), dtype=object)
    if set(LM_EVAL_KEYS).issubset(frame):
        return lm_eval_rows(frame, path)
    if set(EVERY_EVAL_KEYS).issubset(frame):
        return every_eval_rows(frame, path)
    for spelling, name in SPELLINGS.items():
        if name not in frame:
            frame = frame.rename(columns={spelling: name})
    return frame


def lm_eval_rows(documents: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a row for each metric of each document in lm-eval's `samples_TASK_DATE.jsonl`.

    The system is the folder of the file, which lm-eval names after the model. A metric with several
    filters is named `metric,filter`, as in lm-eval's results.
    """
    _check_types(documents, LM_EVAL_KEYS, path)
    match = SAMPLES_FILE.fullmatch(path.name)
    places: list[str] = []
    rows: list[dict[str, Any]] = []
    for place, document in zip(documents.index, documents.to_dict("records"), strict=True):
        name_filter = document.get("filter") or "none"
        for metric in document["metrics"]:
            value = document.get(metric)
            if not isinstance(value, bool | int | float):
                continue  # a part of a corpus metric: a single document has no score
            row = {
                "metric": metric if name_filter == "none" else f"{metric},{name_filter}",
                "id": document["doc_id"],
                "outcome": value,
                "cluster": document.get("doc_hash"),
            }
            places.append(place)
            rows.append(row)
    columns = ["metric", "id", "outcome", "cluster"]
    frame = pd.DataFrame(rows, index=places, columns=columns, dtype=object)
    return frame.assign(system=path.parent.name, task=match[1] if match else path.stem)


def every_eval_rows(samples: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return the samples of Every Eval Ever's instance-level file.

    In a file that this project wrote, the metadata have the seeds of the run. They also have the
    cluster of the sample if some samples share a text.
    """
    _check_types(samples, EVERY_EVAL_KEYS, path)
    rows: list[dict[str, Any]] = []
    for sample in samples.to_dict("records"):
        metadata = sample.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        name = sample.get("sample_hash") or sample["sample_id"]
        row = {
            "system": sample["model_id"],
            "task": sample["evaluation_name"],
            "block": metadata.get("pretraining_seed", DEFAULTS["block"]),
            "seed": metadata.get("seed", DEFAULTS["seed"]),
            "id": name,
            "outcome": sample["evaluation"].get("score"),
            "cluster": metadata.get("cluster", name),
        }
        rows.append(row)
    return pd.DataFrame(rows, index=samples.index, dtype=object)


def _check_types(frame: pd.DataFrame, types: Mapping[str, Any], file: Path) -> None:
    """Raise UserError for the first row in which a column lacks a value of its type."""
    for name, value_type in types.items():
        for place, value in frame[name].items():
            if not isinstance(value, value_type):
                raise UserError(
                    f"'{file}', {place}: {name} is {quoted(value)}; is this row of another format?"
                )


def _kind(frame: pd.DataFrame, file: Path) -> str:
    """Return the name of the column with the rows' values.

    Raises UserError if there is not one such column, or if a column is missing.
    """
    columns = quoted(", ".join(map(str, frame.columns)))
    kinds = [name for name in TIDY_COLUMNS if name in frame]
    if len(kinds) != 1:
        raise UserError(
            f"'{file}': give one of the columns score (of a run), outcome (of an example) or "
            f"prediction with label; it has {columns}"
        )
    for name in TIDY_COLUMNS[kinds[0]]:
        if name not in frame:
            raise UserError(f"'{file}' lacks the column {name}; it has {columns}")
    return kinds[0]


def _tidy(frame: pd.DataFrame, kind: str, file: Path, cluster: str | None) -> pd.DataFrame:
    """Return the columns that a comparison takes; raises UserError for a value that is wrong."""
    if cluster is not None and cluster not in frame:
        columns = ", ".join(map(str, frame.columns))
        raise UserError(f"--cluster {cluster}: '{file}' has no such column, but {quoted(columns)}")
    for name, default in DEFAULTS.items():
        if name not in frame:
            frame = frame.assign(**{name: default})
    tidy = _texts(frame, [*DEFAULTS, *TIDY_COLUMNS[kind]], file)
    if kind == "prediction":
        tidy["metric"] = DEFAULTS["metric"]  # --metric says what is computed
    else:
        texts = frame[kind].astype(str)  # an int may be too large for a float
        numbers = pd.to_numeric(texts, errors="coerce").astype(float)
        numbers = numbers.fillna(texts.str.lower().map(TRUTH_VALUES))
        wrong = frame.loc[~np.isfinite(numbers), kind]
        for place, value in wrong.items():
            raise UserError(f"'{file}', {place}: the {kind} is no number ({quoted(value)})")
        tidy[kind] = numbers
    if cluster is not None:
        tidy["cluster"] = _texts(frame, [cluster], file)[cluster]
    return tidy


def _texts(frame: pd.DataFrame, names: Sequence[str], file: Path) -> pd.DataFrame:
    """Return columns as texts, in which 1.0 is 1. Raises UserError for a value that is none."""
    texts = frame[names].astype(str)
    for name in names:
        for place in frame.index[frame[name].isna() | (texts[name] == "")]:
            raise UserError(f"'{file}', {place}: there is no {name}")
        for place, value in frame.loc[texts[name].str.startswith(("[", "{")), name].items():
            if isinstance(value, list | dict):
                raise UserError(f"'{file}', {place}: {name} is {quoted(value)}; give one value")
        if name not in NAMES:
            texts[name] = texts[name].str.replace(WHOLE_NUMBER, r"\1", regex=True)
    return texts


def _check_repeated(frame: pd.DataFrame) -> None:
    """Raise UserError for a run, or an example of a run, that is there twice, or in two files."""
    keys = [*RUN, "id"] if "id" in frame else RUN
    problem = "is there twice, in"
    repeated = frame[frame.duplicated(keys)]
    if repeated.empty:
        keys = RUN
        problem = "is in two files,"
        runs = frame[[*RUN, "file"]].drop_duplicates()
        repeated = runs[runs.duplicated(RUN)]
    if repeated.empty:
        return
    row = repeated.iloc[0]
    is_same = (frame[keys] == row[keys]).all(axis=1)
    places = " and ".join(f"'{file}'" for file in frame.loc[is_same, "file"].unique())
    values = ", ".join(f"{name} {quoted(row[name])}" for name in keys if name not in DEFAULTS)
    advice = "give each system its own name, or each run its own seed"
    raise UserError(f"{values} {problem} {places}; {advice}")
