"""From an experiment to its plan: every cell and pretraining with all that decides its result, each checked."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from glue_bench.config import NATIVE, SCRATCH, Arm, Experiment, PretrainingSettings
from glue_bench.errors import UserError, unknown
from glue_bench.model.checks import budget
from glue_bench.model.native import SUMMARY
from glue_bench.model.plugins import plugin_digest
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.options import canonical_options
from glue_bench.records.values import ArmFacts, Cell, Job, Plan, Pretraining, Shape, TaskFacts
from glue_bench.sweep.preflight import check_cell, check_experiment
from glue_bench.training.inputs import Inputs
from glue_bench.training.packing import LAYOUT_VERSION

SPECIAL_TOKENS = 3
CHARACTERS_A_TOKEN = 4.0  # English in WordPieces; only ratios between tasks matter


def make_plan(experiment: Experiment, inputs: Inputs) -> Plan:
    """What an experiment asks for: its cells, its pretrainings after the runs of their searches, and what they cost.

    Nothing is trained or written. Cells of the last checkpoint come first, and tasks are outermost, so that a sweep
    that is cut short has whole columns.

    Raises:
        UserError: the first thing that would stop a job.
    """
    check_experiment(experiment, inputs)
    pretrainings, cells = settle_jobs(experiment, inputs)
    for cell in cells:
        check_cell(cell, inputs)
    # Where a person keeps data, text and plugins is no one's business; digests tell what they are.
    places: dict[str, Any] = {"data": inputs.source.kind, "plugins": []}
    if experiment.pretraining:
        places["pretraining"] = experiment.pretraining.model_copy(update={"corpus": [inputs.corpus.digest]})
    tasks = {}
    for task in experiment.tasks:
        data = inputs.data(task)
        rows = {name: len(split) for name, split in data.splits.items()} if data.partial else {}
        named = {name: getattr(data, name) for name in ("source", "digest", "partial", "revision")}
        tasks[task] = TaskFacts(**named, rows=rows)
    return Plan(
        experiment=experiment.model_copy(update=places),
        arms={arm.name: _arm_facts(arm, inputs) for arm in experiment.arms},
        tasks=tasks,
        tokens={task: _expected_tokens(task, inputs) for task in experiment.tasks},
        pretrainings=tuple(pretrainings),
        cells=tuple(cells),
    )


def settle_jobs(experiment: Experiment, inputs: Inputs) -> tuple[list[Pretraining], list[Cell]]:
    """The pretrainings and cells of a plan, before they are checked.

    The runs of rate searches come before the pretrainings, and each of them once however many seeds there are.
    """
    searches, wanted = dict[str, Pretraining](), list[Pretraining]()
    for seed, arm in product(inputs.pretraining.seeds, experiment.arms) if experiment.pretraining else ():
        settings = experiment.pretraining_of(arm, seed)
        runs = [_pretraining(arm, each, inputs, is_search=True) for each in settings.searches()]
        searches |= {run.id: run for run in runs}
        wanted.append(_pretraining(arm, settings, inputs, searches=tuple(sorted(run.id for run in runs))))
    return [*searches.values(), *wanted], list(_cells(experiment, inputs, wanted))


def of_arm(arm: Arm, inputs: Inputs) -> dict[str, Any]:
    """What the arm itself decides of its jobs; the source of a variant of the user's own is part of it."""
    return {
        "arm": arm.name,
        "variant": arm.variant,
        "options": {} if arm.variant == NATIVE else canonical_options(arm.variant, arm.options),
        "plugin": plugin_digest(arm.variant),
        "tokenizer": inputs.tokenizer_digest(arm),
        "checkpoint": inputs.start_digest(arm),
        "origin": inputs.origin(arm),
    }


def changed_files(job: Job, inputs: Inputs) -> list[str]:
    """What the files that are read here would make another of the job: another machine may have other ones."""
    here = of_arm(inputs.arm(job.arm), inputs)
    if isinstance(job, Pretraining):
        here["corpus"] = inputs.corpus.digest
    else:
        here["data"] = inputs.data(job.task).digest
    return [name for name, value in here.items() if getattr(job, name) != value]


