"""What an experiment asks for and what of it is finished, as frames; no other file reads records for people.

Only what the plan asks for counts. Records of anything else are counted in `left_out`, and one that cannot be believed
has a line in `problems`; its cell or pretraining counts as missing. What is not known is NaN, or "" of a text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.config import AS_PUBLISHED, HELD_OUT, Protocol
from glue_bench.data.metrics import decide, score
from glue_bench.data.tasks import TASKS, find_task, titles
from glue_bench.errors import UserError
from glue_bench.records.store import Finished, Store, open_store
from glue_bench.records.value import Environment
from glue_bench.records.values import Plan
from glue_bench.stats.outcomes import constant_score
from glue_bench.tables.arms import arms_frame

ORIGINS = ("pretrained", "adapted", "grafted", AS_PUBLISHED, "scratch")
CELL = ("cell_id", "arm", "variant", "origin", "task", "learning_rate", "seed", "pretraining_seed", "steps")
OF_RUN = ("finished", "collapsed", "precision", "data", "parameters", "base_model", "processor", "seconds",
          "environment", "diagnostic", "digest")  # fmt: skip
NO_RUN: dict[str, Any] = {"finished": False, "collapsed": (), "precision": "", "processor": "", "base_model": ""}
SCORES = ("cell_id", "epoch", "last", "split", "metric", "value")
TASK = ("task", "source", "digest", "revision", "partial", "rows", "settings", "from_mnli")
PRETRAINING = ("pretraining_id", "arm", "seed", "is_search", "finished", "learning_rate", "searches", "steps",
               "tokens", "seconds", "tokens_per_second", "peak_memory_bytes", "stream", "train_loss",
               "validation_loss", "environment", "weights", "digest")  # fmt: skip
LOSSES = ("pretraining_id", "arm", "pretraining_seed", "step", "tokens", "train_loss", "validation_loss", "seconds")
MEASURES = ("pretraining_id", "arm", "pretraining_seed", "step", "measure", "value", "standard_error", "n")
BASELINES = ("task", "split", "metric", "baseline", "value")
PREDICTIONS = ("cell_id", "arm", "task", "learning_rate", "pretraining_seed", "seed", "split", "row", "predicted",
               "label")  # fmt: skip
MAJORITY = "majority class"


class Arrays:
    """What lies beside the records of an experiment, read when it is asked for, and refused if it is another run's.

    Each method raises UserError where its file is missing, damaged or of another run.
    """

    def __init__(self, store: Store, plan: Plan, finished: Finished) -> None:
        self._store, self._plan, self._finished = store, plan, finished

    def logits(self, cell_id: str, *, test: bool = False) -> dict[str, np.ndarray]:
        """Logits float32 (rows, labels) of a finished cell, by scored split, or of `test` splits and AX, if any."""
        return self._store.logits(self._finished.records[cell_id], test=test)

    def gold(self, task: str, digest: str) -> dict[str, np.ndarray]:
        """Gold labels of each scored split of data with this digest, (rows,); empty where none are stored."""
        facts = self._plan.tasks.get(task)
        named = facts.labels if facts and facts.digest == digest else None
        return dict(self._store.labels(task, digest, named)["gold"])

    def pieces(self, pretraining_id: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """A pretraining's measures and its loss, piece by piece of text, as `Store.sums` and `Store.losses` have it."""
        record = self._finished.pretrainings.get(pretraining_id)
        return (self._store.sums(record), self._store.losses(record)) if record else ({}, {})

    def model(self, cell_id: str) -> Path | None:
        """Where the fine-tuned model of a finished cell lies, whole; None where it is not kept."""
        return self._store.model(self._finished.records[cell_id], whole=True)


