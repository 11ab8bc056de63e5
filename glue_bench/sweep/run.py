"""The story of a sweep: plan, check, and run the jobs that are left."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from glue_bench.config import Experiment, Resources
from glue_bench.config.load import Names
from glue_bench.data.baselines import baseline_predictions
from glue_bench.data.task_data import known_labels
from glue_bench.errors import UserError, quoted
from glue_bench.files import IN_THE_CACHE, cache_folder, prove_writable, results_written_to
from glue_bench.records.environment import versions
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Failure, Job, Plan, Pretraining, PretrainingRecord, Result
from glue_bench.remote import refuse_url
from glue_bench.sweep.drive import Loop, Observer
from glue_bench.sweep.executors import Executor, Inline, MakeWorker, Ray
from glue_bench.sweep.jobs import Work, longest_first, reasons, work_left
from glue_bench.sweep.plan import make_plan, select
from glue_bench.sweep.progress import Estimate
from glue_bench.sweep.slurm import Slurm, refuse_live_jobs
from glue_bench.sweep.worker import Worker, make_worker
from glue_bench.terminal import tell
from glue_bench.training.compute import AUTO, DEVICES, Compute, choose_compute, quiet_transformers
from glue_bench.training.inputs import Inputs
from glue_bench.training.pretrain import PretrainingFolder
from glue_bench.training.trial import compute_of

MOST_WORKERS = 4096
DEMO = "demo"  # whose verb has no --workers


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a sweep did of the cells that were chosen. `failed` maps ids of cells to errors.

    Of the `planned` cells those with the ids `waiting` were to run, and `pretrainings` on so many `tokens`, of which
    `pretrained` have ended well; of a dry run `reasons` says why, with how many jobs each, also of what was not chosen
    and others start from. `cause`: "interrupted" (Ctrl-C), "terminated" (SIGTERM) or "".
    """

    folder: Path
    planned: int
    finished: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    pretrainings: int = 0
    pretrained: int = 0
    tokens: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    cause: str = ""

    @property
    def skipped(self) -> int:
        """How many cells were done before."""
        return self.planned - len(self.waiting)


def sweep(
    experiment: Experiment,
    console: Console | None,
    watching: Sequence[Observer],
    *,
    results: str | Path,
    only: Names,
    dry_run: bool,
    workers: int | str | None,
    address: str | None,
    slurm: Mapping[str, Any] | None,
    device: str,
    precision: str,
) -> Summary:
    """Bring the results in `results/<experiment>` up to the plan; the options are those of `glue_bench.run`.

    What is worth knowing is said on the `console`; what happens then is told to those who are `watching`.
    Raises UserError for bad input, before anything is run or written, and later for what every job would meet.
    """
    _check_places_and_engine(results, workers, address, slurm)
    quiet_transformers()
    versions()  # before any job: the commit is that of the code now loaded
    here = slurm is None and address is None  # workers elsewhere look for the device themselves
    compute = choose_compute(device if here or device not in DEVICES else AUTO, precision)
    inputs = Inputs(experiment, Path(results) / experiment.name)
    plan, store = make_plan(inputs), inputs.store
    cells = select(plan.cells, only)
    if slurm is None and not dry_run:
        refuse_live_jobs(store)
    make = partial(make_worker, experiment, store.folder.absolute(), device, precision)
    executor = _executor(plan, inputs, compute, make, workers, address, slurm)
    store.prepare(make=not dry_run)
    with nullcontext() if dry_run else store.lock():
        work = work_left(plan, cells, store)
        if console:
            for line in _remarks(work, inputs, compute, executor):
                tell(console, line)
        _check_starts(work.jobs, inputs)
        summary = _summary(work, store, dry_run)
        return summary if dry_run else _run(work, inputs, executor, watching, summary)


def _executor(
    plan: Plan, inputs: Inputs, compute: Compute, make: MakeWorker, workers: Any, address: str | None, slurm: Any
) -> Executor:
    """Raises UserError where what the engine needs is not there."""
    resources = inputs.experiment.resources
    if slurm is not None:
        return Slurm(make, resources, inputs.store, Estimate(plan), slurm)
    if isinstance(workers, str):  # AUTO; of a cluster, Ray counts the room
        workers = None if address else room_here(resources, compute)
    if workers or address:
        return Ray(make, resources, workers=workers, address=address)
    return Inline(Worker(inputs, compute))


