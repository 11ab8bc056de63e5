"""From an experiment to its plan: every cell and pretraining with all that decides its result, each checked."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from glue_bench.config import NATIVE, SCRATCH, Arm, Experiment, PretrainingSettings
from glue_bench.errors import UserError, unknown
from glue_bench.model.cost import budget
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
    return Plan(
        experiment=_without_places(experiment, inputs),
        arms={arm.name: _arm_facts(arm, inputs) for arm in experiment.arms},
        tasks={task: _task_facts(task, inputs) for task in experiment.tasks},
        tokens={task: _expected_tokens(task, experiment, inputs) for task in experiment.tasks},
        pretrainings=tuple(pretrainings),
        cells=tuple(cells),
    )


def settle_jobs(experiment: Experiment, inputs: Inputs) -> tuple[list[Pretraining], list[Cell]]:
    """The pretrainings and cells of a plan, before they are checked."""
    pretrainings = _pretrainings(experiment, inputs) if experiment.pretraining else []
    return pretrainings, list(_cells(experiment, inputs, pretrainings))


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


def _pretrainings(experiment: Experiment, inputs: Inputs) -> list[Pretraining]:
    """Those of every arm and seed, after the runs of rate searches, each of these once however many seeds there are."""
    searches, wanted = dict[str, Pretraining](), []
    for seed, arm in product(inputs.pretraining.seeds, experiment.arms):
        settings = experiment.pretraining_of(arm, seed)
        runs = [_pretraining(arm, each, inputs, is_search=True) for each in settings.searches()]
        searches |= {run.id: run for run in runs}
        wanted.append(_pretraining(arm, settings, inputs, searches=tuple(sorted(run.id for run in runs))))
    return [*searches.values(), *wanted]


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
    starts: dict[tuple[str, int | None], str] = {}
    starts |= {(one.arm, one.seed): one.id for one in pretrainings if not one.is_search}
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


def _without_places(experiment: Experiment, inputs: Inputs) -> Experiment:
    """Where a person keeps data, text and plugins is no one's business; digests tell what they are."""
    changes: dict[str, Any] = {"data": inputs.source.kind, "plugins": []}
    if experiment.pretraining:
        changes["pretraining"] = experiment.pretraining.model_copy(update={"corpus": [inputs.corpus.digest]})
    return experiment.model_copy(update=changes)


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


def _task_facts(task: str, inputs: Inputs) -> TaskFacts:
    data = inputs.data(task)
    rows = {name: len(split) for name, split in data.splits.items()} if data.partial else {}
    return TaskFacts(source=data.source, digest=data.digest, partial=data.partial, rows=rows, revision=data.revision)


def _expected_tokens(task: str, experiment: Experiment, inputs: Inputs) -> int:
    """About how many tokens a cell trains on, over all epochs; from characters, nothing is tokenised."""
    frame = inputs.train(task)
    settings = experiment.finetuning.hyperparameters(task, 0.0)
    characters = frame[[column for column in ("text_a", "text_b") if column in frame]].map(len).sum(axis="columns")
    estimated = (characters / CHARACTERS_A_TOKEN + SPECIAL_TOKENS).clip(upper=settings.max_length)
    in_epoch = -(-len(frame) // settings.batch_size)
    return round(float(estimated.sum()) * settings.steps(in_epoch) / in_epoch)


def select(cells: Sequence[Cell], only: Iterable[str]) -> list[Cell]:
    """The cells that match every `KEY=VALUE`; a key given twice permits either value.

    Raises:
        UserError: not KEY=VALUE, an unknown key, or a value that no cell has.
    """
    wanted: dict[str, set[str]] = {}
    for condition in only:
        key, value = _parse_condition(condition, cells)
        wanted.setdefault(key, set()).add(value)
    return [cell for cell in cells if all(str(cell.key[key]) in wanted[key] for key in wanted)]


def _parse_condition(condition: str, cells: Sequence[Cell]) -> tuple[str, str]:
    key, equals, value = condition.partition("=")
    keys = list(cells[0].key)
    if not equals:
        raise UserError(f"--only takes KEY=VALUE, not '{condition}'; keys: {', '.join(keys)}")
    if key not in keys:
        raise unknown("key", key, keys, "--only")
    value = value.lower().replace("-", "") if key == "task" else value
    known = list(dict.fromkeys(cell.key[key] for cell in cells))
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    for candidate in known:
        if str(candidate) == value or (isinstance(candidate, float) and candidate == number):
            return key, str(candidate)
    raise unknown(key, value, map(str, known), "--only")
