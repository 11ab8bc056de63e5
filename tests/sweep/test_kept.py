"""Fine-tuned models that stay: which ones, that transformers reads them, and what makes up for one."""

import io
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rich.console import Console
from stored import read_records
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from glue_bench.api import run
from glue_bench.config import parse_experiment
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import attempts, kept
from glue_bench.tables.board import open_board
from glue_bench.tables.submission import chosen_runs
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo", "no_tables")


@pytest.fixture
def sweep(tiny, tmp_path):
    """Run the tiny experiment into the same folder each time; what it printed is `sweep.said`."""

    def run_it(keep=None, agree=None, results=tmp_path / "runs", **changes):
        console = Console(file=io.StringIO(), width=200)
        values = tiny(**{"arms": ["add"], "tasks": ["rte"], **changes})
        values["finetuning"] |= {"keep": keep} if keep else {}
        summary = run(values, results=results, console=console, agree=agree)
        run_it.said = console.file.getvalue()
        return summary

    return run_it


def models(summary) -> set[str]:
    """The ids of the cells whose models lie there."""
    folder = summary.folder / "models"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def test_what_is_kept_is_no_part_of_an_id(tiny):
    plain, asked = ({planned.id for planned in plan_of(tiny(finetuning=each))} for each in ({}, {"keep": "all"}))
    assert plain == asked


def plan_of(values):
    from glue_bench.sweep.plan import plan_cells

    experiment = parse_experiment(values)
    return plan_cells(experiment, Inputs(experiment))


@pytest.mark.parametrize("native", [False, True], ids=["ours", "native"])
def test_a_kept_model_predicts_what_is_stored(sweep, make_bert, native, tiny):
    texts = tuple(f"the {word} cat sat on the mat ." for word in ("black", "old", "quick"))
    bert = str(make_bert(texts=texts))
    arm = {"variant": "native" if native else "untied", "name": "mine", "checkpoint": bert}
    summary = sweep("all", arms=[arm], tasks=["rte", "stsb"])
    assert (summary.failed, summary.unkept) == ({}, ())
    store = Store(summary.folder)
    experiment = parse_experiment(tiny(arms=[arm], tasks=["rte", "stsb"]))
    inputs = Inputs(experiment)
    for planned in plan_of(tiny(arms=[arm], tasks=["rte", "stsb"])):
        folder = store.model_folder(planned.id)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        assert isinstance(model.config.id2label, dict)
        assert list(model.config.id2label.values()) == list(TASKS[planned.cell.task].labels or ("score",))
        split = inputs.data(planned.cell.task).splits["validation"]
        tokenizer = AutoTokenizer.from_pretrained(folder)
        texts = [list(split[column]) for column in ("text_a", "text_b") if column in split]
        read = tokenizer(*texts, truncation=True, max_length=32, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**read).logits.numpy()
        np.testing.assert_allclose(logits, store.read_predictions(planned.id)["validation"], atol=1e-4)


def test_the_best_is_the_run_that_a_submission_takes(sweep):
    summary = sweep("best", seeds=[1, 2, 3], arms=["add", "none"], tasks=["rte", "cola"])
    chosen = chosen_runs(open_board(summary.folder))
    assert len(chosen) == 4
    assert models(summary) == chosen
    assert summary.unkept == ()
    assert "models take about" in sweep.said
    sweep("all", seeds=[1, 2, 3], arms=["add", "none"], tasks=["rte", "cola"])
    assert models(summary) == chosen


def test_others_go_as_soon_as_their_arm_has_ended_on_their_task(sweep, monkeypatch):
    counts, settle = [], kept.Kept.settle

    def counted(self, ended=None):
        settle(self, ended)
        counts.append(len(list((self.store.folder / "models").iterdir())))

    monkeypatch.setattr(kept.Kept, "settle", counted)
    sweep("best", seeds=[1, 2, 3], tasks=["rte", "cola"])
    assert counts == [1, 2, 1, 2, 3, 2, 2]


