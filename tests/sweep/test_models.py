"""Fine-tuned models: those that stay, that transformers reads them, and those of MNLI that other cells start from."""

import numpy as np
import pytest
import torch
from tiny_models import ARMS
from tiny_sweeps import contents, records
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.records.store import Store
from glue_bench.sweep.attempt import Worker
from glue_bench.sweep.plan import make_plan
from glue_bench.tables.board import open_board
from glue_bench.tables.export import leaderboard
from glue_bench.tables.submission import chosen_runs
from glue_bench.training.compute import choose_compute
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")
SEEDS = {"seeds": [1, 2, 3]}
BOTH = ("validation", "test")


@pytest.fixture
def values(tiny):
    """An experiment on RTE that asks for models or test predictions."""

    def of(keep=None, predict=("validation",), **changes):
        finetuning = {"predict": [*predict]} | ({"keep": keep} if keep else {})
        return tiny(**{"arms": ["add"], "tasks": ["rte"]} | changes, finetuning=finetuning)

    return of


@pytest.fixture
def bert(make_bert) -> str:
    return str(make_bert(texts=tuple(f"the {word} cat sat on the mat ." for word in ("black", "old", "quick"))))


def models(summary) -> set[str]:
    """The ids of the cells whose models lie there."""
    return {path.parent.name for path in summary.folder.glob("cells/*/model")}


def chosen(summary) -> set[str]:
    return set(chosen_runs(open_board(summary.folder)))


@pytest.mark.parametrize("variant", ["untied", "native"])
def test_a_kept_model_predicts_what_is_stored(sweep, values, bert, variant):
    summary = sweep(values("all", arms=[{"variant": variant, "checkpoint": bert}], tasks=["rte", "stsb"]))
    store = Store(summary.folder)
    for record in records(summary).values():
        task, folder = record.cell.task, store.model(record, whole=True)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        assert list(model.config.id2label.values()) == list(TASKS[task].labels or ("score",))
        split, tokenizer = generate(task)["validation"], AutoTokenizer.from_pretrained(folder)
        texts = [list(split[column]) for column in ("text_a", "text_b") if column in split]
        read = tokenizer(*texts, truncation=True, max_length=32, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**read).logits.numpy()
        np.testing.assert_allclose(logits, store.logits(record)["validation"], atol=1e-4)


def test_the_best_is_the_run_that_a_submission_takes(sweep, values):
    experiment = values("best", **SEEDS, arms=["add", "none"], tasks=["rte", "cola"])
    summary = sweep(experiment)
    assert models(summary) == chosen(summary)
    assert len(models(summary)) == 4
    assert (sweep(experiment).finished, sweep.ended) == (0, [])


def test_of_an_arm_and_task_that_have_ended_the_chosen_model_stays_though_a_cell_failed(sweep, values, moody):
    moody(RuntimeError("gone wrong"), at=6)  # in the third seed
    summary = sweep(values("best", **SEEDS, arms=["moody"]))
    assert (summary.finished, len(summary.failed)) == (2, 1)
    assert models(summary) == chosen(summary)
    moody(KeyboardInterrupt(), at=9)  # in the first cell of the second task
    other = sweep(values("best", **SEEDS, arms=["moody"], tasks=["rte", "cola"], name="other"))
    assert (other.finished, len(models(other))) == (3, 1)


@pytest.mark.parametrize("wish", [{"keep": "best"}, {"predict": BOTH}], ids=str)
def test_of_finished_runs_the_chosen_ones_run_again_for_what_is_wished_later(sweep, values, wish):
    before = sweep(values(**SEEDS, tasks=["mnli"]))
    table, stored = leaderboard(before.folder), records(before)
    summary = sweep(values(**wish, **SEEDS, tasks=["mnli"]))
    assert (summary.finished, summary.skipped) == (1, 2)
    assert "1 finished cell is run again, whole, for a model or test predictions" in sweep.said
    assert chosen(summary) == set(summary.waiting)
    assert leaderboard(summary.folder).equals(table)
    assert all(stored[name].scores == record.scores for name, record in records(summary).items())
    store = Store(summary.folder)
    if "keep" in wish:
        assert models(summary) == chosen(summary)
        every = sweep(values("all", **SEEDS, tasks=["mnli"]))
        assert (every.finished, every.skipped, len(models(every))) == (2, 1, 3)
        return
    (predicted,) = [record for record in store.finished(store.plan()).records.values() if record.tests]
    assert {predicted.cell.id} == chosen(summary)
    assert set(store.logits(predicted, test=True)) == {"test_matched", "test_mismatched", AX_SPLIT}
    assert predicted.diagnostic is not None
    cells = contents(summary.folder / "cells")
    assert sweep(values(**wish, **SEEDS, tasks=["mnli"])).finished == 0
    assert contents(summary.folder / "cells") == cells


