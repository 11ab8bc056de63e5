"""Runs of anyone's systems: tables and per-example files of other harnesses, as one tidy frame.

A row is either a run with its `score`, or one example of a run with an `outcome` (0 and 1, or any
number) or a pair of `prediction` and `label`. Each format is one function that makes such rows.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.board.babylm import read_babylm
from glue_bench.errors import UserError, first_line, quoted
from glue_bench.files import read_file

RUN = ["system", "task", "metric", "block", "seed"]
"""What names a run. `block` is a pretraining: runs of one block share what chance did to it."""
DEFAULTS = {"metric": "score", "block": "1", "seed": "1"}
SPELLINGS = {"model": "system", "example": "id", "sample_id": "id", "correct": "outcome"}
"""The spellings of column names that are read, and the names that they stand for."""
VALUES = ("score", "outcome", "prediction")
TIDY = {*RUN, *VALUES, "id", "label"}
MAX_BYTES = 2**31
MAX_ROWS = 5_000_000
BLOCK_BYTES = 2**20
LM_EVAL_KEYS = {"doc_id", "metrics"}
EVERY_EVAL_KEYS = {"model_id", "evaluation_name", "sample_id", "evaluation"}
SAMPLES_FILE = re.compile(r"samples_(.+?)(?:_\d{4}-\d\d-\d\dT[\d.\-]+)?\.jsonl")


def read_frames(
    paths: Sequence[str | Path], cluster: str | None = None, gold: str | Path | None = None
) -> pd.DataFrame:
    """Read files and folders of files into one tidy frame.

    Args:
        paths: CSV, JSONL or Parquet files, BabyLM's `predictions.json`, or folders with these or
            with lm-eval's `samples_*.jsonl`.
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
    frames = []
    gold_folder = None if gold is None else Path(gold)
    for file in _files(paths):
        frame = _read_file(file, gold_folder)
        frames.append(_tidy(frame, file, cluster).assign(file=str(file)))
    kinds: dict[str, str] = {}
    for frame in frames:
        if len(frame):
            kinds[_kind(frame)] = frame["file"].iloc[0]
    if len(kinds) > 1:
        first, second = list(kinds)[:2]
        raise UserError(
            f"'{kinds[first]}' has the column {first} and '{kinds[second]}' the column {second}; "
            "compare files of one kind"
        )
    if not kinds:
        raise UserError(f"there is no row in {', '.join(map(str, paths))}")
    frame = pd.concat(frames, ignore_index=True)
    if len(frame) > MAX_ROWS:
        raise UserError(f"{len(frame):,} rows, but at most {MAX_ROWS:,} are compared")
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
        files = [*path.rglob("samples_*.jsonl"), *path.rglob("predictions.json")]
        if not files:
            raise UserError(
                f"'{path}' is no folder of an experiment and has no samples_*.jsonl of lm-eval and "
                "no predictions.json of BabyLM; give files (.csv, .jsonl, .parquet) or such folders"
            )
        yield from sorted(files)


def _read_file(path: Path, gold_folder: Path | None) -> pd.DataFrame:
    """Read one file by its suffix; raises UserError for what cannot be read."""
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".csv": _read_csv,
        ".jsonl": _read_jsonl,
        ".parquet": _read_parquet,
        ".json": partial(read_babylm, gold_folder=gold_folder),
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"'{path}': give a file that ends in .csv, .jsonl, .parquet or .json")
    if path.stat().st_size > MAX_BYTES:
        raise UserError(f"'{path}' has more than {MAX_BYTES >> 30} GiB")
    try:
        return reader(path)
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror or first_line(error)}") from error
    except ValueError as error:
        kind = path.suffix.lower().removeprefix(".")
        raise UserError(f"'{path}' is no {kind} file: {first_line(error)}") from error


