"""What an experiment asks for and what of it is finished, as frames; no other file reads records for people.

Only what the plan asks for counts. Records of anything else are counted in `left_out`, and one that cannot be believed
has a line in `problems`; its cell or pretraining counts as missing.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from glue_bench.config import AS_PUBLISHED, HELD_OUT, Protocol
from glue_bench.data.tasks import TASKS, TRAINABLE
from glue_bench.errors import UserError, unknown
from glue_bench.records.disk import without_collections
from glue_bench.records.intrinsic import IntrinsicRecord
from glue_bench.records.plan import AskedCell, Plan, PretrainingFacts
from glue_bench.records.record import Environment, PretrainingRecord, Record
from glue_bench.records.store import Store, open_store
from glue_bench.records.value import StoredValue
from glue_bench.tables.arms import arms_frame
from glue_bench.tables.arrays import Arrays
from glue_bench.tables.baselines import baselines_frame

ORIGINS = ("pretrained", "adapted", "grafted", AS_PUBLISHED, "scratch")
CELL = ("cell_id", "arm", "variant", "origin", "task", "learning_rate", "seed", "pretraining_seed", "steps")
OF_RUN = ("finished", "collapsed", "precision", "recipe", "pretraining_recipe", "data", "parameters", "base_model",
          "processor", "of_lost_weights", "seconds", "environment", "digest")  # fmt: skip
SCORES = ("cell_id", "epoch", "last", "split", "metric", "value", "shuffled")
TASK = ("task", "source", "digest", "revision", "partial", "rows", "settings", "from_mnli")
PRETRAINING = ("pretraining_id", "arm", "seed", "is_search", "finished", "recipe", "learning_rate", "searches", "steps",
               "tokens", "seconds", "tokens_per_second", "peak_memory_bytes", "stream", "train_loss",
               "validation_loss", "environment", "digest")  # fmt: skip
LOSSES = ("pretraining_id", "arm", "pretraining_seed", "step", "tokens", "train_loss", "validation_loss", "seconds")
MEASURES = ("pretraining_id", "arm", "pretraining_seed", "step", "measure", "value", "standard_error", "n")
Value = TypeVar("Value", bound=StoredValue)
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
    are of the plan, too. `baselines` (BASELINES of `tables.baselines`) is what the tasks' labels are worth.

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
        return self.plan.protocol

    @property
    def data_source(self) -> str:
        """Where the data of the runs are from, several sources with a comma; of the plan before any has run."""
        return ", ".join(sorted(set(self.tasks["source"]) - {""})) or self.plan.data_source

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
        UserError: there is no experiment or no plan in the folder, or the plan names an unknown task or origin.
    """
    store = open_store(folder)
    plan, problems = store.needed_plan(), list[str]()
    cells = [plan.seeded(cell) for cell in plan.cells]
    _check_names(cells)
    with without_collections():
        records = _readable(store, "records", (cell.cell_id for cell in cells), store.read_record, problems)
        planned = _newest(plan, store)
        ids = [each.pretraining_id for each in planned]
        trained = _readable(store, "pretraining", ids, store.read_pretraining, problems)
        measured = _readable(store, "intrinsic", ids, store.intrinsic.read_one, problems)
    starts: dict[tuple[str, int | None], PretrainingRecord | None]
    starts = {(each.arm, each.seed): trained.get(each.pretraining_id) for each in planned if not each.is_search}
    name, pretraining = plan.experiment or store.folder.resolve().name, plan.config.get("pretraining")
    tasks, arrays = _tasks(cells, records), Arrays(store, records, trained, measured.keys())
    return Results(
        experiments=(name,),
        plan=plan,
        cells=_cells(cells, records, starts),
        scores=_scores(cells, records),
        arms=arms_frame(plan, cells, records),
        tasks=tasks,
        pretrainings=_pretrainings(planned, trained),
        losses=_losses(planned, trained),
        measures=_measures(planned, measured),
        baselines=baselines_frame(tasks.loc[tasks["digest"] != "", "digest"], arrays),
        arrays=arrays,
        folder=store.folder,
        left_out=len(store.ids("records") - {cell.cell_id for cell in cells}),
        problems=tuple(problems),
        held_out_share=plan.held_out_share,
        one_segment=(name,) if isinstance(pretraining, dict) and pretraining.get("segments") != "pairs" else (),
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


def _readable(
    store: Store, kind: str, ids: Iterable[str], read: Callable[[str], Value], problems: list[str]
) -> dict[str, Value]:
    """What is stored of these ids and can be believed; a line about each of the others is added to `problems`."""
    found = {}
    for name in sorted(set(ids) & store.ids(kind)):
        try:
            found[name] = read(name)
        except UserError as error:
            problems.append(str(error).replace(f"{store.folder}{os.sep}", ""))
    return found


def _check_names(cells: Iterable[AskedCell]) -> None:
    for cell in cells:
        if cell.task not in TRAINABLE:
            raise unknown("task", cell.task, TRAINABLE, f"cell '{cell.cell_id}'")
        if cell.origin not in ORIGINS:
            raise unknown("origin", cell.origin, ORIGINS, f"cell '{cell.cell_id}'")


def _newest(plan: Plan, store: Store) -> list[PretrainingFacts]:
    """The pretraining of each arm and seed that cells start from, and the runs of rate searches.

    Of several recipes the newest that is stored counts: a newer one that is planned, because the weights of an older
    one are lost, takes its place when it has ended.
    """
    every = plan.all_pretrainings()
    planned = [each for each in every if not each.is_search]

    def rank(each: PretrainingFacts) -> tuple[bool, int]:
        return store.has_pretraining(each.pretraining_id), each.identity.recipe if each.identity else 1

    newest = {(each.arm, each.seed): each for each in sorted(planned, key=rank)}
    places = dict.fromkeys((each.arm, each.seed) for each in planned)
    return [newest[place] for place in places] + [each for each in every if each.is_search]


def _cells(
    cells: Iterable[AskedCell],
    records: Mapping[str, Record],
    pretrainings: Mapping[tuple[str, int | None], PretrainingRecord | None],
) -> pd.DataFrame:
    rows = []
    for cell in cells:
        record, pretraining = records.get(cell.cell_id), pretrainings.get((cell.arm, cell.pretraining_seed))
        rows.append({name: getattr(cell, name) for name in CELL} | _of_run(record, pretraining))
    kinds = _KINDS | {"finished": bool, "of_lost_weights": bool, "recipe": "Int64", "pretraining_recipe": "Int64"}
    return pd.DataFrame(rows, columns=[*CELL, *OF_RUN]).astype(kinds)


def _of_run(record: Record | None, pretraining: PretrainingRecord | None) -> dict[str, Any]:
    """What a finished run adds to its cell."""
    if record is None:
        texts = dict.fromkeys(("precision", "processor", "base_model", "data"), "")
        return {"finished": False, "collapsed": (), "of_lost_weights": False, **texts}
    ran = _computed_on(record.environment)
    before = _computed_on(pretraining.environment) if pretraining else ran
    lost = bool(pretraining and record.pretraining_curve not in (None, pretraining.curve))
    places = dict.fromkeys(comparable([before, ran]))
    start = record.checkpoint
    return {
        "finished": True,
        "collapsed": record.collapsed,
        "precision": record.precision or record.environment.precision or "",
        "recipe": record.recipe,
        "pretraining_recipe": None if record.cell.steps is None else start.recipe,
        "data": record.data.digest,
        "parameters": record.parameters,
        # Without a revision the name may be that of a folder, which is no one's business.
        "base_model": f"{start.name}@{start.revision}" if start.revision else "",
        # Where one of the two is not known, nothing is.
        "processor": ", then ".join(places) if before and ran and not lost else "",
        "of_lost_weights": lost,
        "seconds": record.seconds.total,
        "environment": record.environment,
        "digest": record.digest,
    }


def _computed_on(environment: Environment) -> str:
    """The processor, or the GPU's name."""
    return (environment.processor if environment.device in (None, "cpu") else environment.device) or ""


def _scores(cells: Iterable[AskedCell], records: Mapping[str, Record]) -> pd.DataFrame:
    rows = []
    for record in (records[cell.cell_id] for cell in cells if cell.cell_id in records):
        task, epochs = TASKS[record.cell.task], {epoch.epoch: epoch.scores for epoch in record.history}
        last = max(epochs, default=0)
        epochs[last] = epochs.get(last, {}) | record.scores
        rows += [
            (record.cell_id, epoch, epoch == last, split, metric, points(scores[split][metric]),
             points(record.order.get(split, {}).get(metric) if epoch == last else None))
            for epoch, scores in epochs.items()
            for split in (*task.columns, HELD_OUT)
            for metric in task.metrics
            if metric in scores.get(split, {})
        ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(SCORES)).astype({"value": float, "shuffled": float, "last": bool})


def _tasks(cells: Iterable[AskedCell], records: Mapping[str, Record]) -> pd.DataFrame:
    runs: dict[str, list[Record]] = {cell.task: [] for cell in cells}
    for record in (records[cell.cell_id] for cell in cells if cell.cell_id in records):
        runs[record.cell.task].append(record)
    tuned = {cell.task for cell in cells if cell.from_mnli}
    rows = []
    for task, mine in ((task, runs[task]) for task in TASKS if task in runs):
        data = mine[-1].data if mine else None
        settings = (
            {key: value for key, value in mine[-1].hyperparameters.items() if key != "learning_rate"} if mine else {}
        )
        rows.append(
            {
                "task": task,
                "source": ", ".join(sorted({record.data.source for record in mine})),
                "digest": data.digest if data else "",
                "revision": (data.revision if data else None) or "",
                "partial": any(record.data.partial for record in mine),
                "rows": dict(data.rows) if data and data.partial else {},
                "settings": settings,
                "from_mnli": task in tuned,
            }
        )
    frame = pd.DataFrame(rows, columns=list(TASK)).astype({"partial": bool, "from_mnli": bool})
    return frame.set_index("task", drop=False)


def _pretrainings(planned: Iterable[PretrainingFacts], records: Mapping[str, PretrainingRecord]) -> pd.DataFrame:
    rows = []
    for each in planned:
        record = records.get(each.pretraining_id)
        known = {name: getattr(record, name) for name in PRETRAINING if hasattr(record, name)}
        if record and each.is_search:
            known["learning_rate"] = record.identity.learning_rate
        keys = {"pretraining_id": each.pretraining_id, "arm": each.arm, "seed": each.seed, "is_search": each.is_search}
        rows.append(known | keys | {"finished": record is not None})
    kinds = {"is_search": bool, "finished": bool, "learning_rate": float, "validation_loss": float, "seconds": float}
    return pd.DataFrame(rows, columns=list(PRETRAINING)).astype(kinds)


def _losses(planned: Iterable[PretrainingFacts], records: Mapping[str, PretrainingRecord]) -> pd.DataFrame:
    rows = [
        (each.pretraining_id, each.arm, each.seed, *(getattr(point, name) for name in LOSSES[3:]))
        for each in sorted(planned, key=lambda each: each.pretraining_id)
        if not each.is_search and each.pretraining_id in records
        for point in records[each.pretraining_id].losses
    ]
    return pd.DataFrame(rows, columns=list(LOSSES))


def _measures(planned: Iterable[PretrainingFacts], records: Mapping[str, IntrinsicRecord]) -> pd.DataFrame:
    rows = [
        (each.pretraining_id, each.arm, each.seed, record.step, one.name, one.value, one.standard_error, one.n)
        for each in planned
        if (record := records.get(each.pretraining_id))
        for one in record.measures
    ]
    return pd.DataFrame(rows, columns=list(MEASURES)).astype({"value": float, "standard_error": float})
