"""What an experiment asks for and what of it is finished, as frames; no other file reads records for people.

Only what the plan asks for counts. `Finished.left_out` counts the records of anything else. One that cannot be believed
has a line in `problems`, and its cell or pretraining counts as missing, as does a cell that is `Finished.outdated`.
What is not known is NaN, or "" of a text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from glue_bench.config import AS_PUBLISHED, HELD_OUT, SCRATCH
from glue_bench.data.metrics import score
from glue_bench.data.task_data import LIMITED, is_demo
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.records.finished import Finished
from glue_bench.records.store import Store, open_store
from glue_bench.records.values import ArmFacts, Plan, PretrainingRecord, Record, Shape, TaskFacts
from glue_bench.stats.runs import effective_number

ORIGINS = ("pretrained", "adapted", "grafted", AS_PUBLISHED, "scratch")
CELL_COLUMNS = (
    "cell_id",
    "arm",
    "variant",
    "origin",
    "task",
    "learning_rate",
    "seed",
    "pretraining_seed",
    "steps",
)
RUN_COLUMNS = ("finished", "collapsed", "precision", "data", "parameters", "base_model", "processor", "seconds",
          "environment", "diagnostic", "digest")  # fmt: skip
UNFINISHED: dict[str, Any] = {
    "finished": False,
    "collapsed": (),
    "precision": "",
    "processor": "",
    "base_model": "",
}
EPOCH_SCORE_COLUMNS = ("cell_id", "epoch", "last", "split", "metric", "value")
ARM_COLUMNS = ("arm", "variant", "origin", "options", "embedding_size", "summary", "shape", "start", "start_digest",
        "checkpoint", "parameters", "non_embedding_parameters", "added_over_add", "flops_per_token",
        "length")  # fmt: skip
TASK_COLUMNS = (
    "task",
    "source",
    "digest",
    "revision",
    "partial",
    "rows",
    "differences",
    "unchecked",
    "settings",
    "from_mnli",
)
PRETRAINING_COLUMNS = ("pretraining_id", "arm", "seed", "is_search", "finished", "learning_rate", "searches", "steps",
               "tokens", "seconds", "tokens_per_second", "peak_memory_bytes", "stream", "train_loss",
               "validation_loss", "environment", "processor", "precision", "weights", "digest")  # fmt: skip
LOSS_COLUMNS = (
    "pretraining_id",
    "arm",
    "pretraining_seed",
    "step",
    "tokens",
    "train_loss",
    "validation_loss",
    "seconds",
)
MEASURE_COLUMNS = (
    "pretraining_id",
    "arm",
    "pretraining_seed",
    "step",
    "measure",
    "value",
    "standard_error",
    "n",
)
BASELINE_COLUMNS = ("task", "split", "metric", "baseline", "value")
MAJORITY_BASELINE = "majority class"
FRESH_WEIGHTS = "fresh weights of this shape"
ANY_SHAPE = "each its own"
"""What stands for the shapes of native arms, which are shown together whatever they are."""
LEAST_DOCUMENTS = 5
"""Of fewer documents (as many of equal size) a variance is hardly known; pieces of at most 512 tokens count then."""
BANNER = "Made from the embedded demo data: not a benchmark."


@dataclass(frozen=True, kw_only=True)
class Results:
    """What the plan of one experiment asks for, and what of it is on disk.

    Each frame is about the jobs of the plan. What is not known is NaN, or "" in a text.

    Attributes:
        plan: The plan of the experiment.
        cells: CELL_COLUMNS of each planned cell, in the order of the plan, and RUN_COLUMNS, which
            are known of finished cells. `data` is the digest of the task's data. `collapsed` are
            the splits on which the run gave one answer to everything. `processor` and `precision`
            are those of all runs that the weights went through: pretraining, MNLI, its own.
        scores: EPOCH_SCORE_COLUMNS, a row for each score of each epoch of a finished cell. A
            `value` is 0 to 100, and NaN where the metric is undefined.
        arms: ARM_COLUMNS of each arm; its name is the index.
        tasks: TASK_COLUMNS of each task; its name is the index. `rows` are counted by split.
            `differences` and `unchecked` are those of TaskFacts.
        pretrainings: PRETRAINING_COLUMNS of each arm and seed, and of the runs of rate searches.
        losses: LOSS_COLUMNS of each point of the curves of finished pretrainings.
        measures: MEASURE_COLUMNS of each measure of a finished pretraining.
        baselines: BASELINE_COLUMNS of each score of a trivial baseline, 0 to 100.
        store: The folder of results.
        finished: The records of the plan.
        problems: A line for each record or file that cannot be believed.
    """

    plan: Plan
    cells: pd.DataFrame
    scores: pd.DataFrame
    arms: pd.DataFrame
    tasks: pd.DataFrame
    pretrainings: pd.DataFrame
    losses: pd.DataFrame
    measures: pd.DataFrame
    baselines: pd.DataFrame
    store: Store
    finished: Finished
    problems: tuple[str, ...]

    def logits(self, cell_id: str, *, test: bool = False) -> dict[str, np.ndarray]:
        """Logits float32 (rows, labels) of a finished cell, by scored split, or of `test` splits and AX, if any."""
        return self.store.logits(self.finished.records[cell_id], test=test)

    def gold(self, task: str) -> dict[str, np.ndarray]:
        """Gold labels of each scored split, (rows,); empty where none are stored."""
        facts = self.plan.tasks[task]
        return dict(self.store.labels.read(task, facts.digest, facts.labels)["gold"])

    def sums(self, pretraining_id: str) -> dict[str, np.ndarray]:
        """By measure the numerators and denominators of pieces of text, (2, pieces), of a finished pretraining.

        Pieces of one document are alike, so that documents take their place in a loss, where enough of them count.
        """
        record = self.finished.pretrainings[pretraining_id]
        sums, losses = self.store.measure_sums(record), self.store.losses(record)
        if losses:  # of all validation text, of which the other measures take a part
            places = np.unique(losses["document"], return_inverse=True)[1]
            if effective_number(np.bincount(places, losses["count"])) < LEAST_DOCUMENTS:
                places = np.arange(len(places))
            sums["validation_loss"] = np.stack(
                [np.bincount(places, losses[name]) for name in ("loss_sum", "count")]
            )
        return sums

    @property
    def folder(self) -> Path:
        """That of the experiment."""
        return self.store.folder

    @property
    def experiment(self) -> str:
        """The name of the experiment."""
        return self.plan.experiment.name

    @property
    def data_source(self) -> str:
        """Where the data are from, several sources with a comma."""
        return ", ".join(sorted(set(self.tasks["source"])))

    @property
    def banner(self) -> str:
        """What stands above every table whose numbers are not to be compared with others; else nothing."""
        part = f"Made from a part of each split ({self.data_source}): not a benchmark."
        if self.is_made_up:
            return BANNER
        return part if LIMITED in self.data_source else ""

    @property
    def is_made_up(self) -> bool:
        """Whether data of a task are those of the demo."""
        return any(is_demo(source) for source in self.tasks["source"])

    @property
    def partial_tasks(self) -> tuple[str, ...]:
        """Tasks that were run on a part of their official rows, or on others; of demo data the banner says enough."""
        return tuple(self.tasks.index[self.tasks["partial"]])

    @property
    def altered_tasks(self) -> tuple[str, ...]:
        """The `partial_tasks` of which a split has the official number of rows, but not the official ones."""
        return tuple(task for task in self.partial_tasks if self.tasks["differences"][task])

    @property
    def all_steps(self) -> tuple[int, ...]:
        """After how many steps of pretraining cells start, each once."""
        return tuple(sorted(int(steps) for steps in self.cells["steps"].dropna().unique()))

    def after(self, steps: int | None) -> pd.DataFrame:
        """The cells that start after so many steps of pretraining, or, where that is None, without any of ours."""
        return self.cells[
            self.cells["steps"].isna() if steps is None else self.cells["steps"] == steps
        ]


def read_results(folder: str | Path, plan: Plan | None = None) -> Results:
    """What a plan asks for, the stored one unless one is given.

    Raises UserError where the folder has no experiment, or its plan is damaged.
    """
    store = Store(folder) if plan else open_store(folder)
    plan = plan or store.plan()
    finished = store.finished(plan)
    problems, losses, measures = (
        [*finished.problems.values()],
        list[dict[str, Any]](),
        list[dict[str, Any]](),
    )
    for each in plan.pretrainings:
        if not each.is_search and (record := finished.pretrainings.get(each.id)):
            job = {
                "pretraining_id": each.id,
                "arm": each.arm,
                "pretraining_seed": each.seed,
                "step": record.steps,
            }
            losses += [job | point.model_dump() for point in record.losses]
            measures += [job | {"measure": one.name} | one.model_dump() for one in record.measures]
    return Results(
        plan=plan,
        cells=_cells(plan, finished),
        scores=_scores(plan, finished),
        arms=_arms(plan),
        tasks=_tasks(plan),
        pretrainings=_pretrainings(plan, finished),
        losses=pd.DataFrame(losses, columns=list(LOSS_COLUMNS)),
        measures=pd.DataFrame(measures, columns=list(MEASURE_COLUMNS)).astype(
            {"value": float, "standard_error": float}
        ),
        baselines=_baselines(store, plan, problems),
        store=store,
        finished=finished,
        problems=tuple(problems),
    )


def shape_text(shape: Shape) -> str:
    """A shape in words, equal for equal shapes: all that decides how much an encoder learns whatever the variant.

    An embedding size is said where it bounds what a word can say, below the hidden size (ELECTRA). Wider tables are
    part of how an arm combines embeddings. Positions are left out: rows beyond the longest text take no part.
    """
    layers, heads = shape.num_hidden_layers, shape.num_attention_heads
    parts = [f"{layers} layer{'s' * (layers != 1)}", f"hidden size {shape.hidden_size}"]
    parts += [f"{heads} head{'s' * (heads != 1)}", f"intermediate size {shape.intermediate_size}"]
    parts += (
        [f"embedding size {shape.embedding_size}"]
        if shape.embedding_size < shape.hidden_size
        else []
    )
    parts += [f"vocabulary {shape.vocab_size}", *(["LayerNorm first"] if shape.norm_first else [])]
    return ", ".join([*parts, *(["gated"] if shape.gated else [])])


def _arms(plan: Plan) -> pd.DataFrame:
    """Return a row of ARM_COLUMNS for each arm, with the name of the arm as index."""
    cells, configured = (
        {cell.arm: cell for cell in plan.cells},
        {arm.name: arm for arm in plan.experiment.arms},
    )
    rows = list[dict[str, Any]]()
    for name, facts in plan.arms.items():
        arm, cell = configured[name], cells[name]
        # Where a person keeps a checkpoint is no one's business.
        shown = (
            PurePath(arm.checkpoint).name
            if arm.checkpoint.startswith(("/", "~", "."))
            else arm.checkpoint
        )
        named = f"{shown}@{arm.revision}" if arm.revision else shown
        rows.append({
            **{each: getattr(facts, each) for each in ARM_COLUMNS if each in ArmFacts.model_fields},
            **{each: getattr(arm, each) for each in ("checkpoint", "options", "embedding_size")},
            "arm": arm.name,
            "variant": cell.variant,
            "origin": cell.origin,
            "shape": shape_text(facts.shape) if facts.shape and cell.origin != AS_PUBLISHED else ANY_SHAPE,
            "start": FRESH_WEIGHTS if named == SCRATCH else named,
            # Of a native arm it says behind the digest, too, how texts are given to the model.
            "start_digest": "" if named == SCRATCH else cell.checkpoint.partition(" ")[0],
        })  # fmt: skip
    kinds = {"parameters": "Int64", "embedding_size": "Int64"}
    return pd.DataFrame(rows, columns=list(ARM_COLUMNS)).astype(kinds).set_index("arm", drop=False)


def _cells(plan: Plan, finished: Finished) -> pd.DataFrame:
    # Without a revision the name may be that of a folder, which is no one's business.
    named = {
        arm.name: f"{arm.checkpoint}@{arm.revision}" for arm in plan.experiment.arms if arm.revision
    }
    rows = list[dict[str, Any]]()
    for cell in plan.cells:
        rows.append(
            UNFINISHED | {"cell_id": cell.id, "origin": cell.origin, "data": cell.data, **cell.key}
        )
        if record := finished.records.get(cell.id):
            chain = _chain(record, finished)
            rows[-1] |= {
                name: getattr(record, name) for name in RUN_COLUMNS if hasattr(record, name)
            }
            rows[-1]["finished"] = True
            rows[-1]["base_model"] = named.get(cell.arm, "")
            rows[-1]["precision"] = _joined([_precision(run) for run in chain])
            rows[-1]["processor"] = _joined([_processor(run) for run in chain])
    kinds: Any = {
        "learning_rate": float,
        "seed": int,
        "pretraining_seed": "Int64",
        "steps": "Int64",
        "finished": bool,
    }
    return pd.DataFrame(rows, columns=[*CELL_COLUMNS, *RUN_COLUMNS]).astype(kinds)


def _chain(record: Record, finished: Finished) -> list[Record | PretrainingRecord | None]:
    """The runs that a cell's weights went through, the cell last; None for one that has no record."""
    cell = record.cell
    chain: list[Record | PretrainingRecord | None] = []
    if cell.pretraining:
        chain.append(finished.pretrainings.get(cell.pretraining))
    if cell.mnli:
        chain.append(finished.records.get(cell.mnli))
    return [*chain, record]


