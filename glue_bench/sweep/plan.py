"""From an experiment to its plan: every cell and pretraining with all that decides its result, each checked."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path, PurePath
from typing import Any

from glue_bench.config import NATIVE, SCRATCH, Arm, Experiment, PretrainingSettings
from glue_bench.config.load import Names, listed
from glue_bench.data.tasks import AX_SPLIT, TASKS
from glue_bench.errors import IN_A_FILE, UserError
from glue_bench.model.arms import check_arms
from glue_bench.model.checks import budget, check_order, native_budget
from glue_bench.model.native import SUMMARY, NativeStart
from glue_bench.model.plugins import add_plugins, check_plugin, plugin_digest
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.options import canonical_options
from glue_bench.records.values import ArmFacts, Cell, Plan, Pretraining, Shape, TaskFacts
from glue_bench.sweep.conditions import chosen_values
from glue_bench.training.arm_inputs import ArmInputs
from glue_bench.training.inputs import Inputs
from glue_bench.training.packing import LAYOUT_VERSION
from glue_bench.training.tokenizers import NAME_ONE, vocabulary_size
from glue_bench.training.trial import check_native

PATHS = ("/", "~", ".", "file:", "local:")
"""How names begin that are of places on this machine, whether or not something is there now."""
SPECIAL_TOKENS = 3
CHARACTERS_A_TOKEN = 4.0  # English in WordPieces; only ratios between tasks matter


def make_plan(inputs: Inputs) -> Plan:
    """What an experiment asks for: its cells, its pretrainings after the runs of their searches, and what they cost.

    Nothing is trained or written. Cells of the last checkpoint come first, and tasks are outermost, so that a sweep
    that is cut short has whole columns. Raises UserError for the first thing that would stop a job.
    """
    experiment = inputs.experiment
    _check(inputs)
    pretrainings, cells = settle_jobs(inputs)
    return Plan(
        experiment=_without_places(inputs),
        arms={arm.name: _arm_facts(arm, inputs) for arm in experiment.arms},
        tasks={task: _task_facts(task, inputs) for task in experiment.tasks},
        tokens={task: _expected_tokens(task, inputs) for task in experiment.tasks},
        pretrainings=tuple(pretrainings),
        cells=tuple(cells),
    )


def _without_places(inputs: Inputs) -> Experiment:
    """The experiment as others may see it. Where a person keeps files is no one's business; digests tell what they are.

    Of the path of a checkpoint, a tokenizer or a plugin the last name stays, as `./name`, which is no id of the hub.
    """
    experiment = inputs.experiment

    def name_of(place: str) -> str:
        is_here = place.startswith(PATHS) or (place != SCRATCH and Path(place).exists())
        return f"./{PurePath(place).name}" if is_here else place

    arms = []
    for arm in experiment.arms:
        tokenizer = name_of(arm.tokenizer) if arm.tokenizer else None
        arms.append(
            arm.model_copy(update={"checkpoint": name_of(arm.checkpoint), "tokenizer": tokenizer})
        )
    plugins = [f"./{PurePath(plugin).name}" for plugin in experiment.plugins]
    public: dict[str, Any] = {"data": inputs.tasks.source.kind, "plugins": plugins, "arms": arms}
    if pretraining := experiment.pretraining:
        corpus = (
            pretraining.corpus if pretraining.corpus == ["demo"] else [inputs.text.corpus.digest]
        )
        tokenizer = name_of(pretraining.tokenizer) if pretraining.tokenizer else None
        public["pretraining"] = pretraining.model_copy(
            update={"corpus": corpus, "tokenizer": tokenizer}
        )
    return experiment.model_copy(update=public)


def _check(inputs: Inputs) -> None:
    """Load the experiment's plugins; refuse arms, tasks and a pretraining that cannot run."""
    experiment = inputs.experiment
    check_arms(experiment)
    there = inputs.tasks.source.tasks()
    add_plugins(experiment.plugins)
    ours = [arm for arm in experiment.arms if arm.variant != NATIVE]
    for arm in ours:
        check_plugin(arm.variant, arm.options)
    if missing := [task for task in experiment.tasks if task not in there]:
        left = ", ".join(task for task in experiment.tasks if task in there)
        advice = (
            f"complete it, or name what it has: `tasks: [{left}]` in a file, "
            f"--task {left.replace(' ', '')} without"
        )
        raise UserError(f"data '{experiment.data}' has no {', '.join(missing)}; {advice}")
    for task in experiment.tasks:
        train, splits = inputs.tasks.train_split(task), inputs.tasks.data(task).splits
        if not any(name.startswith("validation") for name in splits):
            advice = "complete the data or leave the task out of `tasks`"
            raise UserError(
                f"task '{task}' has no validation split in '{experiment.data}'; {advice}"
            )
        if experiment.finetuning.held_out_share and len(train) < 2:
            raise UserError(
                f"task '{task}': the train split has one example, of which nothing can be held out"
            )
        inputs.tasks.diagnostic(task)
    for arm in ours:
        check_order(inputs.arms[arm.name].start, arm.name)
    for arm in experiment.arms:
        _check_arm(arm, inputs)
    seeds = len(experiment.pretraining.seeds) if experiment.pretraining else 0
    if not seeds:
        return
    sequences = len(inputs.text.packed_text(inputs.first_arm.tokenizer)["train"])
    if seeds > sequences:
        raise UserError(
            f"pretraining.seeds has {seeds} seeds, but the text gives only {sequences} sequences to train on, so that "
            "they could not differ in the order; add text, or give fewer seeds"
        )


