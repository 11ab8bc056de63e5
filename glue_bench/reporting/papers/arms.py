"""The arms of an experiment as a published table sees them: what they are, and in what they are not like a row."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from glue_bench.config import SCRATCH
from glue_bench.data.tasks import TASKS
from glue_bench.records.plan import NO_PLAN, ArmFacts, Plan
from glue_bench.records.record import Record
from glue_bench.records.store import Store
from glue_bench.reporting.notes import is_demo
from glue_bench.reporting.numbers import short
from glue_bench.reporting.papers.published import Published, Row
from glue_bench.results.frame import Results

SIZES = " parameters instead of "
SAME_SIZE = 1.1
"""Models are of one size up to this factor: the same shape differs by its vocabulary and its variant's own weights."""


@dataclass(frozen=True, kw_only=True)
class OurArm:
    """One arm. `checkpoint` is what it started from, None if fresh; `batch_tokens` are those of a pretraining step.

    What is None is not known, or not there: `batch_tokens` of an arm that was not pretrained here.
    """

    name: str
    variant: str
    origin: str
    options: Mapping[str, Any]
    rates: int
    parameters: int | None
    checkpoint: str | None
    batch_tokens: int | None


def read_arms(store: Store, results: Results) -> list[OurArm]:
    """The arms that have run, in the plan's order (before any has, all); from their records what it does not say."""
    plan = store.read_plan() or NO_PLAN
    recorded = {record.cell.arm: record for record in store.scan_records()[0]}
    finished = results.cells[results.cells["finished"]]
    cells = (finished if len(finished) else results.cells).drop_duplicates("arm")
    return [
        _our_arm(cell, plan, recorded.get(cell["arm"]), results)
        for cell in cells[["arm", "variant", "origin"]].to_dict("records")
    ]


def _our_arm(cell: Mapping[Any, str], plan: Plan, record: Record | None, results: Results) -> OurArm:
    name = cell["arm"]
    configured, facts = plan.configured(name), plan.arms.get(name, ArmFacts())
    checkpoint = configured.checkpoint or (record.checkpoint.name if record else "") or SCRATCH
    fresh = checkpoint == SCRATCH or (results.steps and plan.pretrained_from == SCRATCH)
    mine = results.cells[results.cells["arm"] == name]
    return OurArm(
        name=name,
        variant=cell["variant"],
        origin=cell["origin"],
        options=configured.options or (record.options if record else {}),
        rates=int(mine.groupby("task")["learning_rate"].nunique().max()),
        parameters=facts.parameters or (record.parameters if record else None),
        checkpoint=None if fresh else PurePath(checkpoint).name,
        batch_tokens=plan.batch_tokens if results.steps else None,
    )


def differences(published: Published, row: Row, arm: OurArm, results: Results, seeds: int) -> list[str]:
    """In what an arm with so many finished seeds is not like the published row: a phrase each."""
    return [
        *([arm.origin] if arm.origin in ("grafted", "adapted") else []),
        *_data(published, results),
        *_size(row, arm),
        *_pretraining(published, row, arm, results.steps),
        *_runs(published, arm, results, seeds),
    ]


def tasks_of(published: Published, tasks: Iterable[str]) -> list[str]:
    """Those of `tasks` that the table has."""
    printed = {score[0] for score in published.columns.values() if score}
    return [task for task in tasks if task in printed]


def _data(published: Published, results: Results) -> list[str]:
    partial = tasks_of(published, results.partial_tasks)
    if is_demo(results):
        yours = ["demo data"]
    else:
        yours = [f"partial data: {', '.join(TASKS[task].title for task in partial)}"] if partial else []
    tuned = tasks_of(published, results.from_mnli)
    yours += [f"{', '.join(TASKS[task].title for task in tuned)} from MNLI"] if tuned else []
    yours += [f"{results.held_out_share:.3g} of train held out"] if results.held_out_share else []
    return yours + (["dev instead of test set"] if published.split == "test" else [])


def _size(row: Row, arm: OurArm) -> list[str]:
    if row.counterpart is None or not arm.parameters:
        return []
    theirs = row.counterpart.parameters
    alike = abs(math.log(arm.parameters / theirs)) <= math.log(SAME_SIZE)
    return [] if alike else [f"{short(arm.parameters)}{SIZES}{short(theirs)}"]


def _pretraining(published: Published, row: Row, arm: OurArm, steps: int | None) -> list[str]:
    start = [f"from {arm.checkpoint}"] if arm.checkpoint else []
    if arm.origin == "scratch":
        return ["not pretrained"]
    if steps is None or arm.batch_tokens is None:
        return [f"{phrase}, pretrained elsewhere" for phrase in start]
    if row.steps is None:
        return [*start, f"{steps:,} steps, theirs not stated"]
    phrase = "" if steps == row.steps else f"{steps:,} steps instead of {row.steps:,}"
    if published.batch_tokens and (steps, arm.batch_tokens) != (row.steps, published.batch_tokens):
        tokens = short(steps * arm.batch_tokens), short(row.steps * published.batch_tokens)
        phrase = f"{phrase or f'{steps:,} steps'} ({tokens[0]} tokens instead of {tokens[1]}, with padding)"
    return [*start, *filter(None, [phrase])]


def _runs(published: Published, arm: OurArm, results: Results, seeds: int) -> list[str]:
    if not seeds:
        return ["no finished run"]
    found = []
    pretrainings = results.cells.loc[results.cells["arm"] == arm.name, "pretraining_seed"].nunique()
    if published.seeds and pretrainings > 1:  # the seeds of papers are of one pretraining
        found.append(f"{seeds} runs from {pretrainings} pretrainings instead of {published.seeds} from one")
    elif published.seeds and seeds != published.seeds:
        found.append(f"{seeds} seed{'s' * (seeds != 1)} instead of {published.seeds}")
    if published.rates and arm.rates != published.rates:
        found.append(f"{arm.rates} rate{'s' * (arm.rates != 1)} instead of {published.rates}")
    return found
