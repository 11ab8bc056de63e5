"""Checks of a run's options and experiment, before GLUE, text or a checkpoint is opened."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from glue_bench.config import Experiment
from glue_bench.config.load import Names
from glue_bench.config.machine import check_machine
from glue_bench.data.own import read_own
from glue_bench.data.sources import check_place
from glue_bench.errors import UserError, quoted
from glue_bench.files import IN_THE_CACHE, cache_folder, prove_writable, results_written_to
from glue_bench.model.outputs import check_checkpoints
from glue_bench.remote import refuse_url
from glue_bench.sweep.conditions import chosen_values
from glue_bench.sweep.engine import Engine
from glue_bench.sweep.executors import check_answer
from glue_bench.sweep.squeue import check_slurm


def check_before_work(experiment: Experiment, **options: Any) -> None:
    """Refuse all mistakes that show without GLUE, text or checkpoints; the slowest check is last.

    The files of a user's own tasks are read: mistakes in them are frequent, and are reported at
    once.

    The options are described in `check_request`. Raises UserError for the first mistake, for an
    engine that is not installed, and if no Slurm, or no machine at the address of a cluster,
    answers.
    """
    check_request(experiment, **options)
    engine: Engine = options["engine"]
    if engine.slurm is not None:
        check_slurm()
    if (engine.workers or engine.address) and find_spec("ray") is None:
        raise UserError("--workers and --address need ray; install it: pip install '.[ray]'")
    if engine.address:
        check_answer(engine.address)
    if len(experiment.own_tasks) < len(experiment.tasks):
        check_place(experiment.data)
    for task in experiment.own_tasks:
        if task.files:
            read_own(task.to_task())
    check_checkpoints(experiment)
    from glue_bench.model.arms import check_arms  # this imports torch

    check_arms(experiment)


def check_request(
    experiment: Experiment,
    *,
    results: object,
    only: Names,
    engine: Engine,
    device: str,
    precision: str,
    graph: str,
) -> None:
    """Refuse places, engines, devices and conditions that cannot be used.

    The options are described in `glue_bench.run`. Raises UserError for the first mistake.
    """
    engine.check()
    check_machine(device, precision, graph)
    chosen_values(only, _values_of_keys(experiment))
    if not isinstance(results, str | Path) or not str(results):
        raise UserError(f"results {quoted(results)}: give a folder")
    refuse_url(results)
    refuse_url(cache_folder(), "the cache (GLUE_BENCH_CACHE)")
    with results_written_to(cache_folder(), IN_THE_CACHE):
        prove_writable(cache_folder())


def _values_of_keys(experiment: Experiment) -> dict[str, list[Any]]:
    """Return all values that the cells of an experiment have, by the keys of `Cell.key`."""
    tuning = experiment.finetuning
    values: dict[str, list[Any]] = {
        "arm": [arm.name for arm in experiment.arms],
        "variant": [arm.variant for arm in experiment.arms],
        "task": list(experiment.tasks),
        "learning_rate": [],
        "seed": list(experiment.seeds),
    }
    for task in experiment.tasks:
        values["learning_rate"] += tuning.rates(task)
    if experiment.pretraining:
        values["steps"] = list(experiment.pretraining.finetuned_steps)
        values["pretraining_seed"] = list(experiment.pretraining.seeds)
    return values
