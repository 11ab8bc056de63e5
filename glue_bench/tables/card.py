"""An arm's results as a model card for the hub, and the repository that it heads: card, results and weights."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from glue_bench.config import NATIVE
from glue_bench.data.hub import REPOSITORY
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError, first_line
from glue_bench.files import write_atomically
from glue_bench.records.stored import STAMP
from glue_bench.tables.board import Board, open_board
from glue_bench.tables.submission import Run, arm_scores, known_arm, median_runs
from glue_bench.tables.table import Column, Page, Table

METRIC_NAMES = {
    **{"matthews_correlation": "Matthews correlation", "accuracy": "Accuracy", "f1": "F1"},
    **{"pearson": "Pearson correlation", "spearmanr": "Spearman correlation"},
}
PLACEHOLDER = "REPOSITORY"
"""In the text of a card, the repository that it is sent to."""
NO_BENCHMARK = "No benchmark: some of these data are made up, or a part of the official rows."
MODELS = "The model of a task is that of the median run over seeds at the reported learning rate."
BEST_EPOCH = (
    "The experiment reports the best epoch of each run. Models are those of the last epoch, and so is the score of "
    "this model; there is a mean over seeds only where the two epochs are the same in all runs."
)
COLUMNS = {
    **{"title": Column("Task"), "split": Column("Split"), "name": Column("Metric"), "value": Column("This model", 4)},
    **{"mean": Column("Mean over seeds", 4), "error": Column("Standard error", 4), "n": Column("Seeds", 0)},
    **{"rate": Column("Learning rate", show="{:g}".format), "seed": Column("Seed", 0)},
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """A model card (`text`, README.md) with `.eval_results/glue.yaml` (`results`), and the models by their place.

    A place is a folder of the repository, "" where there is only one model. `scores` are those of
    `tables.submission.arm_scores`, but `value` is that of the last epoch, of which the weights are; where the protocol
    reports an earlier epoch of a task's runs, there is no mean of them. `without` are the tasks whose run has left no
    model.
    """

    arm: str
    text: str
    results: str
    models: Mapping[str, Path]
    without: tuple[str, ...]
    scores: pd.DataFrame

    @property
    def files(self) -> dict[str, bytes | Path]:
        """The repository: content, or the file that has it, by path."""
        found: dict[str, bytes | Path] = {"README.md": self.text.encode()}
        if self.results:
            found[".eval_results/glue.yaml"] = self.results.encode()
        for place, folder in self.models.items():
            inside = [path for path in sorted(folder.iterdir()) if path.name != STAMP]
            found |= {f"{place}/{path.name}".lstrip("/"): path for path in inside}
        return found


def card(path: str | Path, arm: str | None = None) -> Card:
    """The model card of an arm of the experiment in the folder `path`; the only arm needs no name.

    Of each task it is about the run that `submit` takes. What it states to the hub (`model-index`, `.eval_results`) is
    that run's score, then the mean over seeds with its standard error, on `nyu-mll/glue`; of made-up or partial data
    nothing is stated. Standard errors are those of pretraining seeds where there are several, because runs that start
    from the same weights are not independent.

    Example:
        >>> print(glue_bench.card("runs/minilm", "add").text)  # doctest: +SKIP

    Raises:
        UserError: no such experiment or arm, an arm without a finished run, or a damaged model.
    """
    board = open_board(path)
    arm, results = known_arm(board, arm), board.results
    runs = median_runs(board, arm)
    if not runs:
        raise UserError(f"arm '{arm}' of '{results.folder}' has no finished run to tell of")
    kept = {task: results.arrays.model(run.cell_id) for task, run in runs.items()}
    models = {task: folder for task, folder in kept.items() if folder}
    scores = _of_last_epochs(board, arm, runs)
    no_benchmark = scores["task"].isin(results.partial_tasks) | ("demo" in results.data_source)
    stated = scores[~no_benchmark & scores["value"].notna()]
    places = {(task if len(models) > 1 else ""): folder for task, folder in models.items()}
    cell = results.cells[results.cells["cell_id"] == next(iter(runs.values())).cell_id].iloc[0]
    page = _page(board, arm, runs, cell, scores).to_markdown()
    usage = [_usage(next(iter(places)), native=bool(cell["variant"] == NATIVE))] if places else []
    return Card(
        arm=arm,
        text="\n".join([f"---\n{_header(arm, cell, stated)}\n---\n", page, *usage]),
        results="" if stated.empty else _eval_results(board, stated),
        models=places,
        without=tuple(task for task in runs if task not in models),
        scores=scores,
    )


def _of_last_epochs(board: Board, arm: str, runs: Mapping[str, Run]) -> pd.DataFrame:
    """What the weights score: they are of the last epoch, so that a mean with earlier ones tells nothing of them."""
    scores, last = arm_scores(board, arm), board.results.scores[board.results.scores["last"]]
    values = last.set_index(["cell_id", "split", "metric"])["value"] / 100
    named = zip(scores["task"], scores["split"], scores["metric"], strict=True)
    scores = scores.assign(value=[values[runs[task].cell_id, split, metric] for task, split, metric in named])
    mine = board.runs[(board.runs["arm"] == arm) & ~board.runs["last"]]
    scores.loc[scores["task"].isin(mine["task"]), ["mean", "error"]] = math.nan
    return scores


def write_card(made: Card, folder: Path) -> None:
    """Write a card, its results and its models to a folder, as they would be pushed.

    Raises:
        UserError: there are files in it, or it cannot be written.
    """
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UserError(f"'{folder}' is not empty; give a folder that does not exist yet, nothing is overwritten")
        for name, content in made.files.items():
            write_atomically(folder / name, content if isinstance(content, bytes) else content.read_bytes())
    except OSError as error:
        raise UserError(f"cannot write '{folder}': {error.strerror}") from error


def push_card(made: Card, repository: str) -> str:
    """Send a card, its results and its models to a repository of the hub, in one commit; the commit's address.

    The repository is made, as a private one, if it is not there.

    Raises:
        UserError: there is no model to send, or the hub refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    if not made.models:
        raise UserError(
            f"arm '{made.arm}' has kept no model to push; set `finetuning: {{keep: best}}` and run the experiment "
            "again, which trains the runs that a card takes once more"
        )
    files = made.files | {"README.md": made.text.replace(PLACEHOLDER, repository).encode()}
    operations = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=what) for name, what in files.items()]
    try:
        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        done = api.create_commit(repository, operations, commit_message="Models and results, by glue-bench")
    except Exception as error:  # httpx, huggingface_hub, OSError and ValueError: no common base
        raise UserError(f"cannot push to '{repository}': {first_line(error)}") from error
    return str(done.commit_url)


