"""The making of a plan: every cell and pretraining, with all that decides its result."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import pandas as pd

from glue_bench.config import SCRATCH, Arm, Experiment, PretrainingSettings
from glue_bench.config.load import Names, as_list
from glue_bench.config.own_task import OwnTask
from glue_bench.data.tasks import find_task
from glue_bench.errors import UserError
from glue_bench.model import finished
from glue_bench.model.checks import budget, native_budget
from glue_bench.model.native import NATIVE_SUMMARY, NativeStart
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.options import canonical_options
from glue_bench.records.values import ArmFacts, Cell, Plan, Pretraining, Shape, TaskFacts
from glue_bench.sweep.conditions import chosen_values
from glue_bench.sweep.plan_checks import check_inputs
from glue_bench.training.arm_inputs import ArmInputs
from glue_bench.training.inputs import Inputs
from glue_bench.training.packing import LAYOUT_VERSION
from glue_bench.training.trial import check_native

PATHS = ("/", "~", ".", "file:", "local:")
"""The beginnings of names that are places on this machine, even if nothing is there now."""
SPECIAL_TOKENS = 3
CHARACTERS_A_TOKEN = 4.0  # for English in WordPieces; only ratios between tasks matter


def make_plan(inputs: Inputs) -> Plan:
    """Plan the cells of an experiment, its pretrainings with their searches, and the costs.

    Nothing is trained or written. Cells of the last checkpoint come first. They are sorted by task,
    so that a sweep that is cut short has whole columns. Raises UserError for the first mistake that
    would stop a job.
    """
    experiment = inputs.experiment
    check_inputs(inputs)
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
    """Return the experiment without the places of files, as others may see it."""
    experiment = inputs.experiment
    arms = []
    for arm in experiment.arms:
        example = arm.checkpoint_of(experiment.tasks[0])
        names = {
            "checkpoint": _public_name(arm.checkpoint, example),
            "tokenizer": _public_name(arm.tokenizer) if arm.tokenizer else None,
        }
        arms.append(arm.model_copy(update=names))

    public: dict[str, Any] = {
        "data": inputs.tasks.kind,
        "listed_tasks": [_public_task(task) for task in experiment.listed_tasks],
        "plugins": [f"./{PurePath(plugin).name}" for plugin in experiment.plugins],
        "arms": arms,
    }

    pretraining = experiment.pretraining
    if pretraining:
        is_demo = pretraining.corpus == ["demo"]
        tokenizer = pretraining.tokenizer
        text = {
            "corpus": pretraining.corpus if is_demo else [inputs.text.corpus.digest],
            "tokenizer": _public_name(tokenizer) if tokenizer else None,
        }
        public["pretraining"] = pretraining.model_copy(update=text)

    return experiment.model_copy(update=public)


def _public_task(task: str | OwnTask) -> str | OwnTask:
    """Return a task without the places of its files, as others may see it."""
    return task if isinstance(task, str) else task.without_places()


def _public_name(place: str, example: str = "") -> str:
    """Return the last name of a path as `./name`, which is no id of the hub; or an id as it is.

    If the name stands for several places, `example` is one of them.
    """
    is_here = place.startswith(PATHS) or (place != SCRATCH and Path(example or place).exists())
    return f"./{PurePath(place).name}" if is_here else place


def settle_jobs(inputs: Inputs) -> tuple[list[Pretraining], list[Cell]]:
    """Make the pretrainings and cells of a plan, before they are checked.

    The runs of rate searches come before the pretrainings. Each run comes once, even if there are
    several seeds.
    """
    experiment = inputs.experiment
    searches: dict[str, Pretraining] = {}
    pretrainings: list[Pretraining] = []
    seeds = experiment.pretraining.seeds if experiment.pretraining else []
    for seed, arm in product(seeds, experiment.arms):
        settings = inputs.text.settings.run(seed, arm.pretraining_rate)
        search_ids = []
        for search_settings in settings.searches():
            search = _pretraining(arm, search_settings, inputs, is_search=True)
            searches[search.id] = search
            search_ids.append(search.id)
        search_order = tuple(sorted(search_ids))
        pretrainings.append(_pretraining(arm, settings, inputs, searches=search_order))
    cells = _Cells(inputs, pretrainings)
    return [*searches.values(), *pretrainings], list(cells.in_order())


def arm_identity(inputs: ArmInputs) -> dict[str, Any]:
    """Return the fields of a job that its arm decides, with the digests of the arm's files."""
    arm = inputs.arm
    settings = {
        "arm": arm.name,
        "variant": arm.variant,
        "options": {} if arm.is_published_model else canonical_options(arm.variant, arm.options),
        "origin": inputs.origin,
    }
    return settings | inputs.file_digests


