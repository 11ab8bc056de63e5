"""Everything that is checked before any compute is spent, and the few lines that are worth saying then."""

from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from glue_bench.config import NATIVE, Arm, Experiment, Resources
from glue_bench.errors import UserError
from glue_bench.files import IN_THE_CACHE, cache_folder, prove_writable, results_written_to
from glue_bench.model.checks import check_order
from glue_bench.model.variants.options import check_variant
from glue_bench.records.values import Cell, Job, Pretraining
from glue_bench.sweep.jobs import Todo
from glue_bench.testing import check_plugin, load_plugins
from glue_bench.training.compute import Compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokenizers import vocabulary_size


def check_experiment(experiment: Experiment, inputs: Inputs) -> None:
    """Load the experiment's plugins; refuse arms, tasks and a pretraining that cannot run.

    Raises:
        UserError: the first fault: plugin, variant, option, data, checkpoint, dead positions, or as `_check_tokens`.
    """
    load_plugins(experiment.plugins)
    ours = [arm for arm in experiment.arms if arm.variant != NATIVE]
    for arm in ours:
        check_variant(arm.variant, arm.options, f"arm '{arm.name}'")
        check_plugin(arm.variant, arm.options)
    there = inputs.source.tasks()
    if missing := [task for task in experiment.tasks if task not in there]:
        left = ", ".join(task for task in experiment.tasks if task in there)
        raise UserError(f"data '{experiment.data}' has no {', '.join(missing)}; complete it, or set `tasks: [{left}]`")
    for arm in ours:
        check_order(inputs.initial(arm), arm.name)
    if experiment.pretraining:
        _check_tokens(experiment, inputs)


def _check_tokens(experiment: Experiment, inputs: Inputs) -> None:
    """Refuse, before any compute, a pretraining whose arms cannot see the same tokens.

    Raises:
        UserError: arms with different tokenizers, sequences longer than the positions, no text to learn from, or more
            seeds than there are sequences to put in order.
    """
    first, settings = experiment.arms[0], inputs.pretraining
    for arm in experiment.arms:
        if inputs.tokenizer_digest(arm) != inputs.tokenizer_digest(first):
            raise UserError(
                f"arms '{first.name}' and '{arm.name}' have different tokenizers, so they cannot be pretrained on the "
                "same tokens; give both the same, or put them into experiments of their own"
            )
        _check_vocabulary(arm, inputs)
        positions = inputs.initial(arm).positions
        if positions is not None and settings.length > positions:
            raise UserError(f"arm '{arm.name}': pretraining.length {settings.length} exceeds its {positions} positions")
        told, embedded = inputs.segments(arm)
        if settings.segments == "pairs" and min(told, embedded) < 2:
            which = f"tokenizer tells {told}" if told < 2 else f"encoder embeds {embedded}"
            raise UserError(
                f"arm '{arm.name}': pretraining.segments: pairs, but its {which} segments, not 2; leave segments out"
            )
    sequences = len(inputs.text(first)["train"])
    if len(settings.seeds) > sequences:
        raise UserError(
            f"pretraining.seeds has {len(settings.seeds)} seeds, but the text gives only {sequences} sequences "
            "to train on, so that they could not differ in the order; add text, or give fewer seeds"
        )


def check_cell(cell: Cell, inputs: Inputs) -> None:
    """Refuse, before any compute, a cell that cannot run.

    Raises:
        UserError: the data lacks a split, the vocabulary or the segments do not fit, the length exceeds the positions,
            or a native arm's model does not run.
    """
    arm, task, splits = inputs.arm(cell.arm), cell.task, inputs.data(cell.task).splits
    inputs.train(task)
    if not any(name.startswith("validation") for name in splits):
        raise UserError(
            f"task '{task}' has no validation split in '{inputs.experiment.data}'; "
            "complete the data or leave the task out of `tasks`"
        )
    if cell.settings.held_out_share and len(splits["train"]) < 2:
        raise UserError(f"task '{task}': the train split has one example, of which nothing can be held out")
    inputs.diagnostic(task)
    _check_vocabulary(arm, inputs)
    told, embedded = inputs.segments(arm)
    if told > embedded > 1:
        raise UserError(
            f"arm '{arm.name}': the tokenizer tells {told} segments apart but the checkpoint "
            f"'{arm.checkpoint}' embeds {embedded}; give the tokenizer it was trained with"
        )
    positions, length = inputs.initial(arm).positions, cell.settings.max_length
    if positions is not None and length > positions:
        raise UserError(
            f"arm '{arm.name}', task '{task}': max_length {length} exceeds the "
            f"{positions} positions of '{arm.checkpoint}'; lower max_length"
        )
    if arm.variant == NATIVE:
        inputs.native_budget(arm, length)


