"""What an experiment asks for and what of it is finished, as frames; no other file reads records for people.

Only what the plan asks for counts. Records of anything else are counted in `left_out`, and one that cannot be believed
has a line in `problems`; its cell or pretraining counts as missing.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.config import AS_PUBLISHED, HELD_OUT, Arm, Protocol
from glue_bench.data.metrics import score
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.records.environment import Environment
from glue_bench.records.plan import Plan
from glue_bench.records.stored import Finished, Stored, open_store
from glue_bench.records.values import Pretraining, PretrainingRecord, Record
from glue_bench.stats.outcomes import constant_score
from glue_bench.tables.arms import arms_frame
from glue_bench.tables.arrays import Arrays

ORIGINS = ("pretrained", "adapted", "grafted", AS_PUBLISHED, "scratch")
CELL = ("cell_id", "arm", "variant", "origin", "task", "learning_rate", "seed", "pretraining_seed", "steps")
OF_RUN = ("finished", "collapsed", "precision", "data", "parameters", "base_model", "processor", "of_lost_weights",
          "seconds", "environment", "diagnostic", "digest")  # fmt: skip
SCORES = ("cell_id", "epoch", "last", "split", "metric", "value", "shuffled")
TASK = ("task", "source", "digest", "revision", "partial", "rows", "settings", "from_mnli")
PRETRAINING = ("pretraining_id", "arm", "seed", "is_search", "finished", "learning_rate", "searches", "steps",
               "tokens", "seconds", "tokens_per_second", "peak_memory_bytes", "stream", "train_loss",
               "validation_loss", "environment", "weights", "digest")  # fmt: skip
LOSSES = ("pretraining_id", "arm", "pretraining_seed", "step", "tokens", "train_loss", "validation_loss", "seconds")
MEASURES = ("pretraining_id", "arm", "pretraining_seed", "step", "measure", "value", "standard_error", "n")
BASELINES = ("task", "split", "metric", "baseline", "value")
MAJORITY = "majority class"
"""The baseline that always gives the most frequent class of the split; of a correlation it has 0."""
_KINDS: dict[str, Any] = {"learning_rate": float, "seed": int, "pretraining_seed": "Int64", "steps": "Int64"}


@dataclass(frozen=True, kw_only=True)
class Results:
    """One experiment, or several that `join` has put together: `experiments` are their names.

    `cells` has a row for each planned cell, in the plan's order: CELL, and of finished ones OF_RUN, where `data` is the
    digest of the task's data, `collapsed` the splits on which the run gave one answer to everything, and `processor`
    where its weights were pretrained and then where it ran. `scores` (SCORES) has a row for each score of each epoch of
    a finished cell: 0 to 100, NaN where the metric is undefined; `shuffled` is that of the last epoch on texts with
    shuffled words. `arms` (ARMS of `tables.arms`), `tasks` (TASK; of partial data `rows` by split), `pretrainings`
    (PRETRAINING, one for each arm and seed, and the runs of rate searches), `losses` (LOSSES) and `measures` (MEASURES)
    are of the plan, too. `baselines` (BASELINES) has what trivial baselines score on its data, 0 to 100.

    `left_out` counts records outside the plan. `differences` says in what joined experiments are not alike. Of each
    train set `held_out_share` was kept out. `one_segment` names the experiments whose pretraining knew one segment
    only. `described`: there is a README.md.
    """

    experiments: tuple[str, ...]
    plan: Plan
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
    differences: tuple[str, ...] = ()
    held_out_share: float | None = None
    one_segment: tuple[str, ...] = ()
    described: bool = False

    @property
    def experiment(self) -> str:
        """The name of the experiment, or the names."""
        return ", ".join(self.experiments)

    @property
    def protocol(self) -> Protocol:
        """The experiment's own."""
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
    def from_mnli(self) -> tuple[str, ...]:
        """Tasks whose runs start from the arm's own MNLI run."""
        return tuple(self.tasks.index[self.tasks["from_mnli"]])

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
    finished, experiment = store.finished(plan), plan.experiment
    problems = [*finished.problems]
    one_segment = experiment.pretraining is not None and experiment.pretraining.segments != "pairs"
    return Results(
        experiments=(experiment.name,),
        plan=plan,
        cells=_cells(plan, finished),
        scores=_scores(plan, finished),
        arms=arms_frame(plan),
        tasks=_tasks(plan),
        pretrainings=_pretrainings(plan, finished),
        losses=_losses(plan, finished),
        measures=_measures(plan, finished),
        baselines=_baselines(store, plan, problems),
        arrays=Arrays(store, plan, finished),
        folder=store.folder,
        left_out=finished.left_out,
        problems=tuple(problems),
        held_out_share=experiment.finetuning.held_out_share,
        one_segment=(experiment.name,) if one_segment else (),
        described=(store.folder / "README.md").is_file(),
    )


