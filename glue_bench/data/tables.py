"""Files with rows: CSV, TSV, JSON lines and Parquet, read into columns of plain values."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from glue_bench.data.hub import read_parquet
from glue_bench.data.tsv import MAX_TSV_BYTES, read_lines
from glue_bench.errors import MAX_QUOTED, UserError, first_line, quoted, shortened
from glue_bench.files import check_json, parse_json

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")
SEPARATORS = {".csv": ",", ".tsv": "\t"}
SEPARATOR_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
EXPECTED_FORMS = {
    ".csv": "a first line with the names of the columns",
    ".tsv": "a first line with the names of the columns",
    ".jsonl": "one JSON object a line",
}
SAVING_ADVICE = 'save it as UTF-8 (in a spreadsheet: "CSV UTF-8")'


@dataclass(frozen=True)
class Table:
    """The rows of one split, as they are in a file or a data set.

    Attributes:
        place: What messages call it: the file, or the data set and its split.
        columns: The values of each column, in the order of the rows.
        row_names: What messages call each row; its line in a text file.
        label_names: The names of the ids in a column, where the file says them.
        is_text: Whether all values are texts, as in CSV.
    """

    place: str
    columns: dict[str, list[Any]]
    row_names: Sequence[str]
    label_names: dict[str, tuple[str, ...]]
    is_text: bool = False

    def __len__(self) -> int:
        return len(self.row_names)


def read_table_file(
    path: Path, wanted_columns: Iterable[str], max_rows: int | None = None
) -> Table:
    """Read a file whose format its ending says.

    Args:
        path: The file.
        wanted_columns: The columns that must not be there twice.
        max_rows: The most rows of a file. A larger one is refused before its rows take memory.

    Raises:
        UserError: there is no such file, its ending is none of FORMATS, its content is bad, or it
            has too many rows; with the file and the line.
    """
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UserError(f"'{path}': files end in {', '.join(FORMATS)}; save it as one of these")
    if not path.is_file():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise UserError(f"file '{path}' {kind}; paths are relative to the file that names them")
    if suffix == ".parquet":
        return _parquet_table(path, max_rows)
    max_lines = None if max_rows is None else max_rows + 1  # one line may have the names
    try:
        lines = read_lines(path, EXPECTED_FORMS[suffix], max_lines)
    except UserError as error:
        advice = f"; {SAVING_ADVICE}" if "expected UTF-8" in str(error) else ""
        raise UserError(f"{error}{advice}") from error
    if suffix == ".jsonl":
        return _json_table(path, lines)
    if suffix == ".tsv":
        return _tsv_table(path, lines, set(wanted_columns))
    return _csv_table(path, lines, set(wanted_columns))


def _parquet_table(path: Path, max_rows: int | None) -> Table:
    rows = read_parquet(path, "a Parquet file")
    if max_rows is not None and rows.num_rows > max_rows:
        raise UserError(f"{path}: {rows.num_rows:,} rows; give {max_rows:,} at most")
    return arrow_table(str(path), rows)


def arrow_table(place: str, table: Any, names: dict[str, tuple[str, ...]] | None = None) -> Table:
    """Make a Table of an Arrow table.

    Args:
        place: What messages call it.
        table: The Arrow table.
        names: The names of the ids in columns; by default those that its metadata say.
    """
    if names is None:
        names = _names_in_metadata(table)
    columns: dict[str, list[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in columns:
            fault = f"two columns are called {quoted(name)}"
            raise UserError(f"{place}: {fault}; give each column a name of its own")
        columns[name] = column.to_pylist()
    row_names = [f"row {number}" for number in range(table.num_rows)]
    return Table(place, columns, row_names, names)


def _names_in_metadata(table: Any) -> dict[str, tuple[str, ...]]:
    """Return the names of ids that the library `datasets` writes into a file, by column."""
    try:
        metadata = parse_json((table.schema.metadata or {})[b"huggingface"])
        features = metadata["info"]["features"]
    except (LookupError, TypeError, ValueError):
        return {}
    names: dict[str, tuple[str, ...]] = {}
    for column, feature in features.items():
        if isinstance(feature, dict) and isinstance(feature.get("names"), list):
            names[column] = tuple(map(str, feature["names"]))
    return names


def _json_table(path: Path, lines: Sequence[str]) -> Table:
    """Read a file with one JSON object a line. A key that a line lacks is None there."""
    rows: list[dict[str, Any]] = []
    row_names: list[str] = []

    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            # NaN may stand in columns that nobody reads.
            row = from_json(check_json(line.encode()))
        except ValueError as error:
            advice = "expected one object a line"
            raise UserError(f"{place}: no JSON ({first_line(error)}); {advice}") from error
        if not isinstance(row, dict):
            advice = 'expected one object a line, such as {"text": ..., "label": ...}'
            raise UserError(f"{place}: {quoted(row)}; {advice}")

        rows.append(row)
        row_names.append(f"line {number}")

    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Table(str(path), columns, row_names, {})


def _csv_table(path: Path, lines: Sequence[str], wanted_columns: set[str]) -> Table:
    """Read a file of CSV: commas, and quotes around fields that hold commas, quotes or ends."""
    csv.field_size_limit(MAX_TSV_BYTES)  # its own limit is 131,072, which documents exceed
    reader = csv.reader(io.StringIO("\n".join(lines)), strict=True)
    records: list[list[str]] = []
    numbers: list[int] = []
    start = 1
    try:
        for record in reader:
            if record:
                records.append(record)
                numbers.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        advice = "fields with commas or quotes need quotes around them"
        raise UserError(f"{path}, line {start}: no CSV ({error}); {advice}") from error
    return _text_table(path, records, numbers, wanted_columns)


def _tsv_table(path: Path, lines: Sequence[str], wanted_columns: set[str]) -> Table:
    """Read a file with tabs between fields and no quoting, as GLUE's are."""
    records: list[list[str]] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, 1):
        if line:
            records.append(line.split("\t"))
            numbers.append(number)
    for number, record in zip(numbers, records, strict=True):
        for value in record:
            if len(value) > 1 and value[0] == value[-1] == '"' and '""' in value[1:-1]:
                fault = f"{quoted(value)} has the quotes of CSV"
                raise UserError(
                    f"{path}, line {number}: {fault}; save it without quotes, or as .csv"
                )
    return _text_table(path, records, numbers, wanted_columns)


