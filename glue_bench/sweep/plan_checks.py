"""Refusals of arms, tasks and a pretraining that cannot run, before a plan is made of them."""

from collections.abc import Sequence

from glue_bench.errors import UserError
from glue_bench.model.arms import check_arms
from glue_bench.model.checks import check_order
from glue_bench.model.native import NativeStart
from glue_bench.model.plugins import add_plugins, check_plugin
from glue_bench.training.arm_inputs import ArmInputs
from glue_bench.training.inputs import Inputs
from glue_bench.training.tokenizers import NAME_ONE, vocabulary_size


def check_inputs(inputs: Inputs) -> None:
    """Load the experiment's plugins, and check all that its jobs start from.

    Raises UserError for the first arm, task or pretraining that cannot run.
    """
    experiment = inputs.experiment
    check_arms(experiment)
    in_source = inputs.tasks.in_source
    tasks_of_data = inputs.tasks.source.tasks() if in_source else []

    add_plugins(experiment.plugins)
    our_arms = [arm for arm in experiment.arms if not arm.is_published_model]
    for arm in our_arms:
        check_plugin(arm.variant, arm.options)

    missing = [task for task in in_source if task not in tasks_of_data]
    if missing:
        names = ", ".join(task for task in in_source if task in tasks_of_data)
        advice = (
            f"complete it, or name what it has: `tasks: [{names}]` in a file, "
            f"--task {names.replace(' ', '')} without"
        )
        raise UserError(f"data '{experiment.data}' has no {', '.join(missing)}; {advice}")

    for task in experiment.tasks:
        _check_task(task, inputs)
    for arm in our_arms:
        check_order(inputs.arms[arm.name].start, arm.name)

    for arm in experiment.arms:
        arm_inputs = inputs.arms[arm.name]
        if arm.is_finished:
            for task in experiment.tasks:
                _check_arm(arm_inputs.on(task), [task], inputs)
        else:
            _check_arm(arm_inputs, experiment.tasks, inputs)
    _check_pretraining_seeds(inputs)


def _check_task(task: str, inputs: Inputs) -> None:
    """Refuse a task without the splits that its cells are scored on."""
    experiment = inputs.experiment
    splits = inputs.tasks.data(task).splits
    if experiment.trains:
        train = inputs.tasks.train_split(task)
    if not any(name.startswith("validation") for name in splits):
        fault = f"task '{task}' has no validation split in '{experiment.data}'"
        raise UserError(f"{fault}; complete the data or leave the task out of `tasks`")
    if experiment.trains and experiment.finetuning.held_out_share and len(train) < 2:
        fault = "the train split has one example, of which nothing can be held out"
        raise UserError(f"task '{task}': {fault}")
    inputs.tasks.diagnostics(task)


def _check_pretraining_seeds(inputs: Inputs) -> None:
    """Refuse more seeds than there are sequences: they could not differ in the order."""
    pretraining = inputs.experiment.pretraining
    if pretraining is None:
        return
    seeds = len(pretraining.seeds)
    sequences = len(inputs.text.packed_text(inputs.first_arm.tokenizer)["train"])
    if seeds > sequences:
        raise UserError(
            f"pretraining.seeds has {seeds} seeds, but the text gives only {sequences} sequences "
            "to train on, so that they could not differ in the order; add text, or give fewer seeds"
        )


def _check_arm(arm: ArmInputs, tasks: Sequence[str], inputs: Inputs) -> None:
    """Refuse an arm that cannot take its texts, or that would see other tokens than other arms.

    Args:
        arm: the arm.
        tasks: the tasks that its checkpoint is for.
        inputs: the inputs of the experiment.
    """
    _check_common_tokenizer(arm, inputs)
    _check_vocabulary(arm)
    _check_segment_pairs(arm, inputs)
    _check_lengths(arm, tasks, inputs)
    start = arm.start
    if isinstance(start, NativeStart) and start.counts_ends:
        for task in tasks:
            _check_ends(arm, task, inputs)