def _pretraining(
    arm: Arm, settings: PretrainingSettings, inputs: Inputs, **facts: Any
) -> Pretraining:
    """Make a pretraining of an arm. `facts` say that it is a search, or name its searches."""
    corpus = inputs.text.corpus.digest
    # The settings of a job have no places. Their lists are sorted, because the order of options
    # decides nothing.
    plain: dict[str, Any] = {
        "corpus": [corpus],
        "tokenizer": None,
        "learning_rates": sorted(settings.learning_rates),
    }

    search = settings.rate_search
    if search:
        plain["rate_search"] = search.model_copy(update={"seeds": sorted(search.seeds)})

    is_in_parts = settings.micro_batch_size != settings.rows
    parts_decide = is_in_parts and _has_dropout(arm, settings, inputs.experiment)

    return Pretraining(
        **arm_identity(inputs.arms[arm.name]),
        corpus=corpus,
        packing=LAYOUT_VERSION,
        settings=settings.model_copy(update=plain),
        parts=settings.micro_batch_size * settings.length if parts_decide else None,
        **facts,
    )


def _has_dropout(arm: Arm, settings: PretrainingSettings, experiment: Experiment) -> bool:
    """Return whether dropout is drawn. If so, the division of batches decides the weights.

    Each part of a batch draws dropout anew. A checkpoint's own rates of dropout are not known here,
    and count as above zero.
    """
    if settings.dropout is not None:
        return settings.dropout > 0
    scratch = experiment.scratch
    if arm.checkpoint != SCRATCH:
        return True
    return max(scratch.hidden_dropout_prob, scratch.attention_probs_dropout_prob) > 0


class _CellPlace(NamedTuple):
    """The place of a cell in a plan."""

    arm: str
    task: str
    rate: float
    seed: int
    steps: int | None
    pretraining_seed: int | None


class _Cells:
    """Makes the cells of a plan, which start from `pretrainings` and from one another."""

    def __init__(self, inputs: Inputs, pretrainings: Sequence[Pretraining]) -> None:
        self.inputs = inputs
        self.experiment = inputs.experiment
        self.arms: list[str] = []
        self.finished_arms: list[str] = []
        for arm in inputs.experiment.arms:
            (self.finished_arms if arm.is_finished else self.arms).append(arm.name)
        self.identity = cache(self._identity)
        self.pretraining_ids: dict[tuple[str, int | None], str] = {}
        for job in pretrainings:
            self.pretraining_ids[job.arm, job.seed] = job.id
        self.source_ids: dict[_CellPlace, str] = {}

    def in_order(self) -> Iterator[Cell]:
        """Return all cells: the cells of the last checkpoint first, and then by task."""
        experiment = self.experiment
        pretraining = experiment.pretraining
        steps: Sequence[int | None] = [None]
        pretraining_seeds: Sequence[int | None] = [None]
        if pretraining:
            steps = pretraining.finetuned_steps[::-1]
            pretraining_seeds = pretraining.seeds
        for step, task in product(steps, experiment.tasks):
            rates = experiment.finetuning.rates(task)
            runs = product(rates, pretraining_seeds, experiment.seeds, self.arms)
            for rate, pretraining_seed, seed, arm in runs:
                yield self._cell(_CellPlace(arm, task, rate, seed, step, pretraining_seed))
            for arm in self.finished_arms:
                yield self._evaluation(arm, task)

    def _identity(self, arm: str, task: str) -> dict[str, Any]:
        return arm_identity(self.inputs.arms[arm].on(task))

    def _evaluation(self, arm: str, task: str) -> Cell:
        """Make the cell that scores a finished classifier on a task."""
        return Cell(
            **self.identity(arm, task),
            task=task,
            data=self.inputs.tasks.data(task).digest,
            settings=self.experiment.finetuning.evaluation(task),
            seed=0,
        )

    def _cell(self, place: _CellPlace) -> Cell:
        """Make the fine-tuning run at a place of the plan."""
        tuning = self.experiment.finetuning
        starts_from_mnli = place.task in tuning.from_mnli
        return Cell(
            **self.identity(place.arm, place.task),
            task=place.task,
            data=self.inputs.tasks.data(place.task).digest,
            settings=tuning.hyperparameters(place.task, place.rate),
            seed=place.seed,
            pretraining=self.pretraining_ids.get((place.arm, place.pretraining_seed)),
            pretraining_seed=place.pretraining_seed,
            steps=place.steps,
            mnli=self._mnli_source(place) if starts_from_mnli else None,
        )

    def _mnli_source(self, place: _CellPlace) -> str:
        """Return the id of the MNLI cell from whose encoder a cell starts."""
        rate = self.experiment.finetuning.source_rate
        source = place._replace(task="mnli", rate=rate)
        if source not in self.source_ids:
            self.source_ids[source] = self._cell(source).id
        return self.source_ids[source]


