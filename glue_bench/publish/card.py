"""Model cards for the hub: an arm's results, and the repository of a card and its models."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml

from glue_bench.board.board import Board
from glue_bench.board.chosen import arm_scores, find_arm, median_runs
from glue_bench.board.results import Results
from glue_bench.config import FINISHED, NATIVE
from glue_bench.config.experiment import PUBLISHED_MODELS
from glue_bench.data.hub import REPOSITORY, repository_of
from glue_bench.data.task import OWN
from glue_bench.data.tasks import TASKS, find_task, titles
from glue_bench.errors import UserError
from glue_bench.pages.page import Column, Page, Table
from glue_bench.pages.render import to_markdown
from glue_bench.publish.card_usage import plugin_file, usage_text

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

CARD_FILE = "README.md"
"""The file that the hub shows of a repository."""
RESULTS_FILE = ".eval_results/glue.yaml"
"""The file of scores that the hub reads: https://huggingface.co/docs/hub/eval-results."""
NO_BENCHMARK = "No benchmark: some of these data are made up, or not exactly the official rows."
UNCHECKED_NOTE = (
    "The rows of {tasks} are complete by count. Their content was not compared with the official "
    "rows, so that the hub is told no score of them."
)
MODELS_NOTE = (
    "The model of a task is that of the median run over seeds at the reported learning rate."
)
BEST_EPOCH = (
    "The experiment reports the best epoch of each run. Models are those of the last epoch, and so "
    "is the score of this model; there is a mean over seeds only where the two epochs are the same "
    "in all runs."
)
CARD_COLUMNS = {
    "title": Column("Task"),
    "split": Column("Split"),
    "name": Column("Metric"),
    "value": Column("This model", 4),
    "mean": Column("Mean over seeds", 4),
    "error": Column("Standard error", 4),
    "n": Column("Seeds", 0),
    "learning_rate": Column("Learning rate", show="{:g}".format),
    "seed": Column("Seed", 0),
}
FINISHED_COLUMNS = {name: CARD_COLUMNS[name] for name in ("title", "split", "name", "value")}
"""The columns for classifiers that were fine-tuned elsewhere, which have no seeds."""
MISSING_NOTE = "Planned runs of {tasks} are missing."


@dataclass(frozen=True, kw_only=True)
class Card:
    """A model card (`text`), and the repository that it heads.

    `files` are by path: their content, or the file that has it. If there are several models, each
    lies in the folder of its task. `without` are the tasks whose run has left no model. There is
    none of classifiers that were fine-tuned elsewhere (`is_finished`).
    """

    arm: str
    text: str
    files: Mapping[str, bytes | Path]
    without: tuple[str, ...]
    is_finished: bool = False


def make_card(board: Board, arm: str | None) -> Card:
    """Make the card of an arm, as `glue_bench.card` describes it. The only arm needs no name."""
    arm = find_arm(board, arm)
    results = board.results
    runs = median_runs(board, arm)
    if runs.empty:
        raise UserError(f"arm '{arm}' of '{results.folder}' has no finished run to tell of")

    models: dict[str, Path] = {}
    without: list[str] = []
    for task, cell_id in runs["cell_id"].items():
        model = results.store.models.find_whole(results.finished.records[cell_id])
        if model:
            models[str(task)] = model
        elif not _is_finished(board, arm):
            without.append(str(task))

    files = _model_files(models, runs, results)
    plugin = plugin_file(results, runs["cell_id"].iloc[0]) if models else None
    if plugin is not None:
        files[plugin.name] = plugin

    scores = _card_scores(board, arm)
    usage = usage_text(list(models), plugin, is_native=results.arms["variant"][arm] == NATIVE)
    text = _card_text(board, arm, runs, scores) + usage
    is_of_glue = scores["task"].isin(TASKS)
    stated = scores[scores["is_stated"] & is_of_glue]
    if len(stated):
        files[RESULTS_FILE] = _results_file(stated)

    files[CARD_FILE] = text.encode()
    return Card(
        arm=arm,
        text=text,
        files=files,
        without=tuple(without),
        is_finished=_is_finished(board, arm),
    )


