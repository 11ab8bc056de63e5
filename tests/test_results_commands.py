"""The commands on the pages of results/: those that read stored results give what lies there, the others are valid."""

import re
import shlex
import shutil

import pytest
from pages import ROOT, blocks
from typer.main import get_command
from typer.testing import CliRunner

from glue_bench.cli import app

READERS = ("table", "report", "verify")
FOLDERS = sorted(path.parent for path in (ROOT / "results").glob("*/README.md"))
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def commands(folder) -> list[list[str]]:
    """The words of each command on the folder's page."""
    code = "".join(blocks("console", (folder / "README.md").read_text("utf-8"))).replace("\\\n", "")
    return [shlex.split(line) for line in code.splitlines()]


@each
def test_they_have_verbs_options_and_files_that_exist(folder):
    verbs = get_command(app)
    for program, verb, *words in commands(folder):
        if program == "glue-bench":
            verbs.commands[verb].make_context(verb, list(words))
        for path in re.findall(r"\b(?:benchmarks|configs|docs)/\w+\.\w+", " ".join([verb, *words])):
            assert (ROOT / path).exists(), path


def readers(folder) -> list[list[str]]:
    """The words after `glue-bench` of those commands on the folder's page that read stored results."""
    return [words for program, *words in commands(folder) if program == "glue-bench" and words[0] in READERS]


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if readers(folder)], ids=lambda folder: folder.name)
def test_those_that_read_give_what_lies_there(folder, tmp_path, monkeypatch):
    asked = readers(folder)
    copy = shutil.copytree(folder, tmp_path / "results" / folder.name)
    monkeypatch.chdir(tmp_path)
    for words in asked:
        said = CliRunner().invoke(app, words)
        assert said.exit_code == 0, said.output
    assert (copy / "report.html").exists() == ("report" in [verb for verb, *_ in asked])
    assert [path.name for path in folder.glob("*.*") if path.read_bytes() != (copy / path.name).read_bytes()] == []
