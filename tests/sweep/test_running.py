"""Files of a sweep that others take away while it runs: nothing that is finished is lost, and nothing ends for it."""

import io
import shutil

import pytest
from rich.console import Console

from glue_bench.api import run
from glue_bench.sweep import attempts

pytestmark = pytest.mark.usefixtures("small_demo", "no_tables")


@pytest.fixture
def sweep(tiny, tmp_path, monkeypatch):
    """Run two cells into the same folder each time; `meddle` is called with that folder in each cell, by its seed."""
    finetune = attempts.finetune

    def run_it(meddle):
        def meddled(cell, *rest, **further):
            meddle(cell.seed, tmp_path / "runs" / "tiny")
            return finetune(cell, *rest, **further)

        monkeypatch.setattr(attempts, "finetune", meddled)
        experiment = tiny(arms=["add"], tasks=["rte"], seeds=[1, 2])
        return run(experiment, results=tmp_path / "runs", console=Console(file=io.StringIO()))

    return run_it


def fail(*_):
    raise RuntimeError("gone wrong")


def failures(folder) -> list[str]:
    return sorted(path.name.split("-")[3] for path in (folder / "failures").iterdir())


def test_what_a_cell_has_found_is_kept_where_its_claim_was_deleted(sweep):
    ran = []

    def deleted(seed, folder):
        ran.append(seed)
        if len(ran) == 1:
            shutil.rmtree(folder / "claims")

    summary = sweep(deleted)
    assert (summary.finished, summary.elsewhere, ran) == (2, 0, [1, 2])
    assert not (summary.folder / "claims").exists()


def test_a_cell_that_runs_again_has_not_failed_yet(sweep):
    """Else its arm would count as ended on its task, and a model that it has just left would go."""
    failed = {}
    assert len(sweep(fail).failed) == 2
    summary = sweep(lambda seed, folder: failed.setdefault(seed, failures(folder)))
    assert failed == {1: ["s2"], 2: []}
    assert summary.finished == 2


def test_an_old_failure_that_is_deleted_is_no_new_one(sweep):
    assert len(sweep(fail).failed) == 2
    summary = sweep(lambda _, folder: shutil.rmtree(folder / "failures", ignore_errors=True))
    assert (summary.finished, summary.failed) == (2, {})