def _model_files(
    models: Mapping[str, Path], runs: pd.DataFrame, results: Results
) -> dict[str, bytes | Path]:
    """Return the files of models by their paths in a repository.

    Args:
        models: The folder of the model of each task.
        runs: The median run of each task.
        results: The results of the experiment.
    """
    files: dict[str, bytes | Path] = {}
    for task, model in models.items():
        folder = f"{task}/" if len(models) > 1 else ""
        record = results.finished.records[runs["cell_id"][task]]
        for name in record.model or ():
            files[f"{folder}{name}"] = model / name
    return files


def _card_scores(board: Board, arm: str) -> pd.DataFrame:
    """Return `arm_scores`, and which of them the hub is told.

    Of made-up rows and of rows that are not the official ones it is told nothing. `made_up` and
    `unchecked` say which scores are of rows that are none, or could not be compared with them.
    """
    results = board.results
    scores = arm_scores(board, arm)
    early = board.runs.loc[(board.runs["arm"] == arm) & ~board.runs["last"], "task"]
    # The weights are those of the last epoch.
    scores.loc[scores["task"].isin(early), ["mean", "error"]] = math.nan
    scores["made_up"] = scores["task"].isin(results.partial_tasks) | results.is_made_up
    scores["unchecked"] = _is_unchecked(scores, results) & ~scores["made_up"]
    is_official = ~scores["made_up"] & ~scores["unchecked"]
    scores["is_stated"] = is_official & scores["value"].notna()
    return scores


def _missing_tasks(board: Board, arm: str) -> tuple[str, ...]:
    """Return the tasks of an arm of which planned runs are missing."""
    cells = board.cells[board.cells["arm"] == arm]
    return tuple(cells.loc[~cells["finished"], "task"].unique())


def _card_text(board: Board, arm: str, runs: pd.DataFrame, scores: pd.DataFrame) -> str:
    """Write a card without its end: front matter for the hub, and the table of scores.

    Args:
        board: The board of the experiment.
        arm: The name of the arm.
        runs: Its median runs, by task.
        scores: What `_card_scores` returns.
    """
    results = board.results
    cell = results.cells[results.cells["cell_id"] == runs["cell_id"].iloc[0]].iloc[0]
    is_finished = _is_finished(board, arm)

    legend = [] if is_finished else [MODELS_NOTE]
    if board.protocol.epoch == "best":
        legend.append(BEST_EPOCH)
    if scores["unchecked"].any():
        unchecked_tasks = tuple(scores.loc[scores["unchecked"], "task"].unique())
        legend.append(UNCHECKED_NOTE.format(tasks=titles(unchecked_tasks)))

    missing_tasks = _missing_tasks(board, arm)
    if missing_tasks:
        legend.append(MISSING_NOTE.format(tasks=titles(missing_tasks)))

    benchmarks = _benchmarks(runs.index)
    table = Table(
        frame=scores,
        columns=FINISHED_COLUMNS if is_finished else CARD_COLUMNS,
        caption=_describe_models(cell, ", ".join(benchmarks)),
        legend=tuple(legend),
    )

    page = Page(
        title=f"{results.experiment}: {arm}",
        banner=NO_BENCHMARK if scores["made_up"].any() else "",
        tables=(table,),
    )

    stated = scores[scores["is_stated"]]
    header = _front_matter(arm, cell, results.arms["checkpoint"][arm], stated, benchmarks)
    return f"---\n{header}\n---\n\n{to_markdown(page)}"


def _is_finished(board: Board, arm: str) -> bool:
    """Whether an arm has classifiers that were fine-tuned elsewhere."""
    return bool(board.results.arms["variant"][arm] == FINISHED)


def _describe_models(cell: pd.Series, benchmarks: str) -> str:
    """Say in a sentence or two what models a card is about; `cell` is one of their runs."""
    tool = f"glue-bench {cell['environment'].glue_bench or ''}".rstrip()
    if cell["variant"] == FINISHED:
        return f"A classifier that was fine-tuned elsewhere, scored on {benchmarks} by {tool}."
    kind = f"with the variant `{cell['variant']}`"
    if cell["variant"] == NATIVE:
        kind = "as it is published"
    models = f"An encoder {kind}, fine-tuned on {benchmarks} by {tool}."
    return f"{models} Each task has a model of its own."


def _benchmarks(tasks: Iterable[str]) -> list[str]:
    """Name what tasks are of: GLUE once, and each task of one's own by its title."""
    names: dict[str, None] = {}
    for name in tasks:
        task = find_task(name)
        names[task.title if task.benchmark == OWN else task.benchmark] = None
    return list(names)


