"""The house: imports point one way, what is light stays light, only the command line prints, and parts stay small."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "glue_bench"
FILES = sorted(PACKAGE.rglob("*.py"))
HEAVY = ("torch", "transformers", "datasets", "evaluate", "accelerate", "pandas", "sklearn", "scipy", "matplotlib")
SLOW = ("torch", "transformers", "datasets", "evaluate", "accelerate")
"""What tables are made without."""
PRINTING = {"print", "echo", "secho", "Screen", "Console", "stdout.write", "stderr.write"}
"""The functions and classes that write to the terminal, by the end of their names."""


def python(code: str) -> str:
    """What a fresh interpreter prints, on either stream."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": ROOT, "timeout": 600}
    done = subprocess.run([sys.executable, "-c", code], check=False, **given)
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()


def test_imports_point_one_way(capsys, monkeypatch):
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    monkeypatch.chdir(ROOT)
    status = lint_imports(no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, those inside functions included; without what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield node
            yield from nodes(node)


def imported(file: Path, modules: set[str]) -> set[str]:
    """The modules of the package that a file imports, wherever in the file."""
    found = set()
    for node in nodes(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} imports relatively"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & modules) | ({str(node.module)} if names - modules else set())
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {part.value for part in node.args if isinstance(part, ast.Constant)}
    return found & modules


def import_graph(package: Path) -> dict[str, set[str]]:
    """Module -> the modules of the package that it imports."""
    files = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in package.rglob("*.py")
    }
    return {name: imported(path, set(files)) - {name} for name, path in files.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circle; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_two_files_import_each_other_however_late():
    assert circle(import_graph(PACKAGE)) == []


def test_a_circle_is_found_inside_functions_and_by_import_module(tmp_path):
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").write_text("from importlib import import_module\nimport_module('house.door')\n")
    (package / "door.py").write_text("def enter():\n    from house.room import leave\n")
    (package / "room.py").write_text("if TYPE_CHECKING:\n    from house import door\n")
    assert circle(import_graph(package)) == []
    (package / "room.py").write_text("def leave():\n    import house\n")
    assert set(circle(import_graph(package))) == {"house", "house.door", "house.room"}


HELP = "import glue_bench.cli; sys.argv = ['glue-bench', '--help']; glue_bench.cli.main()"


@pytest.mark.parametrize("doing", ["import glue_bench", "import glue_bench.cli", HELP], ids=["package", "cli", "help"])
def test_nothing_heavy_is_imported_by_the_package_or_its_help(doing):
    at_the_end = f"print('heavy:', [name for name in {HEAVY} if name in sys.modules])"
    assert python(f"import atexit, sys; atexit.register(lambda: {at_the_end}); {doing}").splitlines()[-1] == "heavy: []"


def test_tables_are_made_without_the_slow_libraries_and_nothing_is_printed():
    code = f"""
import sys, glue_bench
glue_bench.TASKS, glue_bench.leaderboard("results/minilm"), glue_bench.statistics("results/minilm")
glue_bench.table("tupe-1", "results/minilm"), glue_bench.status("results/minilm"), glue_bench.verify("results/minilm")
glue_bench.statistics("results/minilm", difference=1.0), glue_bench.predictions("results/minilm", task="rte")
print([name for name in {SLOW} if name in sys.modules])
"""
    assert python(code) == "[]"


def test_verbs_that_read_results_import_no_torch(tmp_path):
    verbs = [
        ["leaderboard"],
        ["statistics"],
        ["statistics", "--difference", "1"],
        ["table", "tupe-1"],
        ["status"],
        ["verify"],
        ["export", "-o", str(tmp_path / "minilm.zip")],
    ]
    code = f"""
import sys
from glue_bench.cli import app

for verb in {verbs!r}:
    app([*verb, "results/minilm"], standalone_mode=False)
    print("after", verb[0], "torch" in sys.modules)
"""
    said = [line for line in python(code).splitlines() if line.startswith("after ")]
    assert said == [f"after {verb[0]} False" for verb in verbs]


def prints(file: Path) -> list[str]:
    """The calls of a file that write to the terminal, as `line: call`."""
    calls = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    named = [(call.lineno, ast.unparse(call.func)) for call in calls]
    return [f"{line}: {name}" for line, name in named if any(f".{name}".endswith(f".{end}") for end in PRINTING)]


ROOMS = sorted({file.relative_to(PACKAGE).parts[0] for file in FILES} - {"cli", "terminal.py"})
PRINTS_TODAY = {"sweep": "a run that is given no console makes one, so that the library prints"}


@pytest.mark.parametrize(
    "room",
    [
        pytest.param(room, marks=pytest.mark.xfail(strict=True, reason=PRINTS_TODAY[room]))
        if room in PRINTS_TODAY
        else room
        for room in ROOMS
    ],
)
def test_only_the_command_line_prints(room):
    """A console that a caller gives may be written to; `terminal.py` is where the command line writes."""
    inside = [file for file in FILES if file.relative_to(PACKAGE).parts[0] == room]
    found = {str(file.relative_to(ROOT)): prints(file) for file in inside}
    given = {name: [call for call in calls if not call.endswith("console.print")] for name, calls in found.items()}
    assert {name: calls for name, calls in given.items() if calls} == {}


def test_no_file_is_longer_than_350_lines():
    lengths = {str(file.relative_to(ROOT)): len(file.read_text("utf-8").splitlines()) for file in FILES}
    assert {name: length for name, length in lengths.items() if length > 350} == {}


def test_no_function_is_longer_than_60_lines():
    long = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (length := node.end_lineno - node.lineno + 1) > 60:
                long[f"{file.relative_to(ROOT)}:{node.name}"] = length
    assert long == {}


def test_every_public_name_is_there_and_no_room_has_it():
    """A room of the same name would take the function's place as soon as something imports the room."""
    code = "import glue_bench; print(*[name for name in dir(glue_bench) if getattr(glue_bench, name) is not None])"
    names = python(code).split()
    assert {"TASKS", "VARIANTS", "leaderboard", "run", "statistics", "table"} <= set(names)
    assert set(names) & {path.stem for path in PACKAGE.iterdir()} == set()
