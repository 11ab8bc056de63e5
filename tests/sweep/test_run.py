"""A sweep in this process: what it writes, skips, survives and refuses."""

import hashlib
import io
import json

import numpy as np
import pytest
import torch
from rich.console import Console
from stored import documents

import glue_bench
from glue_bench.api import run
from glue_bench.config import parse_experiment
from glue_bench.data.metrics import decide, score_logits
from glue_bench.data.tasks import TRAINABLE
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import attempts

pytestmark = pytest.mark.usefixtures("small_demo")


@pytest.fixture
def sweep(tiny, tmp_path):
    """Run the tiny experiment, with changes, into the same folder each time."""

    def run_it(only=(), dry_run=False, **changes):
        console = Console(file=io.StringIO())
        return run(tiny(**changes), results=tmp_path / "runs", only=only, dry_run=dry_run, console=console)

    return run_it


@pytest.fixture
def failing(monkeypatch):
    """Make cells of some arms raise; returns the switch and the list of cells that were started."""
    finetune, started = attempts.finetune, []

    def switch(errors: dict[str, BaseException]) -> list[str]:
        def perhaps(cell, *rest, **further):
            started.append(f"{cell.arm.name} {cell.task}")
            if cell.arm.name in errors:
                raise errors[cell.arm.name]
            return finetune(cell, *rest, **further)

        monkeypatch.setattr(attempts, "finetune", perhaps)
        return started

    return switch