def _precision(run: Record | PretrainingRecord | None) -> str:
    if run is None:
        return ""
    own = run.precision if isinstance(run, Record) else None
    return own or run.environment.precision or ""


def _processor(run: Record | PretrainingRecord | None) -> str:
    """The GPU, or the CPU that it ran on."""
    if run is None:
        return ""
    where = run.environment
    return (where.processor if where.device in (None, "cpu") else where.device) or ""


def _joined(facts: Sequence[str]) -> str:
    """A fact of each run of a chain, each value once; "" where one is not known."""
    return ", then ".join(dict.fromkeys(facts)) if all(facts) else ""


def _scores(plan: Plan, finished: Finished) -> pd.DataFrame:
    rows = []
    for record in (finished.records[cell.id] for cell in plan.cells if cell.id in finished.records):
        task = TASKS[record.cell.task]
        epochs = {epoch.epoch: epoch.scores for epoch in record.history}
        last = max(epochs, default=0)
        epochs[last] = epochs.get(last, {}) | record.scores
        for epoch, split, metric in product(epochs, (*task.columns, HELD_OUT), task.metrics):
            if metric in (scores := epochs[epoch].get(split, {})):
                rows.append((record.cell.id, epoch, epoch == last, split, metric, scores[metric]))
    frame = pd.DataFrame(rows, columns=list(EPOCH_SCORE_COLUMNS)).astype(
        {"value": float, "last": bool}
    )
    return frame.assign(value=100.0 * frame["value"])


