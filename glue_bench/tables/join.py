"""Several experiments in one leaderboard: what is alike stands side by side, what is not is said or left out."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from glue_bench.config import Protocol
from glue_bench.data.tasks import TASKS, titles
from glue_bench.errors import UserError
from glue_bench.tables.results import BASELINES, Results

NOTHING = "nothing"


def join(several: Sequence[Results], protocol: Protocol) -> Results:
    """Several experiments, shown by one protocol, as one: each with the cells after its last step of pretraining.

    Arms of one name are told apart as `experiment/arm`, and encoders of different shapes stand in blocks of their own.
    A task that was run on different data is left out; other settings of fine-tuning, and other protocols of their own,
    are noted.

    Raises:
        UserError: two experiments have one name, or no task was run on the same data by all that have it.
    """
    names = [results.experiment for results in several]
    if len(set(names)) < len(names):
        raise UserError(f"two of the experiments have one name ({', '.join(names)}); give each of them once")
    others = _tasks_that_differ(several)
    every = [arm for results in several for arm in results.cells["arm"].unique()]
    kept = [_comparable(results, list(others), {arm for arm in every if every.count(arm) > 1}) for results in several]
    names_of_frames = ("cells", "scores", "arms", "tasks", "pretrainings", "losses", "measures", "baselines")
    frames = {name: pd.concat([getattr(each, name) for each in kept], ignore_index=True) for name in names_of_frames}
    every_task, shares = frames["tasks"], {results.held_out_share for results in several}
    tasks = every_task.drop_duplicates("task").sort_values("task", key=lambda named: named.map([*TASKS].index))
    flags = {name: tasks["task"].map(every_task.groupby("task")[name].any()) for name in ("partial", "from_mnli")}
    frames["tasks"] = tasks.assign(**flags).set_index("task", drop=False)
    frames["arms"] = frames["arms"].set_index("arm", drop=False)
    frames["baselines"] = frames["baselines"].drop_duplicates([*BASELINES[:4]], ignore_index=True)
    undeclared = ", ".join(results.experiment for results in several if results.protocol != protocol)
    return replace(
        several[0],
        **frames,
        experiments=tuple(names),
        held_out_share=several[0].held_out_share if len(shares) == 1 else None,
        one_segment=tuple(name for results in several for name in results.one_segment),
        problems=tuple(line for results in several for line in results.problems),
        differences=(
            *(f"{TASKS[task].title} is left out: its data differ ({who})." for task, who in others.items()),
            *_settings_that_differ(kept),
            *_of_each("Held out of each train set", {r.experiment: r.held_out_share for r in several}),
            *_of_each("From the arm's own MNLI run", {r.experiment: titles(r.from_mnli) for r in kept}),
            *([f"{undeclared} declares another protocol; all are shown by the one above."] if undeclared else []),
        ),
        left_out=sum(results.left_out for results in several),
    )


def _tasks_that_differ(several: Sequence[Results]) -> dict[str, str]:
    """Tasks that were run on more than one content -> which experiment has which, by the digests' first digits."""
    digests = {r.experiment: r.tasks["digest"][r.tasks["digest"] != ""].to_dict() for r in several}
    differ = {}
    for task in TASKS:
        having = {name: found[task] for name, found in digests.items() if task in found}
        if len(set(having.values())) > 1:
            differ[task] = ", ".join(f"{name}: {digest[:12]}" for name, digest in having.items())
    if differ and not any(set(found) - set(differ) for found in digests.values()):
        raise UserError("the experiments have no task with the same data; run them with the same --data")
    return differ


def _comparable(results: Results, left_out: Sequence[str], twice: Collection[str]) -> Results:
    """Without some tasks, and with arms whose names occur `twice` told apart by the experiment's name."""
    experiment, names = results.experiment, {arm: f"{results.experiment}/{arm}" for arm in twice}
    steps = max(results.all_steps, default=None)
    cells = results.after(steps)
    cells = cells[~cells["task"].isin(left_out)].replace({"arm": names})
    scores = results.scores[results.scores["cell_id"].isin(cells["cell_id"])]
    arms = results.arms.replace({"arm": names})
    return replace(
        results,
        # Two experiments may have a cell of one id.
        cells=cells.assign(cell_id=f"{experiment}/" + cells["cell_id"]),
        scores=scores.assign(cell_id=f"{experiment}/" + scores["cell_id"]),
        arms=arms.assign(start=arms["start"] + (f", then {steps:,} steps of pretraining" if steps else "")),
        tasks=results.tasks[~results.tasks["task"].isin(left_out)],
        baselines=results.baselines[~results.baselines["task"].isin(left_out)],
    )


def _settings_that_differ(several: Sequence[Results]) -> Iterator[str]:
    for task in TASKS:
        settings = {r.experiment: r.tasks["settings"][task] for r in several if r.tasks["digest"].get(task)}
        keys = {key for each in settings.values() for key in each} - {"held_out_share"}  # has its own line
        for key in sorted(keys):
            values = {name: each.get(key) for name, each in settings.items()}
            if len({json.dumps(value) for value in values.values()}) > 1:
                shown = ", ".join(f"{name}: {value}" for name, value in values.items())
                yield f"{TASKS[task].title}: fine-tuned with another {key} ({shown})."


def _of_each(what: str, values: Mapping[str, float | str | None]) -> Iterator[str]:
    """A line about a setting of whole experiments, unless it is the same for all."""
    if len(set(values.values())) > 1:
        yield f"{what}: {'; '.join(f'{name}: {value or NOTHING}' for name, value in values.items())}."
