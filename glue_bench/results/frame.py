"""Records and the plan of one experiment -> tidy DataFrames: a row a score, and a row an expected cell."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from glue_bench.config import AS_PUBLISHED, Protocol
from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.errors import UserError, unknown
from glue_bench.records.plan import NO_PLAN, AskedCell, Plan
from glue_bench.records.record import Environment, PretrainingRecord, Record
from glue_bench.records.store import Store
from glue_bench.results import epochs
from glue_bench.results.encoders import FACTS, arm_facts

ORIGINS = ("pretrained", "adapted", "grafted", AS_PUBLISHED, "scratch")
CELL_COLUMNS = ("cell_id", "arm", "variant", "origin", "task", "learning_rate", "seed", "pretraining_seed")
RECIPES = ("recipe", "pretraining_recipe")
RUN = ("arm", "task", "learning_rate", "pretraining_seed", "seed")
"""The columns that tell a run from the others of its experiment; the pretraining's seed is NA where there is none."""
SCORE_COLUMNS = ("arm", "variant", "origin", "task", "split", "metric", *RUN[2:], "value")


@dataclass(frozen=True, kw_only=True)
class Results:
    """What an experiment asks for, and what is finished.

    `cells` has a row for each expected cell, in the plan's order: CELL_COLUMNS, then `finished` (bool),
    `collapsed` (the splits on which the run predicted one class or a constant), FACTS, `start_digest` and `summary` of
    its arm, and of finished ones `precision` ("" where it is not recorded), the `recipe` by which they were trained,
    the `pretraining_recipe` by which the weights were that they start from (NA without pretraining of ours), and
    `processor` (where its weights were pretrained, and then where it ran, as far as this is recorded) and
    `of_lost_weights` (its pretraining was run once more later, and made other weights).
    `scores` has a row for each score of each finished cell, in the same order, then in the task's order
    of splits and metrics: SCORE_COLUMNS. Values are 0 to 100; NaN where the metric is undefined.
    `choosing` has a row for each finished run: RUN, and the `value` by which its rate competes under the `protocol`.
    `partial_tasks` were run on a part of their official rows; `from_mnli` start from the arm's own MNLI run; of each
    train set `held_out_share` was kept out. `left_out` counts records outside the plan. `problems` has a line about
    each record that cannot be believed; its cell counts as missing. `differences` are what runs or experiments shown
    together are not alike in; by task, `digests` has that of the data, `rows` the number of examples in each split of
    partial data (as far as known), and `settings` the hyperparameters but for the rate, as JSON.
    `steps` of pretraining came before these cells, the last of `all_steps`; None without pretraining of ours.
    `one_segment` names the experiments whose pretraining knew one segment only. `described`: there is a README.md.
    """

    experiment: str
    data_source: str
    cells: pd.DataFrame
    scores: pd.DataFrame
    choosing: pd.DataFrame
    protocol: Protocol
    partial_tasks: tuple[str, ...]
    left_out: int
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    from_mnli: tuple[str, ...] = ()
    held_out_share: float | None = None
    steps: int | None = None
    all_steps: tuple[int, ...] = ()
    one_segment: tuple[str, ...] = ()
    described: bool = False

    @property
    def missing(self) -> pd.DataFrame:
        """The expected cells that have no record: CELL_COLUMNS."""
        return self.cells.loc[~self.cells["finished"], list(CELL_COLUMNS)]