def _tasks(plan: Plan) -> pd.DataFrame:
    rows, cells = list[tuple[Any, ...]](), {cell.task: cell for cell in plan.cells}
    for task, cell in ((task, cells[task]) for task in TASKS if task in cells):
        facts = plan.tasks[task]
        partial = (
            facts.partial and not is_demo(facts.source) and not _lacks_test_files_alone(task, facts)
        )
        content = facts.differences or {}, facts.unchecked or ()
        known = facts.source, facts.digest, facts.revision or "", partial, facts.rows, *content
        settings = cell.settings.model_dump(exclude_none=True, exclude={"learning_rate"})
        rows.append((task, *known, settings, cell.mnli is not None))
    frame = pd.DataFrame(rows, columns=list(TASK_COLUMNS)).astype(
        {"partial": bool, "from_mnli": bool}
    )
    return frame.set_index("task", drop=False)


def _lacks_test_files_alone(task: str, facts: TaskFacts) -> bool:
    """Whether all splits that are there are the official ones, and train and validation are there.

    Scores are of these, so that they compare with published ones.
    """
    official = TASKS[task].splits
    needed = {"train", *TASKS[task].validation_splits}
    are_whole = all(
        split in official and rows == official[split].rows for split, rows in facts.rows.items()
    )
    return are_whole and needed <= facts.rows.keys() and not facts.differences


