"""Where a person keeps files changes nothing, and nobody else hears of it.

A verb writes the same bytes whether a folder is named by an absolute or a relative path, itself a link, or has links in
it; and no file of a bundle has a path of the machine.
"""

import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import tiny_runs
from helpers.folder import VERBS, Folder, labelled_ax, verb, written

import glue_bench
from glue_bench.board.compare import open_comparison
from glue_bench.pages.render import to_html
from glue_bench.pages.report import make_report
from glue_bench.records.store import Store
from glue_bench.records.values import Failure


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """An experiment with two arms, a failure, and whatever runs leave."""
    folder = Folder(tmp_path_factory.mktemp("made") / "toy")
    for arm in ("add", "untied"):
        folder.pretrain(arm)
        for task in ("mnli", "rte"):
            folder.run(arm, task)
    folder.fail("add", "rte", 2)
    return folder.plan()


def absolute(folder: Path, _: Path) -> str:
    return str(folder)


def relative(folder: Path, here: Path) -> str:
    """From a folder beside it."""
    (here / "beside").mkdir()
    return f"../{folder.relative_to(here)}"


def linked(folder: Path, here: Path) -> str:
    """By a link of another name."""
    (here / "beside").mkdir()
    (here / "beside" / "alias").symlink_to(folder)
    return "alias"


def moved(folder: Path, here: Path) -> str:
    """With parts that lie on another disk."""
    (here / "disk").mkdir()
    for part in [path for path in folder.iterdir() if path.is_dir()]:
        shutil.move(part, here / "disk" / part.name)
        part.symlink_to(here / "disk" / part.name)
    return str(folder)


def moved_singly(folder: Path, here: Path) -> str:
    """With cells and pretrainings of which each lies on another disk."""
    (here / "disk").mkdir()
    for job in [*folder.glob("cells/*"), *folder.glob("pretrainings/*")]:
        shutil.move(job, here / "disk" / job.name)
        job.symlink_to(here / "disk" / job.name)
    return str(folder)


def moved_and_linked(folder: Path, here: Path) -> str:
    moved(folder, here)
    return linked(folder, here)


Way = Callable[[Path, Path], str]
SINGLE_WAYS = [relative, linked, moved, moved_singly]


def answer(
    words: str, experiment: Path, here: Path, monkeypatch: pytest.MonkeyPatch, way: Way
) -> str:
    """What verbs print and write about a copy of the folder that is named in this way, but for its name."""
    here.mkdir()
    place = way(shutil.copytree(experiment, here / "runs" / "toy"), here)
    out = here / "out"
    out.mkdir()
    monkeypatch.chdir(here / "beside" if (here / "beside").exists() else here)
    paths = {"RUNS": place, "OUT": str(out), "LABELS": str(labelled_ax(out))}
    printed = ""
    for command in words.split("; "):
        filled = re.sub("RUNS|OUT|LABELS", lambda match: paths[match[0]], command)
        printed += verb(*filled.split())
    return (
        f"{printed}\n{written(out)}".replace(str(here), "")
        .replace(place, "RUNS")
        .replace("/runs/toy", "RUNS")
    )


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_writes_the_same_wherever_the_results_lie(toy, tmp_path, monkeypatch, name):
    usual = answer(VERBS[name], toy, tmp_path / "usual", monkeypatch, absolute)
    assert answer(VERBS[name], toy, tmp_path / "other", monkeypatch, moved_and_linked) == usual


@pytest.mark.parametrize("way", SINGLE_WAYS)
def test_a_bundle_is_the_same_wherever_the_results_lie(toy, tmp_path, monkeypatch, way):
    words = "export RUNS -o OUT/runs.zip"
    usual = answer(words, toy, tmp_path / "usual", monkeypatch, absolute)
    assert answer(words, toy, tmp_path / "other", monkeypatch, way) == usual


def test_a_run_leaves_the_same_in_a_folder_that_is_named_by_a_relative_path_and_has_links_in_it(
    tmp_path, monkeypatch
):
    asked = tiny_runs.experiment(pretraining=None, checkpoint="scratch")
    whole = tiny_runs.run(asked, tmp_path / "absolute")
    for kind in ("cells", "labels"):
        (tmp_path / "disk" / kind).mkdir(parents=True)
        (tmp_path / "runs" / "tiny").mkdir(parents=True, exist_ok=True)
        (tmp_path / "runs" / "tiny" / kind).symlink_to(tmp_path / "disk" / kind)
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "beside")
    tiny_runs.run(asked, Path("../runs"))
    stored = [tiny_runs.bits(tmp_path / "disk"), tiny_runs.bits(whole)]
    assert tiny_runs.unlike(*stored) == []
    assert any(name.startswith("cells/") for name in stored[0])


