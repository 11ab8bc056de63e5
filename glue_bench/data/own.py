"""Read the rows of a task that is not GLUE's, and refuse what could not be learned or scored."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.data.hub import load_dataset
from glue_bench.data.origin import HubPlace, Origin
from glue_bench.data.tables import Table, arrow_table, read_table_file
from glue_bench.data.task import OWN, Task
from glue_bench.data.task_data import TEXT_COLUMNS, TaskData, held_out_rows
from glue_bench.data.tsv import check_length, unlabelled
from glue_bench.errors import MAX_QUOTED, NAME_CUTOFF, UserError, quoted, shortened
from glue_bench.remote import fetched, is_url

HUB = "hub"
DEMO = "demo"
FIELD = re.compile(r"\{([^{}]+)\}")
"""A column in a template."""
NO_LABEL = ("", None, -1, "-1")
"""What stands in the place of a label in a split whose labels are not public."""
MAX_SHOWN_LABELS = 10


def read_own(task: Task, data: str = HUB) -> TaskData:
    """Read all splits of a task that has an `origin`.

    Args:
        task: The task.
        data: The experiment's source of data. The tasks of a benchmark are read from the hub, or
            from the benchmark's folder; a user's own task says itself where its rows are.

    Raises:
        UserError: rows are missing, or cannot be learned or scored; with the place.
    """
    origin = _origin_of(task)
    if task.benchmark != OWN and data != HUB:
        origin = _in_folder(task, origin, data)
        task = replace(task, texts=_renamed(task.texts, origin))

    tables = _read_tables(task, origin)
    frames: dict[str, pd.DataFrame] = {}
    clusters: dict[str, np.ndarray] = {}
    for split, table in tables.items():
        frames[split] = _frame(task, split, table)
        if task.cluster and not split.startswith("test"):
            names = _column_texts(table, task.cluster, "cluster")
            clusters[split] = pd.factorize(np.array(names, dtype=object))[0]

    for split in ("train", "validation"):
        if split in frames:
            _check_classes(task, split, tables[split].place, frames[split]["label"])

    if origin.validation_share is not None:
        _hold_out(frames, clusters, origin.validation_share)
        place = f"{tables['train'].place}, its held-out rows"
        _check_classes(task, "validation", place, frames["validation"]["label"])

    order = list(task.splits)
    ordered = dict(sorted(frames.items(), key=lambda item: order.index(item[0])))
    source = f"{task.benchmark} files" if origin.hub is None else f"hub {origin.hub.repository}"
    revision = origin.hub.revision if origin.hub else None

    return TaskData(
        task.name,
        source,
        ordered,
        revision=revision,
        clusters=clusters,
        definition=task.definition,
    )


def _origin_of(task: Task) -> Origin:
    if task.origin is None:
        raise UserError(f"{task.title} is a task of GLUE; its rows are in the source of the data")
    return task.origin


def is_in(task: Task, data: str) -> bool:
    """Whether a source of data has a benchmark's test split; of the hub that is not asked."""
    if data in (HUB, DEMO) or task.origin is None:
        return data == HUB
    folder = fetched(data) if is_url(data) else Path(data).expanduser()
    return (folder / task.origin.folder / task.splits["test"].file).exists()


def read_diagnostic_labels(task: Task, data: str) -> np.ndarray:
    """Return the labels (rows,) of a diagnostic set, which is a test split with public labels.

    Raises UserError as `read_own` does.
    """
    origin = _origin_of(task)
    if data != HUB:
        origin = _in_folder(task, origin, data)
    return _labels(task, "test", _read_tables(task, origin)["test"])


def _in_folder(task: Task, origin: Origin, data: str) -> Origin:
    """Return where the files of a benchmark's task are in the folder `data`."""
    advice = f"set `data: {HUB}`, or give a folder with {origin.folder}/train.jsonl and so on"
    if data == DEMO:
        raise UserError(f"the demo has no {task.title}; {advice}")
    folder = fetched(data) if is_url(data) else Path(data).expanduser()
    files: dict[str, str] = {}
    for split, facts in task.splits.items():
        path = folder / origin.folder / facts.file
        if path.exists():
            files[split] = str(path)
    needed = {"train", "validation"} & task.splits.keys() or {"test"}
    missing = needed - files.keys()
    if missing:
        raise UserError(f"no {task.title} ({', '.join(sorted(missing))}) in '{data}'; {advice}")
    return replace(origin, hub=None, files=files)


def _renamed(texts: Sequence[str], origin: Origin) -> tuple[str, ...]:
    """Return texts whose columns have their names in a folder."""
    renamed: list[str] = []
    for text in texts:
        for column, name in origin.renamed.items():
            text = name if text == column else text.replace(f"{{{column}}}", f"{{{name}}}")
        renamed.append(text)
    return tuple(renamed)


