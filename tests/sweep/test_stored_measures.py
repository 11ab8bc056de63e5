"""Measures of what pretrained arms have learnt: stored once, computed where they are missing, no part of any id."""

import csv
import shutil

import numpy as np
import pytest

from glue_bench.analysis.chance import Sums
from glue_bench.audit.bundle import files_of
from glue_bench.records.store import Store
from glue_bench.sweep import intrinsic as module

pytestmark = pytest.mark.usefixtures("small_demo")


def rows(path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_measures_of_every_pretrained_arm_are_stored_and_shown(sweep, monkeypatch):
    folder = sweep(arms=["add", "none"]).folder
    store, found = Store(folder), rows(folder / "intrinsic.csv")
    assert list(found[0]) == ["arm", "pretraining_seed", "step", "measure", "value", "standard_error", "n"]
    names = [row["measure"] for row in found if row["arm"] == "add"]
    assert names == [
        "validation_loss", "swap_1", "swap_2", "swap_4", "swap_8", "shuffle_1", "shuffle_2", "shuffle_3", "reverse",
        "start_8",
    ]  # fmt: skip
    assert {(row["pretraining_seed"], row["step"]) for row in found} == {("1", "10")}
    by_name = {(row["arm"], row["measure"]): float(row["value"]) for row in found}
    assert all(by_name["none", f"swap_{distance}"] == 0.5 for distance in (1, 2, 4, 8))
    budget = {row["arm"]: row for row in rows(folder / "budget.csv")}
    assert float(budget["none"]["swap_1"]) == 50
    assert float(budget["add"]["swap_1"]) == pytest.approx(100 * by_name["add", "swap_1"], abs=0.01)
    assert "| Swap test (%)" in (folder / "budget.md").read_text()
    # The whole validation text is read here: its loss is the one of the pretraining.
    for record in store.read_pretrainings():
        assert by_name[record.arm, "validation_loss"] == pytest.approx(record.validation_loss, abs=1e-5)
    # By the sums of each sequence arms can be compared in pairs.
    for record in store.intrinsic.read():
        sums = store.intrinsic.read_sums(record.pretraining_id)
        assert sorted(sums) == sorted(one.name for one in record.measures)
        for one in record.measures:
            total, count = sums[one.name]
            assert one.value == total.sum() / count.sum()
            assert one.n == (count > 0).sum()
    first, second = (store.intrinsic.read_sums(record.pretraining_id) for record in store.intrinsic.read())
    assert all((first[name][1] == second[name][1]).all() for name in first)

    files = {path.name for path in (folder / "intrinsic").iterdir()}
    assert len(files) == 4
    assert {f"intrinsic/{name}" for name in files} <= set(files_of(store))

    # With all cells done, what is missing is measured; what is there is not measured again.
    text, seen, measured = (folder / "intrinsic.csv").read_bytes(), [], module.order_sums
    monkeypatch.setattr(module, "order_sums", lambda model, *rest: seen.append(model) or measured(model, *rest))
    next((folder / "intrinsic").glob("none-*.json")).unlink()
    assert sweep(arms=["add", "none"]).finished == 0
    assert [model.config.variant for model in seen] == ["none"]
    assert (folder / "intrinsic.csv").read_bytes() == text
    # Without a checkpoint there is nothing to measure.
    shutil.rmtree(folder / "intrinsic")
    shutil.rmtree(folder / "checkpoints")
    assert sweep(arms=["add", "none"]).finished == 0
    assert len(seen) == 1
    assert not (folder / "intrinsic").exists()


def test_a_measure_that_fails_is_said_and_ends_nothing(sweep, monkeypatch):
    def fail(*_):
        raise ValueError("no such place")

    monkeypatch.setattr(module, "order_sums", fail)
    summary = sweep(arms=["add"])
    assert (summary.finished, summary.failed) == (1, {})
    assert "pretraining add: its measures failed, and are left out: ValueError: no such place" in sweep.said
    assert not (summary.folder / "intrinsic.csv").exists()


def test_measures_of_lost_weights_do_not_stay_where_those_of_the_new_ones_fail(sweep, monkeypatch):
    folder = sweep(arms=["add"]).folder
    shutil.rmtree(folder / "checkpoints")
    shutil.rmtree(folder / "records")
    monkeypatch.setattr(module, "order_sums", lambda *_: {}["no such place"])
    assert sweep(arms=["add"]).finished == 1
    assert "its measures failed, and are left out" in sweep.said
    assert not (folder / "intrinsic.csv").exists()
    assert list((folder / "intrinsic").iterdir()) == []


def test_a_value_that_is_no_number_fails_alike(sweep, monkeypatch):
    def broken(*_):
        return {"validation_loss": Sums(np.array([np.inf, 1.0]), np.ones(2))}

    monkeypatch.setattr(module, "order_sums", broken)
    summary = sweep(arms=["add"])
    assert (summary.finished, summary.failed) == (1, {})
    assert "its measures failed" in sweep.said