def _pretraining(arm: Arm, settings: PretrainingSettings, inputs: Inputs, **facts: Any) -> Pretraining:
    # Tokens that are computed at once decide weights where dropout is drawn for each part. Of a checkpoint's own rates
    # of dropout nothing is known here; they are taken to be above zero.
    scratch = inputs.experiment.scratch
    own = max(scratch.hidden_dropout_prob, scratch.attention_probs_dropout_prob) if arm.checkpoint == SCRATCH else 1.0
    drops = (own if settings.dropout is None else settings.dropout) > 0
    in_parts = drops and settings.rows_at_once != settings.rows
    # Without places, and with lists in an order of their own, which decides nothing.
    plain: dict[str, Any] = {"corpus": [inputs.corpus.digest], "tokenizer": None}
    plain["learning_rates"] = sorted(settings.learning_rates)
    if settings.rate_search:
        plain["rate_search"] = settings.rate_search.model_copy(update={"seeds": sorted(settings.rate_search.seeds)})
    return Pretraining(
        **of_arm(arm, inputs),
        corpus=inputs.corpus.digest,
        packing=LAYOUT_VERSION,
        settings=settings.model_copy(update=plain),
        parts=settings.rows_at_once * settings.length if in_parts else None,
        **facts,
    )


def _cells(experiment: Experiment, inputs: Inputs, pretrainings: Sequence[Pretraining]) -> Iterator[Cell]:
    tuning, whole = experiment.finetuning, experiment.pretraining
    starts: dict[tuple[str, int | None], str] = {(one.arm, one.seed): one.id for one in pretrainings}
    arms = {arm.name: of_arm(arm, inputs) for arm in experiment.arms}
    sources: dict[tuple[Any, ...], str] = {}
    mnli_rate = tuning.mnli_rate or tuning.rates("mnli")[0]

    def cell(arm: str, task: str, rate: float, seed: int, steps: int | None, pretraining_seed: int | None) -> Cell:
        mnli, place = None, (arm, "mnli", mnli_rate, seed, steps, pretraining_seed)
        if task in tuning.from_mnli:
            mnli = sources[place] = sources.get(place) or cell(*place).id
        return Cell(
            **arms[arm],
            task=task,
            data=inputs.data(task).digest,
            settings=tuning.hyperparameters(task, rate),
            seed=seed,
            pretraining=starts.get((arm, pretraining_seed)),
            pretraining_seed=pretraining_seed,
            steps=steps,
            mnli=mnli,
        )

    for steps in whole.finetuned_steps[::-1] if whole else [None]:
        for task, seeds in product(experiment.tasks, [whole.seeds if whole else [None]]):
            for rate, pretraining_seed, seed, arm in product(tuning.rates(task), seeds, experiment.seeds, arms):
                yield cell(arm, task, rate, seed, steps, pretraining_seed)


def _arm_facts(arm: Arm, inputs: Inputs) -> ArmFacts:
    experiment, start = inputs.experiment, inputs.initial(arm)
    if arm.variant == NATIVE:  # at a length at which the preflight has run its model already
        longest = max(experiment.finetuning.hyperparameters(task, 0.0).max_length for task in experiment.tasks)
        return ArmFacts(summary=SUMMARY, **inputs.native_budget(arm, longest))
    length = experiment.pretraining.length if experiment.pretraining else experiment.finetuning.max_length
    return ArmFacts(
        summary=VARIANTS[arm.variant].described(arm.options, start.origin),
        shape=Shape(**{name: getattr(start.config, name) or None for name in Shape.model_fields}),
        **budget(start.config, length),
    )


def _expected_tokens(task: str, inputs: Inputs) -> int:
    """About how many tokens a cell trains on, over all epochs; from characters, nothing is tokenised."""
    frame, settings = inputs.train(task), inputs.experiment.finetuning.hyperparameters(task, 0.0)
    characters = frame[[column for column in ("text_a", "text_b") if column in frame]].map(len).sum(axis="columns")
    estimated = (characters / CHARACTERS_A_TOKEN + SPECIAL_TOKENS).clip(upper=settings.max_length)
    in_epoch = -(-len(frame) // settings.batch_size)
    return round(float(estimated.sum()) * settings.steps(in_epoch) / in_epoch)


def select(cells: Sequence[Cell], only: Iterable[str]) -> list[Cell]:
    """The cells that match every `KEY=VALUE`; a key given twice permits either value.

    Raises:
        UserError: not KEY=VALUE, an unknown key, or a value that no cell has.
    """
    wanted, keys = dict[str, set[str]](), list(cells[0].key)
    for condition in only:
        key, equals, value = condition.partition("=")
        if not equals:
            raise UserError(f"--only takes KEY=VALUE, not '{condition}'; keys: {', '.join(keys)}")
        if key not in keys:
            raise unknown("key", key, keys, "--only")
        value = value.lower().replace("-", "") if key == "task" else value
        with suppress(ValueError):  # 2e-5 is 2e-05
            value = str(float(value)) if key == "learning_rate" else value
        known = dict.fromkeys(str(cell.key[key]) for cell in cells)
        if value not in known:
            raise unknown(key, value, known, "--only")
        wanted.setdefault(key, set()).add(value)
    return [cell for cell in cells if all(str(cell.key[key]) in wanted[key] for key in wanted)]
