"""Several experiments in one leaderboard: what is alike stands side by side, what is not is said or left out."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import pandas as pd

from glue_bench.config import Protocol
from glue_bench.data.tasks import TASKS, titles
from glue_bench.errors import UserError
from glue_bench.results.encoders import UNRECORDED
from glue_bench.results.frame import Results, in_order

Value = TypeVar("Value")
NOTHING = "nothing"


def together(several: Sequence[Results], declared: Mapping[str, Protocol]) -> Results:
    """The results of several experiments, read by one protocol, as those of one.

    Arms of one name are told apart as `experiment/arm`, and encoders of different shapes stand in blocks of their own.
    A task that was run on different data is left out; other settings of fine-tuning, and protocols other than the one
    used (`declared` has each experiment's own), are noted.

    Raises:
        UserError: two experiments have one name, or no task was run on the same data by all that have it.
    """
    names = [results.experiment for results in several]
    if len(set(names)) < len(names):
        raise UserError(f"two of the experiments have one name ({', '.join(names)}); give each of them once")
    others = _tasks_that_differ({name: results.digests for name, results in zip(names, several, strict=True)})
    every = [arm for results in several for arm in results.cells["arm"].unique()]
    twice = {arm for arm in every if every.count(arm) > 1}
    several = [_comparable(results, list(others), twice) for results in several]
    first = several[0]
    undeclared = ", ".join(name for name, protocol in declared.items() if protocol != first.protocol)
    return replace(
        first,
        experiment=", ".join(names),
        data_source=", ".join(sorted({results.data_source for results in several})),
        cells=pd.concat([results.cells for results in several], ignore_index=True),
        scores=pd.concat([results.scores for results in several], ignore_index=True),
        choosing=pd.concat([results.choosing for results in several], ignore_index=True),
        partial_tasks=in_order(task for results in several for task in results.partial_tasks),
        from_mnli=in_order(task for results in several for task in results.from_mnli),
        digests={task: digest for results in several[::-1] for task, digest in results.digests.items()},
        rows={task: rows for results in several[::-1] for task, rows in results.rows.items()},
        problems=tuple(line for results in several for line in results.problems),
        held_out_share=_if_alike([results.held_out_share for results in several]),
        differences=(
            *(f"{TASKS[task].title} is left out: its data differ ({who})." for task, who in others.items()),
            *_settings_that_differ(several),
            *_said_of_each("Held out of each train set", {r.experiment: r.held_out_share for r in several}),
            *_said_of_each("From the arm's own MNLI run", {r.experiment: titles(r.from_mnli) for r in several}),
            *([f"{undeclared} declares another protocol; all are shown by the one above."] if undeclared else []),
        ),
        left_out=sum(results.left_out for results in several),
        steps=_if_alike([results.steps for results in several]),
        all_steps=(),
        one_segment=tuple(name for results in several for name in results.one_segment),
    )


def _tasks_that_differ(digests: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Tasks that were run on more than one content -> which experiment has which, by the digests' first digits."""
    differ = {}
    for task in TASKS:
        having = {name: found[task] for name, found in digests.items() if task in found}
        if len(set(having.values())) > 1:
            differ[task] = ", ".join(f"{name}: {digest[:12]}" for name, digest in having.items())
    if differ and not any(set(found) - set(differ) for found in digests.values()):
        raise UserError("the experiments have no task with the same data; run them with the same --data")
    return differ


def _comparable(results: Results, left_out: Sequence[str], twice: Collection[str]) -> Results:
    """Without some tasks, and with what could be confused told apart by the experiment's name.

    That are arms whose names occur `twice`, and encoders of which nothing is known: they stand in a block of their own.
    """
    names = {arm: f"{results.experiment}/{arm}" for arm in twice}
    cells, scores, choosing = (
        frame[~frame["task"].isin(left_out)].replace({"arm": names})
        for frame in (results.cells, results.scores, results.choosing)
    )
    shapes = {UNRECORDED: f"{UNRECORDED} ({results.experiment})"}
    return replace(results, cells=cells.replace({"shape": shapes}), scores=scores, choosing=choosing)


def _settings_that_differ(several: Sequence[Results]) -> list[str]:
    notes = []
    for task in TASKS:
        mine = {r.experiment: json.loads(r.settings[task]) for r in several if task in r.settings}
        keys = sorted({key for settings in mine.values() for key in settings} - {"held_out_share"})  # has its own line
        for key in keys:
            values = {name: settings.get(key) for name, settings in mine.items()}
            if len({json.dumps(value) for value in values.values()}) > 1:
                shown = ", ".join(f"{name}: {value}" for name, value in values.items())
                notes.append(f"{TASKS[task].title}: fine-tuned with another {key} ({shown}).")
    return notes


def _if_alike(values: Sequence[Value]) -> Value | None:
    """What all of them are; None where they differ."""
    return values[0] if len(set(values)) == 1 else None


def _said_of_each(what: str, values: Mapping[str, float | str | None]) -> list[str]:
    """A line about a setting of whole experiments, unless it is the same for all."""
    if len(set(values.values())) == 1:
        return []
    return [f"{what}: {'; '.join(f'{name}: {value or NOTHING}' for name, value in values.items())}."]
