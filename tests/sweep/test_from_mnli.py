"""Cells that start from their arm's MNLI run, and held-out slices, through a whole sweep."""

import io
import json
import os
from types import SimpleNamespace

import pytest
from rich.console import Console
from stored import documents

from glue_bench.api import run
from glue_bench.config import parse_experiment
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep import attempts, plan
from glue_bench.sweep.claims import Claims
from glue_bench.sweep.encoders import drop_encoders
from glue_bench.tables.export import find
from glue_bench.tables.pages import leaderboard_page
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo", "no_tables")

FINETUNING = {"learning_rates": [1e-3], "epochs": 1, "batch_size": 16, "max_length": 32}
TASKS = ["rte", "mnli", "cola"]


@pytest.fixture
def sweep(tiny, tmp_path):
    """Run rte from mnli, and cola, into the same folder each time; keywords are those of `finetuning`."""

    def run_it(only=(), dry_run=False, results=tmp_path / "runs", tasks=TASKS, per_task=None, **finetuning):
        settings = FINETUNING | {"from_mnli": ["rte"], "tasks": per_task or {}} | finetuning
        experiment = tiny(arms=["add"], tasks=tasks, finetuning=settings)
        console = Console(file=io.StringIO())
        return run(experiment, results=results, only=only, dry_run=dry_run, console=console)

    return run_it


def records(summary) -> dict[str, dict]:
    return {record["cell"]["task"]: record for record in documents(Store(summary.folder))}


def scores(summary, task) -> list[float]:
    return [epoch["train_loss"] for epoch in records(summary)[task]["history"]]


def test_mnli_runs_first_and_its_encoder_is_the_start(sweep, tmp_path, monkeypatch):
    starts = {}
    finetune = attempts.finetune

    def watched(cell, inputs, *rest, **further):
        starts[cell.task] = inputs.start(cell)
        return finetune(cell, inputs, *rest, **further)

    monkeypatch.setattr(attempts, "finetune", watched)
    summary = sweep()
    assert (list(starts), summary.finished) == (["mnli", "cola", "rte"], 3)
    assert starts["cola"].weights == {}  # from scratch
    assert "pooler.dense.weight" in starts["rte"].weights
    assert starts["rte"].origin == starts["cola"].origin == "scratch"
    assert records(summary)["rte"]["from_mnli"] == records(summary)["mnli"]["cell_id"]
    assert not list((summary.folder / "checkpoints").glob("*mnli*"))  # no cell waits for it any more
    alone = sweep(results=tmp_path / "alone", tasks=["rte"], from_mnli=[])
    assert scores(alone, "rte") != scores(summary, "rte")


def test_the_ids_of_other_cells_do_not_depend_on_it(sweep, tmp_path):
    mine, alone = sweep(dry_run=True), sweep(dry_run=True, from_mnli=[], results=tmp_path / "alone")
    ids = [{name for name in summary.waiting if "-rte-" not in name} for summary in (mine, alone)]
    assert ids[0] == ids[1]
    assert set(mine.waiting) != set(alone.waiting)


def test_a_change_of_the_mnli_run_is_a_change_of_the_cells_that_start_from_it(sweep):
    first = sweep(dry_run=True)
    second = sweep(dry_run=True, per_task={"mnli": {"epochs": 2}})
    changed = {name.split("-")[1] for name in set(first.waiting) - set(second.waiting)}
    assert changed == {"mnli", "rte"}


def test_a_chosen_cell_brings_its_mnli_run_along(sweep):
    summary = sweep(only=["task=rte"])
    assert set(records(summary)) == {"rte", "mnli"}


def test_an_encoder_that_is_gone_is_made_again_and_the_record_stays(sweep):
    sweep(only=["task=mnli"])
    summary = sweep(only=["task=cola"])
    for folder in (summary.folder / "checkpoints").iterdir():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    path = next((summary.folder / "records").glob("*mnli*"))
    before = path.read_bytes()
    again = sweep()
    assert (again.finished, again.failed, path.read_bytes()) == (2, {}, before)
    assert json.loads(before)["cell_id"] in again.waiting


def test_a_failed_mnli_run_fails_what_starts_from_it(sweep, monkeypatch):
    finetune = attempts.finetune

    def failing(cell, *rest, **further):
        if cell.task == "mnli":
            raise RuntimeError("gone wrong")
        return finetune(cell, *rest, **further)

    monkeypatch.setattr(attempts, "finetune", failing)
    summary = sweep()
    assert summary.finished == 1
    assert {name.split("-")[1]: error for name, error in summary.failed.items()}["rte"].startswith(
        "FileNotFoundError: the MNLI run that it starts from has left no encoder"
    )


