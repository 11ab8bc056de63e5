"""Outputs in the README and in docs/ are what the files hold and what the commands print."""

import os
import re
import subprocess
import sys

import pytest
from pages import KINDS, PAGES, ROOT, Shown, blocks, masked, page, shown, squeezed
from typer.testing import CliRunner

from glue_bench.cli import app

DRAWINGS = ("glue_bench/\n", "DIR/<experiment>/", " experiment.yaml\n", " model/variants/untied.py:", "error: plugin ")
"""How blocks begin that are no output; the last one is what tests/test_docs.py compares."""


def missing(output: Shown, source: str) -> list[str]:
    """The pieces of an output that the source does not have after those before them."""
    place, lost, source = 0, [], squeezed(source)
    for piece in output.pieces:
        found = source.find(piece, place)
        place = max(found, place)
        lost += [piece] * (found < 0)
    return lost


def which(output: Shown) -> str:
    return f"{output.page}: {output.source}"


@pytest.mark.parametrize("output", shown("from"), ids=which)
def test_what_a_file_holds(output):
    text = (ROOT / output.source).read_text(encoding="utf-8")
    assert missing(output, text) == []


@pytest.mark.parametrize("output", shown("made by"), ids=which)
def test_what_a_command_prints(output, monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *words = output.source.split()
    assert program == "glue-bench"
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0
    assert missing(output, said.stdout) == [], said.stdout


@pytest.mark.slow
def test_what_the_demo_prints(tmp_path):
    """All numbers aside, which another machine may compute otherwise; rows of about equal arms in any order."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "glue-bench").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m glue_bench.cli "$@"\n')
    (bin / "glue-bench").chmod(0o755)
    home = {"GLUE_BENCH_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    environment = os.environ | home | {"PATH": f"{bin}:{os.environ['PATH']}"}

    def said(command: str) -> str:
        given = {"cwd": tmp_path, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, shell=True, text=True, check=False, **given)
        assert done.returncode == 0, done.stdout
        return done.stdout

    demo = "glue-bench demo"
    printed = {demo: said(demo)}
    for output in shown("after the demo"):
        printed.setdefault(output.source, said(output.source) if output.source not in printed else "")
        text = masked(printed[output.source])
        lost = [piece for piece in output.pieces if masked(piece) not in text]
        assert lost == [], f"{which(output)}\n{printed[output.source]}"


def test_figures_in_the_text_are_those_of_the_results():
    """The page about a leaderboard, up to where it leaves its example."""
    tables = [path.read_text() for kind in ("leaderboard", "statistics") for path in ROOT.glob(f"results/*/{kind}.*")]
    known = {f"{abs(float(number)):.2f}" for number in re.findall(r"-?\d+\.\d+", " ".join(tables))}
    text = page("reading-a-leaderboard").split("## What the numbers mean")[0]
    for output in shown("after the demo"):
        text = text.replace(output.block, "")
    assert set(re.findall(r"\b\d+\.\d\d\b", text)) <= known


@pytest.mark.parametrize("name", PAGES)
def test_every_output_says_where_it_comes_from(name):
    known = [output.block for kind in KINDS for output in shown(kind) if output.page == name]
    unknown = [text for text in blocks("", PAGES[name]) if f"```\n{text}```\n" not in known]
    assert [text for text in unknown if not text.startswith(DRAWINGS)] == []
    assert PAGES[name].count("<!-- ") == len(known), "a comment that is none of KINDS, or has no block below it"