def _header(arm: str, cell: pd.Series, stated: pd.DataFrame) -> str:
    """The front matter: what the hub reads of a card."""
    from huggingface_hub import EvalResult, ModelCardData

    native = cell["variant"] == NATIVE
    results = [
        EvalResult(
            task_type="text-classification",
            task_name=TASKS[row["task"]].title,
            dataset_type=REPOSITORY,
            dataset_name=f"GLUE {TASKS[row['task']].title}",
            dataset_config=row["task"],
            dataset_split=row["split"],
            metric_type=row["metric"],
            metric_value=round(row[value], 6),
            metric_name=name,
        )
        for row in stated.to_dict("records")
        for value, name in [
            ("value", METRIC_NAMES[row["metric"]]),
            ("mean", f"{METRIC_NAMES[row['metric']]}{_over(row)}"),
        ]
        if value == "value" or _over(row)
    ]
    data = ModelCardData(
        library_name="transformers" if native else "glue-bench",
        pipeline_tag="text-classification",
        language="en",
        tags=["glue", "glue-bench"] + ([] if native else [cell["variant"]]),
        base_model=cell["base_model"].partition("@")[0] or None,
        datasets=[REPOSITORY] if results else None,
        model_name=arm,
        eval_results=results or None,
    )
    return data.to_yaml()


def _eval_results(board: Board, stated: pd.DataFrame) -> str:
    """What the hub reads from `.eval_results/*.yaml`: each split's main metric, 0 to 1."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    main = stated[stated["metric"] == stated["task"].map(lambda task: TASKS[task].metrics[0])]
    entries = [
        EvalResultEntry(
            dataset_id=REPOSITORY,
            task_id=row["task"],
            dataset_revision=board.results.tasks["revision"][row["task"]] or None,
            value=round(row["value"], 6),
            notes=f"{METRIC_NAMES[row['metric']]} on {row['split']}"
            + (f"; {_over(row)[2:]}: {round(row['mean'], 6)}" if _over(row) else ""),
        )
        for row in main.to_dict("records")
    ]
    return yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False)


def _over(row: Mapping[Any, Any]) -> str:
    """Behind the name of a metric, what a mean is over; nothing where there is none over several runs."""
    if row["n"] < 2 or math.isnan(row["mean"]):
        return ""
    return f", mean of {row['n']} seeds, standard error {row['error']:.4f}"


def _page(board: Board, arm: str, runs: Mapping[str, Run], cell: pd.Series, scores: pd.DataFrame) -> Page:
    """The table of scores."""
    what = "as it is published" if cell["variant"] == NATIVE else f"with the variant `{cell['variant']}`"
    by = f"glue-bench {cell['environment'].glue_bench or ''}".rstrip()
    frame = scores.assign(
        title=[TASKS[task].title for task in scores["task"]],
        name=scores["metric"].map(METRIC_NAMES),
        rate=[runs[task].learning_rate for task in scores["task"]],
        seed=[runs[task].seed for task in scores["task"]],
    )
    table = Table(
        frame=frame,
        columns=COLUMNS,
        caption=f"An encoder {what}, fine-tuned on GLUE by {by}. Each task has a model of its own.",
        legend=(MODELS, *([BEST_EPOCH] if board.protocol.epoch == "best" else [])),
    )
    made_up = "demo" in board.results.data_source or scores["task"].isin(board.results.partial_tasks).any()
    return Page(title=f"{board.results.experiment}: {arm}", banner=NO_BENCHMARK if made_up else "", tables=(table,))


def _usage(place: str, *, native: bool) -> str:
    inside = f', subfolder="{place}"' if place else ""
    first = "" if native else "import glue_bench  # lets transformers know the encoder\n"
    return (
        f"```python\n{first}from transformers import AutoModelForSequenceClassification, AutoTokenizer\n\n"
        f'model = AutoModelForSequenceClassification.from_pretrained("{PLACEHOLDER}"{inside})\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{PLACEHOLDER}"{inside})\n```\n'
    )
