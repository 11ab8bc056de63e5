"""What a sweep writes: the plan, and the records of cells and of their failures."""

from pathlib import Path

from glue_bench.config import AS_PUBLISHED, NATIVE, Arm, Experiment
from glue_bench.model import native
from glue_bench.model.cost import budget
from glue_bench.model.plugins import plugin_digest
from glue_bench.model.start import Start
from glue_bench.model.variants import VARIANTS
from glue_bench.recipe import older_recipes
from glue_bench.records.plan import ArmFacts, Hashed, Plan, PretrainingFacts, TaskFacts
from glue_bench.records.predicted import Predicted, is_test
from glue_bench.records.record import CellKey, Checkpoint, DataFacts, FailureRecord, PretrainingRecord, Record, Shape
from glue_bench.records.store import Store
from glue_bench.records.value import SCHEMA_VERSION
from glue_bench.sweep.jobs import Failure, Job, PlannedCell, PlannedPretraining
from glue_bench.sweep.older import as_stored
from glue_bench.sweep.order import expected_tokens
from glue_bench.sweep.plan import plan_cells, pretrainings_of
from glue_bench.training.finetune import Outcome
from glue_bench.training.inputs import Inputs, options_of
from glue_bench.training.quiet import quiet_libraries


def plan_of(experiment: Experiment, folder: Path) -> Plan:
    """The plan as a sweep of the experiment into `folder` would write it now; nothing is written.

    Raises:
        UserError: as `plan_cells`.
    """
    quiet_libraries()
    inputs = Inputs(experiment, folder / "checkpoints")
    cells = as_stored(plan_cells(experiment, inputs), inputs, Store(folder))
    return make_plan(experiment, inputs, cells)


def make_plan(experiment: Experiment, inputs: Inputs, cells: list[PlannedCell]) -> Plan:
    """The cells that an experiment asks for, and what they are expected to cost."""
    return Plan(
        schema_version=SCHEMA_VERSION,
        experiment=experiment.name,
        data_source=inputs.source.kind,
        # Where a person keeps data and text is no one's business; their digests tell what they are.
        config=experiment.model_dump(exclude={"data": True, "pretraining": {"corpus"}}),
        arms={arm.name: _arm_facts(arm, inputs) for arm in experiment.arms},
        tasks={
            planned.cell.task: TaskFacts(
                data=inputs.data(planned.cell.task).digest,
                hyperparameters=planned.cell.hyperparameters.model_dump(exclude_none=True, exclude={"learning_rate"}),
            )
            for planned in cells
        },
        training_tokens=expected_tokens(cells, inputs),
        pretrainings=tuple(_pretraining_facts(job, inputs) for job in pretrainings_of(cells, inputs)),
        cells=tuple(planned.asked for planned in cells),
    )


def _pretraining_facts(job: PlannedPretraining, inputs: Inputs) -> PretrainingFacts:
    return PretrainingFacts(
        pretraining_id=job.id,
        arm=job.arm,
        seed=job.run.settings.seed,
        searches=job.searches,
        is_search=job.is_search,
        identity=inputs.pretraining_identity(job.run),
    )


def _arm_facts(arm: Arm, inputs: Inputs) -> ArmFacts:
    experiment, start = inputs.experiment, inputs.initial(arm)
    pretraining = experiment.pretraining
    if arm.variant == NATIVE:  # at a length at which the preflight has run its model already
        costs = inputs.native_budget(arm, max(cell.hyperparameters.max_length for cell in experiment.cells()))
    else:
        costs = budget(start.config, pretraining.length if pretraining else experiment.finetuning.max_length)
    return ArmFacts(
        variant=arm.variant,
        summary=native.SUMMARY if arm.variant == NATIVE else VARIANTS[arm.variant].described(arm.options, start.origin),
        origin=inputs.origin(arm),
        start=inputs.start_digest(arm),
        **dict(_hashed(arm, inputs)),
        older={older: _hashed(arm, inputs, older) for older in older_recipes()},
        plugin=plugin_digest(arm.variant),
        shape=_shape(start),
        **costs,
    )


def _hashed(arm: Arm, inputs: Inputs, recipe: int | None = None) -> Hashed:
    return Hashed(options=options_of(arm, recipe), tokenizer=inputs.tokenizer_digest(arm, recipe))


def _shape(start: Start) -> Shape | None:
    """Native arms, of any families, have no sizes in common."""
    if start.origin == AS_PUBLISHED:
        return None
    return Shape(**{name: getattr(start.config, name) for name in Shape.model_fields})


def record_of(planned: PlannedCell, outcome: Outcome, inputs: Inputs, start: PretrainingRecord | None) -> Record:
    """The record of a finished cell that started from this pretraining."""
    cell, data, initial = planned.cell, inputs.data(planned.cell.task), inputs.initial(planned.cell.arm)
    return Record(
        schema_version=SCHEMA_VERSION,
        cell_id=planned.id,
        experiment=inputs.experiment.name,
        recipe=cell.recipe,
        cell=CellKey(**cell.key),
        options=options_of(cell.arm, cell.recipe),
        plugin=plugin_digest(cell.arm.variant),
        checkpoint=Checkpoint(
            name=cell.arm.checkpoint,
            revision=cell.arm.revision,
            digest=inputs.cell_start_digest(cell),
            recipe=1 if cell.steps is None else cell.pretraining_recipe,
        ),
        shape=_shape(initial),
        tokenizer=inputs.tokenizer_digest(cell.arm, cell.recipe),
        hyperparameters=cell.hyperparameters.model_dump(exclude_none=True),
        from_mnli=planned.mnli,
        **dict(outcome.facts),
        graft_is_exact=initial.exact if initial.origin == "grafted" else None,
        variance_kept=dict(initial.variance_kept),
        data=DataFacts(
            source=data.source,
            digest=data.digest,
            partial=data.partial,
            rows={name: len(split) for name, split in data.splits.items()} if data.partial else {},
            revision=data.revision,
        ),
        pretraining_curve=start.curve if start else None,
    )


def store_outcome(store: Store, planned: PlannedCell, outcome: Outcome, inputs: Inputs) -> None:
    """Store a finished cell; first what it has predicted of test splits, so that no record is there without it."""
    store_tests(store, planned, outcome, inputs)
    kept = planned.cell.hyperparameters.predictions or "float32"  # they were rounded before they were scored
    scored = {split: logits.astype(kept) for split, logits in outcome.predictions.items() if not is_test(split)}
    name = planned.pretraining
    start = store.read_pretraining(name) if name and store.has_pretraining(name) else None
    store.write_record(record_of(planned, outcome, inputs, start), scored)


def store_tests(store: Store, planned: PlannedCell, outcome: Outcome, inputs: Inputs) -> None:
    """Store what a cell has predicted of test splits, if it was asked to."""
    logits = {split: each for split, each in outcome.predictions.items() if is_test(split)}
    diagnostic = inputs.diagnostic(planned.cell.task)
    if logits:
        store.tests.write(planned.id, Predicted(logits, diagnostic.digest if diagnostic else None))


def failure_of(job: Job, failure: Failure) -> FailureRecord:
    """Why a job failed."""
    if isinstance(job, PlannedCell):
        named = dict(job.asked)
    else:
        run = {"variant": job.run.arm.variant, "recipe": job.recipe, "pretraining_seed": job.run.settings.seed}
        named = {"cell_id": job.id, "arm": job.arm, **run}
    return FailureRecord(**named, error=failure.error, traceback=failure.traceback, environment=failure.environment)
