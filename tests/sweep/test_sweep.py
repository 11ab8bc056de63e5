"""A sweep in this process: what it writes, skips, survives and refuses."""

import hashlib

import numpy as np
import pytest
from tiny_sweeps import contents, records

from glue_bench.data.demo import generate
from glue_bench.data.metrics import score_logits
from glue_bench.data.tasks import TRAINABLE
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.run import RunOptions

pytestmark = pytest.mark.usefixtures("small_demo")


def test_a_sweep_leaves_a_record_a_cell(sweep, tiny):
    summary = sweep(tiny())
    assert (summary.planned, summary.skipped, summary.finished, summary.failed) == (4, 0, 4, {})
    assert sweep.started == ["add cola", "none cola", "add stsb", "none stsb"]
    assert {record.cell.id for record in records(summary).values()} == set(summary.waiting)
    names = {path.name for path in summary.folder.iterdir() if not path.name.startswith(".")}
    assert names == {"cells", "labels", "plan.json", "progress"} - ({"progress"} - names)


def test_predictions_and_gold_labels_give_every_score(sweep, tiny):
    summary = sweep(tiny(arms=["add"], tasks=list(TRAINABLE)))
    store = Store(summary.folder)
    for record in records(summary).values():
        logits, labels = store.logits(record), store.labels(record.cell.task, record.cell.data).gold
        assert set(labels) == set(record.scores) == set(logits)
        for split, scores in record.scores.items():
            assert score_logits(record.cell.task, logits[split], labels[split]) == pytest.approx(scores, abs=1e-6)


def test_predictions_are_in_the_order_of_the_data(sweep, tiny):
    summary = sweep(tiny(tasks=["stsb"]))
    for record in records(summary).values():
        logits = Store(summary.folder).logits(record)["validation"]
        expected = generate("stsb")["validation"]["label"].to_numpy()
        assert np.isfinite(logits).all()
        assert record.scores["validation"] == score_logits("stsb", logits, expected)


def test_a_record_says_where_it_comes_from(sweep, tiny, make_bert):
    folder = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    found = records(sweep(tiny(checkpoint=str(folder), arms=["add", "concat", "none"], tasks=["cola"])))
    facts = {record.cell.arm: (record.cell.origin, record.graft_is_exact) for record in found.values()}
    assert facts == {"add": ("pretrained", None), "concat": ("grafted", True), "none": ("grafted", False)}
    assert len({record.cell.checkpoint for record in found.values()}) == 1
    assert len({record.started_from for record in found.values()}) == 3
    environment = found["add cola"].environment
    assert {"torch", "transformers", "tokenizers", "numpy"} <= set(environment.packages)
    assert (environment.device, environment.precision, environment.threads) == ("cpu", "float32", 1)


def test_finished_cells_are_skipped_and_nothing_is_written_twice(sweep, tiny):
    first = sweep(tiny(), only=["task=cola"])
    before = contents(first.folder / "cells")
    second = sweep(tiny())
    assert (second.planned, second.skipped, second.finished) == (4, 2, 2)
    assert sweep.started == ["add stsb", "none stsb"]
    written = contents(first.folder)
    assert before.items() <= contents(first.folder / "cells").items()
    third = sweep(tiny())
    assert (third.skipped, third.finished, third.waiting) == (4, 0, ())
    assert contents(first.folder) == written


def test_labels_that_are_gone_come_back(sweep, tiny):
    store = Store(sweep(tiny(tasks=["stsb"])).folder)
    data = store.plan().tasks["stsb"].digest
    before = store.labels("stsb", data)
    for path in (store.folder / "labels").iterdir():
        path.unlink()
    assert sweep(tiny(tasks=["stsb"])).finished == 0
    after = store.labels("stsb", data)
    np.testing.assert_array_equal(after.gold["validation"], generate("stsb")["validation"]["label"])
    assert after.baselines.keys() == before.baselines.keys() == {"word overlap", "bag of words"}


def test_a_record_whose_settings_changed_is_kept_and_left_out(sweep, tiny):
    sweep(tiny(arms=["add"], tasks=["cola"]))
    second = sweep(tiny(arms=["add"], tasks=["cola"], finetuning={"epochs": 2}))
    store = Store(second.folder)
    assert (second.finished, store.finished(store.plan()).left_out) == (1, 1)