def test_a_run_that_is_chosen_only_in_the_end_runs_again_in_the_same_command(sweep, values):
    for first in (1, 2, 3):
        sweep(values(**SEEDS, name=f"after{first}"), only=[f"seed={first}"])
        summary = sweep(values("best", **SEEDS, name=f"after{first}"))
        assert models(summary) == chosen(summary)
        assert summary.finished in (2, 3)


def test_data_without_test_splits_are_no_reason_to_run_again(sweep, values, tmp_path):
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    rows = [f"{row}\ta cat {row}\ta dog\t{'not_' * (row % 2)}entailment" for row in range(20)]
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    assert [sweep(values(predict=BOTH, data=str(folder.parent))).finished for _ in range(2)] == [1, 0]


# Cells that start from their arm's MNLI cell

THREE = ["rte", "mnli", "cola"]


@pytest.fixture
def staged(tiny):
    """RTE from MNLI, and CoLA; keywords are those of `finetuning`."""

    def of(tasks=THREE, arms=("add",), per_task=None, **finetuning):
        settings = {"from_mnli": ["rte"], "tasks": per_task or {}} | finetuning
        return tiny(arms=[*arms], tasks=tasks, finetuning=settings)

    return of


def tasks_with_models(folder) -> set[str]:
    """The tasks of the cells whose models lie there."""
    return {path.parent.name.split("-")[1] for path in folder.glob("cells/*/model")}


def test_mnli_runs_first_and_its_encoder_is_the_start(sweep, staged, tmp_path):
    summary = sweep(staged())
    assert sweep.ended == ["add mnli", "add cola", "add rte"]
    found = records(summary)
    assert found["add rte"].cell.mnli == found["add mnli"].cell.id
    assert found["add rte"].started_from == found["add mnli"].weights != found["add rte"].weights
    assert {found[name].started_from for name in ("add mnli", "add cola")} == {None}  # fresh weights
    assert tasks_with_models(summary.folder) == set()  # no cell waits for it any more
    alone = records(sweep(staged(["rte"], from_mnli=[]), results=tmp_path / "alone"))
    assert alone["add rte"].history[0].train_loss != found["add rte"].history[0].train_loss


def test_every_variants_model_gives_the_weights_that_its_record_names(staged, bert, tmp_path):
    """What is saved, read and grafted has the digest of what was trained."""
    arms = [{"name": f"a{number}", "variant": name, "options": each} for number, (name, each) in enumerate(ARMS)]
    arms.append({"variant": "native", "checkpoint": bert})
    experiment = load_experiment(staged(["mnli", "rte"], arms, max_steps=1))
    worker = Worker(Inputs(experiment, tmp_path), choose_compute("cpu", "float32"))
    for cell in make_plan(experiment, worker.inputs).cells:
        if cell.task == "mnli":
            worker.run(cell)
        else:
            assert worker.inputs.start(cell).weights
            assert worker.inputs.started_from(cell) == worker.store.record(cell.mnli).weights


def test_a_model_stays_while_a_cell_waits_for_it_and_is_made_again_where_it_is_gone(sweep, staged):
    folder = sweep(staged(), only=["task=mnli"]).folder
    assert tasks_with_models(folder) == {"mnli"}
    sweep(staged(), only=["task=cola"])
    assert tasks_with_models(folder) == {"mnli"}
    store = Store(folder)
    (source,) = store.plan().cells[1:2]
    before = store.record(source.id)
    store.drop_model(source.id)
    reasons = {"its weights are gone, and others start from them": 1, "not run yet": 1}
    assert sweep(staged(), dry_run=True).reasons == reasons
    again = sweep(staged())
    assert sweep.ended == ["add mnli", "add rte"]
    assert (again.finished, again.failed) == (2, {})
    after = store.record(source.id)
    assert (after.weights, after.scores) == (before.weights, before.scores)