def test_tables_name_the_tasks_that_start_from_mnli(sweep):
    text = leaderboard_page(find(sweep().folder)).to_markdown()
    assert "from the arm's own MNLI run: RTE" in text


def test_a_slice_is_held_out_scored_and_not_reported(sweep):
    whole, parted = sweep(dry_run=True, from_mnli=[]), sweep(from_mnli=[], held_out_share=0.25, only=["task=rte"])
    record = records(parted)["rte"]
    assert set(record["scores"]) == {"validation"}
    assert set(record["history"][0]["scores"]) == {"validation", "held_out"}
    assert record["hyperparameters"]["held_out_share"] == 0.25
    assert not set(whole.waiting) & set(parted.waiting)


def test_less_is_trained_on_when_a_slice_is_held_out(tiny):
    settings = FINETUNING | {"held_out_share": 0.25}
    inputs = Inputs(parse_experiment(tiny(arms=["add"], tasks=["rte"], finetuning=settings)))
    (planned,) = plan.plan_cells(inputs.experiment, inputs)
    splits = inputs.tokens(planned.cell).splits
    assert len(splits["held_out"]) == round(0.25 * len(inputs.data("rte").splits["train"]))
    assert len(splits["held_out"]) + len(splits["train"]) == len(inputs.data("rte").splits["train"])


@pytest.fixture
def done(tiny, tmp_path):
    """RTE and the MNLI cell that it starts from, which has left an encoder; both have records."""
    finetuning = FINETUNING | {"from_mnli": ["rte"]}
    inputs = Inputs(
        parse_experiment(tiny(arms=["add"], tasks=["rte", "mnli"], finetuning=finetuning)), tmp_path / "checkpoints"
    )
    store, cells = Store(tmp_path), plan.plan_cells(inputs.experiment, inputs)
    store.prepare()
    for planned in cells:
        (tmp_path / "records" / f"{planned.id}.json").write_text("{}")
    source, rte = sorted(cells, key=lambda planned: planned.mnli is not None)
    folder = inputs.encoder_folder(source.cell)
    folder.mkdir(parents=True)
    (folder / "weights").write_text("")
    return SimpleNamespace(inputs=inputs, store=store, cells=cells, source=source, rte=rte, folder=folder)


@pytest.mark.parametrize("at_work_on", ["source", "rte"])
def test_an_encoder_stays_while_a_sweep_works_on_its_cell_or_starts_from_it(done, at_work_on):
    with Claims(done.store.folder / "claims") as claims:
        claims.take(getattr(done, at_work_on).id)
        drop_encoders(done.cells, done.inputs, done.store)
        assert done.folder.is_dir()
    drop_encoders(done.cells, done.inputs, done.store)
    assert not done.folder.exists()


def test_an_encoder_stays_while_a_machine_whose_clock_is_wrong_starts_from_it(done):
    (folder := done.store.folder / "claims").mkdir()
    own = Claims(folder).own.__dict__
    (path := folder / done.rte.id).write_text(json.dumps({**own, "machine": "elsewhere"}))
    os.utime(path, (1, 1))
    drop_encoders(done.cells, done.inputs, done.store)
    assert done.folder.is_dir()
    path.write_text(json.dumps({**own, "started": 1}))  # an owner of this machine that is gone
    drop_encoders(done.cells, done.inputs, done.store)
    assert not done.folder.exists()


def test_an_encoder_whose_deletion_is_killed_is_not_there_by_halves(done, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            drop_encoders(done.cells, done.inputs, done.store)
    assert not done.folder.exists()
    done.folder.mkdir()
    drop_encoders(done.cells, done.inputs, done.store)
    assert list(done.folder.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("finetuning", "tasks", "message"),
    [
        ({"from_mnli": ["cola"]}, TASKS, "'cola' cannot start from MNLI; those that can: rte, mrpc, stsb"),
        ({}, ["rte"], "finetuning.from_mnli needs mnli among the tasks"),
        ({"learning_rates": [1e-3, 2e-3]}, TASKS, "say with mnli_rate which run to start from"),
        ({"from_mnli": [], "mnli_rate": 1e-3}, TASKS, "finetuning.mnli_rate needs finetuning.from_mnli"),
        ({"mnli_rate": 5e-3}, TASKS, "mnli_rate 0.005 is none of mnli's learning rates"),
    ],
    ids=["task", "no mnli", "several rates", "rate for nothing", "another rate"],
)
def test_what_cannot_be_is_refused(sweep, finetuning, tasks, message):
    with pytest.raises(UserError, match=message):
        sweep(dry_run=True, tasks=tasks, **finetuning)