def _check_arm(arm: Arm, inputs: Inputs) -> None:
    """Refuse a tokenizer, a length or a text that its encoder cannot take, or tokens that other arms do not see."""
    experiment = inputs.experiment
    arm_inputs = inputs.arms[arm.name]
    start = arm_inputs.start
    named = f"arm '{arm.name}'"
    first, pretraining, positions = experiment.arms[0], experiment.pretraining, start.positions
    if pretraining and arm_inputs.tokenizer_digest != inputs.first_arm.tokenizer_digest:
        raise UserError(
            f"arms '{first.name}' and '{arm.name}' have different tokenizers, so they cannot be pretrained on the "
            "same tokens; give both the same, or put them into experiments of their own"
        )
    tokens = vocabulary_size(arm_inputs.tokenizer)
    rows = getattr(
        start.config.get_text_config(), "vocab_size", tokens
    )  # CANINE hashes characters: it has no table
    told, embedded = arm_inputs.segments
    if tokens > rows or told > embedded > 1:
        says, has = (
            (f"has {tokens} tokens", rows)
            if tokens > rows
            else (f"tells {told} segments apart", embedded)
        )
        advice = f"put the tokenizer it was trained with into its folder, or {NAME_ONE}"
        raise UserError(
            f"{named}: the tokenizer {says} but the checkpoint '{arm.checkpoint}' embeds {has}; {advice}"
        )
    if pretraining and pretraining.segments == "pairs" and min(told, embedded) < 2:
        which = f"tokenizer tells {told}" if told < 2 else f"encoder embeds {embedded}"
        raise UserError(
            f"{named}: pretraining.segments: pairs, but its {which} segments, not 2; leave segments out"
        )
    limit = f"the {positions} positions of '{arm.checkpoint}'"
    for task in experiment.tasks:
        length = experiment.finetuning.hyperparameters(task, 0.0).max_length
        if positions is not None and length > positions:
            advice = f"set `finetuning: {{max_length: {positions}}}` {IN_A_FILE}"
            raise UserError(
                f"{named}: max_length {length} of task '{task}' exceeds {limit}; {advice}"
            )
    if pretraining and positions is not None and pretraining.length > positions:
        advice = f"set `pretraining: {{length: {positions}}}` in the experiment file"
        raise UserError(
            f"{named}: pretraining.length {pretraining.length} exceeds {limit}; {advice}"
        )
    if isinstance(start, NativeStart) and start.counts_ends:
        for task in experiment.tasks:
            _check_ends(arm, task, inputs)