def contents(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_sweep_leaves_a_record_a_cell_and_the_tables(finished, tiny):
    summary = finished(tiny())
    assert (summary.planned, summary.skipped, summary.finished, summary.failed) == (4, 0, 4, {})
    store = Store(summary.folder)
    records = documents(store)
    assert {record["cell_id"] for record in records} == set(summary.waiting)
    assert [state for _, state in store.states()] == ["done"] * 4
    assert {path.name for path in summary.folder.iterdir()} == {
        "failures", "labels", "leaderboard.csv", "leaderboard.md", "plan.json", "predictions", "records", "scores.csv",
        "statistics.csv", "statistics.md",
    }  # fmt: skip
    for record in records:
        assert set(store.read_predictions(record["cell_id"])) == {"validation"}


@pytest.mark.usefixtures("no_tables")
def test_gold_labels_lie_beside_the_predictions_and_both_metrics_give_every_score(sweep, tmp_path):
    store = Store(sweep(arms=["add"], tasks=list(TRAINABLE)).folder)
    records = documents(store)
    assert {record["cell"]["task"] for record in records} == set(TRAINABLE)
    for record in records:
        task = record["cell"]["task"]
        metric = glue_bench.GlueMetric(task, cache_dir=str(tmp_path))
        labels = store.read_labels(task, record["data"]["digest"])
        assert set(labels) == set(record["scores"])  # no test split: its labels are not public
        logits = store.read_predictions(record["cell_id"])
        for split, scores in record["scores"].items():
            assert score_logits(task, logits[split], labels[split]) == pytest.approx(scores, abs=1e-6)
            found = metric.compute(predictions=decide(task, logits[split]), references=labels[split])
            assert found == pytest.approx(scores, abs=1e-6)


def test_rerunning_a_finished_sweep_adds_missing_labels(sweep, finished, tiny):
    folder = finished(tiny()).folder
    before = contents(folder / "labels")
    for path in (folder / "labels").iterdir():
        path.unlink()
    assert sweep().finished == 0
    assert contents(folder / "labels") == before


def test_a_record_says_where_it_comes_from(finished, tiny):
    (record,) = documents(Store(finished(tiny(arms=["add"], tasks=["cola"])).folder))
    assert record["cell"] == {"arm": "add", "variant": "add", "task": "cola", "learning_rate": 1e-3, "seed": 1}
    assert record["data"]["source"] == "demo"
    assert record["data"]["partial"] is True
    assert record["hyperparameters"]["epochs"] == 1
    environment = record["environment"]
    assert {"torch", "transformers", "tokenizers", "numpy"} <= set(environment["packages"])
    assert {"glue_bench", "git_commit", "python", "device", "threads"} <= set(environment)
    assert record["graft_is_exact"] is None


@pytest.mark.usefixtures("no_tables")
def test_grafts_say_whether_they_are_exact(sweep, make_bert):
    from glue_bench.data.demo import generate

    folder = make_bert(texts=tuple(generate("cola")["train"]["text_a"]))
    summary = sweep(checkpoint=str(folder), arms=["add", "concat", "none"], tasks=["cola"])
    found = {record["cell"]["arm"]: record for record in documents(Store(summary.folder))}
    assert {arm: record["origin"] for arm, record in found.items()} == {
        "add": "pretrained", "concat": "grafted", "none": "grafted",
    }  # fmt: skip
    assert {arm: record["graft_is_exact"] for arm, record in found.items()} == {
        "add": None, "concat": True, "none": False,
    }  # fmt: skip
    assert len({record["checkpoint"]["digest"] for record in found.values()}) == 1


@pytest.mark.usefixtures("no_tables")
def test_an_edited_plugin_is_run_anew(sweep, write_plugin):
    plugin = write_plugin()
    line_up = {"arms": ["add", "mine"], "tasks": ["cola"], "plugins": [str(plugin)]}
    first = sweep(**line_up)
    plugins = {record["cell"]["variant"]: record["plugin"] for record in documents(Store(first.folder))}
    assert plugins == {"add": None, "mine": hashlib.sha256(plugin.read_bytes()).hexdigest()}
    plugin.write_text(plugin.read_text() + "# edited")
    again = sweep(**line_up)
    assert (first.finished, again.finished, again.skipped) == (2, 1, 1)


def test_finished_cells_are_skipped(sweep, failing):
    first = sweep(only=["task=cola"])
    started = failing({})
    before = contents(first.folder / "records")
    second = sweep()
    assert (second.planned, second.skipped, second.finished) == (4, 2, 2)
    assert started == ["add stsb", "none stsb"]
    after = contents(first.folder / "records")
    assert {name: after[name] for name in before} == before
    written = contents(first.folder)
    third = sweep()
    assert (third.skipped, third.finished, third.waiting) == (4, 0, ())
    assert contents(first.folder) == written


def test_a_record_whose_settings_changed_is_kept_and_left_out(sweep, finished, tiny):
    first = finished(tiny(arms=["add"], tasks=["cola"]))
    second = sweep(arms=["add"], tasks=["cola"], finetuning={"epochs": 2})
    assert second.finished == 1
    assert len(documents(Store(first.folder))) == 2
    assert len(Store(first.folder).states()) == 1


@pytest.mark.usefixtures("no_tables")
def test_a_failing_cell_does_not_end_the_sweep(sweep, failing):
    started = failing({"add": RuntimeError("out of luck")})
    summary = sweep()
    assert started == ["add cola", "none cola", "add stsb", "none stsb"]
    assert summary.finished == 2
    assert set(summary.failed.values()) == {"RuntimeError: out of luck"}
    store = Store(summary.folder)
    assert sorted(state for _, state in store.states()) == ["done", "done", "failed", "failed"]
    failures = documents(store, "failures")
    assert {failure["cell_id"] for failure in failures} == set(summary.failed)
    for failure in failures:
        assert "Traceback (most recent call last)" in failure["traceback"]
        assert "raise errors[cell.arm.name]" in failure["traceback"]
        assert failure["arm"] == "add"


@pytest.mark.usefixtures("no_tables")
def test_a_failed_cell_is_tried_again_and_its_failure_forgotten(sweep, failing):
    failing({"add": RuntimeError("out of luck")})
    folder = sweep().folder
    failing({})
    summary = sweep()
    assert (summary.skipped, summary.finished, summary.failed) == (2, 2, {})
    assert list((folder / "failures").iterdir()) == []
    assert {state for _, state in Store(folder).states()} == {"done"}


@pytest.mark.usefixtures("no_tables")
def test_a_diverging_cell_is_a_failure(sweep):
    summary = sweep(arms=["add"], tasks=["stsb"], finetuning={"learning_rates": [100.0], "weight_decay": 1e9})
    (error,) = summary.failed.values()
    assert error.startswith("NonFiniteLossError: ") or "diverged" in error
    assert documents(Store(summary.folder)) == []


def test_ctrl_c_keeps_finished_cells_and_the_next_run_goes_on(sweep, failing, finished, tiny):
    whole = contents(finished(tiny(), "whole").folder)
    failing({"none": KeyboardInterrupt()})
    summary = sweep()
    assert summary.interrupted
    assert (summary.finished, summary.failed) == (1, {})
    kept = contents(summary.folder / "records")
    assert len(kept) == 1
    failing({})
    again = sweep()
    assert (again.skipped, again.finished, again.interrupted) == (1, 3, False)
    now = contents(summary.folder)
    assert {name: now[f"records/{name}"] for name in kept} == kept
    for name, content in whole.items():
        if name.startswith("predictions/") or name.endswith(".csv"):
            assert now[name] == content


def test_a_dry_run_says_what_would_run_and_writes_nothing(sweep, tmp_path, failing):
    started = failing({})
    summary = sweep(only=["arm=none"], dry_run=True)
    assert [cell_id.split("-lr")[0] for cell_id in summary.waiting] == ["none-cola", "none-stsb"]
    assert not started
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("no_tables")
def test_only_still_plans_the_whole_experiment(sweep):
    summary = sweep(only=["task=cola", "arm=add"])
    assert summary.planned == 1
    states = Store(summary.folder).states()
    assert sorted(state for _, state in states) == ["done", "missing", "missing", "missing"]


def test_the_plan_hides_where_the_data_is(finished, tiny):
    plan = json.loads((finished(tiny()).folder / "plan.json").read_text())
    assert plan["data_source"] == "demo"
    assert "data" not in plan["config"]
    assert set(plan["cells"][0]) == {"cell_id", "origin", "arm", "variant", "task", "learning_rate", "seed", "recipe"}


@pytest.mark.parametrize(
    "changes",
    [{"arms": ["untide"]}, {"finetuning": {"max_length": 33}}, {"data": "nowhere/"}, {"checkpoint": "./nowhere"}],
    ids=str,
)
def test_bad_input_ends_before_anything_is_written(sweep, tmp_path, changes):
    with pytest.raises(UserError):
        sweep(**changes)
    assert not (tmp_path / "runs").exists()


def test_a_results_folder_that_cannot_be_written_is_refused_before_any_cell(sweep, tmp_path, failing):
    started = failing({})
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write results to .* choose another folder with --results"):
        sweep()
    assert not started


def test_run_takes_a_file_a_mapping_or_an_experiment(tiny, tmp_path, write_yaml):
    values = tiny()
    plans = [
        run(given, results=tmp_path, dry_run=True).waiting
        for given in (write_yaml(values), values, parse_experiment(values))
    ]
    assert plans[0] == plans[1] == plans[2]
    for given in (values, parse_experiment(values), write_yaml(values)):
        with pytest.raises(UserError, match="does not exist"):
            run(given, data="./elsewhere", results=tmp_path, dry_run=True)


@pytest.mark.usefixtures("no_tables")
def test_progress_names_every_cell(tiny, tmp_path, failing):
    failing({"none": RuntimeError("[bold]no markup")})
    for terminal in (False, True):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
        run(tiny(name=f"t{terminal}"), results=tmp_path, console=console)
        shown = console.file.getvalue()
        assert "add on cola, rate 0.001, seed 1" in shown
        if not terminal:
            device, _, *lines = shown.splitlines()
            assert device == "computing on cpu in float32"
            assert lines[1].endswith("FAILED RuntimeError: [bold]no markup")
            assert len(lines) == 4


def test_predictions_are_those_of_the_record(finished, tiny):
    from glue_bench.data.demo import generate
    from glue_bench.data.metrics import score_logits

    store = Store(finished(tiny(tasks=["stsb"])).folder)
    for record in documents(store):
        logits = store.read_predictions(record["cell_id"])["validation"]
        expected = generate("stsb")["validation"]["label"].to_numpy()
        assert np.isfinite(logits).all()
        assert record["scores"]["validation"] == score_logits("stsb", logits, expected)


@pytest.mark.usefixtures("no_tables")
def test_a_full_disk_is_one_message_and_keeps_what_is_finished(sweep, monkeypatch):
    kept = sweep(only=["arm=add", "task=cola"])

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write_record", full)
        with pytest.raises(UserError, match="No space left on device; earlier cells are kept"):
            sweep()
    assert len(documents(Store(kept.folder))) == 1
    assert sweep().finished == 3


def test_workers_without_a_gpu_are_said_to_compute_on_cpus(tiny, monkeypatch):
    """A GPU that only the first process uses is no news to be kept back."""
    from glue_bench.sweep import remarks
    from glue_bench.sweep.options import RunOptions
    from glue_bench.training.compute import Compute

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    compute = Compute(torch.device("cuda"), True, 1)
    said = []
    for workers, gpus in ((None, 0.0), (2, 0.5), (2, 0.0)):
        experiment = parse_experiment(tiny(resources={"cpus": 1, "gpus": gpus}))
        said.append(remarks.place(experiment, RunOptions(workers=workers), compute))
    assert said[:2] == ["computing on a GPU in bf16"] * 2
    assert said[2] == "computing on a GPU in bf16; workers on CPUs, because resources.gpus is 0"
