"""What an older recipe has run: it keeps its ids, counts as done, and is run anew only when that is asked for."""

import io
import json
import shutil
from pathlib import Path

import pytest
from older_results import OLDER, older_experiment
from rich.console import Console
from stored import documents

from glue_bench import recipe
from glue_bench.api import explain, run
from glue_bench.audit.bundle import write_bundle
from glue_bench.audit.verify import verify
from glue_bench.config import parse_experiment
from glue_bench.errors import UserError
from glue_bench.records.store import Store
from glue_bench.sweep.plan import plan_cells
from glue_bench.tables import export
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("frozen_imports", "_few_rows")

SETTINGS = {"corpus": "demo", "steps": 4, "batch_tokens": 128, "length": 32, "validations": 1, "validation_share": 0.05}
FINETUNING = {"learning_rates": [1e-3], "epochs": 1, "batch_size": 16, "max_length": 32, "from_mnli": ["rte"]}
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
EXPERIMENT = {
    "name": "old",
    "data": "demo",
    "checkpoint": "scratch",
    "scratch": {"vocab_size": 200, "max_position_embeddings": 32, **SIZES},
    "arms": [{"variant": "add", "options": {"segments": "input"}}],
    "tasks": ["mnli", "rte"],
    "seeds": [1],
    "pretraining": SETTINGS,
    "finetuning": FINETUNING,
}


@pytest.fixture(scope="module")
def _few_rows():
    from glue_bench.data import demo

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "ROWS", {"train": 16, "validation": 8, "test": 4})
        demo.generate.cache_clear()
        yield
    demo.generate.cache_clear()


@pytest.fixture(scope="module")
def _first_recipe(_few_rows, tmp_path_factory) -> Path:
    """The experiment as a version of the first recipe leaves it."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "RECIPE", 1)
        summary = run(EXPERIMENT, results=folder, console=Console(file=io.StringIO()))
    assert (summary.finished, summary.failed) == (2, {})
    return summary.folder


@pytest.fixture(autouse=True)
def _second_recipe(monkeypatch):
    """All of this is said with two recipes, whatever number today's has."""
    monkeypatch.setattr(recipe, "RECIPE", 2)


@pytest.fixture
def old(_first_recipe, tmp_path) -> Store:
    return Store(shutil.copytree(_first_recipe, tmp_path / "old"))


@pytest.fixture
def again(tmp_path):
    """Run the experiment once more, with changes; what it printed is `again.said`."""

    def run_it(changes=(), **more):
        console = Console(file=io.StringIO(), width=300)
        try:
            return run(EXPERIMENT | dict(changes), results=tmp_path, console=console, **more)
        finally:
            run_it.said = console.file.getvalue()

    return run_it


def recipes_of(store: Store) -> dict[str, tuple[int, int]]:
    """By task and seed of the cells that the plan asks for: the recipe of the run, and of its pretraining."""
    records = {record["cell_id"]: record for record in documents(store)}
    wanted = [records[cell.cell_id] for cell in store.read_plan().cells]
    return {
        f"{record['cell']['task']} {record['cell']['seed']}": (
            record.get("recipe", 1),
            record["checkpoint"].get("recipe", 1),
        )
        for record in wanted
    }


def assert_good(store: Store) -> None:
    """Everybody who reads ids finds them: status, tables, verify, bundles."""
    assert {state for _, state in store.states()} == {"done"}
    for path in export.write_tables(export.find(store.folder)):
        assert path.exists()
    assert [fault for verified in verify(store.folder) for fault in verified.faults] == []
    write_bundle([store], store.folder.parent / "bundle.zip")
    assert [fault for verified in verify(store.folder.parent / "bundle.zip") for fault in verified.faults] == []


def table(store: Store) -> str:
    return (store.folder / "leaderboard.md").read_text()


# Ids


def test_the_first_recipe_enters_no_id_and_every_other_one_does(monkeypatch):
    identities = {}
    for number in (1, 2, 3):
        monkeypatch.setattr(recipe, "RECIPE", number)
        inputs = Inputs(experiment := parse_experiment(EXPERIMENT))
        cell = next(experiment.cells())
        pretraining = inputs.pretraining_identity(experiment.pretraining_of(cell))
        identities[number] = inputs.cell_identity(cell).document(), pretraining.document()
    for first, second, third in zip(identities[1], identities[2], identities[3], strict=True):
        assert ("recipe" in first, second["recipe"], third["recipe"]) == (False, 2, 3)
        assert {key for key in third if third[key] != second[key]} - {"start"} == {"recipe"}
    assert len({identity["start"] for identity, _ in identities.values()}) == 3