def _text_table(
    path: Path, records: Sequence[list[str]], numbers: Sequence[int], wanted_columns: set[str]
) -> Table:
    """Make a table of records, the first of which has the names of the columns."""
    separator = SEPARATORS[path.suffix.lower()]
    header, *rows = records
    _check_separator(path, header, separator)
    for name in wanted_columns:
        if header.count(name) > 1:
            fault = f"{header.count(name)} columns are called '{name}'"
            raise UserError(f"{path}, line 1: {fault}; give each column a name of its own")
    for number, row in zip(numbers[1:], rows, strict=True):
        if len(row) != len(header):
            fault = f"{len(row)} fields, where the first line has {len(header)}"
            advice = f"fields are separated by {SEPARATOR_NAMES[separator]}"
            if separator == ",":
                advice += ", and a text with commas needs quotes around it"
            raise UserError(f"{path}, line {number}: {fault}; {advice}")
    columns: dict[str, list[Any]] = {}
    for place, name in enumerate(header):
        columns[name] = [row[place] for row in rows]
    row_names = [f"line {number}" for number in numbers[1:]]
    return Table(str(path), columns, row_names, {}, is_text=True)


def _check_separator(path: Path, header: Sequence[str], separator: str) -> None:
    """Refuse a file whose first line is one field with other separators in it."""
    if len(header) > 1:
        return
    for other, name in SEPARATOR_NAMES.items():
        if other != separator and other in header[0]:
            first = shortened(repr(header[0]), 2 * MAX_QUOTED)
            advice = f"save it with {SEPARATOR_NAMES[separator]}"
            if other in SEPARATORS.values():
                ending = ".tsv" if other == "\t" else ".csv"
                advice += f", or let its name end in {ending}"
            raise UserError(f"{path}, line 1: {name} separate the columns {first}; {advice}")
