"""Test splits are predicted when asked: at once, or by training the runs that need it once more."""

import io
import json
import shutil
from functools import partial

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file
from stored import read_records

from glue_bench.api import run
from glue_bench.audit.bundle import files_of
from glue_bench.audit.verify import verify
from glue_bench.config import parse_experiment
from glue_bench.data.tasks import AX_SPLIT
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import again
from glue_bench.sweep.claims import Claims, read_claims
from glue_bench.sweep.predict import predict_tests
from glue_bench.tables.board import open_board
from glue_bench.tables.diagnostics import without_diagnostic
from glue_bench.tables.submission import gather, lacking

pytestmark = pytest.mark.usefixtures("small_demo")
BOTH = {"predict": ["validation", "test"]}


@pytest.fixture
def experiment(values):
    """MNLI and RTE, which starts from it, of a pretrained arm with two seeds."""

    def of(**finetuning):
        return values(
            arms=["add"], tasks=["mnli", "rte"], seeds=[1, 2], finetuning={"from_mnli": ["rte"], **finetuning}
        )

    return of


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the finished experiments stay, once a test has asked for them."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def finished(experiment, kept, tmp_path) -> Store:
    """The experiment, run without test predictions, to be changed; `both` beside it has them."""
    if not (kept / "both").exists():
        for name, settings in (("none", {}), ("both", BOTH)):
            run(experiment(**settings), results=kept / name, console=Console(file=io.StringIO()))
    return Store(shutil.copytree(kept / "none" / "tiny", tmp_path / "tiny"))


def predicted(store: Store, cell_ids, **where) -> list[str]:
    """The cells that were trained for their test predictions."""
    asked: list[str] = []

    def agree(cells, seconds):
        assert seconds > 0
        asked.extend(cells)
        return True

    predict_tests(store, cell_ids, agree, **where)
    return asked


def test_by_default_only_validation_is_predicted_and_no_id_knows(finished, kept):
    both = Store(kept / "both" / "tiny")
    ids = [record.cell_id for record in read_records(finished)]
    assert ids == [record.cell_id for record in read_records(both)]
    assert finished.tests.cells() == []
    assert both.tests.cells() == ids
    for cell_id in ids:
        scored, also = finished.read_predictions(cell_id), both.read_predictions(cell_id)
        assert set(scored) == set(also) == {split for split in also if split.startswith("validation")}
        assert all((scored[split] == also[split]).all() for split in scored)
        expected = {"test_matched", "test_mismatched", AX_SPLIT} if "mnli" in cell_id else {"test"}
        assert set(both.tests.read(cell_id).logits) == expected
        assert (both.tests.read(cell_id).diagnostic is not None) == ("mnli" in cell_id)
    assert {f"test_predictions/{cell_id}.safetensors" for cell_id in ids} <= set(files_of(both))


def test_later_they_are_those_of_a_run_that_predicts_them_at_once(finished, kept):
    both, needed = Store(kept / "both" / "tiny"), lacking(open_board(finished.folder))
    assert len(needed) == 2  # of two seeds, at most one a task
    assert lacking(open_board(both.folder)) == []
    records = {path: path.read_bytes() for path in (finished.folder / "records").iterdir()}
    (rte,) = [cell_id for cell_id in needed if "-rte-" in cell_id]
    source = finished.read_record(rte).from_mnli
    # RTE's MNLI run has left no encoder, and is trained too.
    assert set(predicted(finished, needed)) == {*needed, source}
    for cell_id in finished.tests.cells():
        now, then = finished.tests.read(cell_id), both.tests.read(cell_id)
        assert set(now.logits) == set(then.logits)
        assert all((now.logits[split] == then.logits[split]).all() for split in now.logits)
        assert now.diagnostic == then.diagnostic
    assert lacking(open_board(finished.folder)) == []
    assert gather(open_board(finished.folder)).files == gather(open_board(both.folder)).files
    assert gather(open_board(finished.folder)).digests == gather(open_board(both.folder)).digests
    assert not list((finished.folder / "checkpoints").glob("add-mnli-*"))
    assert {path: path.read_bytes() for path in records} == records
    assert not [fault for each in verify(finished.folder) for fault in each.faults]


def test_what_another_sweep_works_on_is_left_to_it_and_ours_is_claimed(finished, monkeypatch, capsys):
    needed = lacking(open_board(finished.folder))
    (rte,) = [cell_id for cell_id in needed if "-rte-" in cell_id]
    (mnli,) = [cell_id for cell_id in needed if "-mnli-" in cell_id]
    finetune, claimed, told = again.finetune, [], []

    def watched(*arguments, **options):
        claimed.append({claim.name for claim in read_claims(finished.folder / "claims")})
        outcome = finetune(*arguments, **options)
        told.append({path.stem for path in (finished.folder / "progress").iterdir()})
        return outcome

    monkeypatch.setattr(again, "finetune", watched)
    with Claims(finished.folder / "claims") as others:
        others.take(finished.read_record(rte).from_mnli)  # from which RTE's run starts
        predicted(finished, needed)
        left = {finished.read_record(rte).from_mnli, rte} & set(needed)
        assert set(finished.tests.cells()) == set(needed) - left
        assert "left out, since another sweep works on them or on what they start from: " in capsys.readouterr().err
    assert all(mnli in names for names in claimed)
    assert not (finished.folder / "claims").exists()
    predicted(finished, lacking(open_board(finished.folder)))
    assert lacking(open_board(finished.folder)) == []
    assert claimed[-1] == {rte}  # what has ended is free
    assert {rte, finished.read_record(rte).from_mnli} == claimed[-2]
    assert [len(names) for names in told] == [1] * len(claimed)
    assert told[-1] == {rte}