@dataclass(frozen=True, kw_only=True)
class Results:
    """One experiment, or several that `join` has put together, of which the first is whole in `plan` and `arrays`.

    `cells` has a row for each planned cell, in the plan's order: CELL, and of finished ones OF_RUN, where `data` is the
    digest of the task's data, `collapsed` the splits on which the run gave one answer to everything, and `processor`
    where its weights were pretrained and then where it ran. `scores` (SCORES) has a row for each score of each epoch of
    a finished cell: 0 to 100, NaN where the metric is undefined. `arms` (ARMS of `tables.arms`), `tasks` (TASK; of
    partial data `rows` by split), `pretrainings` (PRETRAINING, one for each arm and seed, and the runs of rate
    searches), `losses` (LOSSES), `measures` (MEASURES) and `baselines` (BASELINES, 0 to 100) are of the plan, too.
    """

    plans: tuple[Plan, ...]
    cells: pd.DataFrame
    scores: pd.DataFrame
    arms: pd.DataFrame
    tasks: pd.DataFrame
    pretrainings: pd.DataFrame
    losses: pd.DataFrame
    measures: pd.DataFrame
    baselines: pd.DataFrame
    arrays: Arrays
    folder: Path
    left_out: int = 0
    problems: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """That of the (first) experiment."""
        return self.plans[0]

    @property
    def experiment(self) -> str:
        """The name of the experiment, or the names."""
        return ", ".join(plan.experiment.name for plan in self.plans)

    @property
    def protocol(self) -> Protocol:
        """The (first) experiment's own."""
        return self.plan.experiment.protocol

    @property
    def data_source(self) -> str:
        """Where the data are from, several sources with a comma."""
        return ", ".join(sorted(set(self.tasks["source"])))

    @property
    def partial_tasks(self) -> tuple[str, ...]:
        """Tasks that were run on a part of their official rows."""
        return tuple(self.tasks.index[self.tasks["partial"]])

    @property
    def all_steps(self) -> tuple[int, ...]:
        """After how many steps of pretraining cells start, each once."""
        return tuple(sorted(int(steps) for steps in self.cells["steps"].dropna().unique()))

    def after(self, steps: int | None) -> pd.DataFrame:
        """The cells that start after so many steps of pretraining, or, where that is None, without any of ours."""
        return self.cells[self.cells["steps"].isna() if steps is None else self.cells["steps"] == steps]


def read_results(folder: str | Path) -> Results:
    """Read what the plan of an experiment asks for.

    Raises:
        UserError: there is no experiment in the folder, or its plan is damaged.
    """
    store = open_store(folder)
    plan = store.plan()
    finished = store.finished(plan)
    problems, done = [*finished.problems], finished.pretrainings
    trained = [((each.id, each.arm, each.seed), done[each.id])
               for each in plan.pretrainings if not each.is_search and each.id in done]  # fmt: skip
    losses = [(*job, *(getattr(point, name) for name in LOSSES[3:])) for job, record in trained
              for point in record.losses]  # fmt: skip
    measures = [(*job, record.steps, one.name, one.value, one.standard_error, one.n) for job, record in trained
                for one in record.measures]  # fmt: skip
    return Results(
        plans=(plan,),
        cells=_cells(plan, finished),
        scores=_scores(plan, finished),
        arms=arms_frame(plan),
        tasks=_tasks(plan),
        pretrainings=_pretrainings(plan, finished),
        losses=pd.DataFrame(losses, columns=list(LOSSES)),
        measures=pd.DataFrame(measures, columns=list(MEASURES)).astype({"value": float, "standard_error": float}),
        baselines=_baselines(store, plan, problems),
        arrays=Arrays(store, plan, finished),
        folder=store.folder,
        left_out=finished.left_out,
        problems=tuple(problems),
    )


