"""Whether the tables of an experiment are what its records give."""

from itertools import zip_longest
from pathlib import Path

from glue_bench.board.compare import open_comparison
from glue_bench.errors import UserError
from glue_bench.files import read_file
from glue_bench.pages.files import table_files
from glue_bench.pages.papers import named_page
from glue_bench.pages.published import PAPERS
from glue_bench.pages.render import to_markdown
from glue_bench.publish.bundle import TABLE_FILES
from glue_bench.publish.check import REWRITE_ADVICE, Check
from glue_bench.records.layout import CELLS


def check_tables(folder: Path) -> Check:
    """Compare every table of an experiment, byte for byte, with what the records give."""
    try:
        expected = _recomputed_tables(folder)
    except (LookupError, TypeError, ValueError, UserError) as error:
        fault = f"{CELLS}/: no tables can be made ({error}); get them anew"
        return Check("tables", "cannot be made", (fault,))

    right_tables = 0
    faults = []
    for name in TABLE_FILES:
        path = folder / name
        try:
            stored = read_file(path) if path.exists() else None
        except OSError as error:
            faults.append(
                f"{name}: cannot be read ({error}); {REWRITE_ADVICE.format('its tables')}"
            )
            continue
        fault = _table_fault(stored, expected.get(name))
        if fault:
            faults.append(f"{name}: {fault}; {REWRITE_ADVICE.format('its tables')}")
        elif stored is not None:
            right_tables += 1

    result = f"{right_tables} recompute byte for byte"
    unchecked = _unchecked_tables(folder)
    if unchecked:
        result = f"{result}; not checked: {', '.join(unchecked)}"
    return Check("tables", result, tuple(faults))


def _recomputed_tables(folder: Path) -> dict[str, bytes]:
    """Compute the tables of an experiment.

    The published tables that the folder has come with the experiment's rows beside them.
    """
    papers: dict[str, str] = {}
    for name in PAPERS:
        if (folder / f"{name}.md").is_file():
            papers[f"{name}.md"] = to_markdown(named_page(name, folder))
    texts = table_files(open_comparison(folder)) | papers
    return {name: text.encode() for name, text in texts.items()}


def _table_fault(stored: bytes | None, expected: bytes | None) -> str:
    """Say what is wrong with the content of a table; None stands for no such file.

    Empty if nothing is wrong.
    """
    if stored == expected:
        return ""
    if stored is None:
        return "missing"
    if expected is None:
        return "not among the tables that the records give"
    lines = zip_longest(stored.splitlines(), expected.splitlines())
    for number, (stored_line, expected_line) in enumerate(lines, 1):
        if stored_line != expected_line:
            return f"line {number} is not what the records give"
    return "line 1 is not what the records give"  # the ends of its lines differ


def _unchecked_tables(folder: Path) -> list[str]:
    """Return the names of Markdown and CSV files that are no tables of this program."""
    names = {path.name for path in folder.iterdir() if path.suffix in (".md", ".csv")}
    return sorted(names - {*TABLE_FILES})
