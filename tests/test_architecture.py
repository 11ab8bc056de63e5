"""What docs/architecture.md says of files and functions is true."""

import ast
import re
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DRAWING = next(block for block in TEXT.split("```") if block.startswith("\n experiment.yaml"))


def stations() -> list[str]:
    """The stations of a cell, as `room/file.py:name`."""
    found, room = [], ""
    for line in DRAWING.splitlines():
        room = match[1] if (match := re.match(r" +[|v] +([a-z]+)/ ", line)) else room
        found += [f"{room}/{name}" for name in re.findall(r"[a-z_]+\.py:[\w.]+", line)]
    return found


def named() -> list[str]:
    """Every function that the text names with its file."""
    return re.findall(r"[a-z]+/[a-z_/]+\.py:[\w.]+", TEXT.replace(DRAWING, ""))


@pytest.mark.parametrize("place", [*stations(), *named()])
def test_every_station_is_there(place):
    path, name = place.split(":")
    tree: ast.AST = ast.parse((ROOT / "glue_bench" / path).read_text(encoding="utf-8"))
    for part in name.split("."):
        tree = next(node for node in ast.iter_child_nodes(tree) if getattr(node, "name", None) == part)


def test_a_cell_passes_fifteen_stations_at_most():
    lines = [line for line in DRAWING.splitlines() if ".py:" in line]
    assert 10 < len(lines) <= 15


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z]+/[a-z_/]+(?:\.py)?)`", TEXT))))
def test_every_file_that_is_named_is_there(path):
    assert (ROOT / "glue_bench" / path).exists() or (ROOT / path).exists()


def small_and_private(tree: ast.AST) -> Iterator[str]:
    """The names of private functions and methods of at most six lines, docstrings not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and re.match("_[^_]", node.name):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            if (body[-1].end_lineno or 0) - body[0].lineno < 6:
                yield node.name


def references(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Every name that is read, imported or looked up as an attribute, and whether it is called there."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if name := getattr(node, "id", None) or getattr(node, "attr", None):
            yield name, id(node) in called
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.name, False) for alias in node.names)


def called_once(trees: Collection[ast.AST]) -> list[str]:
    """Small private functions whose only reference is one call."""
    uses: dict[str, list[bool]] = {}
    for name, called in chain.from_iterable(map(references, trees)):
        uses.setdefault(name, []).append(called)
    return [name for tree in trees for name in small_and_private(tree) if uses.get(name) == [True]]


def test_few_small_private_functions_are_called_from_one_place_alone():
    """Where the name says no more than the body, the body stands in the caller, and nobody has to jump."""
    found = called_once([ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "glue_bench").rglob("*.py")])
    assert len(found) <= 60, sorted(found)


def test_such_a_function_is_found():
    many = "\n".join(f"    x = {number}" for number in range(7))
    short = "".join(f"def {name}():\n    pass\n" for name in ("_a", "_b", "_d"))
    code = f"{short}def _c():\n{many}\n_a(); _b(); _b(); _c(); _d"
    assert called_once([ast.parse(code)]) == ["_a"]
