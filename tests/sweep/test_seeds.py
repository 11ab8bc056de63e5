"""Seeds of pretraining are an axis: a block of arms for each, cells that name theirs, and ids that stay."""

import json

import pytest
from safetensors.torch import load_file
from stored import documents

from glue_bench.api import explain
from glue_bench.audit.verify import verify
from glue_bench.config import parse_experiment
from glue_bench.errors import UserError
from glue_bench.records.disk import record_digest
from glue_bench.records.store import Store
from glue_bench.tables.board import leaderboard
from glue_bench.tables.budget import budget_frame
from glue_bench.tables.results import read_results
from glue_bench.training.inputs import Inputs

pytestmark = pytest.mark.usefixtures("small_demo")


def weights(folder) -> dict[str, bytes]:
    """The weights of all checkpoints by their paths."""
    found = {path.relative_to(folder): load_file(path) for path in folder.rglob("model.safetensors")}
    return {f"{path} {name}": t.numpy().tobytes() for path, tensors in found.items() for name, t in tensors.items()}


def faults(folder) -> list[str]:
    (found,) = verify(folder)
    return found.faults


def test_arms_of_one_seed_are_a_block_and_further_seeds_change_nothing_of_it(sweep, values):
    one = sweep()
    before, ids = weights(one.folder), {record["cell_id"] for record in documents(Store(one.folder))}
    assert all("-p" not in cell_id for cell_id in ids)

    both = sweep({"seeds": [1, 2]})
    assert (both.planned, both.skipped, both.finished, both.failed) == (4, 2, 2, {})
    assert both.pretraining == ("add, seed 2", "untied, seed 2")
    store = Store(both.folder)
    records = {record["cell_id"]: record["cell"]["pretraining_seed"] for record in documents(store)}
    assert {name: seed for name, seed in records.items() if name in ids} == dict.fromkeys(ids, 1)
    assert sorted(name.rpartition("-")[0] for name in records.keys() - ids) == [
        "add-cola-lr0.001-s1-p2-step10", "untied-cola-lr0.001-s1-p2-step10",
    ]  # fmt: skip
    assert before.items() <= weights(both.folder).items()

    budgets = budget_frame(read_results(store.folder))
    assert budgets[["arm", "pretraining_seed"]].values.tolist() == [
        ["add", 1], ["add", 2], ["untied", 1], ["untied", 2],
    ]  # fmt: skip
    assert budgets.groupby("pretraining_seed")["stream"].nunique().tolist() == [1, 1]
    assert budgets["stream"].nunique() == 2
    assert budgets["validation_loss"].nunique() == 4
    assert read_results(store.folder).losses.groupby(["arm", "pretraining_seed"]).size().tolist() == [10] * 4
    page = (both.folder / "budget.md").read_text()
    assert "All pretrained arms of one seed saw the same tokens, masks and order (hashes " in page
    assert read_results(store.folder).cells["pretraining_seed"].tolist() == [1, 1, 2, 2]
    assert leaderboard(both.folder)["cola_n"].tolist() == [2, 2]
    assert store.pretrained_arms() == {"add": [True, True], "untied": [True, True]}
    assert not faults(both.folder)
    third = explain("add-cola-lr0.001-s1-p3", values({"seeds": [1, 2, 3]}), results=both.folder.parent)
    assert [(each.what, each.after) for each in third.candidates[0].differences] == [("pretraining.seed", "3")]


def test_cells_of_one_seed_can_be_chosen_and_only_theirs_is_pretrained(sweep):
    summary = sweep({"seeds": [1, 2]}, only=["pretraining_seed=2"], arms=["add"])
    assert (summary.planned, summary.pretraining) == (1, ("add, seed 2",))
    (record,) = documents(Store(summary.folder))
    assert record["cell"]["pretraining_seed"] == 2
    assert Store(summary.folder).pretrained_arms() == {"add": [False, True]}
    with pytest.raises(UserError, match="unknown pretraining_seed '3' in --only"):
        sweep({"seeds": [1, 2]}, only=["pretraining_seed=3"], arms=["add"])


def test_modules_that_arms_share_start_equal_and_differ_by_seed(values, tmp_path):
    from glue_bench.training.pretrain import build_masked_lm

    inputs = Inputs(parse_experiment(values({"seeds": [1, 2]})), tmp_path)
    built = {
        (cell.arm.name, cell.pretraining_seed): build_masked_lm(inputs.initial(cell.arm), cell.pretraining_seed)
        for cell in inputs.experiment.cells()
    }
    words = {place: model.base.variant.words.weight for place, model in built.items()}
    assert (words["add", 1] == words["untied", 1]).all()
    assert (words["add", 2] == words["untied", 2]).all()
    assert not (words["add", 1] == words["add", 2]).all()
    runs = [inputs.experiment.pretraining_of(cell) for cell in inputs.experiment.cells()]
    assert len({inputs.pretraining_folder(run).folder for run in runs}) == 4


def test_what_versions_with_one_seed_have_stored_keeps_its_id(sweep):
    """They said no seed in an id, whatever it was, and none in a record."""
    folder = sweep({"seed": 7}, arms=["add"]).folder
    (path,) = (folder / "records").iterdir()
    record = json.loads(path.read_text())
    assert "-p7-" in path.name
    former = path.stem.replace("-p7", "")
    del record["cell"]["pretraining_seed"]
    record["cell_id"] = former
    record["digest"] = record_digest({key: value for key, value in record.items() if key != "digest"})
    path.unlink()
    (folder / "records" / f"{former}.json").write_text(json.dumps(record))
    (folder / "predictions" / f"{path.stem}.safetensors").rename(folder / "predictions" / f"{former}.safetensors")

    again = sweep({"seed": 7}, arms=["add"])
    assert (again.skipped, again.finished) == (1, 0)
    assert read_results(folder).cells["pretraining_seed"].tolist() == [7]
    assert not faults(folder)
    more = sweep({"seeds": [7, 8]}, arms=["add"])
    assert (more.skipped, more.finished) == (1, 1)
    assert not faults(folder)


@pytest.mark.parametrize(
    ("pretraining", "said"),
    [
        ({"seeds": []}, "pretraining.seeds: list should have at least 1 item"),
        ({"seeds": [1, 1]}, "given twice: 1"),
        ({"seeds": [-1]}, "pretraining.seeds.0: input should be greater than or equal to 0, not -1"),
        ({"seed": 1, "seeds": [1, 2]}, "pretraining: give seed or seeds, not both"),
        ({"seed": "1"}, "pretraining.seeds.0: input should be a valid integer, not '1'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_mistake_in_the_seeds_is_named(values, pretraining, said):
    with pytest.raises(UserError) as caught:
        parse_experiment(values(pretraining))
    assert said in str(caught.value)


def test_more_seeds_than_the_text_has_orders_are_refused(sweep, tmp_path):
    many = list(range(500))
    with pytest.raises(UserError, match=r"^pretraining.seeds has 500 seeds, but the text gives only \d+ sequences"):
        sweep({"seeds": many, "validation_share": 0.5}, seeds=[1], arms=["add"])
    assert not (tmp_path / "runs").exists()