def test_an_older_recipes_id_is_the_one_that_it_gave(old):
    inputs = Inputs(experiment := parse_experiment(EXPERIMENT), old.folder / "checkpoints")
    older = {"recipe": 1, "pretraining_recipe": 1}
    cells = [cell.model_copy(update=older) for cell in experiment.cells()]
    digests = {inputs.cell_identity(cell).digest for cell in cells}
    assert digests == {record["cell_id"].rpartition("-")[2] for record in documents(old)}
    (pretraining,) = documents(old, "pretraining")
    run = experiment.pretraining_of(cells[0])
    assert f"{run.arm.name}-{inputs.pretraining_identity(run).digest}" == pretraining["pretraining_id"]
    assert "recipe" not in pretraining


def test_what_older_results_hash_is_what_the_first_recipe_hashes_now():
    """A new setting, or a new version of the packing, must not reach the ids of the first recipe."""
    experiment, store = older_experiment(), Store(OLDER)
    hashed = {cell.task: cell.hyperparameters.model_dump(exclude_none=True) for cell in experiment.cells()}
    assert {record["cell"]["task"]: record["hyperparameters"] for record in documents(store)} == hashed
    inputs = Inputs(experiment)
    inputs.corpus = type("Corpus", (), {"digest": "c"})
    inputs.tokenizer_digest = lambda *_: "t"
    cells = {cell.arm.name: cell.model_copy(update={"pretraining_recipe": 1}) for cell in experiment.cells()}
    for document in documents(store, "pretraining"):
        run, then = experiment.pretraining_of(cells[document["arm"]]), document["identity"]
        now = inputs.pretraining_identity(run).document()
        assert now.keys() == then.keys()
        for key in ("variant", "options", "settings", "start", "packing"):
            assert now[key] == then[key], key


# What counts as done


def test_it_counts_as_done_and_every_reader_finds_it(old, again, tmp_path):
    tables = {path.name: path.read_bytes() for path in old.folder.iterdir() if path.suffix in (".md", ".csv")}
    summary = again()
    assert (summary.finished, summary.skipped, summary.waiting, summary.pretraining) == (0, 2, (), ())
    assert "2 of 2 cells were run by an older recipe (1; now 2), and count as done; --again recipe runs" in again.said
    assert {path.name: path.read_bytes() for path in old.folder.iterdir() if path.suffix in (".md", ".csv")} == tables
    assert recipes_of(old) == {"mnli 1": (1, 1), "rte 1": (1, 1)}
    assert_good(old)
    found = explain("add-rte", EXPERIMENT, results=tmp_path)
    assert (found.state, found.candidates) == ("done", ())
    assert "run by recipe 1 (now 2), which counts as done; --again recipe runs it anew" in found.remarks


def test_it_is_run_anew_when_asked_for_and_then_counts(old, again, tmp_path):
    dry = again(again="recipe", dry_run=True)
    assert (len(dry.waiting), dry.pretraining) == (2, ("add",))
    summary = again(again="recipe")
    assert (summary.finished, summary.failed) == (2, {})
    assert recipes_of(old) == {"mnli 1": (2, 2), "rte 1": (2, 2)}
    assert len(documents(old)) == 4
    assert_good(old)
    assert "2 records are not of this plan (settings or recipe have changed) and left out." in table(old)
    assert again(again="recipe").waiting == again().waiting == ()
    found = explain("add-rte", EXPERIMENT, results=tmp_path)
    said = {difference.what for difference in found.candidates[0].differences}
    assert said == {"recipe (how training computes)"}


def test_a_new_cell_starts_from_what_an_older_recipe_has_pretrained(old, again):
    before = (old.folder / "leaderboard.md").read_text()
    summary = again({"seeds": [1, 2]})
    assert (summary.finished, summary.pretraining, summary.failed) == (2, (), {})
    assert recipes_of(old) == {"mnli 1": (1, 1), "rte 1": (1, 1), "mnli 2": (2, 1), "rte 2": (2, 1)}
    assert "Pretrained: its runs were trained by more than one recipe (1: add; 2: add)." in table(old)
    assert "more than one recipe" not in before
    assert_good(old)
    assert again({"seeds": [1, 2]}).waiting == ()
    assert "pretrained by an older recipe, and fine-tuned by this one: add;" in again.said