def _read_tables(task: Task, origin: Origin) -> dict[str, Table]:
    """Read the table of each split that the origin names."""
    wanted_columns = [*_fields(task.texts), task.tsv_label]
    if task.cluster:
        wanted_columns += _fields([task.cluster])
    if origin.hub is not None:
        return _read_hub(task, origin.hub)
    tables: dict[str, Table] = {}
    for split, name in origin.files.items():
        path = fetched(name) if is_url(name) else Path(name).expanduser()
        tables[split] = read_table_file(path, wanted_columns)
    return tables


def _read_hub(task: Task, place: HubPlace) -> dict[str, Table]:
    """Read the splits of a data set on the hub."""
    names = [place.config] if place.config else []
    advice = f"check the id, the config and the revision of task {task.title}, or give files"
    options = {"revision": place.revision} if place.revision else {}
    loaded = load_dataset(f"{place.name} of the hub", advice, place.repository, *names, **options)
    tables: dict[str, Table] = {}
    for split, name in place.splits.items():
        if name not in loaded:
            listed_splits = ", ".join(map(str, loaded))
            raise UserError(f"{place.name}: no split '{name}'; it has {listed_splits}")
        dataset = loaded[name]
        label_names: dict[str, tuple[str, ...]] = {}
        for column, feature in dataset.features.items():
            if getattr(feature, "names", None):
                label_names[column] = tuple(feature.names)
        tables[split] = arrow_table(f"{place.name}, split {name}", dataset.data, label_names)
    return tables


def _fields(texts: Iterable[str]) -> list[str]:
    """Return the columns that texts are made of."""
    columns: list[str] = []
    for text in texts:
        columns += FIELD.findall(text) or [text]
    return columns


def _frame(task: Task, split: str, table: Table) -> pd.DataFrame:
    """Make the examples of a split. Raises UserError at the first row that gives none."""
    if not len(table):
        raise UserError(f"{table.place}: no rows; expected at least one")
    data: dict[str, object] = {}
    for name, text in zip(TEXT_COLUMNS, task.texts, strict=False):
        texts = _column_texts(table, text, "text")
        _check_not_empty(table, text, texts)
        data[name] = texts
    if split.startswith("test"):
        data["label"] = unlabelled(task, len(table))
    else:
        data["label"] = _labels(task, split, table)
    return pd.DataFrame(data)


def _column_texts(table: Table, text: str, kind: str) -> list[str]:
    """Return the texts of a column or of a template (rows,)."""
    fields = FIELD.findall(text)
    values_by_field: dict[str, list[str]] = {}
    for field in fields or [text]:
        values = _values(table, field, kind)
        values_by_field[field] = [_as_text(table, field, row, value) for row, value in values]
    if not fields:
        return values_by_field[text]
    # What stands between the fields is kept, and a text with braces is no template.
    parts = FIELD.split(text)
    texts: list[str] = []
    for row in range(len(table)):
        filled = [*parts]
        for place in range(1, len(parts), 2):
            filled[place] = values_by_field[parts[place]][row]
        texts.append("".join(filled))
    return texts


def _values(table: Table, column: str, kind: str) -> Iterable[tuple[int, Any]]:
    """Yield the values of a column with the numbers of their rows.

    A name with dots, such as `idx.question`, is that of a value within a value. Raises UserError
    where there is no such column.
    """
    name, *parts = [column] if column in table.columns else column.split(".")
    if name not in table.columns:
        raise _no_column(table, column, kind)
    for row, value in enumerate(table.columns[name]):
        for part in parts:
            if not isinstance(value, dict) or part not in value:
                raise _no_column(table, column, kind)
            value = value[part]
        yield row, value


def _no_column(table: Table, column: str, kind: str) -> UserError:
    """Make the error for a column that is not there."""
    names = [str(name) for name in table.columns]
    nearest = get_close_matches(column, names, n=1, cutoff=NAME_CUTOFF)
    hint = f"; did you mean '{nearest[0]}'?" if nearest else ""
    listed_names = shortened(", ".join(map(repr, names)), 4 * MAX_QUOTED)
    message = f"{table.place}: no column '{column}' ({kind}){hint}; it has {listed_names}"
    if table.is_text and not nearest:
        message += "; the first line has to name the columns"
    return UserError(message)


def _as_text(table: Table, column: str, row: int, value: Any) -> str:
    """Return a text as it is, and a whole number as it is written."""
    place = f"{table.place}, {table.row_names[row]}"
    if isinstance(value, str):
        check_length(value, place)
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise UserError(f"{place}: {column} holds {quoted(value)}; expected a text")


def _check_not_empty(table: Table, text: str, texts: Sequence[str]) -> None:
    """Refuse texts without a character that is not blank."""
    empty_rows = [row for row, content in enumerate(texts) if not content.strip()]
    if not empty_rows:
        return
    more = f", as in {len(empty_rows) - 1} more rows" if len(empty_rows) > 1 else ""
    place = f"{table.place}, {table.row_names[empty_rows[0]]}"
    raise UserError(f"{place}: {text} is empty{more}; fill these texts, or leave the rows out")