def _check_lines(path: Path) -> None:
    """Raise UserError for a file of more lines than MAX_ROWS, before it takes memory."""
    lines = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            lines += block.count(b"\n")
    _check_rows(path, lines - 1)


def _check_rows(path: Path, rows: int) -> None:
    if rows > MAX_ROWS:
        raise UserError(f"'{path}' has {rows:,} rows, but at most {MAX_ROWS:,} are compared")


def _read_csv(path: Path) -> pd.DataFrame:
    _check_lines(path)
    return pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")


def _read_parquet(path: Path) -> pd.DataFrame:
    from pyarrow.parquet import read_metadata

    _check_rows(path, read_metadata(path).num_rows)
    return pd.read_parquet(path)


def _read_jsonl(path: Path) -> pd.DataFrame:
    """Read JSON lines of lm-eval, of Every Eval Ever, or tidy ones; all are of one format."""
    _check_lines(path)
    rows: list[dict[str, Any]] = []
    read_row: Callable[[dict[str, Any], Path], list[dict[str, Any]]] | None = None
    text = read_file(path, MAX_BYTES).decode("utf-8-sig")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            raise UserError(f"'{path}', line {number}: no JSON ({first_line(error)})") from error
        if not isinstance(document, dict):
            raise UserError(f"'{path}', line {number}: a line is an object with keys")
        row_format = _format_of(document)
        if read_row is not None and row_format is not read_row:
            raise UserError(f"'{path}', line {number}: its keys are of another format than line 1")
        read_row = row_format
        try:
            rows += row_format(document, path)
        except (KeyError, TypeError) as error:
            raise UserError(f"'{path}', line {number}: there is no {error}") from error
    return pd.DataFrame(rows)


def _format_of(document: dict[str, Any]) -> Callable[[dict[str, Any], Path], list[dict[str, Any]]]:
    """Return the function that reads a line with these keys."""
    if document.keys() >= LM_EVAL_KEYS:
        return lm_eval_rows
    if document.keys() >= EVERY_EVAL_KEYS:
        return every_eval_rows
    return tidy_rows


