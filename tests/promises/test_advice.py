"""Advice names the folder that was given: results that lie elsewhere are never said to lie in runs/."""

import re
from pathlib import Path

import pytest
from helpers.folder import VERBS, Folder, call_verb, labelled_ax, written_text

from glue_bench.cli import app
from glue_bench.pages.report import REPORT_FILE


def make_results(folder: Path) -> Path:
    """An experiment with a missing cell and a damaged analysis, about both of which verbs give advice."""
    experiment = Folder(folder)
    for arm in ("add", "none"):
        experiment.pretrain(arm)
        experiment.run(arm, "mnli")
        experiment.run(arm, "rte", recorded=arm == "add")
    path = experiment.plan()
    (path / "analysis").mkdir()
    (path / "analysis" / "analysis.json").write_text("{")
    return path


@pytest.mark.parametrize("given", ["absolute", "relative"])
@pytest.mark.parametrize("name", VERBS)
def test_no_verb_says_that_results_lie_in_runs(tmp_path, monkeypatch, name, given):
    monkeypatch.chdir(tmp_path)
    folder = make_results(Path("elsewhere", "toy"))
    out = Path("out")
    out.mkdir()
    places = {
        "RUNS": folder.absolute() if given == "absolute" else folder,
        "OUT": out,
        "LABELS": labelled_ax(out),
    }
    words = re.sub("RUNS|OUT|LABELS", lambda match: str(places[match[0]]), VERBS[name])
    printed = "".join(call_verb(*call.split()) for call in words.split("; "))
    assert "runs/" not in printed + written_text(out)


def test_a_report_does_not_tell_where_results_lie(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = make_results(Path("elsewhere", "toy"))
    call_verb("report", folder)
    page = (folder / REPORT_FILE).read_text()
    assert "--results RESULTS\n" in page
    assert "glue-bench statistics RESULTS/toy\n" in page
    assert "glue-bench analyse RESULTS/toy -o RESULTS/toy/analysis" in page
    assert "elsewhere/toy" not in page
    assert str(tmp_path) not in page


def test_every_verb_that_reads_results_is_asked():
    asked = {words.split()[0] for words in VERBS.values()}
    assert asked <= {command.callback.__name__ for command in app.registered_commands}