def comparable(processors: Iterable[str]) -> list[str]:
    """Processors as they can be compared: `AMD EPYC (family 26, model 2)` is `AMD EPYC` where one is called just that.

    Two families are never one.
    """
    names = list(processors)
    families = {name: {other for other in names if other.startswith(f"{name} (family ")} for name in set(names)}
    short = {other: name for name, others in families.items() if len(others) == 1 for other in others}
    return [short.get(name, name) for name in names]


def points(value: float | None) -> float:
    """A stored score from 0 to 100; null, an undefined score, is NaN."""
    return math.nan if value is None else 100.0 * value


def _cells(plan: Plan, finished: Finished) -> pd.DataFrame:
    arms = {arm.name: arm for arm in plan.experiment.arms}
    rows = []
    for cell in plan.cells:
        record = finished.records.get(cell.id)
        planned: dict[str, Any] = {"cell_id": cell.id, "learning_rate": cell.settings.learning_rate, "data": cell.data}
        planned |= {name: getattr(cell, name) for name in CELL if name not in planned}
        rows.append(planned | (_of_run(record, arms.get(cell.arm), finished) if record else _of_no_run()))
    kinds = _KINDS | {"finished": bool, "of_lost_weights": bool}
    return pd.DataFrame(rows, columns=[*CELL, *OF_RUN]).astype(kinds)


def _of_no_run() -> dict[str, Any]:
    texts = dict.fromkeys(("precision", "processor", "base_model"), "")
    return {"finished": False, "collapsed": (), "of_lost_weights": False, **texts}


def _of_run(record: Record, arm: Arm | None, finished: Finished) -> dict[str, Any]:
    """What a finished run adds to its cell."""
    pretraining = finished.pretrainings.get(record.cell.pretraining or "")
    ran = _computed_on(record.environment)
    before = _computed_on(pretraining.environment) if pretraining else ran
    lost = _is_of_lost_weights(record, finished)
    places = dict.fromkeys(comparable([before, ran]))
    return {
        "finished": True,
        "collapsed": record.collapsed,
        "precision": record.precision or record.environment.precision or "",
        "parameters": record.parameters,
        # Without a revision the name may be that of a folder, which is no one's business.
        "base_model": f"{arm.checkpoint}@{arm.revision}" if arm and arm.revision else "",
        # Where one of the two is not known, nothing is.
        "processor": ", then ".join(places) if before and ran and not lost else "",
        "of_lost_weights": lost,
        "seconds": record.seconds,
        "environment": record.environment,
        "diagnostic": record.diagnostic,
        "digest": record.digest,
    }


def _is_of_lost_weights(record: Record, finished: Finished) -> bool:
    """Whether what the run started from is known not to be what is recorded now; it was made anew since."""
    cell, weights = record.cell, None
    if cell.mnli:
        weights = finished.records[cell.mnli].weights if cell.mnli in finished.records else None
    elif pretraining := finished.pretrainings.get(cell.pretraining or ""):
        weights = (pretraining.weights or {}).get(cell.steps or 0)
    return None not in (weights, record.started_from) and weights != record.started_from


def _scores(plan: Plan, finished: Finished) -> pd.DataFrame:
    rows = []
    for record in (finished.records[cell.id] for cell in plan.cells if cell.id in finished.records):
        task, epochs = TASKS[record.cell.task], {epoch.epoch: epoch.scores for epoch in record.history}
        last = max(epochs, default=0)
        epochs[last] = epochs.get(last, {}) | record.scores
        rows += [
            (record.cell.id, epoch, epoch == last, split, metric, points(scores[split][metric]),
             points(record.order.get(split, {}).get(metric) if epoch == last else None))
            for epoch, scores in epochs.items()
            for split in (*task.columns, HELD_OUT)
            for metric in task.metrics
            if metric in scores.get(split, {})
        ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(SCORES)).astype({"value": float, "shuffled": float, "last": bool})


