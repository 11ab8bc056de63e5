"""Fine-tuned models: which of them stay, and those of MNLI that other cells start from."""

import shutil

import numpy as np
import pytest
import torch
from helpers.tiny_runs import contents, plan, records
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from glue_bench import leaderboard
from glue_bench.board.board import open_board
from glue_bench.board.chosen import chosen_runs
from glue_bench.config import load_experiment
from glue_bench.data.demo import generate
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.sweep.worker import Worker
from glue_bench.training.device import choose_compute
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")
THREE = {"arms": ["add"], "tasks": ["rte"], "seeds": [1, 2, 3]}
KEPT = {"keep": "best"}
PREDICTED = {"predict": ["validation", "test"]}


@pytest.fixture
def bert(make_bert) -> str:
    words = ("black", "old", "quick")
    texts = tuple(f"the {word} cat sat on the mat ." for word in words)
    return str(make_bert(texts=texts))


def models(summary) -> set[str]:
    """Return the ids of the cells whose models lie there."""
    return {path.parent.name for path in summary.folder.glob("cells/*/model")}


def chosen(summary) -> set[str]:
    return set(chosen_runs(open_board(summary.folder)))


@pytest.mark.parametrize("variant", ["untied", "native"])
def test_a_kept_model_predicts_what_is_stored(sweep, tiny, bert, variant):
    arms = [{"variant": variant, "checkpoint": bert}]
    summary = sweep(tiny(arms=arms, tasks=["rte", "stsb"], finetuning={"keep": "all"}))
    store = Store(summary.folder)
    for record in records(summary).values():
        task = record.cell.task
        folder = store.models.find_whole(record)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        assert list(model.config.id2label.values()) == list(TASKS[task].labels or ("score",))
        split = generate(task)["validation"]
        tokenizer = AutoTokenizer.from_pretrained(folder)
        texts = [list(split[column]) for column in ("text_a", "text_b") if column in split]
        batch = tokenizer(*texts, truncation=True, max_length=32, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**batch).logits.numpy()
        np.testing.assert_allclose(logits, store.logits(record)["validation"], atol=1e-4)


def test_of_an_arm_and_task_that_have_ended_the_model_stays_that_a_submission_takes(
    sweep, tiny, moody
):
    values = tiny(**THREE | {"arms": ["moody", "none"]}, finetuning=KEPT)
    moody.side_effect = [None] * 6 + [RuntimeError("gone wrong")]  # in the third seed
    summary = sweep(values)
    assert summary.finished == 5
    assert len(summary.failed) == 1
    assert models(summary) == chosen(summary)
    assert len(models(summary)) == 2
    moody.side_effect = [None] * 9 + [KeyboardInterrupt()]  # in the first cell of the second task
    second = sweep(values | {"arms": ["moody"], "tasks": ["rte", "cola"], "name": "other"})
    assert second.finished == 3
    assert len(models(second)) == 1


MNLI = THREE | {"tasks": ["mnli"]}


@pytest.mark.parametrize("wish", [PREDICTED, KEPT], ids=["predictions", "a model"])
def test_a_chosen_run_runs_again_for_what_is_wished_later(sweep, tiny, wish):
    before = sweep(tiny(**MNLI))
    table = leaderboard(before.folder)
    scores = {name: record.scores for name, record in records(before).items()}
    summary = sweep(tiny(**MNLI, finetuning=wish))
    assert summary.finished == 1
    assert summary.skipped == 2
    assert "finished cells that run again: 1, because their models" in sweep.said
    assert chosen(summary) == set(summary.waiting)
    assert leaderboard(summary.folder).equals(table)
    assert {name: record.scores for name, record in records(summary).items()} == scores
    cells = contents(summary.folder / "cells")
    assert sweep(tiny(**MNLI, finetuning=wish)).finished == 0
    assert contents(summary.folder / "cells") == cells


def test_the_chosen_run_has_the_predictions_that_are_wished_later(sweep, tiny):
    sweep(tiny(**MNLI))
    summary = sweep(tiny(**MNLI, finetuning=PREDICTED))
    store = Store(summary.folder)
    finished = store.finished(store.plan()).records
    (predicted,) = [record for record in finished.values() if record.tests]
    assert {predicted.cell.id} == chosen(summary)
    splits = {"test_matched", "test_mismatched", AX_SPLIT}
    assert set(store.logits(predicted, test=True)) == splits
    assert predicted.diagnostic is not None


def test_models_that_are_wished_later_are_those_of_chosen_runs_or_of_all(sweep, tiny):
    sweep(tiny(**MNLI))
    summary = sweep(tiny(**MNLI, finetuning=KEPT))
    assert models(summary) == chosen(summary)
    with_all = sweep(tiny(**MNLI, finetuning={"keep": "all"}))
    assert with_all.finished == 2
    assert with_all.skipped == 1
    assert len(models(with_all)) == 3


