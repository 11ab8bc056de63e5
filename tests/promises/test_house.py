"""The house: imports point one way, what is light stays light, only the command line prints, and
the code is written plainly.
"""

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from graphlib import TopologicalSorter
from itertools import product
from pathlib import Path

import grimp
import pytest
from helpers import density
from helpers.folder import Folder

import glue_bench
import glue_bench.api

VAGUE_WORDS = """
alike again apart at both by each few found has here how known lacking least left made mine more
most named of one other others ours own said says seen several shown some theirs there think told
wanted what where whole why
"""
VAGUE = frozenset(VAGUE_WORDS.split())
"""Words that are no names of values or parameters, because they do not say what the value is."""
AIMS = {
    density.STATEMENT: 12,
    density.COMPREHENSIONS: 20,
    density.TUPLES: 1,
    density.VAGUE_NAMES: 1,
    density.WIDE_FUNCTIONS: 0,
    density.UNFORMATTED: 0,
    density.LONG_LINES: 0,
    density.TYPED_CONSTRUCTORS: 0,
    density.SPLATS: 0,
}
"""The most that a room of the package may have; see tests/helpers/density.py for what is
measured.
"""
AIMS_OF_TESTS = AIMS | {density.STATEMENT: 13, density.VAGUE_NAMES: 2}
CEILINGS: dict[str, dict[str, float]] = {
    "tests": {
        density.COMPREHENSIONS: 27,
    },
    "glue_bench/cli": {
        density.UNFORMATTED: 1,
    },
    "glue_bench/pages": {
        density.UNFORMATTED: 1,
    },
}
"""Rooms that are not there yet, by measure.

A number here may fall, and goes when the room has reached the aim. It never rises.
"""
ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "glue_bench"
FILES = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]
SLOW = ("torch", "transformers", "datasets", "evaluate", "accelerate")
"""What tables are made without."""
HEAVY = (*SLOW, "pandas", "sklearn", "scipy", "matplotlib")
PRINTING = (".print", ".echo", ".secho", ".Screen", ".Console", ".stdout.write", ".stderr.write")
"""The functions and classes that write to the terminal, by the end of their names."""


@cache
def trees() -> dict[Path, ast.Module]:
    """Parse all files of the package."""
    return {file: ast.parse((PACKAGE / file).read_text("utf-8")) for file in FILES}


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
    for verb in ("leaderboard", "status", "statistics", "table tupe-1"):
        app([*verb.split(), runs], standalone_mode=False)
        seen(verb)
    app(["export", runs, "-o", out], standalone_mode=False)
    seen("export")
    app(["statistics", runs, "--difference", "20"], standalone_mode=False)
    seen("statistics --difference 20")
    with suppress(glue_bench.errors.UserError):
        app(["run", "nothere.yaml"], standalone_mode=False)
    seen("run nothere.yaml")
