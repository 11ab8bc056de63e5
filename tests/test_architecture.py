"""What docs/architecture.md says of files and functions is true."""

import ast
import re
from collections import Counter
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


def functions(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """Those of a module or class, and those inside them."""
    for child in getattr(node, "body", ()):
        if isinstance(child, ast.FunctionDef):
            yield child
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from functions(child)


def called_once(texts: Collection[str]) -> list[str]:
    """Private functions and methods of at most six lines, docstrings not counted, which are named in one call alone."""
    named = Counter(chain.from_iterable(re.findall(r"\b_\w+\b\(?", text) for text in texts))
    found = []
    for function in chain.from_iterable(functions(ast.parse(text)) for text in texts):
        body = function.body[1:] if ast.get_docstring(function) and len(function.body) > 1 else function.body
        is_small = (body[-1].end_lineno or 0) - body[0].lineno < 6
        if is_small and named[f"{function.name}("] == 2 and not named[function.name]:
            found.append(function.name)
    return found


def test_few_small_private_functions_are_called_from_one_place_alone():
    """Where the name says no more than the body, the body stands in the caller, and nobody has to jump."""
    found = called_once([path.read_text(encoding="utf-8") for path in (ROOT / "glue_bench").rglob("*.py")])
    assert len(found) <= 54, sorted(found)


def test_such_a_function_is_found():
    many = "\n".join(f"    x = {number}" for number in range(7))
    short = "".join(f"def {name}():\n    pass\n" for name in ("_a", "_b", "_d", "public"))
    assert called_once([f"{short}def _c():\n{many}\n", "_a(); _b(); _b(); _c(); _d(_d); public()"]) == ["_a"]
