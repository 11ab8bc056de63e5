"""Everything that is checked before any compute is spent, and five lines that are worth saying then."""

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import torch

from glue_bench.config import NATIVE, Arm, Experiment, Resources
from glue_bench.errors import UserError
from glue_bench.files import IN_THE_CACHE, cache_folder, prove_writable, results_written_to
from glue_bench.model.checks import check_order
from glue_bench.model.cost import budget
from glue_bench.model.variants.options import check_variant
from glue_bench.records.values import Cell, Job, Pretraining, Record
from glue_bench.testing import check_plugin, load_plugins
from glue_bench.training.compute import Compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokenizers import vocabulary_size
from glue_bench.values import series


def check_experiment(experiment: Experiment, inputs: Inputs) -> None:
    """Load the experiment's plugins; refuse arms, tasks and a pretraining that cannot run.

    Raises:
        UserError: the first fault: plugin, variant, option, data, checkpoint, dead positions, or as
            `check_pretraining`.
    """
    load_plugins(experiment.plugins)
    ours = [arm for arm in experiment.arms if arm.variant != NATIVE]
    for arm in ours:
        check_variant(arm.variant, arm.options, f"arm '{arm.name}'")
        check_plugin(arm.variant, arm.options)
    present = inputs.source.tasks()
    missing = [task for task in experiment.tasks if task not in present]
    if missing:
        raise UserError(
            f"data '{experiment.data}' has no {', '.join(missing)}; "
            f"complete it, or set `tasks: [{', '.join(t for t in experiment.tasks if t in present)}]`"
        )
    for arm in ours:
        check_order(inputs.initial(arm), arm.name)
    if experiment.pretraining:
        check_pretraining(experiment, inputs)


def check_pretraining(experiment: Experiment, inputs: Inputs) -> None:
    """Refuse, before any compute, arms that cannot see the same tokens.

    Raises:
        UserError: arms with different tokenizers, sequences longer than the positions, no text to learn from, or more
            seeds than there are sequences to put in order.
    """
    digests = {arm.name: inputs.tokenizer_digest(arm) for arm in experiment.arms}
    first, *others = digests
    for name in others:
        if digests[name] != digests[first]:
            raise UserError(
                f"arms '{first}' and '{name}' have different tokenizers, so they cannot be pretrained on the same "
                "tokens; give both the same, or put them into experiments of their own"
            )
    settings = inputs.pretraining
    for arm in experiment.arms:
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
    sequences = len(inputs.text(experiment.arms[0])["train"])
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


def remarks(
    jobs: Sequence[Job],
    records: Mapping[str, Record],
    inputs: Inputs,
    compute: Compute,
    *,
    side_by_side: bool,
    elsewhere: bool,
) -> Iterator[str]:
    """What a person should know before these jobs run: no mistakes, but perhaps not what was meant.

    `records` are those of the plan's finished cells by id, `side_by_side` says that workers run the jobs, `elsewhere`
    that these may be on machines of which nothing is known here.
    """
    experiment = inputs.experiment
    on_cpus = side_by_side and not experiment.resources.gpus and compute.device.type != "cpu"
    yield f"computing on {compute.name} in {compute.precision}" + (
        "; workers on CPUs, because resources.gpus is 0" if on_cpus else ""
    )
    segments = {arm.name: inputs.segments(arm) for arm in experiment.arms}
    without = [name for name, (told, embedded) in segments.items() if told > 1 >= embedded]
    if without:
        yield f"both texts of a pair are segment 0, because the encoder has no other: {', '.join(without)}"
    cells = [job for job in jobs if isinstance(job, Cell)]
    if experiment.finetuning.keep and cells:
        yield _room(cells, inputs)
    if not (on_cpus or elsewhere):
        yield from _computed_otherwise(jobs, records, compute)
    yield from _again(jobs, records)
    cores = room_here(experiment.resources, compute)
    configs = [inputs.initial(inputs.arm(name)).config.get_text_config() for name in {job.arm for job in jobs}]
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


def _computed_otherwise(jobs: Sequence[Job], records: Mapping[str, Record], compute: Compute) -> Iterator[str]:
    """A line about finished cells of another device or precision: these decide no id, but move scores."""
    here, stay = f"{compute.name} in {compute.precision}", records.keys() - {job.id for job in jobs}
    made = [records[name].environment for name in stay]
    known = (f"{one.device} in {one.precision}" for one in made if one.device and one.precision)
    others = Counter(where for where in known if where != here)
    if count := others.total():
        cells = "1 finished cell was" if count == 1 else f"{count:,} finished cells were"
        yield (
            f"{cells} computed on {series(sorted(others))}, not on {here} as this run; they count as done, another "
            "--results computes all anew"
        )


def _again(jobs: Sequence[Job], records: Mapping[str, Record]) -> Iterator[str]:
    """Lines about what is made a second time."""
    for job in jobs:
        of_it = sum(record.cell.pretraining == job.id for record in records.values())
        if isinstance(job, Pretraining) and of_it:
            cells = f"{of_it:,} finished cell{'s' * (of_it > 1)}"
            yield f"{job.label} is pretrained again: its weights are gone. {cells} started from the old ones."
    if replaced := sum(job.id in records for job in jobs):
        cells = "1 finished cell is" if replaced == 1 else f"{replaced:,} finished cells are"
        yield f"{cells} run again, whole, for a model or test predictions; on a GPU scores may come out otherwise"


def _room(cells: Sequence[Cell], inputs: Inputs) -> str:
    """About the room that the models of these cells take."""
    keep, folder = inputs.experiment.finetuning.keep, inputs.store.folder
    sizes = {}
    for cell in cells:
        start = inputs.initial(inputs.arm(cell.arm))
        known = sum(tensor.numel() for tensor in start.weights.values())
        sizes[cell.arm] = 4e-9 * (known or budget(start.config, cell.settings.max_length)["parameters"])
    most = sum(sizes[cell.arm] for cell in cells)
    in_the_end = sum(sizes[arm] for arm, _ in {(cell.arm, cell.task) for cell in cells})
    takes = f"{most:.3g} GB" if keep == "all" else f"{in_the_end:.3g} GB in the end, before that up to {most:.3g} GB"
    place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(place).free / 1e9
    return f"finetuning.keep: {keep}: models take about {takes}; {free:.3g} GB are free"