def test_a_model_whose_deletion_is_killed_is_not_there_by_halves(tmp_path, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    store = Store(tmp_path)
    (folder := store.model_folder("add-rte")).mkdir(parents=True)
    store.prepare()
    (tmp_path / "records" / "add-rte.json").write_text("{}")
    cell = SimpleNamespace(arm="add", id="add-rte", cell=SimpleNamespace(task="rte"))
    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        kept.Kept("best", [cell], store, lambda _: []).settle()
    assert not folder.exists()


def test_a_cell_that_failed_holds_nothing_back(sweep, monkeypatch):
    finetune = attempts.finetune

    def failing(cell, *rest, **further):
        if cell.seed == 3:
            raise RuntimeError("gone wrong")
        return finetune(cell, *rest, **further)

    monkeypatch.setattr(attempts, "finetune", failing)
    summary = sweep("best", seeds=[1, 2, 3])
    assert len(summary.failed) == 1
    assert models(summary) == chosen_runs(open_board(summary.folder))


def test_finished_runs_are_trained_again_where_that_is_agreed_to(sweep, tmp_path):
    at_once = sweep("best", seeds=[1, 2, 3], results=tmp_path / "once")
    asked = []
    before = sweep(seeds=[1, 2, 3])
    records = {path: path.read_bytes() for path in (before.folder / "records").iterdir()}
    summary = sweep("best", seeds=[1, 2, 3])
    (cell_id,) = summary.unkept
    assert (summary.finished, models(summary)) == (0, set())

    def agree(cells, seconds):
        asked.append((*cells, seconds > 0))
        return len(asked) > 1

    sweep("best", agree, seeds=[1, 2, 3])
    assert models(summary) == set()
    sweep("best", agree, seeds=[1, 2, 3])
    assert asked == [(cell_id, True)] * 2
    assert models(summary) == {cell_id} == models(at_once)
    weights = [Store(each.folder).model_folder(cell_id) / "model.safetensors" for each in (summary, at_once)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert {path: path.read_bytes() for path in records} == records


def test_a_run_that_does_not_come_out_as_stored_leaves_no_model(sweep):
    store = Store(sweep().folder)
    (record,) = read_records(store)
    (moved := store.read_predictions(record.cell_id))["validation"][0, 0] += 1
    store.write_record(record, moved)
    with pytest.raises(UserError, match="its weights and test predictions would be another run's"):
        sweep("all", lambda *_: True)
    assert not store.model_folder(record.cell_id).exists()


def made_elsewhere(store: Store, **environment) -> str:
    """Let the only record say that it was made in this environment; its id."""
    (record,) = read_records(store)
    there = record.model_copy(update={"environment": record.environment.model_copy(update=environment)})
    store.write_record(there, store.read_predictions(record.cell_id))
    return record.cell_id


def test_what_cannot_come_out_as_stored_is_refused_before_anybody_is_asked(sweep):
    cell_id = made_elsewhere(Store(sweep().folder), device="NVIDIA H200")
    with pytest.raises(UserError, match=f"'{cell_id}' was run on NVIDIA H200, but this machine computes on cpu"):
        sweep("all", lambda *_: pytest.fail("asked"))


def test_what_a_run_without_a_record_has_left_is_replaced(sweep):
    summary = sweep("all")
    store = Store(summary.folder)
    (record,) = read_records(store)
    folder = store.model_folder(record.cell_id)
    (folder / "model.safetensors").write_bytes(b"of another machine")
    (summary.folder / "records" / f"{record.cell_id}.json").unlink()
    sweep("all")
    AutoModelForSequenceClassification.from_pretrained(folder)


def test_an_mnli_run_again_for_its_encoder_leaves_its_model_alone(sweep):
    settings = {"tasks": ["mnli", "rte"], "finetuning": {"from_mnli": ["rte"]}}
    summary = sweep("all", **settings)
    (source,) = [name for name in models(summary) if "mnli" in name]
    (path,) = (summary.folder / "records").glob("*rte*")
    path.unlink()
    folder = Store(summary.folder).model_folder(source)
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert not list((summary.folder / "checkpoints").glob("add-mnli-*"))
    again = sweep("all", **settings)
    assert source in again.waiting
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp
    shutil.rmtree(folder)
    path.unlink()
    assert sweep("all", **settings).unkept == (source,)


def test_the_command_says_what_it_would_take_and_does_it_with_yes(glue_bench, sweep, write_yaml, tiny, tmp_path):
    sweep()
    path = write_yaml(tiny(arms=["add"], tasks=["rte"], finetuning={"keep": "best"}))
    said = glue_bench("run", path, "--results", tmp_path / "runs")
    assert "1 finished runs have left no model; `--yes` trains them once more, which takes about" in said.err
    said = glue_bench("run", path, "--results", tmp_path / "runs", "--yes")
    assert "1 runs without a kept model; to train them once more takes about" in said.err
    assert "have left no model" not in said.err
    assert len(list((tmp_path / "runs" / "tiny" / "models").iterdir())) == 1


def test_a_refusal_to_train_again_comes_after_what_the_run_has_done(glue_bench, sweep, write_yaml, tiny, tmp_path):
    made_elsewhere(Store(sweep().folder), device="NVIDIA H200")
    config = write_yaml(tiny(arms=["add"], tasks=["rte"], finetuning={"keep": "best"}))
    said = glue_bench("run", config, "--results", tmp_path / "runs", "--yes")
    assert "0 cells run, 1 were done before, 0 failed, 0 left" in said.out
    assert "| add" in said.out
    assert "was run on NVIDIA H200" in said.err
    assert said.status == 2


def test_other_values_are_refused(tiny):
    with pytest.raises(UserError, match=r"finetuning\.keep"):
        parse_experiment(tiny(finetuning={"keep": "last"}))