def _check_ends(arm: Arm, task: str, inputs: Inputs) -> None:
    """Refuse a text with the token that ends a text in it, for models that count these tokens."""
    end = inputs.arms[arm.name].tokenizer.eos_token
    if end is None:
        return
    splits = dict(inputs.tasks.data(task).splits)
    if (diagnostic := inputs.tasks.diagnostic(task)) is not None:
        splits["AX"] = diagnostic.splits["test"]
    for split, frame in splits.items():
        for column in frame.columns.intersection(["text_a", "text_b"]):
            has_end = frame[column].str.contains(end, regex=False).to_numpy()
            if has_end.any():
                place = f"row {int(has_end.argmax()) + 1} of the {split} split of task '{task}' has '{end}' in its text"
                fault = "its tokenizer reads that as the end of a text, and its model takes one end a row"
                raise UserError(
                    f"arm '{arm.name}': {place}; {fault}; change that text, or leave the arm out"
                )


def settle_jobs(inputs: Inputs) -> tuple[list[Pretraining], list[Cell]]:
    """The pretrainings and cells of a plan, before they are checked.

    The runs of rate searches come before the pretrainings, and each of them once however many seeds there are.
    """
    searches, wanted, experiment = dict[str, Pretraining](), list[Pretraining](), inputs.experiment
    for seed, arm in (
        product(inputs.text.settings.seeds, experiment.arms) if experiment.pretraining else ()
    ):
        settings = inputs.text.settings.run(seed, arm.pretraining_rate)
        runs = [_pretraining(arm, each, inputs, is_search=True) for each in settings.searches()]
        searches |= {run.id: run for run in runs}
        wanted.append(
            _pretraining(arm, settings, inputs, searches=tuple(sorted(run.id for run in runs)))
        )
    return [*searches.values(), *wanted], list(_cells(inputs, wanted))


def of_arm(inputs: ArmInputs) -> dict[str, Any]:
    """What the arm itself decides of its jobs; the source of a variant of the user's own is part of it."""
    arm = inputs.arm
    return {
        "arm": arm.name,
        "variant": arm.variant,
        "options": {} if arm.variant == NATIVE else canonical_options(arm.variant, arm.options),
        "plugin": plugin_digest(arm.variant),
        "tokenizer": inputs.tokenizer_digest,
        "checkpoint": inputs.start_digest,
        "origin": inputs.origin,
    }


def _pretraining(
    arm: Arm, settings: PretrainingSettings, inputs: Inputs, **facts: Any
) -> Pretraining:
    # Tokens that are computed at once decide weights where dropout is drawn for each part. Of a checkpoint's own rates
    # of dropout nothing is known here; they are taken to be above zero.
    scratch = inputs.experiment.scratch
    own = (
        max(scratch.hidden_dropout_prob, scratch.attention_probs_dropout_prob)
        if arm.checkpoint == SCRATCH
        else 1.0
    )
    drops = (own if settings.dropout is None else settings.dropout) > 0
    in_parts = drops and settings.micro_batch_size != settings.rows
    # Without places, and with lists in an order of their own, which decides nothing.
    plain: dict[str, Any] = {"corpus": [inputs.text.corpus.digest], "tokenizer": None}
    plain["learning_rates"] = sorted(settings.learning_rates)
    if settings.rate_search:
        plain["rate_search"] = settings.rate_search.model_copy(
            update={"seeds": sorted(settings.rate_search.seeds)}
        )
    return Pretraining(
        **of_arm(inputs.arms[arm.name]),
        corpus=inputs.text.corpus.digest,
        packing=LAYOUT_VERSION,
        settings=settings.model_copy(update=plain),
        parts=settings.micro_batch_size * settings.length if in_parts else None,
        **facts,
    )


