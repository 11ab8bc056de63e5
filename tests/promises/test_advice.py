"""Advice names the folder that was given: results that lie elsewhere are never said to lie in
runs/.
"""

import re
from pathlib import Path

import pytest
from helpers.folder import VERBS, Folder, call_verb, labelled_ax, written_text

from glue_bench.cli import app
from glue_bench.pages.report import REPORT_FILE


def make_results(folder: Path) -> Path:
    """An experiment with a missing cell and a damaged analysis, about both of which verbs give
    advice.
    """
    experiment = Folder(folder)
    for arm in ("add", "none"):
        experiment.pretrain(arm)
        experiment.run(arm, "mnli")
        experiment.run(arm, "rte", recorded=arm == "add")
    path = experiment.plan()
    (path / "analysis").mkdir()
    (path / "analysis" / "analysis.json").write_text("{")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with results in elsewhere/toy."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_results(Path("elsewhere", "toy"))
    return folder


@pytest.mark.parametrize("given", ["absolute", "relative"])
@pytest.mark.parametrize("name", VERBS)
def test_no_verb_says_that_results_lie_in_runs(place, tmp_path, monkeypatch, name, given):
    monkeypatch.chdir(place)
    folder = Path("elsewhere", "toy")
    out = tmp_path / "out"
    out.mkdir()
    places = {
        "RUNS": folder.absolute() if given == "absolute" else folder,
        "OUT": out,
        "LABELS": labelled_ax(out),
    }
    words = re.sub("RUNS|OUT|LABELS", lambda match: str(places[match[0]]), VERBS[name])
    printed = "".join(call_verb(*call.split()) for call in words.split("; "))
    assert "runs/" not in printed + written_text(out)


@pytest.mark.parametrize(
    "text",
    [
        "--results RESULTS\n",
        "glue-bench statistics RESULTS/toy\n",
        "glue-bench analyse RESULTS/toy -o RESULTS/toy/analysis",
    ],
)
def test_a_report_names_results_by_a_placeholder(report, text):
    assert text in report


@pytest.fixture(scope="module")
def report(place) -> str:
    """The report of the results, called from the folder that they lie in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        call_verb("report", Path("elsewhere", "toy"))
    return (place / "elsewhere" / "toy" / REPORT_FILE).read_text()


def test_a_report_does_not_tell_where_results_lie(report, place):
    assert "elsewhere/toy" not in report
    assert str(place) not in report


def test_every_verb_that_reads_results_is_asked():
    asked = {words.split()[0] for words in VERBS.values()}
    assert asked <= {command.callback.__name__ for command in app.registered_commands}