# What others get


def places() -> list[bytes]:
    """The folders of this machine that no bundle may name."""
    package = Path(glue_bench.__file__).parent
    folders = {tempfile.gettempdir(), Path.home(), Path.cwd(), sys.prefix, package}
    return [f"{folder}/".encode() for folder in folders if str(folder) != "/"]


def own_starts(make_bert, write_plugin) -> dict[str, object]:
    """An experiment whose arms start from folders."""
    place = str(make_bert(texts=("the old cat chased a dog",)))
    arms = [
        {"name": "kept", "variant": "native", "checkpoint": place},
        {"name": "mine", "checkpoint": place, "variant": "mine", "tokenizer": place},
        {"name": "url", "checkpoint": f"file://{place}", "variant": "add", "tokenizer": place},
    ]
    places = {"data": str(tiny_runs.glue()), "plugins": [str(write_plugin())], "checkpoint": None}
    return tiny_runs.experiment(**places, limit=None, arms=arms, pretraining=None, scratch=None)


def own_text(make_bert, write_plugin) -> dict[str, object]:  # noqa: ARG001
    """An experiment that pretrains with a tokenizer and on text of one's own."""
    tokenizer = str(make_bert(texts=("the old cat chased a dog",)))
    return tiny_runs.experiment(
        pretraining={"corpus": [str(tiny_runs.text())], "tokenizer": tokenizer}
    )


@pytest.mark.parametrize("experiment", [own_starts, own_text])
def test_no_file_of_a_bundle_has_a_path_of_the_machine(
    make_bert, write_plugin, tmp_path, experiment
):
    folder = tiny_runs.run(experiment(make_bert, write_plugin), tmp_path / "runs")
    store = Store(folder)
    failed = store.plan().cells[0].id
    shutil.rmtree(folder / "cells" / failed)
    try:
        raise OSError(28, "No space left on device", str(tmp_path / "a folder" / "x.bin"))
    except OSError as error:
        trace = f'Traceback:\n  File "{__file__}", line 3\n  in {tmp_path}/runs:{tmp_path}/y, ({tmp_path}/z)'
        store.write_failure(
            Failure(id=failed, error=f"OSError: {error}; see '{folder}'", traceback=trace)
        )
    glue_bench.export(folder, tmp_path / "runs.zip")
    with zipfile.ZipFile(tmp_path / "runs.zip") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert f"tiny/failures/{failed}.json" in contents
    assert [
        name for name, content in contents.items() for place in places() if place in content
    ] == []


@pytest.mark.parametrize("experiment", [own_starts, own_text])
def test_a_bundle_of_an_experiment_with_files_of_ones_own_verifies(
    make_bert, write_plugin, tmp_path, experiment
):
    folder = tiny_runs.run(experiment(make_bert, write_plugin), tmp_path / "runs")
    glue_bench.export(folder, tmp_path / "runs.zip")
    assert [
        fault for each in glue_bench.verify(tmp_path / "runs.zip") for fault in each.faults
    ] == []


@pytest.fixture
def earlier(make_bert, write_plugin, tmp_path) -> Path:
    """Results of an earlier version, whose plans had the paths of checkpoints and tokenizers."""
    folder = tiny_runs.run(own_starts(make_bert, write_plugin), tmp_path / "runs")
    store = Store(folder)
    plan = store.plan()
    arms = []
    for arm in plan.experiment.arms:
        path = str(tmp_path / "mine" / arm.checkpoint)
        arms.append(
            arm.model_copy(update={"checkpoint": path, "tokenizer": arm.tokenizer and path})
        )
    store.write_plan(
        plan.model_copy(update={"experiment": plan.experiment.model_copy(update={"arms": arms})}),
        {},
    )
    return folder


def test_a_bundle_of_earlier_results_has_no_path_of_the_machine(earlier, tmp_path):
    glue_bench.export(earlier, tmp_path / "runs.zip")
    with zipfile.ZipFile(tmp_path / "runs.zip") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert [name for name, content in contents.items() if str(tmp_path).encode() in content] == []


def test_a_bundle_of_earlier_results_verifies(earlier, tmp_path):
    glue_bench.export(earlier, tmp_path / "runs.zip")
    assert [
        fault for each in glue_bench.verify(tmp_path / "runs.zip") for fault in each.faults
    ] == []


def test_a_report_of_earlier_results_has_no_path_of_the_machine(earlier, tmp_path):
    report = to_html(make_report(open_comparison(earlier)))
    assert str(tmp_path) not in report
