"""Fine-tuned models: those that stay, that transformers reads them, and those of MNLI that other cells start from."""

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
KEPT, PREDICTED = {"keep": "best"}, {"predict": ["validation", "test"]}


@pytest.fixture
def bert(make_bert) -> str:
    return str(
        make_bert(
            texts=tuple(f"the {word} cat sat on the mat ." for word in ("black", "old", "quick"))
        )
    )


def models(summary) -> set[str]:
    """The ids of the cells whose models lie there."""
    return {path.parent.name for path in summary.folder.glob("cells/*/model")}


def chosen(summary) -> set[str]:
    return set(chosen_runs(open_board(summary.folder)))


@pytest.mark.parametrize("variant", ["untied", "native"])
def test_a_kept_model_predicts_what_is_stored(sweep, tiny, bert, variant):
    arms = [{"variant": variant, "checkpoint": bert}]
    summary = sweep(tiny(arms=arms, tasks=["rte", "stsb"], finetuning={"keep": "all"}))
    store = Store(summary.folder)
    for record in records(summary).values():
        task, folder = record.cell.task, store.models.find_whole(record)
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        assert list(model.config.id2label.values()) == list(TASKS[task].labels or ("score",))
        split, tokenizer = generate(task)["validation"], AutoTokenizer.from_pretrained(folder)
        texts = [list(split[column]) for column in ("text_a", "text_b") if column in split]
        read = tokenizer(*texts, truncation=True, max_length=32, padding=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**read).logits.numpy()
        np.testing.assert_allclose(logits, store.logits(record)["validation"], atol=1e-4)


def test_of_an_arm_and_task_that_have_ended_the_model_stays_that_a_submission_takes(
    sweep, tiny, moody
):
    values = tiny(**THREE | {"arms": ["moody", "none"]}, finetuning=KEPT)
    moody.side_effect = [None] * 6 + [RuntimeError("gone wrong")]  # in the third seed
    summary = sweep(values)
    assert (summary.finished, len(summary.failed)) == (5, 1)
    assert models(summary) == chosen(summary)
    assert len(models(summary)) == 2
    moody.side_effect = [None] * 9 + [KeyboardInterrupt()]  # in the first cell of the second task
    other = sweep(values | {"arms": ["moody"], "tasks": ["rte", "cola"], "name": "other"})
    assert (other.finished, len(models(other))) == (3, 1)


def test_of_finished_runs_the_chosen_ones_run_again_for_what_is_wished_later(sweep, tiny):
    values = THREE | {"tasks": ["mnli"]}
    before = sweep(tiny(**values))
    table, stored, store = leaderboard(before.folder), records(before), Store(before.folder)
    for wish in (PREDICTED, KEPT):
        summary = sweep(tiny(**values, finetuning=wish))
        assert (summary.finished, summary.skipped) == (1, 2)
        assert (
            "finished cells that run again, whole: 1, for a model or test predictions" in sweep.said
        )
        assert chosen(summary) == set(summary.waiting)
        assert leaderboard(summary.folder).equals(table)
        assert all(
            stored[name].scores == record.scores for name, record in records(summary).items()
        )
        if wish == PREDICTED:
            (predicted,) = [
                record for record in store.finished(store.plan()).records.values() if record.tests
            ]
            assert {predicted.cell.id} == chosen(summary)
            assert set(store.logits(predicted, test=True)) == {
                "test_matched",
                "test_mismatched",
                AX_SPLIT,
            }
            assert predicted.diagnostic is not None
        cells = contents(summary.folder / "cells")
        assert sweep(tiny(**values, finetuning=wish)).finished == 0
        assert contents(summary.folder / "cells") == cells
    assert models(summary) == chosen(summary)
    every = sweep(tiny(**values, finetuning={"keep": "all"}))
    assert (every.finished, every.skipped, len(models(every))) == (2, 1, 3)


def test_a_run_that_is_chosen_only_in_the_end_runs_again_in_the_same_command(sweep, tiny):
    (best,) = chosen(before := sweep(tiny(**THREE)))
    for cell in before.waiting:
        if cell != best:
            shutil.rmtree(before.folder / "cells" / cell)
    summary = sweep(tiny(**THREE, finetuning=KEPT))
    assert (summary.finished, models(summary)) == (3, {best})
    for seeds in ([1, 2], [2, 3], [1, 3]):
        other = tiny(**THREE | {"seeds": seeds}, finetuning=KEPT)
        assert len(sweep(other, dry_run=True).waiting) == sweep(other).finished


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
    """The tasks of the cells whose models lie there."""
    return {path.parent.name.split("-")[1] for path in folder.glob("cells/*/model")}


def test_mnli_runs_first_and_its_encoder_is_the_start(sweep, tiny, tmp_path):
    dry = sweep(tiny(**STAGED), only=["task=rte"], dry_run=True)
    assert (dry.planned, len(dry.waiting), dry.skipped) == (1, 1, 0)
    summary = sweep(tiny(**STAGED))
    assert sweep.ended == ["add mnli", "add cola", "add rte"]
    found = records(summary)
    assert found["add rte"].cell.mnli == found["add mnli"].cell.id
    assert found["add rte"].started_from == found["add mnli"].weights != found["add rte"].weights
    assert {found[name].started_from for name in ("add mnli", "add cola")} == {
        None
    }  # fresh weights
    assert tasks_with_models(summary.folder) == set()  # no cell waits for it any more
    assert (
        tasks_with_models(
            sweep(tiny(**STAGED | {"tasks": ["mnli", "cola"]}), results=tmp_path).folder
        )
        == set()
    )
    alone = records(sweep(tiny(arms=["add"], tasks=["rte"]), results=tmp_path / "alone"))
    assert alone["add rte"].history[0].train_loss != found["add rte"].history[0].train_loss


def test_every_variants_model_gives_the_weights_that_its_record_names(tiny, bert, tmp_path):
    """What is saved, read and grafted has the digest of what was trained."""
    arms = [*VARIANTS, {"name": "apart", "variant": "untied", "options": {"share": False}}]
    arms.append({"variant": "native", "checkpoint": bert})
    values = tiny(**STAGED | {"arms": arms, "tasks": ["mnli", "rte"], "limit": 16})
    experiment = load_experiment(values)
    worker = Worker(Inputs(experiment, tmp_path), choose_compute("cpu", "float32"))
    for cell in plan(values).cells:
        if cell.task == "mnli":
            worker.run(cell)
        else:
            assert worker.inputs.cell_start(cell).digest == worker.store.record(cell.mnli).weights


def test_a_model_stays_while_a_cell_waits_for_it_and_is_made_again_where_it_is_gone(
    sweep, tiny, why
):
    values = tiny(**STAGED)
    for only in (["task=mnli"], ["task=cola"]):
        folder = sweep(values, only=only).folder
        assert tasks_with_models(folder) == {"mnli"}
    store = Store(folder)
    (source,) = store.plan().cells[1:2]
    before = store.record(source.id)
    store.models.drop(source.id)
    assert why(values) == {"its weights are gone, and others start from them": 1, "not run yet": 1}
    again = sweep(values)
    assert sweep.ended == ["add mnli", "add rte"]
    assert (again.skipped, again.finished, again.failed) == (1, 2, {})
    after = store.record(source.id)
    assert (after.weights, after.scores) == (before.weights, before.scores)
    assert sweep(tiny(**STAGED | {"finetuning": STAGED["finetuning"] | PREDICTED})).failed == {}