def _check_common_tokenizer(arm: ArmInputs, inputs: Inputs) -> None:
    """Refuse arms that would be pretrained on other tokens."""
    first = inputs.first_arm
    is_other = arm.tokenizer_digest != first.tokenizer_digest
    if inputs.experiment.pretraining and is_other:
        raise UserError(
            f"arms '{first.name}' and '{arm.name}' have different tokenizers, so they cannot be "
            "pretrained on the same tokens; give both the same, or put them into experiments of "
            "their own"
        )


def _check_vocabulary(arm: ArmInputs) -> None:
    """Refuse a tokenizer with more tokens or segments than the encoder embeds."""
    tokens = vocabulary_size(arm.tokenizer)
    config = arm.start.config.get_text_config()
    embedded_tokens = getattr(config, "vocab_size", tokens)  # CANINE hashes characters
    tokenizer_segments, encoder_segments = arm.segments
    checkpoint = f"the checkpoint '{arm.arm.checkpoint}'"
    if tokens > embedded_tokens:
        fault = f"has {tokens} tokens but {checkpoint} embeds {embedded_tokens}"
    elif tokenizer_segments > encoder_segments > 1:
        fault = (
            f"tells {tokenizer_segments} segments apart but {checkpoint} embeds {encoder_segments}"
        )
    else:
        return
    advice = f"put the tokenizer it was trained with into its folder, or {NAME_ONE}"
    raise UserError(f"arm '{arm.name}': the tokenizer {fault}; {advice}")


def _check_segment_pairs(arm: ArmInputs, inputs: Inputs) -> None:
    """Refuse to pretrain on pairs of segments if the tokenizer or the encoder has one segment."""
    pretraining = inputs.experiment.pretraining
    if pretraining is None or pretraining.segments != "pairs":
        return
    tokenizer_segments, encoder_segments = arm.segments
    if tokenizer_segments < 2:
        fault = f"tokenizer tells {tokenizer_segments} segments"
    elif encoder_segments < 2:
        fault = f"encoder embeds {encoder_segments} segments"
    else:
        return
    raise UserError(
        f"arm '{arm.name}': pretraining.segments: pairs, but its {fault}, not 2; leave segments out"
    )


def _check_lengths(arm: ArmInputs, tasks: Sequence[str], inputs: Inputs) -> None:
    """Refuse texts that are longer than the positions of a checkpoint."""
    experiment = inputs.experiment
    positions = arm.start.positions
    if positions is None:
        return
    limit = f"the {positions} positions of '{arm.arm.checkpoint}'"
    for task in tasks:
        length = experiment.finetuning.hyperparameters(task, 0.0).max_length
        if length > positions:
            fault = f"max_length {length} of task '{task}' exceeds {limit}"
            advice = f"give `--max-length {positions}`, or set finetuning.max_length in the file"
            raise UserError(f"arm '{arm.name}': {fault}; {advice}")
    pretraining = experiment.pretraining
    if pretraining and pretraining.length > positions:
        fault = f"pretraining.length {pretraining.length} exceeds {limit}"
        advice = f"set `pretraining: {{length: {positions}}}` in the experiment file"
        raise UserError(f"arm '{arm.name}': {fault}; {advice}")


def _check_ends(arm: ArmInputs, task: str, inputs: Inputs) -> None:
    """Refuse a text with the token that ends a text in it, for models that count these tokens."""
    end = arm.tokenizer.eos_token
    if end is None:
        return
    splits = dict(inputs.tasks.data(task).splits)
    for diagnostic in inputs.tasks.diagnostics(task).values():
        splits[diagnostic.row.title] = diagnostic.splits["test"]
    for split, frame in splits.items():
        for column in frame.columns.intersection(["text_a", "text_b"]):
            has_end = frame[column].str.contains(end, regex=False).to_numpy()
            if has_end.any():
                row = int(has_end.argmax()) + 1
                place = f"row {row} of the {split} split of task '{task}' has '{end}' in its text"
                fault = "its tokenizer reads that as the end of a text"
                limit = "its model takes one end a row"
                advice = "change that text, or leave the arm out"
                raise UserError(f"arm '{arm.name}': {place}; {fault}, and {limit}; {advice}")