def check_starts(jobs: Sequence[Job], inputs: Inputs) -> None:
    """Read all that these jobs start from, as far as none of them has yet to make it.

    Raises:
        UserError: a checkpoint, a model, or the state that a pretraining goes on from is damaged.
    """
    made_then, starts = {job.id for job in jobs}, dict[tuple[str | int | None, ...], Cell]()
    for job in jobs:
        if isinstance(job, Pretraining):
            inputs.checkpoints(job.id).read_state()
        elif job.pretraining not in made_then:
            # Without its MNLI cell, the start is the arm that this one starts from, too.
            cell = job.model_copy(update={"mnli": None}) if job.mnli in made_then else job
            starts.setdefault((cell.arm, cell.pretraining, cell.steps, cell.mnli), cell)
    for cell in starts.values():
        inputs.start(cell)


def check_disks(inputs: Inputs) -> None:
    """Refuse results and a cache that cannot be written; nothing stays of the attempt.

    Raises:
        UserError: they cannot.
    """
    inputs.store.prepare(make=False)
    with results_written_to(cache_folder(), IN_THE_CACHE):
        prove_writable(cache_folder())


def _check_vocabulary(arm: Arm, inputs: Inputs) -> None:
    embedded = inputs.initial(arm).config.get_text_config().vocab_size
    tokens = vocabulary_size(inputs.tokenizer(arm))
    if tokens > embedded:
        raise UserError(
            f"arm '{arm.name}': the tokenizer has {tokens} tokens but the checkpoint '{arm.checkpoint}' embeds "
            f"{embedded}; give the tokenizer it was trained with"
        )


def remarks(work: Todo, inputs: Inputs, compute: Compute, *, side_by_side: bool, elsewhere: bool) -> Iterator[str]:
    """What a person should know before this work is done: no mistakes, but perhaps not what was meant.

    `side_by_side` says that workers run the jobs, `elsewhere` that these may be on machines of which nothing is known
    here.
    """
    resources, here = inputs.experiment.resources, f"{compute.name} in {compute.precision}"
    on_cpus = side_by_side and not resources.gpus and compute.device.type != "cpu"
    yield f"computing on {here}" + ("; workers on CPUs, because resources.gpus is 0" if on_cpus else "")
    segments = {arm.name: inputs.segments(arm) for arm in inputs.experiment.arms}
    if without := [name for name, (told, embedded) in segments.items() if told > 1 >= embedded]:
        yield f"both texts of a pair are segment 0, because the encoder has no other: {', '.join(without)}"
    jobs, records = {job.id: job for job in work.jobs}, work.finished.records
    if not (on_cpus or elsewhere):  # device and precision decide no id, but move scores
        made = [record.environment for name, record in records.items() if name not in jobs]
        known = (f"{one.device} in {one.precision}" for one in made if one.device and one.precision)
        others = Counter(where for where in known if where != here)
        if count := others.total():
            was = "1 finished cell was" if count == 1 else f"{count:,} finished cells were"
            done = "they count as done, another --results computes all anew"
            yield f"{was} computed on {' and '.join(sorted(others))}, not on {here} as this run; {done}"
    begun = Counter(record.cell.pretraining for record in records.values())
    for job in work.jobs:
        if count := begun[job.id]:
            cells = f"{count:,} finished cell{'s' * (count > 1)}"
            yield f"{job.label} is pretrained again: its weights are gone. {cells} started from the old ones."
    if replaced := len(records.keys() & jobs.keys()):
        cells = "1 finished cell is" if replaced == 1 else f"{replaced:,} finished cells are"
        yield f"{cells} run again, whole, for a model or test predictions; on a GPU scores may come out otherwise"
    cores = room_here(resources, compute)
    configs = [inputs.initial(inputs.arm(name)).config.get_text_config() for name in {job.arm for job in work.jobs}]
    is_narrow = all(compute.threads_for(config.hidden_size) == 1 for config in configs)
    if cores and not side_by_side and len(jobs) > 1 and is_narrow:
        used = min(cores, len(jobs))
        yield f"one of {cores} cores is at work (narrow encoder); glue-bench run --workers auto uses {used}"


def room_here(resources: Resources, compute: Compute) -> int | None:
    """How many workers this machine has room for; None where one process does as much.

    That is so on a GPU which `resources` do not share out. A worker takes `resources.cpus` of the threads that PyTorch
    takes by itself: a thread for each core that this process may use.
    """
    fits = compute.threads // resources.cpus
    if resources.gpus:
        fits = min(fits, resources.fitting(torch.cuda.device_count()))
    elif compute.device.type != "cpu":
        return None
    return fits if fits > 1 else None