def _summary(work: Work, store: Store, dry_run: bool) -> Summary:
    """Before anything has run."""
    pretrainings = [job for job in work.jobs if isinstance(job, Pretraining)]
    selected = {one.id for one in work.cells}
    return Summary(
        folder=store.folder,
        planned=len(work.cells),
        waiting=tuple(job.id for job in work.jobs if job.id in selected),
        pretrainings=len(pretrainings),
        tokens=sum(job.settings.steps * job.settings.batch_tokens for job in pretrainings),
        reasons=dict(Counter(reasons(work, store).values()).most_common()) if dry_run else {},
    )


def _check_places_and_engine(results: object, workers: object, address: str | None, slurm: object) -> None:
    if not isinstance(results, str | Path) or not str(results):
        raise UserError(f"results {quoted(results)}: give a folder")
    refuse_url(results)
    refuse_url(cache_folder(), "the cache (GLUE_BENCH_CACHE)")
    with results_written_to(cache_folder(), IN_THE_CACHE):
        prove_writable(cache_folder())
    if workers not in (None, AUTO) and not (type(workers) is int and 1 <= workers <= MOST_WORKERS):
        raise UserError(f"workers {quoted(workers)}: give a whole number from 1 to {MOST_WORKERS}, or {AUTO}")
    if address is not None:
        host, _, port = address.rpartition(":")
        if not (host and "/" not in host and port.isdecimal() and 0 < int(port[:6]) < 2**16):
            raise UserError(f"--address is HOST:PORT with a port from 1 to 65535, not {quoted(address)}")
    if slurm is not None and (workers or address):
        raise UserError("--slurm goes without --workers and --address: one engine runs all jobs")


def _check_starts(jobs: Sequence[Job], inputs: Inputs) -> None:
    """Read all that these jobs start from, as far as none of them has yet to make it: it may be damaged."""
    made_then, starts = {job.id for job in jobs}, dict[tuple[str | int | None, ...], Cell]()
    for job in jobs:
        if isinstance(job, Pretraining):
            PretrainingFolder(inputs.store, job.id).read_state()
        elif job.pretraining not in made_then:
            # Without its MNLI cell, the start is the arm that this one starts from, too.
            cell = job.model_copy(update={"mnli": None}) if job.mnli in made_then else job
            starts.setdefault((cell.arm, cell.pretraining, cell.steps, cell.mnli), cell)
    for cell in starts.values():
        inputs.start(cell)


def _remarks(work: Work, inputs: Inputs, compute: Compute, executor: Executor) -> Iterator[str]:
    """What a person should know before this work is done: no mistakes, but perhaps not what was meant."""
    resources, here = inputs.experiment.resources, f"{compute.name} in {compute.precision}"
    side_by_side = not isinstance(executor, Inline)
    on_cpus = side_by_side and not resources.gpus and compute.device.type != "cpu"
    where = "what the machine of each worker has" if executor.queues else here
    yield f"computing on {where}" + ("; workers on CPUs, because resources.gpus is 0" if on_cpus else "")
    if not (on_cpus or executor.queues):
        # Beside workers this process leaves the GPU alone, which may admit one process only.
        tried = replace(compute, device=torch.device("cpu")) if side_by_side else compute
        pending = {job.arm for job in work.jobs}
        arms = [arm for arm in inputs.experiment.arms if arm.name in pending]
        in_float32 = [arm.name for arm in arms if compute_of(arm, inputs, tried) != tried]
        if in_float32:
            yield f"computed in float32, because their models cannot be trained in bf16: {', '.join(in_float32)}"
    yield from _remarks_on_checkpoints(inputs)
    jobs, records = {job.id: job for job in work.jobs}, work.finished.records
    if not (on_cpus or executor.queues):  # device and precision decide no id, but move scores
        made = [record.environment for name, record in records.items() if name not in jobs]
        others = Counter(f"{one.device} in {one.precision}" for one in made if one.device and one.precision)
        del others[here]
        if count := others.total():
            done = "they count as done, another --results computes all anew"
            yield f"computed on {' and '.join(sorted(others))}, not on {here} as this run: {count:,} finished; {done}"
    begun = Counter(record.cell.pretraining for record in records.values())
    for job in work.jobs:
        if count := begun[job.id]:
            gone = "its weights are gone" if job.id in work.finished.pretrainings else "it has no whole record"
            then = "which run again if its weights come out otherwise"
            yield f"{job.label} is pretrained again: {gone}; finished cells that started from it: {count:,}, {then}"
    if outdated := len(work.finished.outdated):
        yield f"finished cells that are in no table, as what they started from was made again since: {outdated:,}"
    if work.finished.left_out:
        keeps = "they are in no table; another --results, or name, keeps them in tables of their own"
        yield f"finished cells that this plan leaves out: {work.finished.left_out:,}; {keeps}"
    if replaced := len(records.keys() & jobs.keys()):
        wish = "for a model or test predictions; on a GPU scores may come out otherwise"
        yield f"finished cells that run again, whole: {replaced:,}, {wish}"
    starts = [inputs.initial(inputs.arm(name)) for name in {job.arm for job in work.jobs}]
    is_narrow = all(compute.threads_for(start.hidden_size) == 1 for start in starts)
    cores = room_here(resources, compute)
    if cores and not side_by_side and len(jobs) > 1 and is_narrow and inputs.experiment.name != DEMO:
        more = f"--workers auto runs {min(cores, len(jobs))} at once (it needs Ray: pip install '.[ray]')"
        yield f"one job runs at a time, on one core, as its encoder is small; this machine has {cores} cores: {more}"


