"""The places of a results folder are known in records/ alone; everybody else asks the store."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import glue_bench
from glue_bench.records import layout

PACKAGE = Path(glue_bench.__file__).parent
FILES = sorted(file for file in PACKAGE.rglob("*.py") if file.parent.name != "records")
FOLDERS = {
    layout.CELLS,
    layout.PRETRAININGS,
    layout.FAILURES,
    layout.LABELS,
    layout.CHECKPOINTS,
    layout.PROGRESS,
    layout.ANALYSIS,
    layout.TENSORBOARD,
    layout.SLURM_LOGS,
}
IS_PLACE = re.compile(
    rf"\b({'|'.join(sorted(FOLDERS))})/|\b(plan|record|slurm)\.json\b|\bresume\.pt\b"
).search


def docstrings(tree: ast.Module) -> set[ast.expr]:
    """Return every text that is a statement: docstrings, and the descriptions below constants."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def is_folder(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in FOLDERS


def places(tree: ast.Module) -> Iterator[str]:
    """Return the texts that are places of a results folder. Sentences for users may name places."""
    described = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node not in described and " " not in node.value and IS_PLACE(node.value):
                yield f"{node.lineno}: {node.value}"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and is_folder(node.right):
            yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_no_file_outside_records_knows_a_place_of_a_results_folder(file):
    assert [*places(ast.parse(file.read_text("utf-8")))] == []


@pytest.mark.parametrize(
    "line",
    [
        'folder / "checkpoints" / name',
        'open(f"{folder}/cells/{name}")',
        'name.startswith("failures/")',
        'path = "resume.pt"',
    ],
)
def test_a_place_is_recognised(line):
    assert [*places(ast.parse(line))] != []
