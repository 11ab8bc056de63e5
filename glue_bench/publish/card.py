"""An arm's results as a model card for the hub, and the repository that it heads: card and weights."""

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.board.board import Board
from glue_bench.board.chosen import arm_scores, find_arm, median_runs
from glue_bench.board.results import Results
from glue_bench.config import NATIVE
from glue_bench.data.hub import REPOSITORY
from glue_bench.data.tasks import titles
from glue_bench.errors import IN_A_FILE, UserError, first_line
from glue_bench.files import ELSEWHERE, results_written_to, whole_folder
from glue_bench.pages.page import Column, Page, Table
from glue_bench.pages.render import to_markdown

CARD_FILE = "README.md"
"""What the hub shows of a repository."""
PLACEHOLDER = "REPOSITORY"
"""In the text of a card, the repository that it is sent to."""
NO_BENCHMARK = "No benchmark: some of these data are made up, or not exactly the official rows."
UNCHECKED = (
    "The rows of {tasks} are complete by count. Their content was not compared with the official rows, so that the hub "
    "is told no score of them."
)
MODELS = "The model of a task is that of the median run over seeds at the reported learning rate."
BEST_EPOCH = (
    "The experiment reports the best epoch of each run. Models are those of the last epoch, and so is the score of "
    "this model; there is a mean over seeds only where the two epochs are the same in all runs."
)
COLUMNS = {
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
USAGE = """
```python
{imports}from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained("{repository}"{inside})
tokenizer = AutoTokenizer.from_pretrained("{repository}"{inside})
```
"""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A model card (`text`), and the repository that it heads: content, or the file that has it, by path.

    Where there are several models, each lies in the folder of its task. `without` are the tasks whose run has left no
    model.
    """

    arm: str
    text: str
    files: Mapping[str, bytes | Path]
    without: tuple[str, ...]


def make_card(board: Board, arm: str | None) -> Card:
    """Make the card of an arm, as `glue_bench.card` describes it; the only arm needs no name."""
    arm, results = find_arm(board, arm), board.results
    runs, scores = median_runs(board, arm), arm_scores(board, arm)
    if runs.empty:
        raise UserError(f"arm '{arm}' of '{results.folder}' has no finished run to tell of")
    records = {
        str(task): results.finished.records[cell_id] for task, cell_id in runs["cell_id"].items()
    }
    kept = {task: results.store.model(record, whole=True) for task, record in records.items()}
    models = {task: folder for task, folder in kept.items() if folder}
    early = board.runs.loc[(board.runs["arm"] == arm) & ~board.runs["last"], "task"]
    scores.loc[scores["task"].isin(early), ["mean", "error"]] = (
        math.nan
    )  # the weights are those of the last epoch
    made_up = scores["task"].isin(results.partial_tasks) | results.is_made_up
    unchecked = _is_unchecked(scores, results) & ~made_up
    cell = results.cells[results.cells["cell_id"] == runs["cell_id"].iloc[0]].iloc[0]
    native, several = cell["variant"] == NATIVE, len(models) > 1
    what = "as it is published" if native else f"with the variant `{cell['variant']}`"
    by = f"glue-bench {cell['environment'].glue_bench or ''}".rstrip()
    legend = [MODELS]
    if board.protocol.epoch == "best":
        legend.append(BEST_EPOCH)
    if unchecked.any():
        legend.append(UNCHECKED.format(tasks=titles(tuple(scores.loc[unchecked, "task"].unique()))))
    table = Table(
        frame=scores,
        columns=COLUMNS,
        caption=f"An encoder {what}, fine-tuned on GLUE by {by}. Each task has a model of its own.",
        legend=tuple(legend),
    )
    page = Page(
        title=f"{results.experiment}: {arm}",
        banner=NO_BENCHMARK if made_up.any() else "",
        tables=(table,),
    )
    imports = "" if native else "import glue_bench  # lets transformers know the encoder\n"
    inside = f', subfolder="{next(iter(models))}"' if several else ""
    usage = USAGE.format(imports=imports, repository=PLACEHOLDER, inside=inside) if models else ""
    stated = scores[~made_up & ~unchecked & scores["value"].notna()]
    header = _header(arm, cell, results.arms["checkpoint"][arm], stated)
    text = f"---\n{header}\n---\n\n{to_markdown(page)}{usage}"
    files: dict[str, bytes | Path] = {}
    for task, folder in models.items():
        place = f"{task}/" if several else ""
        files |= {f"{place}{name}": folder / name for name in records[task].model or ()}
    files[CARD_FILE] = text.encode()
    without = tuple(task for task in kept if task not in models)
    return Card(arm=arm, text=text, files=files, without=without)


def _is_unchecked(scores: pd.DataFrame, results: Results) -> pd.Series:
    """Of which scores the split could not be compared with the official one."""
    unchecked = results.tasks["unchecked"]
    places = zip(scores["task"], scores["split"], strict=True)
    return pd.Series(
        [split in unchecked[task] for task, split in places], index=scores.index, dtype=bool
    )


def _header(arm: str, cell: pd.Series, checkpoint: str, stated: pd.DataFrame) -> str:
    """The front matter: what the hub reads of a card. A name without a revision may be a folder's: the cache tells."""
    from huggingface_hub import EvalResult, ModelCardData, constants

    results, native = list[EvalResult](), cell["variant"] == NATIVE
    for row in stated.to_dict("records"):
        values = {row["name"]: row["value"]}
        if row["n"] > 1 and not math.isnan(row["mean"]):
            values |= {
                f"{row['name']}, mean of {row['n']} seeds, standard error {row['error']:.4f}": row[
                    "mean"
                ]
            }
        of_row: dict[str, Any] = {"task_type": "text-classification", "task_name": row["title"]}
        of_row |= {
            "dataset_type": REPOSITORY,
            "dataset_name": f"GLUE {row['title']}",
            "dataset_config": row["task"],
        }
        of_row |= {"dataset_split": row["split"], "dataset_revision": row["revision"] or None}
        of_row |= {"metric_type": row["metric"]}
        results += [
            EvalResult(**of_row, metric_name=of, metric_value=round(value, 6))
            for of, value in values.items()
        ]
    copy = Path(constants.HF_HUB_CACHE, f"models--{checkpoint.replace('/', '--')}")
    is_of_hub = cell["base_model"] or (copy.is_dir() and not Path(checkpoint).exists())
    data = ModelCardData(
        library_name="transformers" if native else "glue-bench",
        pipeline_tag="text-classification",
        language="en",
        tags=["glue", "glue-bench"] + ([] if native else [cell["variant"]]),
        base_model=checkpoint if is_of_hub else None,
        datasets=[REPOSITORY] if results else None,
        model_name=arm,
        eval_results=results or None,
    )
    return data.to_yaml()


def write_card(made: Card, folder: Path) -> None:
    """Write a card and its models to a folder, all of them or none.

    Raises UserError where the folder has files, or cannot be written.
    """
    with results_written_to(folder, ELSEWHERE):
        if not folder.exists():
            with whole_folder(folder) as aside:
                _write_files(made, aside)
            return
        if any(folder.iterdir()):
            raise UserError(
                f"'{folder}' is not empty; give a folder that does not exist yet, nothing is overwritten"
            )
        # An empty folder may be a mounted disk or a link, which no other folder can replace: the files move into it.
        staged = folder / ".card"
        with whole_folder(staged) as aside:
            _write_files(made, aside)
        for entry in sorted(staged.iterdir(), key=lambda entry: entry.name == CARD_FILE):
            entry.rename(folder / entry.name)
        staged.rmdir()


def _write_files(made: Card, folder: Path) -> None:
    for name, content in made.files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        else:
            shutil.copyfile(content, place)


def push_card(made: Card, repository: str) -> str:
    """Send a card and its models to a repository of the hub, in one commit; the commit's address.

    The repository is made, as a private one, if it is not there. Raises UserError where there is no model to send, or
    the hub refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    if len(made.files) == 1:
        raise UserError(
            f"arm '{made.arm}' has kept no model to push; set `finetuning: {{keep: best}}` {IN_A_FILE} and run "
            "the experiment again, which trains the runs that a card takes once more"
        )
    files = {**made.files, CARD_FILE: made.text.replace(PLACEHOLDER, repository).encode()}
    operations = [
        CommitOperationAdd(path_in_repo=name, path_or_fileobj=what) for name, what in files.items()
    ]
    try:
        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        done = api.create_commit(
            repository, operations, commit_message="Models and results, by glue-bench"
        )
    except Exception as error:  # httpx, huggingface_hub, OSError and ValueError: no common base
        raise UserError(f"cannot push to '{repository}': {first_line(error)}") from error
    return str(done.commit_url)