glue_bench.predictions(runs, task="rte")
seen("predictions")
print(json.dumps(loaded))
"""
"""Imports the package in an interpreter of its own, and then calls what reads results, `export`
with its `verify`.
"""


def test_the_package_and_its_help_import_nothing_heavy_and_what_reads_results_nothing_slow(
    tmp_path,
):
    folder = Folder(tmp_path / "toy", pretrained=False)
    for arm, seed in product(("add", "none"), (1, 2)):
        folder.run(arm, "rte", seed=seed)
    words = [sys.executable, "-c", FRESH, folder.plan(), folder.path.with_name("toy.zip")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert loaded["import"] == loaded["--help"] == []
    assert {step: names for step, names in loaded.items() if set(names) & set(SLOW)} == {}
    assert "pandas" in loaded["predictions"]


@pytest.mark.parametrize("room", sorted({file.parts[0] for file in FILES} - {"cli", "terminal.py"}))
def test_only_the_command_line_prints(room):
    """A console that a caller gives may be written to; `terminal.py` is where the command line
    writes.
    """
    calls: list[str] = []
    for file, tree in trees().items():
        if file.parts[0] != room:
            continue
        for node in ast.walk(tree):
            name = f".{ast.unparse(node.func)}" if isinstance(node, ast.Call) else ""
            if name.endswith(PRINTING) and not name.endswith("console.print"):
                calls.append(f"{file}:{node.lineno}{name}")
    assert calls == []


def lines_by_function(file: Path, *, with_signature: bool = True) -> dict[str, dict[int, str]]:
    """Return the lines of each function of a file by their numbers, without those of docstrings,
    which may list many parameters.
    """
    lines = (PACKAGE / file).read_text("utf-8").splitlines()
    lines_of: dict[str, dict[int, str]] = {}
    for node in ast.walk(trees()[file]):
        if isinstance(node, ast.FunctionDef):
            first = node if with_signature else node.body[0]
            numbers = set(range(first.lineno, node.end_lineno + 1))
            if ast.get_docstring(node):
                docstring = node.body[0]
                numbers -= set(range(docstring.lineno, docstring.end_lineno + 1))
            place = f"{file}:{node.lineno} {node.name}"
            lines_of[place] = {number: lines[number - 1] for number in sorted(numbers)}
    return lines_of


def test_no_file_is_longer_than_400_lines():
    longer: list[str] = []
    for file in FILES:
        count = len((PACKAGE / file).read_text("utf-8").splitlines())
        if count > 400:
            longer.append(f"{file}: {count} lines")
    assert longer == []


def test_no_function_is_longer_than_60_lines():
    longer: list[str] = []
    for file in FILES:
        for place, lines in lines_by_function(file).items():
            if len(lines) > 60:
                longer.append(f"{place}: {len(lines)} lines")
    assert longer == []


def test_a_body_of_more_than_35_lines_has_blank_lines_between_its_steps():
    undivided: list[str] = []
    for file in FILES:
        for place, lines in lines_by_function(file, with_signature=False).items():
            if len(lines) > 35 and all(lines.values()):
                undivided.append(f"{place}: {len(lines)} lines")
    assert undivided == []


def names_of(statement: ast.stmt) -> list[str]:
    """Return the name of a function, or the names of constants, that a statement defines."""
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if name.isupper()]


def test_no_two_files_give_one_name_to_two_functions_or_constants():
    """A function of `api` and its verb in `cli` have one name: they do one thing."""
    files_by_name: dict[str, list[str]] = {}
    for file, tree in trees().items():
        if file.parts[0] in ("api", "cli"):
            continue
        for statement in tree.body:
            for name in names_of(statement):
                if not name.startswith("_"):
                    files_by_name.setdefault(name, []).append(str(file))
    assert {name: files for name, files in files_by_name.items() if len(files) > 1} == {}


ROOMS = [f"glue_bench/{file.parts[0]}" for file in FILES if file.match("*/__init__.py")]
ROOMS = ["tests", "glue_bench", *dict.fromkeys(ROOMS)]
"""The rooms of the package, its top-level files, and the tests as a whole."""


@cache
def density_of(room: str) -> density.Density:
    """Measure the files of a room."""
    folder = ROOT / room
    files = folder.glob("*.py") if room == "glue_bench" else folder.rglob("*.py")
    return density.measure(sorted(files), ROOT, VAGUE)


@pytest.mark.parametrize("measure", density.MEASURES)
@pytest.mark.parametrize("room", ROOMS)
def test_code_is_written_plainly(room, measure):
    aims = AIMS_OF_TESTS if room == "tests" else AIMS
    limit = CEILINGS.get(room, {}).get(measure, aims[measure])
    measured = density_of(room)
    places = "\n".join(str(finding) for finding in measured.places(measure))
    assert measured.value(measure) <= limit, f"{room}: {measure}:\n{places}"


SAMPLES = {
    density.COMPREHENSIONS: "squares = [number**2 for number in numbers]",
    density.TUPLES: "low, high = min(numbers), max(numbers)",
    density.VAGUE_NAMES: "def first(each): ...",
    density.WIDE_FUNCTIONS: "def fill():\n" + "    number = 1\n" * 200,
    density.UNFORMATTED: "number = 1  # fmt" + ": skip",
    density.LONG_LINES: f"text = '{'x' * 100}'",
    density.TYPED_CONSTRUCTORS: "names = list[str]()",
    density.SPLATS: "names = [*('add', 'none')]",
}
"""Code that each measure is about."""


@pytest.mark.parametrize("measure", SAMPLES)
def test_a_measure_names_the_file_and_the_line(tmp_path, measure):
    (tmp_path / "sample.py").write_text(f"numbers = ()\n{SAMPLES[measure]}\n")
    (finding,) = density.measure([tmp_path / "sample.py"], tmp_path, VAGUE).places(measure)
    assert str(finding).startswith("sample.py:2 ")


PUBLIC: dict[str, Callable[..., object]] = {}
for public_name in glue_bench.__all__:
    if public_name.islower() and public_name[0] != "_":
        PUBLIC[public_name] = getattr(glue_bench, public_name)
"""The public functions by name."""


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_function_is_one_of_the_api(name):
    assert getattr(glue_bench.api, name) is PUBLIC[name]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_function_of_more_than_two_parameters_lists_them(name):
    parameters = list(inspect.signature(PUBLIC[name]).parameters)
    text = inspect.getdoc(PUBLIC[name]) or ""
    section = re.search(r"^Args:\n((?:    .*\n)+)", text, re.MULTILINE)
    listed = re.findall(r"^    (\w+): ", section[1], re.MULTILINE) if section else []
    assert listed == (parameters if len(parameters) > 2 else [])


def test_no_file_gives_a_function_of_the_house_another_name():
    renamed: list[str] = []
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            is_ours = (node.module or "").startswith("glue_bench")
            for name in node.names:
                if is_ours and name.asname:
                    renamed.append(f"{file}:{node.lineno} {name.name} as {name.asname}")
    assert renamed == []


def test_every_public_name_is_there_and_no_room_has_it():
    """A room of the same name would take the function's place as soon as something imports the
    room.
    """
    names = {name for name in dir(glue_bench) if getattr(glue_bench, name) is not None}
    assert {"TASKS", "VARIANTS", "leaderboard", "run", "statistics", "table"} <= names
    assert names & {path.stem for path in PACKAGE.iterdir()} == set()
