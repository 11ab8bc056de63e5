"""What docs/architecture.md says of files and functions is true."""

import ast
import re
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
