"""Fine-tuned models that stay: which ones, that transformers reads them, and wishes that come after a run."""

import numpy as np
import pytest
import torch
from tiny_sweeps import contents, records
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from glue_bench.data.demo import generate
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.records.store import Store
from glue_bench.tables.board import leaderboard, open_board
from glue_bench.tables.submission import chosen_runs

pytestmark = pytest.mark.usefixtures("small_demo")
SEEDS = {"seeds": [1, 2, 3]}


@pytest.fixture
def values(tiny):
    """An experiment on RTE that asks for models or test predictions."""

    def of(keep=None, predict=("validation",), **changes):
        finetuning = {"predict": [*predict]} | ({"keep": keep} if keep else {})
        return tiny(**{"arms": ["add"], "tasks": ["rte"]} | changes, finetuning=finetuning)

    return of


def models(summary) -> set[str]:
    """The ids of the cells whose models lie there."""
    return {path.parent.name for path in summary.folder.glob("cells/*/model")}


def chosen(summary) -> set[str]:
    return set(chosen_runs(open_board(summary.folder)))


@pytest.mark.parametrize("native", [False, True], ids=["ours", "native"])
def test_a_kept_model_predicts_what_is_stored(sweep, values, make_bert, native):
    bert = str(make_bert(texts=tuple(f"the {word} cat sat on the mat ." for word in ("black", "old", "quick"))))
    arm = {"variant": "native" if native else "untied", "name": "mine", "checkpoint": bert}
    summary = sweep(values("all", arms=[arm], tasks=["rte", "stsb"]))
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
    summary = sweep(values("best", **SEEDS, arms=["add", "none"], tasks=["rte", "cola"]))
    assert "finetuning.keep: best: models take about" in sweep.said
    assert len(models(summary)) == 4
    assert models(summary) == chosen(summary)
    again = sweep(values("best", **SEEDS, arms=["add", "none"], tasks=["rte", "cola"]))
    assert (again.finished, sweep.started) == (0, [])


def test_a_cell_that_failed_holds_nothing_back(sweep, values, moody):
    moody(RuntimeError("gone wrong"), at=6)  # in the third seed
    summary = sweep(values("best", **SEEDS, arms=["moody"]))
    assert len(summary.failed) == 1
    assert models(summary) == chosen(summary)


def test_of_finished_runs_the_chosen_ones_run_again_for_their_models(sweep, values):
    before = sweep(values(**SEEDS))
    table, stored = leaderboard(before.folder), records(before)
    summary = sweep(values("best", **SEEDS))
    assert (summary.finished, summary.skipped) == (1, 2)
    assert "1 finished cell is run again, whole, for a model or test predictions" in sweep.said
    assert models(summary) == chosen(summary) == set(summary.waiting)
    assert leaderboard(summary.folder).equals(table)
    assert {name: record.scores for name, record in records(summary).items()} == {
        name: record.scores for name, record in stored.items()
    }
    every = sweep(values("all", **SEEDS))
    assert (every.finished, every.skipped, len(models(every))) == (2, 1, 3)


def test_a_run_that_is_chosen_only_in_the_end_runs_again_in_the_same_command(sweep, values):
    for first in (1, 2, 3):
        sweep(values(**SEEDS, name=f"after{first}"), only=[f"seed={first}"])
        summary = sweep(values("best", **SEEDS, name=f"after{first}"))
        assert models(summary) == chosen(summary)
        assert summary.finished in (2, 3)


def test_of_finished_runs_the_chosen_ones_run_again_for_their_test_predictions(sweep, values):
    both = ("validation", "test")
    sweep(values(**SEEDS, tasks=["mnli"]))
    summary = sweep(values(predict=both, **SEEDS, tasks=["mnli"]))
    assert (summary.finished, summary.skipped) == (1, 2)
    store = Store(summary.folder)
    (predicted,) = [record for record in store.finished(store.plan()).records.values() if record.tests]
    assert {predicted.cell.id} == chosen(summary)
    assert set(store.logits(predicted, test=True)) == {"test_matched", "test_mismatched", AX_SPLIT}
    assert predicted.diagnostic is not None
    before = contents(summary.folder / "cells")
    assert sweep(values(predict=both, **SEEDS, tasks=["mnli"])).finished == 0
    assert contents(summary.folder / "cells") == before


def test_data_without_test_splits_are_no_reason_to_run_again(sweep, values, tmp_path):
    folder = tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    rows = [f"{row}\ta cat {row}\ta dog\t{'not_' * (row % 2)}entailment" for row in range(20)]
    for name in ("train", "dev"):
        (folder / f"{name}.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    both = values(predict=("validation", "test"), data=str(folder.parent))
    assert sweep(both).finished == 1
    assert sweep(both).finished == 0


def test_predictions_in_half_of_the_room_are_what_was_scored(sweep, tiny):
    whole, half = (
        records(sweep(tiny(arms=["add"], tasks=["stsb"], name=name, finetuning=changes)))["add stsb"]
        for name, changes in (("whole", {}), ("half", {"predictions": "float16"}))
    )
    assert whole.cell.id != half.cell.id
    assert whole.scores != half.scores
