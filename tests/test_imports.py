"""The rooms import in one direction, and what is light stays light."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "datasets", "evaluate", "accelerate", "pandas", "sklearn", "scipy", "matplotlib")


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_rooms_import_in_one_direction(capsys, monkeypatch):
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    monkeypatch.chdir(ROOT)
    status = lint_imports(no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, those inside functions too, except what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            yield node
            yield from nodes(node)


def imported(file: Path, modules: set[str]) -> set[str]:
    """The modules of the package that a file names in its imports, wherever they stand in it."""
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
    """The modules of one circle, the first of them again at the end; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_two_files_import_each_other_however_late():
    assert circle(import_graph(ROOT / "glue_bench")) == []


def test_a_circle_is_found_inside_functions_and_by_import_module(tmp_path):
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").write_text("from importlib import import_module\nimport_module('house.door')\n")
    (package / "door.py").write_text("def enter():\n    from house.room import leave\n")
    (package / "room.py").write_text("if TYPE_CHECKING:\n    from house import door\n")
    assert circle(import_graph(package)) == []
    (package / "room.py").write_text("def leave():\n    import house\n")
    assert set(circle(import_graph(package))) == {"house", "house.door", "house.room"}


def test_importing_the_package_imports_nothing_heavy():
    code = f"import sys, glue_bench, glue_bench.cli; print([m for m in {HEAVY} if m in sys.modules])"
    assert python(code) == "[]"


def test_tables_data_and_metrics_are_made_without_the_slow_libraries():
    code = """
import sys, glue_bench, glue_bench.data.metrics, glue_bench.data.sources
glue_bench.leaderboard
print([m for m in ('evaluate', 'datasets', 'torch', 'transformers') if m in sys.modules])
"""
    assert python(code) == "[]"


def test_what_is_stored_is_looked_at_without_torch(tmp_path):
    verbs = [["explain", "add-rte-lr5e-05-s1"], ["verify"], ["export", "-o", str(tmp_path / "minilm.zip")]]
    code = f"""
import sys
from glue_bench.cli import app

for verb in {verbs!r}:
    app([*verb, "results/minilm"], standalone_mode=False)
    print("after", verb[0], "torch" in sys.modules)
"""
    said = [line for line in python(code).splitlines() if line.startswith("after ")]
    assert said == ["after explain False", "after verify False", "after export False"]


def test_leaderboard_is_a_function_whatever_was_imported_before(tmp_path):
    """Each case in a copy of one interpreter, which has pandas and nothing of the package."""
    before = ["pass", "import glue_bench.results", "import glue_bench.results.board", "glue_bench.leaderboard"]
    code = f"""
import os, pandas
for first in {before!r}:
    if os.fork():
        os.wait()
        continue
    import glue_bench
    exec(first)
    try:
        glue_bench.leaderboard({str(tmp_path)!r})
    except glue_bench.errors.UserError as error:
        print(first, error, flush=True)
    os._exit(0)
"""
    said = python(code).splitlines()
    assert len(said) == len(before)
    assert all(line.startswith(first) and "no records/ in it" in line for first, line in zip(before, said, strict=True))


def test_the_public_names():
    import glue_bench
    from glue_bench.api import run
    from glue_bench.data.tasks import TASKS
    from glue_bench.model.variants import VARIANTS

    assert glue_bench.run is run
    assert glue_bench.TASKS is TASKS
    assert glue_bench.VARIANTS is VARIANTS
    assert set(dir(glue_bench)) >= {"TASKS", "VARIANTS", "leaderboard", "run"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = glue_bench.nothing


def test_help_answers_within_half_a_second():
    command = [str(Path(sys.executable).with_name("glue-bench")), "--help"]

    def seconds() -> float:
        before = os.times()
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        assert "leaderboard" in done.stdout
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    # Processor time, and one of several: what the program needs, not what else the machine is doing.
    assert any(seconds() <= 0.5 for _ in range(6))