def test_an_edited_plugin_is_run_anew(sweep, tiny, write_plugin):
    plugin = write_plugin()
    values = tiny(arms=["add", "mine"], tasks=["cola"], plugins=[str(plugin)])
    first = sweep(values)
    digests = {record.cell.variant: record.cell.plugin for record in records(first).values()}
    assert digests == {"add": None, "mine": hashlib.sha256(plugin.read_bytes()).hexdigest()}
    plugin.write_text(plugin.read_text() + "# edited")
    again = sweep(values)
    assert (first.finished, again.finished, again.skipped) == (2, 1, 1)


# Failures and interruptions


def test_a_failing_cell_does_not_end_the_sweep_and_is_tried_again(sweep, tiny, moody):
    moody(RuntimeError("out of luck"))
    summary = sweep(tiny(arms=["moody", "none"]))
    assert sweep.started == ["moody cola", "none cola", "moody stsb", "none stsb"]
    assert summary.finished == 2
    assert set(summary.failed.values()) == {"RuntimeError: out of luck"}
    store = Store(summary.folder)
    for failure in store.failures(store.plan()):
        assert failure.id in summary.failed
        assert "Traceback (most recent call last)" in failure.traceback
        assert failure.environment.device == "cpu"
    moody(None)
    again = sweep(tiny(arms=["moody", "none"]))
    assert (again.skipped, again.finished, again.failed) == (2, 2, {})
    assert store.failures(store.plan()) == []


def test_a_diverging_cell_is_a_failure(sweep, tiny):
    summary = sweep(tiny(arms=["add"], tasks=["stsb"], finetuning={"learning_rates": [100.0], "weight_decay": 1e9}))
    (error,) = summary.failed.values()
    assert error.startswith("NonFiniteLossError: ")
    assert not records(summary)


def test_ctrl_c_keeps_finished_cells_and_the_next_run_goes_on(sweep, tiny, moody, tmp_path):
    whole = contents(sweep(tiny(arms=["add", "moody"]), results=tmp_path / "whole").folder)
    moody(KeyboardInterrupt())
    summary = sweep(tiny(arms=["add", "moody"]))
    assert (summary.cause, summary.finished, summary.failed) == ("interrupted", 1, {})
    kept = contents(summary.folder / "cells")
    moody(None)
    again = sweep(tiny(arms=["add", "moody"]))
    assert (again.skipped, again.finished, again.cause) == (1, 3, "")
    now = contents(summary.folder)
    assert {name: now[f"cells/{name}"] for name in kept} == kept
    assert now.keys() == whole.keys()
    assert {name: content for name, content in now.items() if "logits" in name} == {
        name: content for name, content in now.items() if "logits" in name
    }


@pytest.mark.parametrize(
    "changes",
    [{"arms": ["untide"]}, {"finetuning": {"max_length": 33}}, {"data": "nowhere/"}, {"checkpoint": "./nowhere"}],
    ids=str,
)
def test_bad_input_ends_before_anything_is_written(sweep, tiny, tmp_path, changes):
    with pytest.raises(UserError):
        sweep(tiny(**changes))
    assert not (tmp_path / "runs").exists()


def test_only_still_plans_the_whole_experiment(sweep, tiny):
    summary = sweep(tiny(), only=["task=cola", "arm=add"])
    assert (summary.planned, len(Store(summary.folder).plan().cells)) == (1, 4)


def test_a_second_driver_is_told_who_holds_the_folder(sweep, tiny):
    folder = sweep(tiny(), only=["task=cola"]).folder
    with Store(folder).lock(), pytest.raises(UserError, match=r"is in use by .*:\d+; wait, or choose another --res"):
        sweep(tiny())
    assert sweep(tiny(), dry_run=True).waiting
    assert sweep(tiny()).finished == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"results": ""}, "results '': give a folder"),
        ({"workers": 0}, "workers 0: give a whole number from 1 to 4096, or auto"),
        ({"workers": "many"}, "workers 'many': give a whole number"),
        ({"address": "localhost"}, "--address is HOST:PORT with a port from 1 to 65535, not 'localhost'"),
        ({"slurm": {}, "workers": 2}, "--slurm goes without --workers and --address"),
    ],
    ids=str,
)
def test_options_that_are_none_are_refused(options, said):
    with pytest.raises(UserError) as caught:
        RunOptions(**options)
    assert said in str(caught.value)
