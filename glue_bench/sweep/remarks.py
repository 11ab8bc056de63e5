"""Remarks before a sweep begins: on things that are no mistakes, but perhaps not intended."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from glue_bench.sweep.executors import Executor
from glue_bench.sweep.jobs import WorkLeft, has_other_rate
from glue_bench.sweep.reasons import OTHER_RATE
from glue_bench.sweep.worker import workers_with_room
from glue_bench.training.device import Compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.trial import compute_of

DEMO_EXPERIMENT = "demo"  # the verb `demo` has no --workers


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A sweep before it begins.

    Attributes:
        work: the jobs to run.
        inputs: the inputs of the experiment.
        compute: the device and precision of this process.
        executor: the engine that will run the jobs.
    """

    work: WorkLeft
    inputs: Inputs
    compute: Compute
    executor: Executor

    @property
    def device(self) -> str:
        """The device and precision of this process in words."""
        return f"{self.compute.name} in {self.compute.precision}"

    @property
    def leaves_gpu(self) -> bool:
        """Whether workers compute on CPUs although this machine has a GPU."""
        has_gpu = self.compute.device.type != "cpu"
        return self.executor.in_parallel and not self.inputs.experiment.resources.gpus and has_gpu

    @property
    def computes_here(self) -> bool:
        """Whether jobs compute on the device of this process."""
        return not (self.leaves_gpu or self.executor.queues)


def remarks(situation: Situation) -> Iterator[str]:
    """Yield the remarks, one line each."""
    for remark in REMARKS:
        yield from remark(situation)


def where_it_computes(situation: Situation) -> Iterator[str]:
    place = "what the machine of each worker has" if situation.executor.queues else situation.device
    cause = "; workers on CPUs, because resources.gpus is 0" if situation.leaves_gpu else ""
    yield f"computing on {place}{cause}"


def arms_in_float32(situation: Situation) -> Iterator[str]:
    """Name the arms whose models cannot be trained in the precision of the device."""
    if not situation.computes_here:
        return
    inputs = situation.inputs
    compute = situation.compute
    if situation.executor.in_parallel:
        # This process leaves the GPU alone, because the GPU may admit only one process.
        compute = replace(compute, device=torch.device("cpu"))
    pending = {job.arm for job in situation.work.jobs}
    in_float32 = []
    for arm in inputs.experiment.arms:
        if arm.name in pending and compute_of(inputs.arms[arm.name], compute) != compute:
            in_float32.append(arm.name)
    if in_float32:
        cause = "because their models cannot be trained in bf16"
        yield f"computed in float32, {cause}: {', '.join(in_float32)}"


def arms_without_segments(situation: Situation) -> Iterator[str]:
    """Name the arms whose encoder has one segment, if the texts of a task come in pairs."""
    inputs = situation.inputs
    names = []
    for arm in inputs.experiment.arms:
        of_tokenizer, of_encoder = inputs.arms[arm.name].segments
        if of_tokenizer > 1 >= of_encoder:
            names.append(arm.name)
    if names and any(inputs.tasks.has_pairs(task) for task in inputs.experiment.tasks):
        cause = "because the encoder has one segment"
        yield f"both texts of a pair are segment 0, {cause}: {', '.join(names)}"


def unused_heads(situation: Situation) -> Iterator[str]:
    """Name the arms whose checkpoint has a trained classification head."""
    inputs = situation.inputs
    names = []
    for arm in inputs.experiment.arms:
        if inputs.arms[arm.name].start.has_unused_head:
            names.append(arm.name)
    if names:
        fresh = "it is not used, because every cell trains a fresh one"
        yield f"the checkpoint has a trained classification head; {fresh}: {', '.join(names)}"


def cells_of_other_devices(situation: Situation) -> Iterator[str]:
    """Count the finished cells of other devices, whose scores may differ for that reason."""
    if not situation.computes_here:
        return
    to_run = {job.id for job in situation.work.jobs}
    devices: Counter[str] = Counter()
    for name, record in situation.work.finished.records.items():
        environment = record.environment
        if name not in to_run and environment.device and environment.precision:
            devices[f"{environment.device} in {environment.precision}"] += 1
    del devices[situation.device]
    if count := devices.total():
        names = " and ".join(sorted(devices))
        effect = "they count as done; another --results computes them again"
        devices_of_others = f"computed on {names}, and not on {situation.device} like this run"
        yield f"finished cells {devices_of_others}: {count:,}; {effect}"


def pretrainings_again(situation: Situation) -> Iterator[str]:
    """Count the pretrainings that run again although finished cells have started from them."""
    finished = situation.work.finished
    started = Counter(record.cell.pretraining for record in finished.records.values())
    for job in situation.work.jobs:
        if count := started[job.id]:
            record = finished.pretrainings.get(job.id)
            if record is None:
                cause = "it has no whole record"
            elif has_other_rate(record, finished.pretrainings):
                cause = OTHER_RATE
            else:
                cause = "its weights are gone"
            effect = "which run again if the new weights differ"
            cells = f"finished cells that started from it: {count:,}"
            yield f"{job.label} is pretrained again: {cause}; {cells}, {effect}"


def outdated_cells(situation: Situation) -> Iterator[str]:
    if count := len(situation.work.finished.outdated):
        cause = "because the weights that they started from were made again"
        yield f"finished cells that are in no table, {cause}: {count:,}"


def cells_outside_the_plan(situation: Situation) -> Iterator[str]:
    if count := situation.work.finished.left_out:
        effect = (
            "they are in no table; another --results, or name, keeps them in tables of their own"
        )
        yield f"finished cells that this plan leaves out: {count:,}; {effect}"


def cells_again(situation: Situation) -> Iterator[str]:
    """Count the finished cells that run again, because a model or predictions are asked for."""
    records = situation.work.finished.records
    if count := sum(job.id in records for job in situation.work.jobs):
        cause = "because their models or test predictions are asked for"
        effect = "on a GPU their scores may differ"
        yield f"finished cells that run again: {count:,}, {cause}; {effect}"


def cores_that_are_idle(situation: Situation) -> Iterator[str]:
    """Say that one process computes on one core while there is room for more."""
    inputs = situation.inputs
    jobs = situation.work.jobs
    is_narrow = True
    for name in {job.arm for job in jobs}:
        threads = situation.compute.threads_for(inputs.arms[name].start.hidden_size)
        is_narrow = is_narrow and threads == 1
    cores = workers_with_room(inputs.experiment.resources, situation.compute)
    if situation.executor.in_parallel or not is_narrow or inputs.experiment.name == DEMO_EXPERIMENT:
        return
    if cores and len(jobs) > 1:
        parallel = min(cores, len(jobs))
        advice = f"--workers auto runs {parallel} at once (it needs Ray: pip install '.[ray]')"
        cause = "one job runs at a time, on one core, as its encoder is small"
        yield f"{cause}; this machine has {cores} cores: {advice}"


REMARKS: tuple[Callable[[Situation], Iterator[str]], ...] = (
    where_it_computes,
    arms_in_float32,
    arms_without_segments,
    unused_heads,
    cells_of_other_devices,
    pretrainings_again,
    outdated_cells,
    cells_outside_the_plan,
    cells_again,
    cores_that_are_idle,
)
