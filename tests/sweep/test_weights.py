"""A worker, which has no plan, keeps the models that the plan says others start from."""

import pytest
from helpers.tiny_runs import plan

from glue_bench.sweep.weights import NeededWeights, leaves_model

pytestmark = pytest.mark.usefixtures("small_demo")
EXPERIMENTS = {
    "no stage": {},
    "a stage": {"from_mnli": ["rte"]},
    "a stage for a task that is not run": {"from_mnli": ["stsb"]},
    "a rate of its own": {"from_mnli": ["rte"], "learning_rates": [1e-3, 2e-3], "mnli_rate": 2e-3},
}


@pytest.mark.parametrize("finetuning", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_a_worker_leaves_the_models_that_other_cells_of_the_plan_start_from(tiny, finetuning):
    planned = plan(
        tiny(arms=["add", "none"], tasks=["mnli", "rte"], seeds=[1, 2], finetuning=finetuning)
    )
    leaving = {cell.id for cell in planned.cells if leaves_model(cell, planned.experiment)}
    assert leaving == NeededWeights(planned).followers.keys()


@pytest.mark.parametrize("keep", ["best", "all"])
def test_a_worker_leaves_every_model_of_an_experiment_that_keeps_models(tiny, keep):
    planned = plan(tiny(tasks=["rte"], finetuning={"keep": keep}))
    leaving = [cell.id for cell in planned.cells if leaves_model(cell, planned.experiment)]
    assert leaving == [cell.id for cell in planned.cells]