def join(several: Sequence[Results]) -> Results:
    """Several experiments as one, each with the cells after its last step of pretraining.

    Arms of one name are told apart as `experiment/arm`. A task that not all ran on the same data and by the same
    settings is left out, with a line in `problems`.

    Raises:
        UserError: two experiments have one name, or no task is left.
    """
    names = [results.experiment for results in several]
    if len(set(names)) < len(names):
        raise UserError(f"two of the experiments have one name ({', '.join(names)}); give each of them once")
    tasks = pd.concat([results.tasks for results in several], ignore_index=True)
    contents = tasks[["digest", "settings", "from_mnli"]].astype(str).agg(" ".join, axis=1)
    number = contents.groupby(tasks["task"]).nunique()
    unlike = tuple(task for task in TASKS if number.get(task, 1) > 1)
    if len(unlike) == len(number) > 0:
        raise UserError("the experiments have no task with the same data and settings; run them with the same --data")
    every = [arm for results in several for arm in results.arms["arm"]]
    kinds = ("cells", "scores", "arms", "tasks", "pretrainings", "losses", "measures", "baselines")
    parts = {kind: list[pd.DataFrame]() for kind in kinds}
    for name, results in zip(names, several, strict=True):
        steps = max(results.all_steps, default=None)
        then = f", then {steps:,} steps of pretraining" if steps else ""
        own = {arm: f"{name}/{arm}" for arm in every if every.count(arm) > 1}
        cells, arms = results.after(steps), results.arms
        changed = {"cells": cells.assign(steps=cells["steps"].mask(cells["steps"].notna()))}
        changed |= {"arms": arms.assign(start=arms["start"] + then)}
        for kind, frames in parts.items():
            frame = changed.get(kind, getattr(results, kind))
            frame = frame[~frame["task"].isin(unlike)] if "task" in frame else frame
            # Two experiments may have a cell of one id.
            ids = {"cell_id": f"{name}/" + frame["cell_id"]} if "cell_id" in frame else {}
            frames.append(frame.assign(**ids).replace({"arm": own} if "arm" in frame else {}))
    joined: dict[str, Any] = {kind: pd.concat(frames, ignore_index=True) for kind, frames in parts.items()}
    tasks = joined["tasks"].drop_duplicates("task").sort_values("task", key=lambda named: named.map([*TASKS].index))
    joined |= {"tasks": tasks.set_index("task", drop=False), "arms": joined["arms"].set_index("arm", drop=False)}
    joined["baselines"] = joined["baselines"].drop_duplicates([*BASELINES[:4]], ignore_index=True)
    left_out = [f"{titles(unlike)}: other data or settings of fine-tuning"] if unlike else []
    return replace(
        several[0],
        **joined,
        plans=tuple(results.plan for results in several),
        problems=(*left_out, *(line for results in several for line in results.problems)),
        left_out=sum(results.left_out for results in several),
    )


