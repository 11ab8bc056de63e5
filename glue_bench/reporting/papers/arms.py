"""The arms of an experiment as a published table sees them: what they are, and in what they are not like a row."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pandas as pd

from glue_bench.config import SCRATCH
from glue_bench.data.tasks import TASKS
from glue_bench.reporting.notes import is_demo
from glue_bench.reporting.papers.published import Published, Row
from glue_bench.tables.board import Board
from glue_bench.tables.numbers import short

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


def read_arms(board: Board) -> list[OurArm]:
    """The arms that have run, in the experiment's order; before any has, all."""
    plan, finished = board.results.plan, board.cells[board.cells["finished"]]
    cells = finished if len(finished) else board.cells
    rates = board.cells.groupby(["arm", "task"])["learning_rate"].nunique().groupby("arm").max()
    arms = []
    for row in board.results.arms.loc[list(dict.fromkeys(cells["arm"]))].to_dict("records"):
        fresh = row["checkpoint"] == SCRATCH or (board.steps and plan.pretrained_from == SCRATCH)
        arms.append(
            OurArm(
                name=row["arm"],
                variant=row["variant"],
                origin=row["origin"],
                options=row["options"],
                rates=int(rates[row["arm"]]),
                parameters=None if pd.isna(row["parameters"]) else row["parameters"],
                checkpoint=None if fresh else PurePath(row["checkpoint"]).name,
                batch_tokens=plan.batch_tokens if board.steps else None,
            )
        )
    return arms


def differences(published: Published, row: Row, arm: OurArm, board: Board, seeds: int) -> list[str]:
    """In what an arm with so many finished seeds is not like the published row: a phrase each."""
    return [
        *([arm.origin] if arm.origin in ("grafted", "adapted") else []),
        *_data(published, board),
        *_size(row, arm),
        *_pretraining(published, row, arm, board.steps),
        *_runs(published, arm, board, seeds),
    ]


def tasks_of(published: Published, tasks: Iterable[str]) -> list[str]:
    """Those of `tasks` that the table has."""
    printed = {score[0] for score in published.columns.values() if score}
    return [task for task in tasks if task in printed]


def _data(published: Published, board: Board) -> list[str]:
    results = board.results
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


def _runs(published: Published, arm: OurArm, board: Board, seeds: int) -> list[str]:
    if not seeds:
        return ["no finished run"]
    found = []
    pretrainings = board.cells.loc[board.cells["arm"] == arm.name, "pretraining_seed"].nunique()
    if published.seeds and pretrainings > 1:  # the seeds of papers are of one pretraining
        found.append(f"{seeds} runs from {pretrainings} pretrainings instead of {published.seeds} from one")
    elif published.seeds and seeds != published.seeds:
        found.append(f"{seeds} seed{'s' * (seeds != 1)} instead of {published.seeds}")
    if published.rates and arm.rates != published.rates:
        found.append(f"{arm.rates} rate{'s' * (arm.rates != 1)} instead of {published.rates}")
    return found