def test_a_run_that_is_chosen_only_in_the_end_runs_again_in_the_same_command(sweep, tiny):
    before = sweep(tiny(**THREE))
    (best,) = chosen(before)
    for cell in before.waiting:
        if cell != best:
            shutil.rmtree(before.folder / "cells" / cell)
    summary = sweep(tiny(**THREE, finetuning=KEPT))
    assert summary.finished == 3
    assert models(summary) == {best}
    for seeds in ([1, 2], [2, 3], [1, 3]):
        values = tiny(**THREE | {"seeds": seeds}, finetuning=KEPT)
        assert len(sweep(values, dry_run=True).waiting) == sweep(values).finished


def test_data_without_test_splits_are_no_reason_to_run_again(sweep, tiny, tmp_path):
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    rows = [f"{row}\ta cat {row}\ta dog\t{'not_' * (row % 2)}entailment" for row in range(20)]
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text(
            "\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n"
        )
    values = tiny(arms=["add"], tasks=["rte"], data=str(folder.parent), finetuning=PREDICTED)
    assert [sweep(values).finished for _ in range(2)] == [1, 0]


STAGED = {"arms": ["add"], "tasks": ["rte", "mnli", "cola"], "finetuning": {"from_mnli": ["rte"]}}


def tasks_with_models(folder) -> set[str]:
    """Return the tasks of the cells whose models lie there."""
    return {path.parent.name.split("-")[1] for path in folder.glob("cells/*/model")}


def test_a_cell_that_starts_from_mnli_is_planned_alone(sweep, tiny):
    summary = sweep(tiny(**STAGED), only=["task=rte"], dry_run=True)
    assert summary.planned == 1
    assert len(summary.waiting) == 1
    assert summary.skipped == 0


def test_mnli_runs_before_the_tasks_that_start_from_it(sweep, tiny):
    sweep(tiny(**STAGED))
    assert sweep.ended == ["add mnli", "add cola", "add rte"]


def test_the_encoder_of_mnli_is_the_start_of_a_task(sweep, tiny):
    finished = records(sweep(tiny(**STAGED)))
    mnli = finished["add mnli"]
    rte = finished["add rte"]
    assert rte.cell.mnli == mnli.cell.id
    assert rte.started_from == mnli.weights
    assert rte.weights != mnli.weights


def test_other_tasks_start_from_fresh_weights(sweep, tiny):
    finished = records(sweep(tiny(**STAGED)))
    assert finished["add mnli"].started_from is None
    assert finished["add cola"].started_from is None


def test_a_model_goes_when_no_cell_waits_for_it_any_more(sweep, tiny):
    assert tasks_with_models(sweep(tiny(**STAGED)).folder) == set()


def test_without_followers_no_model_stays(sweep, tiny):
    summary = sweep(tiny(**STAGED | {"tasks": ["mnli", "cola"]}))
    assert tasks_with_models(summary.folder) == set()


def test_another_start_gives_another_loss(sweep, tiny, tmp_path):
    staged = records(sweep(tiny(**STAGED)))["add rte"]
    alone = records(sweep(tiny(arms=["add"], tasks=["rte"]), results=tmp_path / "alone"))
    assert alone["add rte"].history[0].train_loss != staged.history[0].train_loss


def test_every_variants_model_gives_the_weights_that_its_record_names(tiny, bert, tmp_path):
    """What is saved, read and grafted has the digest of what was trained."""
    arms = [
        *VARIANTS,
        {"name": "apart", "variant": "untied", "options": {"share": False}},
        {"variant": "native", "checkpoint": bert},
    ]
    values = tiny(**STAGED | {"arms": arms, "tasks": ["mnli", "rte"], "limit": 16})
    experiment = load_experiment(values)
    worker = Worker(Inputs(experiment, tmp_path), choose_compute("cpu", "float32"))
    for cell in plan(values).cells:
        if cell.task == "mnli":
            worker.run(cell)
        else:
            assert worker.inputs.cell_start(cell).digest == worker.store.record(cell.mnli).weights


def test_a_model_stays_while_a_cell_waits_for_it_and_is_made_again_where_it_is_gone(
    sweep, tiny, reasons_of
):
    values = tiny(**STAGED)
    for only in (["task=mnli"], ["task=cola"]):
        folder = sweep(values, only=only).folder
        assert tasks_with_models(folder) == {"mnli"}

    store = Store(folder)
    (source,) = store.plan().cells[1:2]
    before = store.record(source.id)
    store.models.drop(source.id)

    assert reasons_of(values) == {
        "its weights are gone, and other jobs start from them": 1,
        "not run yet": 1,
    }

    second = sweep(values)
    assert sweep.ended == ["add mnli", "add rte"]
    assert second.skipped == 1
    assert second.finished == 2
    assert second.failed == {}

    after = store.record(source.id)
    assert after.weights == before.weights
    assert after.scores == before.scores

    assert sweep(tiny(**STAGED | {"finetuning": STAGED["finetuning"] | PREDICTED})).failed == {}
