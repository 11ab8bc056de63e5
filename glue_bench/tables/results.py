"""What an experiment asks for and what of it is finished, as frames; no other file reads records for people.

Only what the plan asks for counts. Records of anything else are counted in `left_out`, and one that cannot be believed
has a line in `problems`; its cell or pretraining counts as missing. What is not known is NaN, or "" of a text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.config import AS_PUBLISHED, HELD_OUT, SCRATCH
from glue_bench.data.metrics import score
from glue_bench.data.task_data import LIMITED
from glue_bench.data.tasks import TASKS, titles
from glue_bench.errors import UserError
from glue_bench.records.store import Finished, Store, open_store
from glue_bench.records.values import ArmFacts, Plan, Shape
from glue_bench.stats.outcomes import constant_score

ORIGINS = ("pretrained", "adapted", "grafted", AS_PUBLISHED, "scratch")
CELL = ("cell_id", "arm", "variant", "origin", "task", "learning_rate", "seed", "pretraining_seed", "steps")
OF_RUN = ("finished", "collapsed", "precision", "data", "parameters", "base_model", "processor", "seconds",
          "environment", "diagnostic", "digest")  # fmt: skip
NO_RUN: dict[str, Any] = {"finished": False, "collapsed": (), "precision": "", "processor": "", "base_model": ""}
SCORES = ("cell_id", "epoch", "last", "split", "metric", "value")
ARMS = ("arm", "variant", "origin", "options", "embedding_size", "summary", "shape", "start", "start_digest",
        "checkpoint", "parameters", "non_embedding_parameters", "added_over_add", "flops_per_token",
        "length")  # fmt: skip
TASK = ("task", "source", "digest", "revision", "partial", "rows", "settings", "from_mnli")
PRETRAINING = ("pretraining_id", "arm", "seed", "is_search", "finished", "learning_rate", "searches", "steps",
               "tokens", "seconds", "tokens_per_second", "peak_memory_bytes", "stream", "train_loss",
               "validation_loss", "environment", "weights", "digest")  # fmt: skip
LOSSES = ("pretraining_id", "arm", "pretraining_seed", "step", "tokens", "train_loss", "validation_loss", "seconds")
MEASURES = ("pretraining_id", "arm", "pretraining_seed", "step", "measure", "value", "standard_error", "n")
BASELINES = ("task", "split", "metric", "baseline", "value")
MAJORITY = "majority class"
FRESH = "fresh weights of this shape"
ANY_SHAPE = "each its own"
"""What stands for the shapes of native arms, which are shown together whatever they are."""
BANNER = "Made from the embedded demo data: not a benchmark."


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
    a finished cell: 0 to 100, NaN where the metric is undefined. `arms` (ARMS, by name), `tasks` (TASK; of partial
    data `rows` by split), `pretrainings` (PRETRAINING, one for each arm and seed, and the runs of rate searches),
    `losses` (LOSSES), `measures` (MEASURES) and `baselines` (BASELINES, 0 to 100) are of the plan, too.
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
    def data_source(self) -> str:
        """Where the data are from, several sources with a comma."""
        return ", ".join(sorted(set(self.tasks["source"])))

    @property
    def banner(self) -> str:
        """What stands above every table whose numbers are not to be compared with others; else nothing."""
        part = f"Made from a part of each split ({self.data_source}): not a benchmark."
        return BANNER if "demo" in self.data_source else part if LIMITED in self.data_source else ""

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
        arms=_arms(plan),
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
    parts = {kind: list[pd.DataFrame]() for kind, one in vars(several[0]).items() if isinstance(one, pd.DataFrame)}
    for name, results in zip(names, several, strict=True):
        steps = max(results.all_steps, default=None)
        cells, then = results.after(steps), f", then {steps:,} steps of pretraining" if steps else ""
        changed = {"cells": cells.assign(steps=cells["steps"].mask(cells["steps"].notna()))}
        changed |= {"arms": results.arms.assign(start=results.arms["start"] + then)}
        own = {arm: f"{name}/{arm}" for arm in every if every.count(arm) > 1}
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
    problems = [f"{titles(unlike)}: other data or settings of fine-tuning"] if unlike else []
    joined["problems"] = (*problems, *(line for results in several for line in results.problems))
    joined["left_out"] = sum(results.left_out for results in several)
    return replace(several[0], **joined, plans=tuple(results.plan for results in several))


def comparable(processors: Iterable[str]) -> list[str]:
    """Processors as they can be compared: `AMD EPYC (family 26, model 2)` is `AMD EPYC` where one is called just that.

    Two families are never one.
    """
    names = list(processors)
    families = {name: {other for other in names if other.startswith(f"{name} (family ")} for name in set(names)}
    short = {other: name for name, others in families.items() if len(others) == 1 for other in others}
    return [short.get(name, name) for name in names]


def shape_text(shape: Shape) -> str:
    """A shape in words, equal for equal shapes: all that decides how much an encoder learns whatever the variant.

    An embedding size is said where it bounds what a word can say, below the hidden size (ELECTRA). Wider tables are
    part of how an arm combines embeddings. Positions are left out: rows beyond the longest text take no part.
    """
    layers, heads = shape.num_hidden_layers, shape.num_attention_heads
    parts = {
        f"{layers} layer{'s' * (layers != 1)}, hidden size {shape.hidden_size}": True,
        f"{heads} head{'s' * (heads != 1)}, intermediate size {shape.intermediate_size}": True,
        f"embedding size {shape.embedding_size}": shape.embedding_size < shape.hidden_size,
        f"vocabulary {shape.vocab_size}": True,
        "LayerNorm first": shape.norm_first,
        "gated": shape.gated,
    }
    return ", ".join(part for part, is_said in parts.items() if is_said)


def _arms(plan: Plan) -> pd.DataFrame:
    """ARMS: `start` is what weights started from, before any pretraining of ours, `start_digest` that of its files."""
    cells, configured = {cell.arm: cell for cell in plan.cells}, {arm.name: arm for arm in plan.experiment.arms}
    rows = list[dict[str, Any]]()
    for name, facts in plan.arms.items():
        arm, cell = configured[name], cells[name]
        # Where a person keeps a checkpoint is no one's business.
        shown = PurePath(arm.checkpoint).name if arm.checkpoint.startswith(("/", "~", ".")) else arm.checkpoint
        named = f"{shown}@{arm.revision}" if arm.revision else shown
        rows.append({
            **{each: getattr(facts, each) for each in ARMS if each in ArmFacts.model_fields},
            **{"arm": arm.name, "variant": cell.variant, "origin": cell.origin, "checkpoint": arm.checkpoint},
            **{"options": arm.options, "embedding_size": arm.embedding_size},
            "shape": shape_text(facts.shape) if facts.shape and cell.origin != AS_PUBLISHED else ANY_SHAPE,
            "start": FRESH if named == SCRATCH else named,
            # Of a native arm it says behind the digest, too, how texts are given to the model.
            "start_digest": "" if named == SCRATCH else cell.checkpoint.partition(" ")[0],
        })  # fmt: skip
    kinds = {"parameters": "Int64", "embedding_size": "Int64"}
    return pd.DataFrame(rows, columns=list(ARMS)).astype(kinds).set_index("arm", drop=False)


def _cells(plan: Plan, finished: Finished) -> pd.DataFrame:
    # Without a revision the name may be that of a folder, which is no one's business.
    named = {arm.name: f"{arm.checkpoint}@{arm.revision}" for arm in plan.experiment.arms if arm.revision}
    rows = list[dict[str, Any]]()
    for cell in plan.cells:
        rows.append(NO_RUN | {name: getattr(cell, name) for name in (*CELL, "data") if hasattr(cell, name)})
        rows[-1] |= {"cell_id": cell.id, "learning_rate": cell.settings.learning_rate}
        if record := finished.records.get(cell.id):
            runs = [run for run in (finished.pretrainings.get(cell.pretraining or ""), record) if run]
            devices = [(run.environment.device, run.environment.processor) for run in runs]
            places = [(processor if device in (None, "cpu") else device) or "" for device, processor in devices]
            rows[-1] |= {name: getattr(record, name) for name in OF_RUN if hasattr(record, name)} | {
                **{"finished": True, "base_model": named.get(cell.arm, "")},
                "precision": record.precision or record.environment.precision or "",
                "processor": ", then ".join(dict.fromkeys(comparable(places))) if all(places) else "",
            }
    kinds: Any = {"learning_rate": float, "seed": int, "pretraining_seed": "Int64", "steps": "Int64", "finished": bool}
    return pd.DataFrame(rows, columns=[*CELL, *OF_RUN]).astype(kinds)


def _scores(plan: Plan, finished: Finished) -> pd.DataFrame:
    rows = []
    for record in (finished.records[cell.id] for cell in plan.cells if cell.id in finished.records):
        task, epochs = TASKS[record.cell.task], {epoch.epoch: epoch.scores for epoch in record.history}
        last = max(epochs, default=0)
        epochs[last] = epochs.get(last, {}) | record.scores
        for epoch, split, metric in product(epochs, (*task.columns, HELD_OUT), task.metrics):
            if metric in (scores := epochs[epoch].get(split, {})):
                rows.append((record.cell.id, epoch, epoch == last, split, metric, scores[metric]))
    frame = pd.DataFrame(rows, columns=list(SCORES)).astype({"value": float, "last": bool})
    return frame.assign(value=100.0 * frame["value"])


def _tasks(plan: Plan) -> pd.DataFrame:
    cells, tuned, rows = {cell.task: cell for cell in plan.cells}, {cell.task for cell in plan.cells if cell.mnli}, []
    for task in (task for task in TASKS if task in cells):
        known = {name: getattr(plan.tasks[task], name) for name in ("source", "digest", "partial", "rows")}
        known |= {"task": task, "revision": plan.tasks[task].revision or "", "from_mnli": task in tuned}
        settings = cells[task].settings.model_dump(exclude_none=True, exclude={"learning_rate"})
        rows.append(known | {"settings": settings})
    frame = pd.DataFrame(rows, columns=list(TASK)).astype({"partial": bool, "from_mnli": bool})
    return frame.set_index("task", drop=False)


def _pretrainings(plan: Plan, finished: Finished) -> pd.DataFrame:
    """A `learning_rate` is there where it was searched for."""
    rows = list[dict[str, Any]]()
    for each in sorted(plan.pretrainings, key=lambda each: each.is_search):
        record = finished.pretrainings.get(each.id)
        rows.append({"pretraining_id": each.id, "is_search": each.is_search, "finished": record is not None})
        rows[-1] |= {"arm": each.arm, "seed": each.seed}
        if record:
            rows[-1] |= {name: getattr(record, name) for name in PRETRAINING if hasattr(record, name)}
            rows[-1] |= {"searches": each.searches, "weights": (record.weights or {}).get(record.steps)}
            rows[-1]["learning_rate"] = each.learning_rate if each.is_search else record.pretraining.rate
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