def _tasks(plan: Plan) -> pd.DataFrame:
    cells = {cell.task: cell for cell in plan.cells}
    tuned = {cell.task for cell in plan.cells if cell.mnli}
    rows = [
        {
            "task": task,
            "source": facts.source,
            "digest": facts.digest,
            "revision": facts.revision or "",
            "partial": facts.partial,
            "rows": facts.rows,
            "settings": cells[task].settings.model_dump(exclude_none=True, exclude={"learning_rate"}),
            "from_mnli": task in tuned,
        }
        for task, facts in ((task, plan.tasks[task]) for task in TASKS if task in cells)
    ]
    frame = pd.DataFrame(rows, columns=list(TASK)).astype({"partial": bool, "from_mnli": bool})
    return frame.set_index("task", drop=False)


def _pretrainings(plan: Plan, finished: Finished) -> pd.DataFrame:
    rows = []
    for each in sorted(plan.pretrainings, key=lambda each: each.is_search):
        record = finished.pretrainings.get(each.id)
        keys = {"pretraining_id": each.id, "arm": each.arm, "seed": each.seed, "is_search": each.is_search}
        rows.append(keys | {"finished": record is not None} | (_of_pretraining(each, record) if record else {}))
    kinds = {"is_search": bool, "finished": bool, "learning_rate": float, "validation_loss": float, "seconds": float}
    return pd.DataFrame(rows, columns=list(PRETRAINING)).astype(kinds)


def _of_pretraining(each: Pretraining, record: PretrainingRecord) -> dict[str, Any]:
    """What a finished pretraining adds; a `learning_rate` is there where it was searched for."""
    known = {name: getattr(record, name) for name in PRETRAINING if hasattr(record, name)}
    rate = each.learning_rate if each.is_search else record.pretraining.rate
    last = (record.weights or {}).get(record.steps)
    return known | {"learning_rate": rate, "searches": each.searches, "weights": last}


def _losses(plan: Plan, finished: Finished) -> pd.DataFrame:
    rows = [
        (each.id, each.arm, each.seed, *(getattr(point, name) for name in LOSSES[3:]))
        for each, record in _trained(plan, finished)
        for point in record.losses
    ]
    return pd.DataFrame(rows, columns=list(LOSSES))


def _measures(plan: Plan, finished: Finished) -> pd.DataFrame:
    rows = [
        (each.id, each.arm, each.seed, record.steps, one.name, one.value, one.standard_error, one.n)
        for each, record in _trained(plan, finished)
        for one in record.measures
    ]
    return pd.DataFrame(rows, columns=list(MEASURES)).astype({"value": float, "standard_error": float})


def _trained(plan: Plan, finished: Finished) -> Iterator[tuple[Pretraining, PretrainingRecord]]:
    """The finished pretrainings that cells start from, in the plan's order."""
    return (
        (each, finished.pretrainings[each.id])
        for each in plan.pretrainings
        if not each.is_search and each.id in finished.pretrainings
    )


def _baselines(store: Stored, plan: Plan, problems: list[str]) -> pd.DataFrame:
    rows = []
    for task in (task for task in TASKS if task in plan.tasks):
        try:
            labels = store.labels(task, plan.tasks[task].digest, plan.tasks[task].labels)
        except UserError as error:
            problems.append(str(error))
            continue
        metric = TASKS[task].metrics[0]
        rows += [(task, split, metric, MAJORITY, constant_score(metric, gold)) for split, gold in labels.gold.items()]
        rows += [
            (task, split, metric, baseline, points(value))
            for baseline, by_split in labels.baselines.items()
            for split, predicted in by_split.items()
            for metric, value in score(task, predicted, labels.gold[split]).items()
        ]
    return pd.DataFrame(rows, columns=list(BASELINES)).astype({"value": float})


def _computed_on(environment: Environment) -> str:
    """The processor, or the GPU's name."""
    return (environment.processor if environment.device in (None, "cpu") else environment.device) or ""