def predictions(path: str | Path, *, task: str | None = None) -> pd.DataFrame:
    """What the finished runs of the experiment in the folder `path` predicted, of all tasks or of one.

    One row per run and example (PREDICTIONS): `row` is from 0, in the order of the data; `predicted` and `label` are
    ids of classes, or scores of STS-B. `label` is missing where no gold labels are stored, as for test splits.

    Example:
        >>> glue_bench.predictions("runs/demo", task="rte").eval("predicted == label").mean()  # doctest: +SKIP

    Raises:
        UserError: there is no such experiment or task, or a file is damaged.
    """
    results, wanted = read_results(path), find_task(task).name if task else None
    cells, frames = results.cells[results.cells["finished"]].sort_values("cell_id"), []
    for cell in (cells[cells["task"] == wanted] if wanted else cells).to_dict("records"):
        labels = results.arrays.gold(cell["task"], cell["data"])
        scored, tests = (results.arrays.logits(cell["cell_id"], test=test) for test in (False, True))
        for split, logits in (scored | tests).items():
            decided = decide(cell["task"], logits)
            values = {"row": np.arange(len(decided)), "predicted": decided, "label": labels.get(split, np.nan)}
            frames.append(pd.DataFrame({**{name: cell[name] for name in PREDICTIONS[:6]}, "split": split, **values}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(PREDICTIONS))


def comparable(processors: Iterable[str]) -> list[str]:
    """Processors as they can be compared: `AMD EPYC (family 26, model 2)` is `AMD EPYC` where one is called just that.

    Two families are never one.
    """
    names = list(processors)
    families = {name: {other for other in names if other.startswith(f"{name} (family ")} for name in set(names)}
    short = {other: name for name, others in families.items() if len(others) == 1 for other in others}
    return [short.get(name, name) for name in names]


def _cells(plan: Plan, finished: Finished) -> pd.DataFrame:
    arms, rows = {arm.name: arm for arm in plan.experiment.arms}, list[dict[str, Any]]()
    for cell in plan.cells:
        rows.append(NO_RUN | {name: getattr(cell, name) for name in (*CELL, "data") if hasattr(cell, name)})
        rows[-1] |= {"cell_id": cell.id, "learning_rate": cell.settings.learning_rate}
        if record := finished.records.get(cell.id):
            arm, pretraining = arms.get(cell.arm), finished.pretrainings.get(cell.pretraining or "")
            ran = _computed_on(record.environment)
            before = _computed_on(pretraining.environment) if pretraining else ran
            rows[-1] |= {name: getattr(record, name) for name in OF_RUN if hasattr(record, name)} | {
                "finished": True,
                "precision": record.precision or record.environment.precision or "",
                # Without a revision the name may be that of a folder, which is no one's business.
                "base_model": f"{arm.checkpoint}@{arm.revision}" if arm and arm.revision else "",
                "processor": ", then ".join(dict.fromkeys(comparable([before, ran]))) if before and ran else "",
            }
    kinds: Any = {"learning_rate": float, "seed": int, "pretraining_seed": "Int64", "steps": "Int64", "finished": bool}
    return pd.DataFrame(rows, columns=[*CELL, *OF_RUN]).astype(kinds)


def _computed_on(environment: Environment) -> str:
    """The processor, or the GPU's name."""
    return (environment.processor if environment.device in (None, "cpu") else environment.device) or ""


def _scores(plan: Plan, finished: Finished) -> pd.DataFrame:
    rows = []
    for record in (finished.records[cell.id] for cell in plan.cells if cell.id in finished.records):
        task, epochs = TASKS[record.cell.task], {epoch.epoch: epoch.scores for epoch in record.history}
        last = max(epochs, default=0)
        epochs[last] = epochs.get(last, {}) | record.scores
        rows += [
            (record.cell.id, epoch, epoch == last, split, metric, scores[split][metric])
            for epoch, scores in epochs.items()
            for split in (*task.columns, HELD_OUT)
            for metric in task.metrics
            if metric in scores.get(split, {})
        ]
    frame = pd.DataFrame(rows, columns=list(SCORES)).astype({"value": float, "last": bool})
    return frame.assign(value=100.0 * frame["value"])


def _tasks(plan: Plan) -> pd.DataFrame:
    cells, tuned = {cell.task: cell for cell in plan.cells}, {cell.task for cell in plan.cells if cell.mnli}
    rows = []
    for task in (task for task in TASKS if task in cells):
        facts, settings = plan.tasks[task], cells[task].settings
        known = {name: getattr(facts, name) for name in ("source", "digest", "partial", "rows")}
        known |= {"task": task, "revision": facts.revision or "", "from_mnli": task in tuned}
        rows.append(known | {"settings": settings.model_dump(exclude_none=True, exclude={"learning_rate"})})
    frame = pd.DataFrame(rows, columns=list(TASK)).astype({"partial": bool, "from_mnli": bool})
    return frame.set_index("task", drop=False)


def _pretrainings(plan: Plan, finished: Finished) -> pd.DataFrame:
    """A `learning_rate` is there where it was searched for."""
    rows = []
    for each in sorted(plan.pretrainings, key=lambda each: each.is_search):
        record = finished.pretrainings.get(each.id)
        row: dict[str, Any] = {"pretraining_id": each.id, "arm": each.arm, "seed": each.seed}
        row |= {"is_search": each.is_search, "finished": record is not None}
        if record:
            row |= {name: getattr(record, name) for name in PRETRAINING if hasattr(record, name)}
            rate = each.learning_rate if each.is_search else record.pretraining.rate
            row |= {"learning_rate": rate, "searches": each.searches}
            row["weights"] = (record.weights or {}).get(record.steps)
        rows.append(row)
    kinds = {"is_search": bool, "finished": bool, "learning_rate": float, "validation_loss": float, "seconds": float}
    return pd.DataFrame(rows, columns=list(PRETRAINING)).astype(kinds)


def _baselines(store: Store, plan: Plan, problems: list[str]) -> pd.DataFrame:
    rows = []
    for task in (task for task in TASKS if task in plan.tasks):
        try:
            labels = store.labels(task, plan.tasks[task].digest, plan.tasks[task].labels)
        except UserError as error:
            problems.append(str(error))
            continue
        gold, metric = labels["gold"], TASKS[task].metrics[0]
        rows += [(task, split, metric, MAJORITY, constant_score(metric, each)) for split, each in gold.items()]
        rows += [
            (task, split, metric, baseline, 100.0 * value)
            for baseline, by_split in labels.items()
            if baseline != "gold"
            for split, predicted in by_split.items()
            for metric, value in score(task, predicted, gold[split]).items()
        ]
    return pd.DataFrame(rows, columns=list(BASELINES)).astype({"value": float})