def _cells(inputs: Inputs, pretrainings: Sequence[Pretraining]) -> Iterator[Cell]:
    experiment, tuning, whole = (
        inputs.experiment,
        inputs.experiment.finetuning,
        inputs.experiment.pretraining,
    )
    starts: dict[tuple[str, int | None], str] = {
        (one.arm, one.seed): one.id for one in pretrainings
    }
    arms = {arm.name: of_arm(inputs.arms[arm.name]) for arm in experiment.arms}
    sources: dict[tuple[Any, ...], str] = {}

    def cell(
        arm: str, task: str, rate: float, seed: int, steps: int | None, pretraining_seed: int | None
    ) -> Cell:
        place = (arm, "mnli", tuning.source_rate, seed, steps, pretraining_seed)
        if task in tuning.from_mnli and place not in sources:
            sources[place] = cell(*place).id
        return Cell(
            **arms[arm],
            task=task,
            data=inputs.tasks.data(task).digest,
            settings=tuning.hyperparameters(task, rate),
            seed=seed,
            pretraining=starts.get((arm, pretraining_seed)),
            pretraining_seed=pretraining_seed,
            steps=steps,
            mnli=sources[place] if task in tuning.from_mnli else None,
        )

    pretraining_seeds: Sequence[int | None] = whole.seeds if whole else [None]
    for steps, task in product(whole.finetuned_steps[::-1] if whole else [None], experiment.tasks):
        for rate, pretraining_seed, seed, arm in product(
            tuning.rates(task), pretraining_seeds, experiment.seeds, arms
        ):
            yield cell(arm, task, rate, seed, steps, pretraining_seed)


def _arm_facts(arm: Arm, inputs: Inputs) -> ArmFacts:
    experiment, start = inputs.experiment, inputs.arms[arm.name].start
    if isinstance(
        start, NativeStart
    ):  # its model runs here, on the longest text: one that cannot is refused
        longest = max(
            experiment.finetuning.hyperparameters(task, 0.0).max_length for task in experiment.tasks
        )
        cost = native_budget(start, inputs.arms[arm.name].tokenizer, longest, arm.name)
        check_native(inputs.arms[arm.name], start)
        return ArmFacts(summary=SUMMARY, **cost)
    length = (
        experiment.pretraining.length
        if experiment.pretraining
        else experiment.finetuning.max_length
    )
    return ArmFacts(
        summary=VARIANTS[arm.variant].described(arm.options, start.origin),
        shape=Shape(**{name: getattr(start.config, name) or None for name in Shape.model_fields}),
        **budget(start.config, length),
    )


def _task_facts(task: str, inputs: Inputs) -> TaskFacts:
    data = inputs.tasks.data(task)
    diagnostic = inputs.tasks.diagnostic(task)
    predicts: list[str] = []
    if inputs.experiment.finetuning.predicts_test:
        predicts += [name for name in TASKS[task].test_splits if name in data.splits]
    if diagnostic:
        predicts.append(AX_SPLIT)
    return TaskFacts(
        source=data.source,
        digest=data.digest,
        partial=data.partial,
        rows={name: len(split) for name, split in data.splits.items()} if data.partial else {},
        differences=data.differences or None,
        unchecked=data.unchecked or None,
        revision=data.revision,
        predicts=tuple(predicts) or None,
        diagnostic=diagnostic.digest if diagnostic else None,
    )


def _expected_tokens(task: str, inputs: Inputs) -> int:
    """About how many tokens a cell trains on, over all epochs; from characters, nothing is tokenised."""
    frame = inputs.tasks.train_split(task)
    settings = inputs.experiment.finetuning.hyperparameters(task, 0.0)
    characters = (
        frame[[column for column in ("text_a", "text_b") if column in frame]]
        .map(len)
        .sum(axis="columns")
    )
    estimated = (characters / CHARACTERS_A_TOKEN + SPECIAL_TOKENS).clip(upper=settings.max_length)
    in_epoch = settings.steps_per_epoch(len(frame))
    return round(float(estimated.sum()) * settings.steps(in_epoch) / in_epoch)


def select(cells: Sequence[Cell], only: Names) -> list[Cell]:
    """The cells that match every `KEY=VALUE`; a key given twice, or with `A,B`, permits either value.

    Raises UserError for what is not KEY=VALUE, an unknown key, and a value that no cell has.
    """
    keys = list(cells[0].key)
    values_of_keys = {key: [cell.key[key] for cell in cells] for key in keys}
    chosen = chosen_values(only, values_of_keys)
    selected = [cell for cell in cells if all(str(cell.key[key]) in chosen[key] for key in chosen)]
    if not selected:
        raise UserError(f"--only: no cell has all of {', '.join(listed(only))}")
    return selected