def _remarks_on_checkpoints(inputs: Inputs) -> Iterator[str]:
    """What an arm takes from its checkpoint or leaves there, although a person may think otherwise."""
    experiment = inputs.experiment
    without_segments = []
    with_heads = []
    for arm in experiment.arms:
        of_tokenizer, of_encoder = inputs.segments(arm)
        if of_tokenizer > 1 >= of_encoder:
            without_segments.append(arm.name)
        if inputs.initial(arm).leaves_head:
            with_heads.append(arm.name)
    if without_segments and any("text_b" in inputs.train(task) for task in experiment.tasks):
        names = ", ".join(without_segments)
        yield f"both texts of a pair are segment 0, because the encoder has no other: {names}"
    if with_heads:
        fresh = "it is not used, every cell trains a fresh one"
        yield f"the checkpoint has a trained classification head; {fresh}: {', '.join(with_heads)}"


def room_here(resources: Resources, compute: Compute) -> int | None:
    """How many workers this machine has room for; None where one process does as much, as on a GPU that is not shared.

    A worker takes `resources.cpus` of the threads that PyTorch takes by itself: one for each core that it may use.
    """
    fits = compute.threads // resources.cpus
    if resources.gpus:
        fits = min(fits, resources.fitting(torch.cuda.device_count()))
    elif compute.device.type != "cpu":
        return None
    return fits if fits > 1 else None


def _run(work: Work, inputs: Inputs, executor: Executor, watching: Sequence[Observer], summary: Summary) -> Summary:
    """Run the jobs, and after them those whose need has only shown then.

    These are the runs that a submission takes, and cells whose start has been made again with other weights.
    """
    plan, store = work.plan, inputs.store
    with results_written_to(store.folder):  # with the gold labels, by which every statistic can be recomputed
        data = [(task, inputs.data(task)) for task in plan.tasks]
        share = inputs.experiment.finetuning.held_out_share
        missing = [(task, each) for task, each in data if not store.has_labels(task, each.digest, share)]
        labels = {task: {"gold": known_labels(each), **baseline_predictions(each, share)} for task, each in missing}
        store.write_plan(plan, labels)
    selected, ended = {cell.id for cell in work.cells}, dict[str, Result]()
    while True:
        jobs = work.jobs if isinstance(executor, Inline) else longest_first(work.jobs, plan)
        results, cause = Loop(jobs, executor, store, plan, watching).run()
        ended |= results
        broken = {name: result.error for name, result in ended.items() if isinstance(result, Failure)}
        failed = {name: error for name, error in broken.items() if name in selected}
        waiting = tuple(dict.fromkeys([*summary.waiting, *(name for name in ended if name in selected)]))
        well = len(selected & ended.keys()) - len(failed)
        pretrained = sum(isinstance(result, PretrainingRecord) for result in ended.values())
        summary = replace(summary, finished=well, failed=failed, waiting=waiting, pretrained=pretrained, cause=cause)
        if cause:
            return summary
        work = work_left(plan, [cell for cell in work.cells if cell.id not in broken], store)
        in_vain = results.keys() | broken.keys()  # what has just run, or failed, would not come out otherwise
        if in_vain >= {job.id for job in work.jobs}:
            return summary
