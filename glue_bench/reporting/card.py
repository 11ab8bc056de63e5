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
from glue_bench.files import CHECKSUMS, check_checksums, write_atomically
from glue_bench.reporting.notes import METRICS
from glue_bench.tables.board import Board, open_board
from glue_bench.tables.submission import Run, arm_scores, known_arm, median_runs

METRIC_NAMES = {metric: name.capitalize() for metric, name in METRICS.items()}
PLACEHOLDER = "REPOSITORY"
"""In the text of a card, the repository that it is sent to."""
BEST_EPOCH = (
    "The experiment reports the best epoch of each run. Models are those of the last epoch, and so is the score of "
    "this model; there is a mean over seeds only where the two epochs are the same in all runs."
)


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
            inside = [path for path in sorted(folder.iterdir()) if path.name != CHECKSUMS]
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
    models = {task: folder for task, folder in kept.items() if folder.is_dir()}
    for folder in models.values():
        try:
            check_checksums(folder)
        except ValueError as error:
            raise UserError(f"{error}; delete its folder, and `run --yes` makes it again") from error
    scores = _of_last_epochs(board, arm, runs)
    partial = set(results.partial_tasks)
    stated = scores.iloc[:0] if "demo" in results.data_source else scores[~scores["task"].isin(partial)]
    places = {(task if len(models) > 1 else ""): folder for task, folder in models.items()}
    cells = results.cells.set_index("cell_id").loc[[run.cell_id for run in runs.values()]]
    header = yaml.safe_dump(_header(arm, cells.iloc[0], stated), sort_keys=False, allow_unicode=True)
    return Card(
        arm=arm,
        text=f"---\n{header}---\n\n{_body(arm, board, runs, cells.iloc[0], scores, stated, places)}",
        results="" if stated.empty else yaml.safe_dump(_eval_results(board, stated), sort_keys=False),
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
            f"arm '{made.arm}' has kept no model to push; `finetuning: {{keep: best}}` keeps them, and "
            "`run --yes` trains finished runs once more for that"
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


def _header(arm: str, cell: pd.Series, stated: pd.DataFrame) -> dict[str, Any]:
    native = cell["variant"] == NATIVE
    header: dict[str, Any] = {
        "library_name": "transformers" if native else "glue-bench",
        "pipeline_tag": "text-classification",
        "language": "en",
        "tags": ["glue", "glue-bench"] + ([] if native else [cell["variant"]]),
    }
    if cell["base_model"]:
        header["base_model"] = cell["base_model"].partition("@")[0]
    if not stated.empty:
        header["datasets"] = [REPOSITORY]
        rows = stated.groupby(["task", "split"], sort=False)
        results = [_result(str(task), str(split), group) for (task, split), group in rows]
        header["model-index"] = [{"name": arm, "results": results}]
    return header


def _result(task: str, split: str, group: pd.DataFrame) -> dict[str, Any]:
    metrics = []
    for row in group.to_dict("records"):
        name = METRIC_NAMES[row["metric"]]
        metrics.append({"type": row["metric"], "value": _number(row["value"]), "name": name})
        if _has_mean(row):
            title = f"{name}, {_mean_of(row)}"
            metrics.append({"type": row["metric"], "value": _number(row["mean"]), "name": title})
    return {
        "task": {"type": "text-classification", "name": TASKS[task].title},
        "dataset": {"type": REPOSITORY, "name": f"GLUE {TASKS[task].title}", "config": task, "split": split},
        "metrics": metrics,
    }


def _eval_results(board: Board, stated: pd.DataFrame) -> list[dict[str, Any]]:
    """What the hub reads from `.eval_results/*.yaml`: each split's main metric, 0 to 1."""
    found = []
    for row in stated.to_dict("records"):
        if row["metric"] != TASKS[row["task"]].metrics[0]:
            continue
        dataset = {"id": REPOSITORY, "task_id": row["task"]}
        if revision := board.results.tasks["revision"][row["task"]]:
            dataset["revision"] = revision
        over = f"; {_mean_of(row)}: {_number(row['mean'])}" if _has_mean(row) else ""
        notes = f"{METRIC_NAMES[row['metric']]} on {row['split']}{over}"
        found.append({"dataset": dataset, "value": _number(row["value"]), "notes": notes})
    return found


def _has_mean(row: Mapping[Any, Any]) -> bool:
    """Whether there is a mean over several runs to state."""
    return bool(row["n"] > 1 and not math.isnan(row["mean"]))


def _mean_of(row: Mapping[Any, Any]) -> str:
    return f"mean of {row['n']} seeds, standard error {row['error']:.4f}"


def _number(value: float) -> float | None:
    """JSON and YAML readers of the hub know no NaN."""
    return None if math.isnan(value) else round(float(value), 6)


def _body(
    arm: str,
    board: Board,
    runs: Mapping[str, Run],
    cell: pd.Series,
    scores: pd.DataFrame,
    stated: pd.DataFrame,
    places: Mapping[str, Path],
) -> str:
    native = cell["variant"] == NATIVE
    what = "as it is published" if native else f"with the variant `{cell['variant']}`"
    by = f"glue-bench {cell['environment'].glue_bench or ''}".rstrip()
    parts = [
        f"# {board.results.experiment}: {arm}",
        f"An encoder {what}, fine-tuned on GLUE by {by}. Each task has a model of its own.",
    ]
    if len(stated) < len(scores):
        parts.append("**No benchmark:** some of these data are made up, or a part of the official rows.")
    lines = [
        "| task | split | metric | this model | mean over seeds | standard error | seeds | learning rate | seed |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in scores.to_dict("records"):
        run = runs[row["task"]]
        shown = [
            f"{value:.4f}" if not math.isnan(value) else "-" for value in (row["value"], row["mean"], row["error"])
        ]
        named = [TASKS[row["task"]].title, row["split"], METRIC_NAMES[row["metric"]]]
        lines.append(f"| {' | '.join([*named, *shown, str(row['n']), f'{run.learning_rate:g}', str(run.seed)])} |")
    parts.append("\n".join(lines))
    parts.append("Of each task, the model is that of the median run over seeds at the reported learning rate.")
    if board.protocol.epoch == "best":
        parts.append(BEST_EPOCH)
    if places:
        parts.append(_usage(places, native=native))
    return "\n\n".join(parts) + "\n"


def _usage(places: Mapping[str, Path], *, native: bool) -> str:
    place = next(iter(places))
    inside = f', subfolder="{place}"' if place else ""
    first = "" if native else "import glue_bench  # lets transformers know the encoder\n"
    return (
        f"```python\n{first}from transformers import AutoModelForSequenceClassification, AutoTokenizer\n\n"
        f'model = AutoModelForSequenceClassification.from_pretrained("{PLACEHOLDER}"{inside})\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{PLACEHOLDER}"{inside})\n```'
    )
