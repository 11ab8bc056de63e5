"""Where a person keeps files changes nothing, and nobody else hears of it.

A verb writes the same bytes whether a folder is named by an absolute or a relative path, itself a
link, or has links in it. No file of a bundle has a path of the machine.
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
from helpers.folder import VERBS, Folder, call_verb, labelled_ax, written_text
from helpers.tiny_models import save_bert

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
    folder.fail("add", "rte", seed=2)
    return folder.plan()


def absolute(folder: Path, _: Path) -> str:
    return str(folder)


def relative(folder: Path, base: Path) -> str:
    """Name the folder from a folder beside it."""
    (base / "beside").mkdir()
    return f"../{folder.relative_to(base)}"


def linked(folder: Path, base: Path) -> str:
    """Name the folder by a link of another name."""
    (base / "beside").mkdir()
    (base / "beside" / "alias").symlink_to(folder)
    return "alias"


def moved(folder: Path, base: Path) -> str:
    """Move parts of the folder to another disk."""
    (base / "disk").mkdir()
    parts = [path for path in folder.iterdir() if path.is_dir()]
    for part in parts:
        shutil.move(part, base / "disk" / part.name)
        part.symlink_to(base / "disk" / part.name)
    return str(folder)


def moved_singly(folder: Path, base: Path) -> str:
    """Move every cell and pretraining to another disk by itself."""
    (base / "disk").mkdir()
    for job in [*folder.glob("cells/*"), *folder.glob("pretrainings/*")]:
        shutil.move(job, base / "disk" / job.name)
        job.symlink_to(base / "disk" / job.name)
    return str(folder)


def moved_and_linked(folder: Path, base: Path) -> str:
    moved(folder, base)
    return linked(folder, base)


Way = Callable[[Path, Path], str]
SINGLE_WAYS = [relative, linked, moved, moved_singly]
EXPORT = "export RUNS -o OUT/runs.zip"


def answer(words: str, experiment: Path, base: Path, way: Way) -> str:
    """Return what verbs print and write about a copy of a folder that is named in this way,
    without its name.
    """
    base.mkdir()
    place = way(shutil.copytree(experiment, base / "runs" / "toy"), base)
    out = base / "out"
    out.mkdir()
    paths = {"RUNS": place, "OUT": str(out), "LABELS": str(labelled_ax(out))}
    printed = ""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base / "beside" if (base / "beside").exists() else base)
        for command in words.split("; "):
            filled = re.sub("RUNS|OUT|LABELS", lambda match: paths[match[0]], command)
            printed += call_verb(*filled.split())
    text = f"{printed}\n{written_text(out)}"
    return text.replace(str(base), "").replace(place, "RUNS").replace("/runs/toy", "RUNS")


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_writes_the_same_wherever_the_results_lie(toy, tmp_path, name):
    usual = answer(VERBS[name], toy, tmp_path / "usual", absolute)
    assert answer(VERBS[name], toy, tmp_path / "other", moved_and_linked) == usual


@pytest.fixture(scope="module")
def usual_bundle(toy, tmp_path_factory) -> str:
    """What `export` prints and writes about the folder in its usual place."""
    return answer(EXPORT, toy, tmp_path_factory.mktemp("usual") / "usual", absolute)


@pytest.mark.parametrize("way", SINGLE_WAYS)
def test_a_bundle_is_the_same_wherever_the_results_lie(toy, usual_bundle, tmp_path, way):
    assert answer(EXPORT, toy, tmp_path / "other", way) == usual_bundle


def test_a_run_leaves_the_same_in_a_folder_that_is_named_by_a_relative_path_and_has_links_in_it(
    tmp_path, monkeypatch
):
    experiment = tiny_runs.experiment(pretraining=None, checkpoint="scratch")
    undisturbed = tiny_runs.run(experiment, tmp_path / "absolute")
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    for kind in ("cells", "labels"):
        (tmp_path / "disk" / kind).mkdir(parents=True)
        (tmp_path / "runs" / "tiny" / kind).symlink_to(tmp_path / "disk" / kind)
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path / "beside")
    tiny_runs.run(experiment, Path("../runs"))
    stored = tiny_runs.bits(tmp_path / "disk")
    assert tiny_runs.differing_files(stored, tiny_runs.bits(undisturbed)) == []
    assert any(name.startswith("cells/") for name in stored)


# What others get


def folders_of_this_machine() -> list[bytes]:
    """Return the folders that no bundle may name."""
    package = Path(glue_bench.__file__).parent
    folders = {tempfile.gettempdir(), Path.home(), Path.cwd(), sys.prefix, package}
    return [f"{folder}/".encode() for folder in folders if str(folder) != "/"]


def own_starts(folder: Path) -> dict[str, object]:
    """Return an experiment whose arms start from folders."""
    checkpoint = str(save_bert(folder / "bert", texts=("the old cat chased a dog",)))
    plugin = folder / "my_variant.py"
    plugin.write_text(tiny_runs.PLUGIN, encoding="utf-8")

    arms = [
        {"name": "kept", "variant": "native", "checkpoint": checkpoint},
        {"name": "mine", "checkpoint": checkpoint, "variant": "mine", "tokenizer": checkpoint},
        {
            "name": "url",
            "checkpoint": f"file://{checkpoint}",
            "variant": "add",
            "tokenizer": checkpoint,
        },
    ]

    return tiny_runs.experiment(
        data=str(tiny_runs.glue()),
        plugins=[str(plugin)],
        checkpoint=None,
        limit=None,
        arms=arms,
        pretraining=None,
        scratch=None,
    )


def own_text(folder: Path) -> dict[str, object]:
    """Return an experiment that pretrains with a tokenizer and on text of one's own."""
    tokenizer = str(save_bert(folder / "bert", texts=("the old cat chased a dog",)))
    return tiny_runs.experiment(
        pretraining={"corpus": [str(tiny_runs.text())], "tokenizer": tokenizer}
    )