def _arm_facts(arm: Arm, inputs: Inputs) -> ArmFacts:
    """Return what a plan says of an arm. Raises UserError for a native model that cannot run."""
    experiment = inputs.experiment
    arm_inputs = inputs.arms[arm.name]
    start = arm_inputs.start
    tuning = experiment.finetuning

    if isinstance(start, NativeStart):
        # The model runs here on the longest text. It is refused if it cannot.
        longest = max(tuning.hyperparameters(task, 0.0).max_length for task in experiment.tasks)
        cost = native_budget(start, arm_inputs.tokenizer, longest, arm.name)
        if arm.is_finished:
            return ArmFacts(summary=finished.FINISHED_SUMMARY, **cost)
        check_native(arm_inputs, start)
        return ArmFacts(summary=NATIVE_SUMMARY, **cost)

    pretraining = experiment.pretraining
    length = pretraining.length if pretraining else tuning.max_length
    sizes = {}
    for name in Shape.model_fields:
        sizes[name] = getattr(start.config, name) or None

    return ArmFacts(
        summary=VARIANTS[arm.variant].described(arm.options, start.origin),
        shape=Shape(**sizes),
        **budget(start.config, length),
    )


def _task_facts(task: str, inputs: Inputs) -> TaskFacts:
    """Return what a plan says of the data of a task."""
    data = inputs.tasks.data(task)

    predicts: list[str] = []
    if inputs.experiment.finetuning.predicts_test:
        predicts += [name for name in find_task(task).test_splits if name in data.splits]
    predicts += inputs.tasks.diagnostics(task)

    rows = {}
    if data.partial:
        for name, split in data.splits.items():
            rows[name] = len(split)

    return TaskFacts(
        source=data.source,
        digest=data.digest,
        partial=data.partial,
        rows=rows,
        differences=data.differences or None,
        unchecked=data.unchecked or None,
        revision=data.revision,
        predicts=tuple(predicts) or None,
        diagnostic=inputs.tasks.diagnostic_digest(task),
    )


def _expected_tokens(task: str, inputs: Inputs) -> int:
    """Estimate how many tokens a cell trains on over all epochs, from the number of characters.

    If all arms are finished, the estimate is for the tokens of the validation splits.
    """
    settings = inputs.experiment.finetuning.hyperparameters(task, 0.0)
    if not inputs.experiment.trains:
        frames = inputs.tasks.validation_splits(task)
        return sum(round(_tokens_of(frame, settings.max_length)) for frame in frames)
    frame = inputs.tasks.train_split(task)
    steps_per_epoch = settings.steps_per_epoch(len(frame))
    tokens = _tokens_of(frame, settings.max_length)
    return round(tokens * settings.steps(steps_per_epoch) / steps_per_epoch)


def _tokens_of(frame: pd.DataFrame, max_length: int) -> float:
    """Estimate the tokens of a split."""
    columns = ["text_a", "text_b"] if "text_b" in frame else ["text_a"]
    characters = frame[columns].map(len).sum(axis="columns")
    tokens = (characters / CHARACTERS_A_TOKEN + SPECIAL_TOKENS).clip(upper=max_length)
    return float(tokens.sum())


def select(cells: Sequence[Cell], only: Names) -> list[Cell]:
    """Select the cells that match every KEY=VALUE; a key given twice, or `A,B`, permits either.

    Raises UserError for a condition without `=`, an unknown key, and a value that no cell has.
    """
    values_of_keys: dict[str, list[Any]] = {}
    for cell in cells:
        for key, value in cell.key.items():
            values_of_keys.setdefault(key, []).append(value)
    chosen = chosen_values(only, values_of_keys)
    selected = [cell for cell in cells if _matches(cell, chosen)]
    if not selected:
        raise UserError(f"--only: no cell has all of {', '.join(as_list(only))}")
    return selected


def _matches(cell: Cell, chosen: Mapping[str, Collection[str]]) -> bool:
    """Return whether a cell has one of the chosen values of each key."""
    key_of_cell = cell.key
    return all(str(key_of_cell[key]) in values for key, values in chosen.items())