def test_what_a_sweep_of_another_boot_has_left_is_taken_over(finished, monkeypatch, capsys):
    cell_id = lacking(open_board(finished.folder))[0]
    (folder := finished.folder / "claims").mkdir()
    left = json.dumps({**Claims(folder).own.__dict__, "machine": "host of an earlier boot"})
    (folder / cell_id).write_text(left)
    monkeypatch.setattr(again, "Claims", partial(Claims, stale_seconds=0.2))
    predicted(finished, [cell_id])
    assert finished.tests.cells() == [cell_id]
    assert f"signs of life of another sweep that has claimed {cell_id}" in capsys.readouterr().err


def test_whoever_does_not_agree_trains_nothing(finished):
    predict_tests(finished, lacking(open_board(finished.folder)), lambda *_: False)
    assert finished.tests.cells() == []


def test_a_run_that_does_not_come_out_as_stored_is_refused(finished):
    (cell_id,) = without_diagnostic(open_board(finished.folder))
    path = finished.folder / "predictions" / f"{cell_id}.safetensors"
    stored = finished.read_predictions(cell_id)
    stored["validation_matched"][0, 0] = np.nextafter(stored["validation_matched"][0, 0], np.float32(9))
    save_file(stored, path)
    with pytest.raises(
        UserError, match=r"does not give its stored validation predictions again \(its logits differ by"
    ):
        predicted(finished, [cell_id])
    path.unlink()
    save_file({"test_matched": np.zeros((1, 3), np.float32)}, path)
    with pytest.raises(UserError, match="none are stored to hold it to"):
        predicted(finished, [cell_id])
    assert finished.tests.cells() == []


def changed(store: Store, **changes) -> None:
    path = store.folder / "plan.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))


def test_what_the_plan_cannot_tell_is_asked_for(finished):
    cells = lacking(open_board(finished.folder))
    with pytest.raises(UserError, match="'add-rte' is not what the stored plan gives now"):
        predicted(finished, ["add-rte"])
    changed(finished, data_source="tsv")
    with pytest.raises(UserError, match="where its data lies; give it with --data"):
        predicted(finished, cells)
    with pytest.raises(UserError, match="give --corpus"):
        predicted(finished, cells, data="demo")
    assert predicted(finished, cells[:1], data="demo", corpus=["demo"])


def test_what_an_older_recipe_ran_is_refused(finished, monkeypatch):
    from glue_bench import recipe

    monkeypatch.setattr(recipe, "RECIPE", recipe.RECIPE + 1)
    with pytest.raises(UserError, match="by an older recipe, which this version cannot repeat"):
        predicted(finished, lacking(open_board(finished.folder)))


def test_changed_test_predictions_are_found(finished, kept):
    both = Store(shutil.copytree(kept / "both" / "tiny", finished.folder.parent / "both"))
    cell_id = both.tests.cells()[0]
    path = both.folder / "test_predictions" / f"{cell_id}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="changed since it was written; delete it and predict it again"):
        both.tests.read(cell_id)
    faults = [fault for each in verify(both.folder) for fault in each.faults]
    assert any(f"test_predictions/{path.name}: changed" in fault for fault in faults)


def test_of_a_submission_one_run_a_task_is_trained_by_the_command(glue_bench, refused, finished, tmp_path):
    error = refused("submit", finished.folder, "-o", tmp_path / "x.zip")
    assert "no test predictions at all; --yes trains the runs that it needs once more" in error
    said = glue_bench("submit", finished.folder, "-o", tmp_path / "x.zip", "--fill", "--yes")
    assert "2 runs without test predictions; to train them once more takes about" in said.err
    assert "filled with the majority class, not predicted: CoLA.tsv" in said.out
    assert "RTE.tsv" not in said.out.partition("filled")[2]


class Person(io.StringIO):
    """Somebody at a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_person_is_asked(refused, finished, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", Person())
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question))
    refused("submit", finished.folder, "-o", tmp_path / "x.zip")
    assert asked == ["Train them?"]
    assert finished.tests.cells() == []
    changed(finished, data_source="tsv")  # what they were trained on is not known: there is nothing to ask
    refused("submit", finished.folder, "-o", tmp_path / "x.zip")
    assert len(asked) == 1


def test_with_the_majority_class_nothing_is_trained(refused, finished, tmp_path):
    assert "no test predictions at all" in refused("submit", finished.folder, "-o", tmp_path / "x.zip", "--fill")
    assert finished.tests.cells() == []


@pytest.mark.parametrize("splits", [[], ["test"], ["validation", "validation"], ["validation", "ax"]], ids=str)
def test_other_splits_are_refused(tiny, splits):
    with pytest.raises(UserError, match=r"finetuning\.predict"):
        parse_experiment(tiny(finetuning={"predict": splits}))