def tidy_rows(document: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Return a line of tidy JSON as it is."""
    del path
    return [document]


def lm_eval_rows(document: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Return the metrics of one document in lm-eval's `samples_TASK_DATE.jsonl`, one row for each.

    The system is the folder of the file, which lm-eval names after the model. A metric with several
    filters is named `metric,filter`, as in lm-eval's results.
    """
    match = SAMPLES_FILE.fullmatch(path.name)
    task = match[1] if match else path.stem
    name_filter = document.get("filter", "none")
    rows = []
    for metric in document["metrics"]:
        value = document[metric]
        if not isinstance(value, bool | int | float):
            continue  # these are parts of a corpus metric; a single document has no score
        rows.append(
            {
                "system": path.parent.name,
                "task": task,
                "metric": metric if name_filter == "none" else f"{metric},{name_filter}",
                "id": document["doc_id"],
                "outcome": float(value),
                "cluster": document.get("doc_hash"),
            }
        )
    return rows


def every_eval_rows(document: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """Return the row of one sample in Every Eval Ever's instance-level file.

    In a file that this project wrote, the metadata have the seeds of the run. They also have the
    cluster of the sample if some samples share a text.
    """
    del path
    metadata = document.get("metadata") or {}
    sample = document.get("sample_hash") or document["sample_id"]
    return [
        {
            "system": document["model_id"],
            "task": document["evaluation_name"],
            "metric": "score",
            "block": metadata.get("pretraining_seed", DEFAULTS["block"]),
            "seed": metadata.get("seed", DEFAULTS["seed"]),
            "id": sample,
            "outcome": float(document["evaluation"]["score"]),
            "cluster": metadata.get("cluster", sample),
        }
    ]


def _tidy(frame: pd.DataFrame, file: Path, cluster: str | None) -> pd.DataFrame:
    """Return the columns that a comparison takes.

    Raises UserError for a column that is missing, and for a value that is wrong.
    """
    for spelling, name in SPELLINGS.items():
        if name not in frame:
            frame = frame.rename(columns={spelling: name})
    names = ", ".join(map(str, frame.columns))
    value, kept = _columns_to_keep(frame, file, names)
    tidy = frame[kept].copy()
    if cluster is not None:
        if cluster not in frame:
            raise UserError(
                f"--cluster {cluster}: '{file}' has no such column, but {quoted(names)}"
            )
        tidy["cluster"] = frame[cluster].astype(str)
    for name, default in DEFAULTS.items():
        if name not in tidy:
            tidy[name] = default
    for name in (*RUN, "id", "prediction", "label"):
        if name in tidy:
            is_missing = tidy[name].isna() | (tidy[name].astype(str) == "")
            _refuse_first(is_missing, file, f"no {name}")
            tidy[name] = tidy[name].astype(str)
    if value in ("score", "outcome"):
        numbers = pd.to_numeric(tidy[value], errors="coerce").astype(float)
        is_wrong = ~np.isfinite(numbers.to_numpy())
        _refuse_first(is_wrong, file, f"the {value} is no number", tidy[value])
        tidy[value] = numbers
    return tidy


def _columns_to_keep(frame: pd.DataFrame, file: Path, names: str) -> tuple[str, list[str]]:
    """Return the column with the values, and all columns that a comparison takes.

    Raises UserError for a column that is missing; `names` has the columns that are there.
    """
    values = [name for name in VALUES if name in frame]
    for name in ("system", "task"):
        if name not in frame:
            raise UserError(f"'{file}' lacks the column {name}; it has {quoted(names)}")
    if len(values) != 1:
        raise UserError(
            f"'{file}': give one of the columns score (of a run), outcome (of an example) or "
            f"prediction with label; it has {quoted(names)}"
        )
    kept = [name for name in (*RUN, "id", *values) if name in frame]
    if values != ["score"] and "id" not in frame:
        raise UserError(f"'{file}' lacks the column id, by which examples are paired")
    if values == ["prediction"]:
        kept.append("label")
        if "label" not in frame:
            raise UserError(f"'{file}' lacks the column label; it has {quoted(names)}")
    return values[0], kept


def _refuse_first(is_wrong: Any, file: Path, problem: str, values: pd.Series | None = None) -> None:
    """Raise UserError for the first row that is wrong; the first row of data is row 1."""
    places = np.flatnonzero(np.asarray(is_wrong))
    if len(places):
        value = "" if values is None else f" ({quoted(values.iloc[places[0]])})"
        raise UserError(f"'{file}', row {places[0] + 1} of the data: {problem}{value}")


def _kind(frame: pd.DataFrame) -> str:
    """Return the kind of a frame: the name of the column with the rows' values."""
    return next(name for name in VALUES if name in frame)


def _check_repeated(frame: pd.DataFrame) -> None:
    """Raise UserError for a run, or an example of a run, that is there twice, or in two files."""
    keys = [*RUN, "id"] if "id" in frame else RUN
    repeated = np.flatnonzero(frame.duplicated(keys).to_numpy())
    problem = "is there twice, in"
    if not len(repeated) and frame["file"].nunique() > 1:
        keys = RUN
        problem = "is in two files,"
        runs = frame[[*RUN, "file"]].drop_duplicates()
        repeated = runs.index[runs.duplicated(RUN)].to_numpy()
    if not len(repeated):
        return
    row = frame.iloc[repeated[0]]
    is_same = (frame[keys] == row[keys]).all(axis=1)
    files = frame.loc[is_same, "file"].unique()
    places = " and ".join(f"'{file}'" for file in files)
    values = ", ".join(f"{name} {quoted(row[name])}" for name in keys if name not in DEFAULTS)
    advice = "give each system its own name, or each run its own seed"
    raise UserError(f"{values} {problem} {places}; {advice}")