def _labels(task: Task, split: str, table: Table) -> np.ndarray:
    """Return the labels (rows,) of a split: scores, or ids in the order of `Task.labels`."""
    column = task.tsv_label
    if column not in table.columns:
        error = _no_column(table, column, "label")
        raise UserError(f"{error}; {split} needs labels, only a test file may lack them")
    values = table.columns[column]
    if task.is_regression:
        return _scores(table, column)
    names = table.label_names.get(column, ())
    if names and not set(task.labels) <= set(map(str, range(len(names)))):
        values = [_label_name(value, names) for value in values]
    ids = {label: number for number, label in enumerate(task.labels)}
    numbers: list[int] = []
    for row, value in enumerate(values):
        label = _written_label(value, ids)
        if label not in ids:
            raise _unknown_label(task, split, table, row, value)
        numbers.append(ids[label])
    return np.array(numbers, dtype=np.int64)


def _label_name(value: Any, names: Sequence[str]) -> Any:
    """Return the name of an id, or what is no id as it is."""
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    return value


def _written_label(value: Any, ids: dict[str, int]) -> str:
    """Return a label as the experiment file writes it; `true` may also be written `True`."""
    text = str(value)
    if text not in ids and text.lower() in ("true", "false"):
        return text.lower()
    return text


def _unknown_label(task: Task, split: str, table: Table, row: int, value: Any) -> UserError:
    """Make the error for a label that is none of the task's."""
    place = f"{table.place}, {table.row_names[row]}"
    if value in NO_LABEL and not isinstance(value, bool):
        advice = f"{split} needs a label in every row, only a test file may lack them"
        return UserError(
            f"{place}: no label in column '{task.tsv_label}' ({quoted(value)}); {advice}"
        )
    expected = shortened(", ".join(task.labels), 2 * MAX_QUOTED)
    fault = f"label {quoted(value)} is none of {expected}"
    if _is_fraction(value):
        advice = "classes are texts or whole numbers; for scores set `labels: regression`"
        return UserError(f"{place}: {fault}; {advice}")
    present = shortened(", ".join(_listed_labels(table.columns[task.tsv_label])), 2 * MAX_QUOTED)
    advice = f"the column has {present}; name all of them in `labels`, in an order that stays"
    return UserError(f"{place}: {fault}; {advice}")


def _is_fraction(value: Any) -> bool:
    """Whether a label is a number with a decimal point."""
    return isinstance(value, float) or re.fullmatch(r"-?\d+\.\d+", str(value)) is not None


def _listed_labels(values: Iterable[Any]) -> list[str]:
    """Return the labels in a column, the most frequent first, at most MAX_SHOWN_LABELS."""
    counts = Counter(map(str, values))
    labels = [label for label, _ in counts.most_common(MAX_SHOWN_LABELS)]
    if len(counts) > MAX_SHOWN_LABELS:
        labels.append(f"and {len(counts) - MAX_SHOWN_LABELS} more")
    return labels


def _scores(table: Table, column: str) -> np.ndarray:
    """Return the labels (rows,) of a regression. Raises UserError for what is no finite number."""
    numbers: list[float] = []
    for row, value in enumerate(table.columns[column]):
        try:
            number = float(value)
            if isinstance(value, bool) or not np.isfinite(number):
                raise ValueError
        except (TypeError, ValueError):
            place = f"{table.place}, {table.row_names[row]}"
            fault = f"label {quoted(value)} in column '{column}'"
            advice = "a regression has a number in every row; for classes name them in `labels`"
            raise UserError(f"{place}: {fault}; {advice}") from None
        numbers.append(number)
    return np.array(numbers)


def _check_classes(task: Task, split: str, place: str, labels: pd.Series) -> None:
    """Refuse a split in which nothing could be learned or told apart."""
    if labels.nunique() == 1:
        value = labels.iloc[0]
        label = f"{value:g}" if task.is_regression else f"'{task.labels[int(value)]}'"
        purpose = "nothing could be learned" if split == "train" else "no score could tell apart"
        raise UserError(f"{place}: every row of {split} has the label {label}, so {purpose}")
    if split == "train" and not task.is_regression:
        present = {task.labels[number] for number in set(labels)}
        absent = [name for name in task.labels if name not in present]
        if absent:
            names = ", ".join(map(repr, absent))
            raise UserError(
                f"{place}: no row of train has the label {names}, which no model could learn; it "
                f"has {', '.join(sorted(present))}: add rows, or take {names} out of `labels`"
            )


def _hold_out(
    frames: dict[str, pd.DataFrame], clusters: dict[str, np.ndarray], share: float
) -> None:
    """Make a part of train the validation split, the same for all arms, rates and seeds."""
    train = frames["train"]
    held_out, kept = held_out_rows(len(train), share)
    frames["validation"] = train.iloc[held_out].reset_index(drop=True)
    frames["train"] = train.iloc[kept].reset_index(drop=True)
    if "train" in clusters:
        clusters["validation"] = clusters["train"][held_out]
        clusters["train"] = clusters["train"][kept]
