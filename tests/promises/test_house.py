"""The house: imports point one way, what is light stays light, only the command line prints, and parts stay small."""

import ast
import inspect
import json
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from itertools import product
from pathlib import Path

import grimp
import pytest
from helpers.folder import Folder

import glue_bench
import glue_bench.api

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "glue_bench"
TREES = {
    file.relative_to(PACKAGE): ast.parse(file.read_text("utf-8"))
    for file in sorted(PACKAGE.rglob("*.py"))
}
SLOW = ("torch", "transformers", "datasets", "evaluate", "accelerate")
"""What tables are made without."""
HEAVY = (*SLOW, "pandas", "sklearn", "scipy", "matplotlib")
PRINTING = (".print", ".echo", ".secho", ".Screen", ".Console", ".stdout.write", ".stderr.write")
"""The functions and classes that write to the terminal, by the end of their names."""


def test_imports_point_one_way(capsys, monkeypatch):
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    monkeypatch.chdir(ROOT)
    status = lint_imports(no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_no_two_files_import_each_other_however_late():
    graph = grimp.build_graph("glue_bench", cache_dir=None)
    TopologicalSorter(
        {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    ).prepare()


FRESH = f"""
import io, json, sys
from contextlib import redirect_stdout, suppress

loaded, (runs, out) = {{}}, sys.argv[1:]

def seen(after):
    loaded[after] = [name for name in {HEAVY} if name in sys.modules]

import glue_bench
seen("import")
from glue_bench.cli import app
with redirect_stdout(io.StringIO()):
    app(["--help"], standalone_mode=False)
    seen("--help")
    for verb in ("leaderboard", "status", "statistics", "table tupe-1", "export", "statistics --difference 20"):
        app([*verb.split(), runs, *(["-o", out] if verb == "export" else [])], standalone_mode=False)
        seen(verb)
    with suppress(glue_bench.errors.UserError):
        app(["run", "nothere.yaml"], standalone_mode=False)
    seen("run nothere.yaml")
glue_bench.predictions(runs, task="rte")
seen("predictions")
print(json.dumps(loaded))
"""
"""Imports the package in an interpreter of its own, and then calls what reads results, `export` with its `verify`."""


def test_the_package_and_its_help_import_nothing_heavy_and_what_reads_results_nothing_slow(
    tmp_path,
):
    folder = Folder(tmp_path / "toy", pretrained=False)
    for arm, seed in product(("add", "none"), (1, 2)):
        folder.run(arm, "rte", seed)
    words = [sys.executable, "-c", FRESH, folder.plan(), folder.path.with_name("toy.zip")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert loaded["import"] == loaded["--help"] == []
    assert {step: names for step, names in loaded.items() if set(names) & set(SLOW)} == {}
    assert "pandas" in loaded["predictions"]


@pytest.mark.parametrize("room", sorted({file.parts[0] for file in TREES} - {"cli", "terminal.py"}))
def test_only_the_command_line_prints(room):
    """A console that a caller gives may be written to; `terminal.py` is where the command line writes."""
    calls = []
    for file, tree in TREES.items():
        for node in ast.walk(tree) if file.parts[0] == room else ():
            name = f".{ast.unparse(node.func)}" if isinstance(node, ast.Call) else ""
            if name.endswith(PRINTING) and not name.endswith("console.print"):
                calls.append(f"{file}:{node.lineno}{name}")
    assert calls == []


def lines_of(function: ast.FunctionDef) -> int:
    """How many lines a function has without its docstring, which may list many parameters."""
    first = function.body[0]
    documented = first.end_lineno - first.lineno + 1 if ast.get_docstring(function) else 0
    return function.end_lineno - function.lineno + 1 - documented


LONG_FILES: set[str] = set()
"""Files that grew over the limit when the code went from 120 to 100 columns; each has to be divided."""
LONG_FUNCTIONS: set[str] = set()
"""Functions that grew over the limit in the same way."""


def test_no_file_is_longer_than_400_lines():
    lengths = {
        file.as_posix(): len((PACKAGE / file).read_text("utf-8").splitlines()) for file in TREES
    }
    assert {name for name, length in lengths.items() if length > 400} == LONG_FILES


def test_no_function_is_longer_than_60_lines():
    nodes = [
        node
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]
    assert {node.name for node in nodes if lines_of(node) > 60} == LONG_FUNCTIONS


PUBLIC = {
    name: getattr(glue_bench, name)
    for name in glue_bench.__all__
    if name.islower() and name[0] != "_"
}
"""The public functions by name."""


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_function_is_one_of_the_api(name):
    assert getattr(glue_bench.api, name) is PUBLIC[name]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_function_of_more_than_two_parameters_lists_them(name):
    parameters = list(inspect.signature(PUBLIC[name]).parameters)
    section = re.search(
        r"^Args:\n((?:    .*\n)+)", inspect.getdoc(PUBLIC[name]) or "", re.MULTILINE
    )
    listed = re.findall(r"^    (\w+): ", section[1], re.MULTILINE) if section else []
    assert listed == (parameters if len(parameters) > 2 else [])


def test_no_file_gives_a_function_of_the_house_another_name():
    renamed = [
        f"{file}:{node.lineno} {name.name} as {name.asname}"
        for file, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glue_bench")
        for name in node.names
        if name.asname
    ]
    assert renamed == []


def test_every_public_name_is_there_and_no_room_has_it():
    """A room of the same name would take the function's place as soon as something imports the room."""
    names = {name for name in dir(glue_bench) if getattr(glue_bench, name) is not None}
    assert {"TASKS", "VARIANTS", "leaderboard", "run", "statistics", "table"} <= names
    assert names & {path.stem for path in PACKAGE.iterdir()} == set()
