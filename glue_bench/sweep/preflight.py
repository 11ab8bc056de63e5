"""Everything that is checked before any compute is spent."""

from collections.abc import Iterable

import torch

from glue_bench.config import NATIVE, SCRATCH, Arm, Cell, Experiment
from glue_bench.errors import UserError
from glue_bench.files import cache_folder, cache_written_to, prove_writable
from glue_bench.model.checks import check_order
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import on_meta
from glue_bench.model.variants.options import check_variant
from glue_bench.records.store import Store
from glue_bench.sweep.jobs import PlannedPretraining
from glue_bench.testing import check_plugin, load_plugins
from glue_bench.training.inputs import Inputs
from glue_bench.training.memory import most_bytes
from glue_bench.training.tokenizers import vocabulary_size


def check_experiment(experiment: Experiment, inputs: Inputs) -> None:
    """Load the experiment's plugins; refuse arms, tasks and a pretraining that cannot run.

    Raises:
        UserError: the first fault: plugin, variant, option, data, checkpoint, memory, dead positions, or as
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
        check_memory(arm, inputs)
        check_order(inputs.initial(arm), arm.name)
    if experiment.pretraining:
        check_pretraining(experiment, inputs)


def check_memory(arm: Arm, inputs: Inputs) -> None:
    """Refuse an encoder that this machine cannot train, whatever goes through it at once.

    Training in memory holds the weights, their gradients and two moments of each; beside a GPU, `check_order` holds the
    weights in float64. What else there is comes on top.

    Raises:
        UserError: it cannot.
    """
    try:
        model = on_meta(EncoderModel, inputs.initial(arm).config)
    except Exception:  # a plugin's, which `check_order` says in words
        return
    parameters = sum(each.numel() for each in model.parameters())
    takes = parameters * (8 if torch.cuda.is_available() else 16) + sum(each.nbytes for each in model.buffers())
    has = most_bytes()
    smaller = "lower the sizes of `scratch`" if arm.checkpoint == SCRATCH else "take a smaller one"
    if has is not None and takes > has:
        raise UserError(
            f"arm '{arm.name}': to train an encoder of {parameters:,} parameters takes {takes / 2**30:.1f} GiB "
            f"of memory or more, and this process can have {has / 2**30:.1f}; {smaller}"
        )


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
    task, splits = cell.task, inputs.data(cell.task).splits
    inputs.train(task)
    if not any(name.startswith("validation") for name in splits):
        raise UserError(
            f"task '{task}' has no validation split in '{inputs.experiment.data}'; "
            "complete the data or leave the task out of `tasks`"
        )
    if cell.hyperparameters.held_out_share and len(splits["train"]) < 2:
        raise UserError(f"task '{task}': the train split has one example, of which nothing can be held out")
    inputs.diagnostic(task)
    _check_vocabulary(cell.arm, inputs)
    told, embedded = inputs.segments(cell.arm)
    if told > embedded > 1:
        raise UserError(
            f"arm '{cell.arm.name}': the tokenizer tells {told} segments apart but the checkpoint "
            f"'{cell.arm.checkpoint}' embeds {embedded}; give the tokenizer it was trained with"
        )
    positions, length = inputs.initial(cell.arm).positions, cell.hyperparameters.max_length
    if positions is not None and length > positions:
        raise UserError(
            f"arm '{cell.arm.name}', task '{task}': max_length {length} exceeds the "
            f"{positions} positions of '{cell.arm.checkpoint}'; lower max_length"
        )
    if cell.arm.variant == NATIVE:
        inputs.native_budget(cell.arm, length)


def check_starts(cells: Iterable[Cell], to_pretrain: Iterable[PlannedPretraining], inputs: Inputs) -> None:
    """Read all that these cells start from and that is there; pretrainings `to_pretrain` have yet to make theirs.

    Raises:
        UserError: a checkpoint, the state that a pretraining goes on from, or the encoder of an MNLI cell is damaged,
            or a folder is that of another pretraining.
    """
    for job in to_pretrain:
        folder = inputs.pretraining_folder(job.run)
        folder.check()
        folder.read_state()
    starts = {(each.arm.name, each.pretraining_seed, each.steps, inputs.mnli_folder(each)): each for each in cells}
    for cell in starts.values():
        run, encoder = inputs.experiment.pretraining_of(cell), inputs.mnli_folder(cell)
        if run and cell.steps and not inputs.pretraining_folder(run).checkpoint(cell.steps).is_dir():
            continue
        # Without its MNLI run's encoder, the cell waits for that run, which starts from the arm alone.
        waits = encoder is not None and not encoder.is_dir()
        inputs.start(cell.model_copy(update={"mnli_rate": None}) if waits else cell)


def check_disks(store: Store) -> None:
    """Refuse results and a cache that cannot be written; nothing stays of the attempt.

    Raises:
        UserError: they cannot.
    """
    store.prepare(make=False)
    with cache_written_to(cache_folder()):
        prove_writable(cache_folder())


def _check_vocabulary(arm: Arm, inputs: Inputs) -> None:
    embedded = inputs.initial(arm).config.get_text_config().vocab_size
    tokens = vocabulary_size(inputs.tokenizer(arm))
    if tokens > embedded:
        raise UserError(
            f"arm '{arm.name}': the tokenizer has {tokens} tokens but the checkpoint '{arm.checkpoint}' embeds "
            f"{embedded}; give the tokenizer it was trained with"
        )