def read_results(store: Store, steps: int | None = None, protocol: Protocol | None = None) -> Results:
    """Read the plan and the records that belong to it; without a plan, all records.

    Of an experiment that fine-tunes several checkpoints of its pretraining, the cells after `steps`: the last. The
    protocol is the experiment's own unless another one is given.

    Raises:
        UserError: a record names an unknown task or origin, or there is no plan
            and two records are of the same cell.
    """
    read, problems = store.scan_records()
    records = {record.cell_id: record for record in read}
    stored = store.read_plan()
    plan = stored or NO_PLAN
    planned = [plan.seeded(cell) for cell in _expected(stored, records.values())]
    all_steps = tuple(sorted({cell.steps for cell in planned if cell.steps is not None}))
    steps = steps or max(all_steps, default=None)
    protocol = protocol or plan.protocol
    expected = [cell for cell in planned if cell.steps == steps]
    finished = {cell.cell_id: records[cell.cell_id] for cell in expected if cell.cell_id in records}
    # What the records say comes first: it is what the numbers were made from.
    sources = sorted({record.data.source for record in finished.values()})
    names = [plan.experiment, *(record.experiment for record in finished.values())]
    experiment = next((name for name in names if name), store.folder.resolve().name)
    pretraining = plan.config.get("pretraining")
    return Results(
        experiment=experiment,
        data_source=", ".join(sources) or plan.data_source,
        cells=_cells(expected, finished, plan, store),
        scores=_scores(expected, finished, protocol),
        choosing=_choosing(expected, finished, protocol),
        protocol=protocol,
        partial_tasks=in_order(record.cell.task for record in finished.values() if record.data.partial),
        from_mnli=in_order(cell.task for cell in expected if cell.from_mnli),
        held_out_share=plan.held_out_share,
        problems=tuple(problems),
        digests={record.cell.task: record.data.digest for record in finished.values()},
        rows={r.cell.task: _rows(store, r) for r in finished.values() if r.data.partial},
        settings={
            record.cell.task: json.dumps(
                {key: value for key, value in record.hyperparameters.items() if key != "learning_rate"}, sort_keys=True
            )
            for record in finished.values()
        },
        left_out=len(records.keys() - {cell.cell_id for cell in planned}),
        steps=steps,
        all_steps=all_steps,
        one_segment=(experiment,) if isinstance(pretraining, dict) and pretraining.get("segments") != "pairs" else (),
        described=(store.folder / "README.md").is_file(),
    )


def _rows(store: Store, record: Record) -> Mapping[str, int]:
    """How many examples each split has; of a record of an earlier version those that are scored, by their labels."""
    if record.data.rows:
        return record.data.rows
    try:
        labels = store.read_labels(record.cell.task, record.data.digest)
    except UserError:  # damaged labels: the statistics say so
        return {}
    return {split: len(values) for split, values in labels.items()}


def _expected(plan: Plan | None, records: Iterable[Record]) -> Sequence[AskedCell]:
    if plan is not None:
        _check_names(plan.cells)
        return plan.cells
    cells = [AskedCell(cell_id=record.cell_id, origin=record.origin, **dict(record.cell)) for record in records]
    _check_names(cells)
    _check_twins(cells)
    tasks = list(TASKS)
    return sorted(cells, key=lambda cell: (cell.arm, tasks.index(cell.task), cell.learning_rate, cell.seed))


def _check_twins(cells: Iterable[AskedCell]) -> None:
    first: dict[tuple[Any, ...], AskedCell] = {}
    for cell in cells:
        twin = first.setdefault(tuple(getattr(cell, key) for key in (*RUN, "steps")), cell)
        if twin is not cell:
            raise UserError(
                f"records '{twin.cell_id}' and '{cell.cell_id}' are of the same cell and no plan.json "
                "says which one counts; delete one, or run the experiment again"
            )


def _check_names(cells: Iterable[AskedCell]) -> None:
    for cell in cells:
        if cell.task not in TRAINABLE:
            raise unknown("task", cell.task, TRAINABLE, f"cell '{cell.cell_id}'")
        if cell.origin not in ORIGINS:
            raise unknown("origin", cell.origin, ORIGINS, f"cell '{cell.cell_id}'")


def in_order(tasks: Iterable[str]) -> tuple[str, ...]:
    """These tasks, each once, in the order of all tasks."""
    found = set(tasks)
    return tuple(task for task in TASKS if task in found)


def _cells(expected: Sequence[AskedCell], finished: Mapping[str, Record], plan: Plan, store: Store) -> pd.DataFrame:
    recorded = {record.cell.arm: record for record in finished.values()}
    steps = {cell.arm: cell.steps for cell in expected}
    arms = {arm: arm_facts(plan, arm, recorded.get(arm), after) for arm, after in steps.items()}
    pretrainings = _pretrainings(plan, store)
    rows = [dict(cell) | _of_run(finished.get(cell.cell_id)) | arms[cell.arm] for cell in expected]
    for cell, row in zip(expected, rows, strict=True):
        row |= _of_start(pretrainings.get((cell.arm, cell.pretraining_seed)), finished.get(cell.cell_id))
    of_run = ("finished", "collapsed", "precision", "processor", "of_lost_weights")
    columns = [*CELL_COLUMNS, *of_run, *RECIPES, *FACTS, "start_digest", "summary"]
    kinds = _KINDS | {"finished": bool, "of_lost_weights": bool} | dict.fromkeys(("parameters", *RECIPES), "Int64")
    return pd.DataFrame(rows, columns=columns).astype(kinds)


