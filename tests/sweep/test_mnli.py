"""Cells that start from their arm's MNLI cell: its model is kept for them, is that of its record, and no longer."""

import shutil

import pytest
from safetensors.torch import load_file, save_file
from tiny_models import ARMS
from tiny_sweeps import records

from glue_bench.config import load_experiment
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.attempt import Worker
from glue_bench.sweep.plan import make_plan
from glue_bench.training.compute import choose_compute
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")
TASKS = ["rte", "mnli", "cola"]


@pytest.fixture
def values(tiny):
    """RTE from MNLI, and CoLA; keywords are those of `finetuning`."""

    def of(tasks=TASKS, arms=("add",), per_task=None, **finetuning):
        settings = {"from_mnli": ["rte"], "tasks": per_task or {}} | finetuning
        return tiny(arms=[*arms], tasks=tasks, finetuning=settings)

    return of


def models(folder) -> set[str]:
    """The tasks of the cells whose models lie there."""
    return {path.parent.name.split("-")[1] for path in folder.glob("cells/*/model")}


def ids(values) -> dict[str, str]:
    experiment = load_experiment(values)
    return {cell.task: cell.id for cell in make_plan(experiment, Inputs(experiment)).cells}


def test_mnli_runs_first_and_its_encoder_is_the_start(sweep, values, tmp_path):
    summary = sweep(values())
    assert sweep.started == ["add mnli", "add cola", "add rte"]
    found = records(summary)
    assert found["add rte"].cell.mnli == found["add mnli"].cell.id
    assert found["add rte"].started_from == found["add mnli"].weights != found["add rte"].weights
    assert {found[name].started_from for name in ("add mnli", "add cola")} == {None}  # fresh weights
    assert models(summary.folder) == set()  # no cell waits for it any more
    alone = records(sweep(values(["rte"], from_mnli=[]), results=tmp_path / "alone"))
    assert alone["add rte"].history[0].train_loss != found["add rte"].history[0].train_loss


def test_every_variants_model_gives_the_weights_that_its_record_names(values, tmp_path):
    """What is saved, read and grafted has the digest of what was trained."""
    arms = [{"name": f"a{number}", "variant": name, "options": each} for number, (name, each) in enumerate(ARMS)]
    experiment = load_experiment(values(["mnli", "rte"], arms, max_steps=1))
    worker = Worker(Inputs(experiment, tmp_path), choose_compute("cpu", "float32"))
    for cell in make_plan(experiment, worker.inputs).cells:
        if cell.task == "mnli":
            worker.run(cell)
        else:
            assert worker.inputs.start(cell).weights.keys() >= {"pooler.dense.weight"}
            assert worker.inputs.started_from(cell) == worker.store.record(cell.mnli).weights


def test_a_native_arms_model_gives_the_weights_that_its_record_names(sweep, values, make_bert):
    bert = make_bert(texts=tuple(f"the {word} cat sat on the mat ." for word in ("black", "old", "quick")))
    found = records(sweep(values(["mnli", "rte"], [{"variant": "native", "checkpoint": str(bert)}])))
    assert found["native rte"].started_from == found["native mnli"].weights


def test_a_change_of_the_mnli_run_changes_the_cells_that_start_from_it_alone(values):
    first, second, alone = ids(values()), ids(values(per_task={"mnli": {"epochs": 2}})), ids(values(from_mnli=[]))
    assert {task for task in TASKS if first[task] != second[task]} == {"mnli", "rte"}
    assert {task for task in TASKS if first[task] != alone[task]} == {"rte"}


def test_a_chosen_cell_brings_its_mnli_run_along(sweep, values):
    assert set(records(sweep(values(), only=["task=rte"]))) == {"add rte", "add mnli"}


def test_a_model_stays_while_a_cell_waits_for_it_and_is_made_again_where_it_is_gone(sweep, values):
    folder = sweep(values(), only=["task=mnli"]).folder
    assert models(folder) == {"mnli"}
    sweep(values(), only=["task=cola"])
    assert models(folder) == {"mnli"}
    (source,) = Store(folder).plan().cells[1:2]
    before = Store(folder).record(source.id)
    Store(folder).drop_model(source.id)
    again = sweep(values())
    assert sweep.started == ["add mnli", "add rte"]
    assert "1 finished cell is run again, whole" in sweep.said
    assert (again.finished, again.failed) == (2, {})
    after = Store(folder).record(source.id)
    assert (after.weights, after.scores) == (before.weights, before.scores)


def test_a_model_of_another_run_is_refused(sweep, values):
    two = values() | {"seeds": [1, 2]}
    folder = sweep(two, only=["task=mnli"]).folder
    first, second = sorted(folder.glob("cells/*/model"))
    aside = first.rename(folder / "aside")
    second.rename(first)
    aside.rename(second)
    with pytest.raises(UserError, match=r"^cells/.*/model: it belongs to another run; delete it and run again$"):
        sweep(two)
    assert not list(folder.glob("cells/*rte*"))
    shutil.rmtree(first)
    shutil.rmtree(second)
    assert sweep(two).finished == 6


def test_a_model_with_other_weights_than_its_record_says_is_refused(sweep, values):
    folder = sweep(values(), only=["task=mnli"]).folder
    (path,) = folder.glob("cells/*/model/model.safetensors")
    tensors = load_file(path)
    tensors["base.norm.bias"][0] += 1e-6
    save_file(tensors, path, metadata={"format": "pt"})
    for dry_run in (True, False):
        with pytest.raises(UserError, match=r"model' is damaged: its weights are not those of its record; delete it"):
            sweep(values(), dry_run=dry_run)
    shutil.rmtree(path.parent)
    assert sweep(values()).finished == 3


def test_a_failed_mnli_run_fails_what_starts_from_it(sweep, values, moody):
    moody(RuntimeError("gone wrong"))
    summary = sweep(values(["mnli", "rte"], ["moody", "add"]))
    assert summary.finished == 2
    assert {name.split("-")[1]: error for name, error in summary.failed.items()} == {
        "mnli": "RuntimeError: gone wrong", "rte": "RuntimeError: gone wrong",
    }  # fmt: skip