def _pretrainings(plan: Plan, finished: Finished) -> pd.DataFrame:
    rows = list[dict[str, Any]]()
    for each in sorted(plan.pretrainings, key=lambda each: each.is_search):
        record = finished.pretrainings.get(each.id)
        rows.append(
            {"pretraining_id": each.id, "is_search": each.is_search, "finished": record is not None}
        )
        rows[-1] |= {"arm": each.arm, "seed": each.seed}
        if record:
            rows[-1] |= {
                name: getattr(record, name) for name in PRETRAINING_COLUMNS if hasattr(record, name)
            }
            rows[-1] |= {
                "searches": each.searches,
                "weights": (record.weights or {}).get(record.steps),
            }
            rows[-1]["learning_rate"] = record.pretraining.learning_rate
            rows[-1] |= {"processor": _processor(record), "precision": _precision(record)}
    kinds = {
        "is_search": bool,
        "finished": bool,
        "learning_rate": float,
        "validation_loss": float,
        "seconds": float,
    }
    return pd.DataFrame(rows, columns=list(PRETRAINING_COLUMNS)).astype(kinds)


def _baselines(store: Store, plan: Plan, problems: list[str]) -> pd.DataFrame:
    rows = list[tuple[Any, ...]]()
    for task, facts in ((task, plan.tasks[task]) for task in TASKS if task in plan.tasks):
        try:
            labels = store.labels.read(task, facts.digest, facts.labels)
        except UserError as error:
            problems.append(str(error))
            continue
        gold, is_regression = labels["gold"], TASKS[task].is_regression
        constant = {split: np.full_like(each, each.mean() if is_regression else np.bincount(each).argmax())
                    for split, each in gold.items()}  # fmt: skip
        for baseline, predicted in {MAJORITY_BASELINE: constant, **labels}.items():
            for split, each in predicted.items() if baseline != "gold" else ():
                scores = score(task, each, gold[split])
                rows += [
                    (task, split, metric, baseline, 100.0 * value)
                    for metric, value in scores.items()
                ]
    return pd.DataFrame(rows, columns=list(BASELINE_COLUMNS)).astype({"value": float})
