"""Folders: every change of a number, an id or a file is found, and good ones are good."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from older_results import OLDER
from safetensors.numpy import load_file, save_file

from glue_bench.audit.checks import Check, check_ids
from glue_bench.audit.identity import known
from glue_bench.audit.verify import verify
from glue_bench.errors import UserError
from glue_bench.records.disk import record_digest
from glue_bench.records.predicted import Predicted
from glue_bench.records.store import Store
from glue_bench.tables.export import find, write_tables

RESULTS = Path(__file__).resolve().parents[2] / "results"


def checks(folder: Path) -> dict[str, tuple[str, ...]]:
    """The faults of each check of an experiment."""
    (verified,) = verify(folder)
    return {check.name: check.faults for check in verified.checks}


def found(folder: Path) -> dict[str, tuple[str, ...]]:
    """Checks that found faults, and these."""
    return {name: faults for name, faults in checks(folder).items() if faults}


def record_of(folder: Path, name: str = "add-stsb") -> Path:
    return next((folder / "records").glob(f"{name}*.json"))


def signed(record) -> None:
    """As if the run itself had written it."""
    record["digest"] = record_digest(record)


@pytest.fixture
def no_tables(monkeypatch) -> None:
    """All checks but that of the tables, which takes longest."""
    monkeypatch.setattr("glue_bench.audit.checks.check_tables", lambda _: Check("tables", ""))


def test_a_finished_experiment_is_good(finished):
    assert checks(finished) == dict.fromkeys(
        ("plan", "records", "pretraining", "intrinsic", "ids", "predictions", "failures", "tables"), ()
    )


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("folder", [OLDER, RESULTS / "minilm"], ids=["older", "minilm"])
def test_real_results_are_good(glue_bench, folder):
    """All but their tables, which tests/test_results.py compares."""
    said = glue_bench("verify", folder)
    assert said.status == 0, said
    assert ("an earlier version, without a digest" in said.out) == (folder == OLDER)
    assert said.out.endswith(f"{folder}: good\n")


def test_a_number_in_a_table(finished, glue_bench):
    path = finished / "leaderboard.csv"
    text = path.read_text()
    digit = max(text.rfind(d) for d in "123456789")
    path.write_text(text[:digit] + "0" + text[digit + 1 :])
    said = glue_bench("verify", finished)
    assert said.status == 1
    assert "fault: leaderboard.csv: line 3 is not what the records give; run the experiment again" in said.out
    assert said.out.endswith(f"{finished}: 1 fault\n")


def test_any_table_that_is_gone_or_too_many(finished):
    (finished / "scores.csv").unlink()
    (finished / "steps.csv").write_text("")
    (faults,) = found(finished).values()
    assert [fault.split(";")[0] for fault in faults] == [
        "scores.csv: missing",
        "steps.csv: not among the tables that the records give",
    ]


def test_a_score_in_a_record(finished, edit):
    path = record_of(finished)
    edit(path, lambda record: record["scores"]["validation"].update(pearson=0.9))
    faults = found(finished)
    assert faults["records"] == (f"records/{path.name}: edited since the run wrote it; delete it and run again",)
    assert len(faults["tables"]) > 1


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("epochs_too", [False, True])
def test_a_score_in_a_record_whose_digest_was_made_anew(finished, edit, epochs_too):
    def forge(record):
        record["scores"]["validation"]["pearson"] = 0.9
        if epochs_too:
            record["history"][-1]["scores"]["validation"]["pearson"] = 0.9
        signed(record)

    edit(record_of(finished), forge)
    (fault,) = found(finished)["predictions"]
    assert ("the record says 0.9" if epochs_too else "are not those of its last epoch") in fault


@pytest.mark.usefixtures("no_tables")
def test_a_hyperparameter_in_a_record_whose_digest_was_made_anew(finished, edit):
    path = record_of(finished)
    edit(path, lambda record: [record["hyperparameters"].update(epochs=9), signed(record)])
    assert found(finished)["ids"] == (
        f"records/{path.name}: its id is not that of what it says; delete it and run again",
    )


def test_a_record_that_is_gone(finished):
    path = record_of(finished)
    path.unlink()
    faults = found(finished)
    assert faults["predictions"] == (
        f"predictions/{path.stem}.safetensors: its record was deleted, or never written; run again",
    )
    assert any(fault.startswith("leaderboard.md: ") for fault in faults["tables"])


@pytest.mark.usefixtures("no_tables")
def test_predictions_that_are_gone_or_changed(finished):
    first, second = record_of(finished), record_of(finished, "untied-stsb")
    (finished / "predictions" / f"{first.stem}.safetensors").unlink()
    path = finished / "predictions" / f"{second.stem}.safetensors"
    arrays = load_file(path)
    arrays["validation"][0, 0] += 1e-6  # too little for any score
    save_file(arrays, path)
    faults = found(finished)["predictions"]
    assert faults[0].startswith(f"predictions/{first.stem}.safetensors: missing; ")
    assert faults[1].startswith(f"predictions/{second.stem}.safetensors: changed since the run wrote it; ")


@pytest.mark.usefixtures("no_tables")
def test_predictions_of_an_earlier_version_are_held_to_their_scores(finished, edit):
    path = record_of(finished)
    edit(path, lambda record: [record.pop("predictions_sha256"), signed(record)])
    assert not found(finished)
    logits = finished / "predictions" / f"{path.stem}.safetensors"
    arrays = load_file(logits)
    arrays["validation"][0, 0] += 1
    save_file(arrays, logits)
    (fault,) = found(finished)["predictions"]
    assert "validation gives pearson" in fault


@pytest.mark.usefixtures("no_tables")
def test_a_gold_label(finished):
    path = next((finished / "labels").glob("rte*"))
    labels = load_file(path)
    labels["validation"][0] = 1 - labels["validation"][0]
    save_file(labels, path)
    assert all("validation gives accuracy" in fault for fault in found(finished)["predictions"])


@pytest.mark.usefixtures("no_tables")
def test_a_planned_cell(finished, edit):
    edit(finished / "plan.json", lambda plan: plan["cells"][0].update(seed=2))
    (fault,) = found(finished)["plan"]
    assert "was edited; run the experiment again" in fault


@pytest.mark.usefixtures("no_tables")
def test_a_setting_of_a_pretraining(finished, edit):
    path = next((finished / "pretraining").glob("add*.json"))
    edit(path, lambda document: [document["identity"]["settings"].update(learning_rate=1.0), signed(document)])
    assert found(finished)["pretraining"] == (
        f"pretraining/{path.name}: its id is not that of what it says; delete it and run again",
    )


@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("key", ["value", "standard_error", "n"])
def test_a_measure_of_a_pretrained_encoder(finished, edit, key, signs):
    """Also where the digest was made anew, or lacks, and the tables say the same."""
    path = next((finished / "intrinsic").glob("*.json"))
    name = f"intrinsic/{path.name}"

    def forge(record):
        record["measures"][0][key] *= 2
        signed(record) if signs else record.pop("digest")

    edit(path, forge)
    write_tables(find(finished))
    assert found(finished) == {
        "intrinsic": (f"{name}: its validation_loss is not what the sums beside it give; delete both and run again",)
    }


@pytest.mark.usefixtures("no_tables")
def test_measures_of_what_is_no_number_are_a_fault(finished):
    path = next((finished / "intrinsic").glob("*.safetensors"))
    save_file({"swap_1": np.ones((2, 3), dtype=bool)}, path)
    said = f"intrinsic/{path.name}: swap_1 are no numbers; delete it and its record and run again"
    assert said in found(finished)["intrinsic"]


@pytest.mark.parametrize(("kind", "key"), [("pretraining", "seconds"), ("intrinsic", "step")])
def test_what_nothing_follows_from_is_held_to_the_digest(finished, edit, kind, key):
    path = next((finished / kind).glob("*.json"))
    edit(path, lambda record: record.update({key: 3}))
    with suppress(UserError):
        write_tables(find(finished))
    (fault,) = found(finished)[kind]
    assert fault == f"{kind}/{path.name}: edited since the run wrote it; delete it and run again"
    edit(path, lambda record: record.pop("digest"))  # as an earlier version has written it
    write_tables(find(finished))
    assert not found(finished)


@pytest.mark.usefixtures("no_tables")
def test_test_predictions_of_another_cell(finished):
    store, (first, second) = Store(finished), (record_of(finished).stem, record_of(finished, "untied-stsb").stem)
    for cell_id in (first, second):
        store.tests.write(cell_id, Predicted({"test": np.ones((2, 1))}))
    assert not found(finished)
    folder = finished / "test_predictions"
    (folder / f"{second}.safetensors").write_bytes((folder / f"{first}.safetensors").read_bytes())
    (fault,) = found(finished)["predictions"]
    assert fault.startswith(f"test_predictions/{second}.safetensors: these are the predictions of '{first}'; delete it")


@pytest.mark.usefixtures("no_tables")
def test_a_count_of_what_follows_is_never_negative(finished, edit):
    for path in (finished / "records").glob("*.json"):
        edit(path, lambda record: [record.pop(key, None) for key in ("tokenizer", "digest")])
        edit(path, lambda record: record["cell"].update(seed=7))
    for path in (finished / "pretraining").glob("*.json"):
        path.unlink()
    edit(finished / "plan.json", lambda plan: [facts.pop("identity") for facts in plan["pretrainings"]])
    check = check_ids(known(Store(finished), Store(finished).read_plan()))
    assert (len(check.faults), check.found) == (6, "0 follow from their records")


@pytest.mark.usefixtures("no_tables")
def test_a_home_folder_may_be_named_by_a_tilde(finished, monkeypatch):
    monkeypatch.setenv("HOME", str(finished.parent))
    (verified,) = verify(f"~/{finished.name}")
    assert verified.faults == []


@pytest.mark.usefixtures("no_tables")
def test_validation_losses_that_are_gone_changed_or_of_another_mean(finished):
    path = next((finished / "pretraining").glob("add*.safetensors"))
    name, content = f"pretraining/{path.name}", path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert found(finished)["pretraining"] == (
        f"{name}: changed since the run wrote it; delete it and its record and run again",
    )
    path.unlink()
    assert found(finished)["pretraining"] == (f"{name}: missing; restore it, or delete its record and run again",)
    store = Store(finished)
    (record,) = [one for one in store.read_pretrainings() if one.pretraining_id == path.stem]
    losses = {"loss_sum": np.ones(2), "count": np.ones(2, dtype=int), "document": np.zeros(2, dtype=int)}
    store.write_pretraining(record, losses)
    assert found(finished)["pretraining"] == (
        f"{name}: its mean is not the validation loss of the record; delete both and run again",
    )


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize(
    "losses",
    [
        {"count": np.ones(2, dtype=int)},
        {"loss_sum": np.ones(2)},
        {"loss_sum": np.ones(2), "count": np.ones(3, dtype=int)},
        {"loss_sum": np.ones((2, 2)), "count": np.ones((2, 2), dtype=int)},
        {"loss_sum": np.ones(2), "count": np.zeros(2, dtype=int)},
        {"loss_sum": np.ones(2, dtype=bool), "count": np.ones(2)},
    ],
)
def test_validation_losses_that_are_none_are_a_fault_whatever_their_digest(finished, losses):
    store = Store(finished)
    first, *_ = store.read_pretrainings()
    store.write_pretraining(first, losses)
    file = f"pretraining/{first.pretraining_id}.safetensors"
    assert found(finished)["pretraining"] == (
        f"{file}: it does not hold the losses of pieces; delete it and its record and run again",
    )


@pytest.mark.usefixtures("no_tables")
@pytest.mark.parametrize("content", ["", "[]", "{", '{"cells": 3, "schema_version": 1}', '{"schema_version": 7}'])
@pytest.mark.parametrize("name", ["plan.json", "pretraining", "failures", "records"])
def test_a_damaged_file_is_a_fault_and_no_traceback(finished, name, content):
    path = finished / name
    if path.suffix != ".json":
        path = next(path.glob("*.json"), path / "x.json")
    path.write_text(content)
    faults = found(finished)
    if name == "failures" and content.startswith('{"'):
        assert faults == {"failures": ("failures/: one does not say why; delete it and run again",)}
    else:
        assert f"{path.relative_to(finished)}: " in next(iter(faults.values()))[0]


def test_records_without_a_plan_are_checked_too(finished):
    (finished / "plan.json").unlink()
    assert set(found(finished)) == {"tables"}  # those of a plan say what is missing, and budgets


def test_an_unfinished_experiment_is_good_and_says_what_is_missing(finished):
    path = record_of(finished)
    path.unlink()
    (finished / "predictions" / f"{path.stem}.safetensors").unlink()
    write_tables(find(finished))
    (verified,) = verify(finished)
    assert verified.faults == []
    assert verified.checks[0].found == "6 cells: 5 done, 0 failed, 1 missing"