def _pretrainings(plan: Plan, store: Store) -> dict[tuple[str, int | None], PretrainingRecord]:
    """The pretrainings that have ended, by arm and seed."""
    found: dict[tuple[str, int | None], PretrainingRecord] = {}
    for each in plan.all_pretrainings():
        if not each.is_search and store.has_pretraining(each.pretraining_id):
            with suppress(UserError):  # a damaged record: `status` and `verify` say so
                found[each.arm, each.seed] = store.read_pretraining(each.pretraining_id)
    return found


def _of_start(pretraining: PretrainingRecord | None, record: Record | None) -> dict[str, Any]:
    """Where a run and its pretraining were computed ("" if that is not known), and whether its weights are lost."""
    ran = "" if record is None else _computed_on(record.environment)
    before = _computed_on(pretraining.environment) if pretraining else ran
    lost = bool(pretraining and record and record.pretraining_curve not in (None, pretraining.curve))
    known = before and ran and not lost  # where one of the two is not, nothing is
    places = dict.fromkeys(comparable([before, ran]))
    return {"processor": ", then ".join(places) if known else "", "of_lost_weights": lost}


def comparable(processors: Iterable[str]) -> list[str]:
    """Processors as they can be compared: `AMD EPYC (family 26, model 2)` is `AMD EPYC` where one is called just that.

    Records of earlier versions do not have the family, so that these two may be one. Two families are never one.
    """
    names = list(processors)
    families = {name: {other for other in names if other.startswith(f"{name} (family ")} for name in set(names)}
    short = {other: name for name, others in families.items() if len(others) == 1 for other in others}
    return [short.get(name, name) for name in names]


def _computed_on(environment: Environment) -> str:
    """The processor, or the GPU's name."""
    return (environment.processor if environment.device in (None, "cpu") else environment.device) or ""


_KINDS: dict[str, Any] = {"learning_rate": float, "pretraining_seed": "Int64", "seed": int}


def _of_run(record: Record | None) -> dict[str, Any]:
    """What a finished run adds to its cell."""
    if record is None:
        return {"finished": False, "collapsed": (), "precision": "", **dict.fromkeys(RECIPES)}
    return {
        "finished": True,
        "collapsed": record.collapsed,
        "precision": record.precision or record.environment.precision or "",
        "recipe": record.recipe,
        "pretraining_recipe": None if record.cell.steps is None else record.checkpoint.recipe,
    }


def _scores(expected: Iterable[AskedCell], finished: Mapping[str, Record], protocol: Protocol) -> pd.DataFrame:
    rows = [
        {**dict(cell), "split": split, "metric": metric, "value": value}
        for cell in expected
        if cell.cell_id in finished
        for split, metric, value in _values(finished[cell.cell_id], protocol)
    ]
    return pd.DataFrame(rows, columns=list(SCORE_COLUMNS)).astype(_KINDS | {"value": float})


def _choosing(expected: Iterable[AskedCell], finished: Mapping[str, Record], protocol: Protocol) -> pd.DataFrame:
    rows = [
        {**dict(cell), "value": epochs.choosing_value(finished[cell.cell_id], protocol)}
        for cell in expected
        if cell.cell_id in finished
    ]
    return pd.DataFrame(rows, columns=[*RUN, "value"]).astype(_KINDS | {"value": float})


def _values(record: Record, protocol: Protocol) -> Iterable[tuple[str, str, float]]:
    """(split, metric, value from 0 to 100) in the task's order; null, an undefined score, becomes NaN."""
    task, by_split = TASKS[record.cell.task], epochs.reported(record, protocol)
    for split in task.columns:
        scores = by_split.get(split, {})
        for metric in (m for m in task.metrics if m in scores):
            yield split, metric, epochs.points(scores[metric])
