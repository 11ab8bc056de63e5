"""What the tests of sweeps share: settings, readers of results, a variant that raises on demand."""

from pathlib import Path
from typing import ClassVar

from glue_bench.config import load_experiment
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.records.values import Plan, PretrainingRecord, Record
from glue_bench.sweep.plan import make_plan
from glue_bench.sweep.run import Summary
from glue_bench.training.inputs import Inputs

SETTINGS = {
    **{"corpus": "demo", "steps": 10, "batch_tokens": 256, "length": 32, "learning_rates": [1e-3]},
    **{"validations": 2, "validation_share": 0.05},
}


def plan(values) -> Plan:
    """The plan of an experiment."""
    experiment = load_experiment(values)
    return make_plan(experiment, Inputs(experiment))


def records(summary: Summary) -> dict[str, Record]:
    """The records of a sweep's plan, by arm and task."""
    store = Store(summary.folder)
    return {f"{one.cell.arm} {one.cell.task}": one for one in store.finished(store.plan()).records.values()}


def pretrainings(summary: Summary) -> list[PretrainingRecord]:
    """The records of its pretrainings, in the plan's order."""
    store = Store(summary.folder)
    found = store.finished(planned := store.plan()).pretrainings
    return [found[job.id] for job in planned.pretrainings if job.id in found]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Moody(VARIANTS["add"]):
    """Raises `error` in the training step of this number (from 0), counted over all steps since it was told to."""

    error: ClassVar[BaseException | None] = None
    at = 0
    steps = 0

    def forward(self, token_ids, segment_ids):
        if self.training and token_ids.device.type != "meta":  # where operations are only counted
            Moody.steps += 1
            if Moody.error and Moody.steps > Moody.at:
                raise Moody.error
        return super().forward(token_ids, segment_ids)
