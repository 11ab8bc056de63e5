"""Test predictions of cells that were run without: each is trained once more, and has to come out as it did."""

from collections.abc import Collection, Sequence
from typing import Any

from glue_bench.config import Experiment, parse_experiment, with_sources
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.records.plan import Plan
from glue_bench.records.store import Store
from glue_bench.sweep.again import Agree, train_again
from glue_bench.sweep.jobs import PlannedCell
from glue_bench.training.inputs import Inputs


def predict_tests(
    store: Store, cell_ids: Collection[str], agree: Agree, data: str | None = None, corpus: Sequence[str] = ()
) -> None:
    """Train cells of the stored plan once more, and store what they predict of their test splits.

    Cells whose data has no test split are left out. `data` and `corpus` are needed where the plan cannot tell them.

    Raises:
        UserError: as `train_again`.
    """
    train_again(_experiment(store.needed_plan(), data, corpus), store, cell_ids, agree, wanted=_has_tests)


def _has_tests(planned: PlannedCell, inputs: Inputs) -> bool:
    task = planned.cell.task
    return inputs.diagnostic(task) is not None or bool(inputs.data(task).splits.keys() & set(TASKS[task].test_splits))


def _experiment(plan: Plan, data: str | None, corpus: Sequence[str]) -> Experiment:
    """The plan's experiment, which does not tell where a person keeps data and text, with its tests to be predicted."""
    known = plan.data_source if plan.data_source in ("demo", "hub") else None
    if not (data or known):
        raise UserError("the plan does not tell where its data lies; give it with --data")
    config: dict[str, Any] = {**plan.config, "data": known}
    finetuning = config.get("finetuning")
    config["finetuning"] = {**(finetuning if isinstance(finetuning, dict) else {}), "predict": ["validation", "test"]}
    if isinstance(pretraining := config.get("pretraining"), dict):
        if not corpus and known != "demo":
            raise UserError(
                "the plan does not tell where the text lies that its arms were pretrained on; give --corpus"
            )
        renamed = {"from" if name == "start" else name: value for name, value in pretraining.items()}
        config["pretraining"] = {**renamed, "corpus": ["demo"]}
    return parse_experiment(with_sources(config, data, corpus), "plan.json")