def test_where_the_checkpoint_is_gone_the_arm_is_pretrained_anew(old, again):
    shutil.rmtree(old.folder / "checkpoints")
    summary = again({"seeds": [1, 2]})
    assert (summary.finished, summary.pretraining) == (2, ("add",))
    assert recipes_of(old) == {"mnli 1": (1, 1), "rte 1": (1, 1), "mnli 2": (2, 2), "rte 2": (2, 2)}
    assert "its runs start from weights that more than one recipe has pretrained (1: add; 2: add)." in table(old)
    assert_good(old)
    assert [each.identity.recipe for each in old.read_plan().pretrainings] == [1, 2]


def test_measures_stay_in_the_tables_while_a_newer_pretraining_is_only_planned(old, again):
    names = ("budget.csv", "losses.csv", "intrinsic.csv")
    before = {name: (old.folder / name).read_text() for name in names}
    assert "Val. loss" in table(old)
    shutil.rmtree(old.folder / "checkpoints")
    summary = again({"seeds": [1, 2]}, only=["seed=1"])
    assert (summary.finished, [each.identity.recipe for each in old.read_plan().pretrainings]) == (0, [1, 2])
    assert {name: (old.folder / name).read_text() for name in names} == before
    assert "Val. loss" in table(old)


def test_arms_that_differ_in_their_pretrainings_recipe_are_named(old, again):
    arms = [*EXPERIMENT["arms"], "none"]
    assert again({"arms": arms}).pretraining == ("none",)
    budget = (old.folder / "budget.md").read_text()
    assert "pretrained by more than one recipe, and differ by that, too: add by 1, none by 2." in budget
    assert_good(old)


def test_an_mnli_run_that_others_still_wait_for_is_run_anew(old, again):
    (rte,) = (record["cell_id"] for record in documents(old) if record["cell"]["task"] == "rte")
    (old.folder / "records" / f"{rte}.json").unlink()
    (old.folder / "predictions" / f"{rte}.safetensors").unlink()
    assert again().finished == 2
    assert recipes_of(old) == {"mnli 1": (2, 1), "rte 1": (2, 1)}
    assert_good(old)


def test_chosen_cells_alone_are_run_anew(old, again):
    changes = {"tasks": ["mnli", "rte", "stsb"]}
    assert again(changes).finished == 1
    summary = again(changes, again="recipe", only=["task=rte"])
    assert summary.finished == 2  # with the MNLI run whose encoder it needs
    assert recipes_of(old) == {"mnli 1": (2, 2), "rte 1": (2, 2), "stsb 1": (2, 1)}
    assert_good(old)


def test_the_newest_of_several_recipes_counts(old, again, monkeypatch):
    again({"seeds": [1, 2]})
    monkeypatch.setattr(recipe, "RECIPE", 3)
    summary = again({"seeds": [1, 2]})
    assert summary.waiting == ()
    assert "4 of 4 cells were run by an older recipe (1, 2; now 3), and count as done" in again.said
    assert_good(old)


def test_another_reason_to_run_anew_is_refused(again):
    with pytest.raises(UserError, match="unknown value 'recpe' in --again; did you mean 'recipe'"):
        again(again="recpe")


def test_a_worker_of_another_recipe_refuses_its_cells(monkeypatch, tmp_path):
    executor = pytest.importorskip("glue_bench.sweep.ray_executor")
    experiment = parse_experiment(EXPERIMENT | {"pretraining": None})
    planned = plan_cells(experiment, Inputs(experiment, tmp_path))[0]
    worker = executor.Worker(experiment, tmp_path, Path.cwd(), lambda *_: pytest.fail("it runs"))
    monkeypatch.setattr(recipe, "RECIPE", 3)
    with pytest.raises(UserError, match=r"trains by recipe 3, .* is of recipe 2; all machines must have the same"):
        list(worker.run(planned))


def test_a_record_carries_its_recipe(old, again):
    again(again="recipe")
    records = [json.loads(path.read_bytes()) for path in (old.folder / "records").glob("*.json")]
    assert sorted(record.get("recipe", 1) for record in records) == [1, 1, 2, 2]
    assert sorted(cell.recipe for cell in old.read_plan().cells) == [2, 2]
    assert sorted(document.get("recipe", 1) for document in documents(old, "pretraining")) == [1, 2]