def _is_unchecked(scores: pd.DataFrame, results: Results) -> pd.Series:
    """Return which scores are of a split that could not be compared with the official one."""
    unchecked = results.tasks["unchecked"]
    places = zip(scores["task"], scores["split"], strict=True)
    is_unchecked = [split in unchecked[task] for task, split in places]
    return pd.Series(is_unchecked, index=scores.index, dtype=bool)


def _front_matter(
    arm: str, cell: pd.Series, checkpoint: str, stated: pd.DataFrame, benchmarks: list[str]
) -> str:
    """Write what the hub reads of a card.

    Args:
        arm: The name of the arm.
        cell: A row of `Results.cells` of one of its runs.
        checkpoint: The checkpoint of the arm.
        stated: The rows of `arm_scores` whose scores the hub is told.
        benchmarks: What the arm was fine-tuned on.
    """
    from huggingface_hub import ModelCardData, constants

    evaluations: list[EvalResult] = []
    for row in stated.to_dict("records"):
        evaluations += _evaluations(row)
    repositories = dict.fromkeys(repository_of(find_task(task)) for task in stated["task"])
    # A checkpoint without a revision may be a folder or a model of the hub: the cache tells.
    copy = Path(constants.HF_HUB_CACHE, f"models--{checkpoint.replace('/', '--')}")
    is_of_hub = cell["base_model"] or (copy.is_dir() and not Path(checkpoint).exists())
    is_published_model = cell["variant"] in PUBLISHED_MODELS
    tags = ["glue-bench"]
    if "GLUE" in benchmarks:
        tags.insert(0, "glue")
    if not is_published_model:
        tags.append(cell["variant"])
    if cell["variant"] == FINISHED:
        is_of_hub = False  # the card is of the checkpoint itself
    data = ModelCardData(
        library_name="transformers" if is_published_model else "glue-bench",
        pipeline_tag="text-classification",
        language="en" if "GLUE" in benchmarks else None,
        tags=tags,
        base_model=checkpoint if is_of_hub else None,
        datasets=list(filter(None, repositories)) or None,
        model_name=arm,
        eval_results=evaluations or None,
    )
    return data.to_yaml()


def _evaluations(row: dict[Any, Any]) -> "list[EvalResult]":
    """Return the score of this model and, for several seeds, the mean. See `arm_scores`."""
    from huggingface_hub import EvalResult

    task = find_task(row["task"])
    values = {row["name"]: row["value"]}
    if row["n"] > 1 and not math.isnan(row["mean"]):
        name = f"{row['name']}, mean of {row['n']} seeds, standard error {row['error']:.4f}"
        values[name] = row["mean"]
    evaluations = []
    for name, value in values.items():
        evaluation = EvalResult(
            task_type="text-classification",
            task_name=row["title"],
            dataset_type=repository_of(task) or task.name,
            dataset_name=task.full_title,
            dataset_config=task.name,
            dataset_split=row["split"],
            dataset_revision=row["revision"] or None,
            metric_type=row["metric"],
            metric_name=name,
            metric_value=round(value, 6),
        )
        evaluations.append(evaluation)
    return evaluations


def _results_file(stated: pd.DataFrame) -> bytes:
    """Write the scores on GLUE as the hub's `.eval_results` have them.

    That format has one number for each task. It is the task's main metric, as it is printed in the
    card. MNLI's two sets are tasks of their own.

    Args:
        stated: The rows of `arm_scores` that the hub is told.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entries: list[EvalResultEntry] = []
    for row in stated.to_dict("records"):
        if row["metric"] != find_task(row["task"]).metrics[0]:
            continue
        entry = EvalResultEntry(
            dataset_id=REPOSITORY,
            task_id=row["task"] + row["split"].removeprefix("validation"),
            value=round(row["value"], 6),
            dataset_revision=row["revision"] or None,
            notes=_results_note(row),
        )
        entries.append(entry)
    return yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False).encode()


def _results_note(row: dict[Any, Any]) -> str:
    """Say what a number is, of which rows, and what other seeds give."""
    note = f"{row['name']} on the {row['split'].replace('_', ' ')} set"
    if row["n"] > 1 and not math.isnan(row["mean"]):
        mean = f"{row['mean']:.4f}, standard error {row['error']:.4f}"
        return f"{note}; mean of {row['n']} seeds {mean}"
    return note