def run_in(folder: Path, experiment: Callable[[Path], dict[str, object]]) -> Path:
    """Run an experiment whose files lie in this folder too, and forget the plugins that it has
    loaded.
    """
    results = tiny_runs.run(experiment(folder), folder / "runs")
    tiny_runs.forget_plugins()
    return results


@pytest.fixture(scope="module")
def run_of_own_starts(tmp_path_factory) -> Path:
    return run_in(tmp_path_factory.mktemp("starts"), own_starts)


@pytest.fixture(scope="module")
def run_of_own_text(tmp_path_factory) -> Path:
    return run_in(tmp_path_factory.mktemp("text"), own_text)


@pytest.fixture(params=["run_of_own_starts", "run_of_own_text"])
def own_files(request, tmp_path):
    """A copy of the results of an experiment with files of one's own."""
    results = request.getfixturevalue(request.param)
    yield shutil.copytree(results, tmp_path / "runs" / results.name)
    tiny_runs.forget_plugins()


def contents_of(archive: Path) -> dict[str, bytes]:
    """Return the files of a zip by name."""
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def faults_of(archive: Path) -> list[str]:
    """Return what `verify` finds wrong with a bundle."""
    faults: list[str] = []
    for verified in glue_bench.verify(archive):
        faults += verified.faults
    return faults


def test_no_file_of_a_bundle_has_a_path_of_the_machine(own_files, tmp_path):
    store = Store(own_files)
    failed = store.plan().cells[0].id
    shutil.rmtree(own_files / "cells" / failed)
    error = OSError(28, "No space left on device", str(tmp_path / "a folder" / "x.bin"))
    lines = (
        "Traceback:",
        f'  File "{__file__}", line 3',
        f"  in {tmp_path}/runs:{tmp_path}/y, ({tmp_path}/z)",
    )
    message = f"OSError: {error}; see '{own_files}'"
    store.write_failure(Failure(id=failed, error=message, traceback="\n".join(lines)))
    glue_bench.export(own_files, tmp_path / "runs.zip")
    contents = contents_of(tmp_path / "runs.zip")
    assert f"tiny/failures/{failed}.json" in contents
    folders = [*folders_of_this_machine(), f"{tmp_path.parent}/".encode()]
    names = [name for name in contents if any(folder in contents[name] for folder in folders)]
    assert names == []


def test_a_bundle_of_an_experiment_with_files_of_ones_own_verifies(own_files, tmp_path):
    glue_bench.export(own_files, tmp_path / "runs.zip")
    assert faults_of(tmp_path / "runs.zip") == []


@pytest.fixture
def earlier(run_of_own_starts, tmp_path):
    """Results of an earlier version, whose plans had the paths of checkpoints and tokenizers."""
    results = shutil.copytree(run_of_own_starts, tmp_path / "runs" / run_of_own_starts.name)
    store = Store(results)
    plan = store.plan()
    arms = []
    for arm in plan.experiment.arms:
        path = str(tmp_path / "mine" / arm.checkpoint)
        changes = {"checkpoint": path, "tokenizer": arm.tokenizer and path}
        arms.append(arm.model_copy(update=changes))
    experiment = plan.experiment.model_copy(update={"arms": arms})
    store.write_plan(plan.model_copy(update={"experiment": experiment}), {})
    yield results
    tiny_runs.forget_plugins()


def test_a_bundle_of_earlier_results_has_no_path_of_the_machine(earlier, tmp_path):
    glue_bench.export(earlier, tmp_path / "runs.zip")
    contents = contents_of(tmp_path / "runs.zip")
    assert [name for name in contents if str(tmp_path).encode() in contents[name]] == []


def test_a_bundle_of_earlier_results_verifies(earlier, tmp_path):
    glue_bench.export(earlier, tmp_path / "runs.zip")
    assert faults_of(tmp_path / "runs.zip") == []


def test_a_report_of_earlier_results_has_no_path_of_the_machine(earlier, tmp_path):
    report = to_html(make_report(open_comparison(earlier)))
    assert str(tmp_path) not in report
