"""Fine-tune `add`'s checkpoint with a plain transformers Trainer at an experiment's own settings.

    python benchmarks/trainer_agreement.py configs/minilm.yaml --data FOLDER --seed 1 --output trainer.csv

Same checkpoint, data, batch size, optimiser, schedule, epochs and seed; transformers' own model, head,
dropout, batch order and dynamic padding. Scores are to agree with glue-bench's within seed noise.
"""

import csv
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments, set_seed

from glue_bench.benchmark.metrics import score_logits
from glue_bench.benchmark.tasks import TASKS
from glue_bench.config import Cell, load_experiment
from glue_bench.training.quiet import quiet_libraries
from glue_bench.training.workspace import Workspace

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def main(
    config: Path,
    data: Annotated[str | None, typer.Option()] = None,
    seed: Annotated[int, typer.Option()] = 1,
    task: Annotated[list[str] | None, typer.Option(help="Only these tasks.")] = None,
    output: Annotated[Path, typer.Option()] = Path("trainer.csv"),
) -> None:
    """Append one line per task, metric and seed to OUTPUT."""
    quiet_libraries()
    experiment = load_experiment(config, data)
    workspace = Workspace(experiment)
    for cell in experiment.cells():
        # Any seed may be asked for, not only the experiment's own.
        if cell.arm.variant == "add" and cell.seed == experiment.seeds[0] and cell.task in (task or experiment.tasks):
            cell = cell.model_copy(update={"seed": seed})
            for split, scores in train_and_score(cell, workspace).items():
                append(output, cell, split, scores)


def train_and_score(cell: Cell, workspace: Workspace) -> dict[str, dict[str, float]]:
    """Scores of each validation split after the last epoch."""
    set_seed(cell.seed)
    task, tokenizer, settings = TASKS[cell.task], workspace.tokenizer(cell.arm), cell.hyperparameters
    model = AutoModelForSequenceClassification.from_pretrained(cell.arm.checkpoint, num_labels=task.num_labels)
    splits = {
        name: as_dataset(frame, tokenizer, settings.max_length)
        for name, frame in workspace.data(cell.task).splits.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=arguments(cell, folder),
            train_dataset=splits["train"],
            processing_class=tokenizer,
        )
        trainer.train()
        return {name: score_split(trainer, cell.task, splits[name]) for name in task.validation_splits}


def as_dataset(frame: Any, tokenizer: Any, max_length: int) -> Dataset:
    """A split, tokenised as run_glue does, without padding."""
    texts = [frame[column].tolist() for column in ("text_a", "text_b") if column in frame]
    encoded = tokenizer(*texts, truncation=True, max_length=max_length)
    return Dataset.from_dict({**encoded, "label": frame["label"].tolist()})


def arguments(cell: Cell, folder: str) -> TrainingArguments:
    """The cell's hyperparameters in Trainer's names."""
    settings = cell.hyperparameters
    return TrainingArguments(
        output_dir=folder,
        learning_rate=settings.learning_rate,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=64,
        warmup_steps=settings.warmup_ratio,
        lr_scheduler_type="linear",
        weight_decay=settings.weight_decay,
        adam_epsilon=settings.adam_epsilon,
        max_grad_norm=settings.clip_norm,
        seed=cell.seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def score_split(trainer: Trainer, task: str, split: Dataset) -> dict[str, float]:
    """Metrics of one split, by the project's own scoring."""
    logits = np.asarray(trainer.predict(split).predictions)
    return score_logits(task, logits, np.asarray(split["label"]))


def append(output: Path, cell: Cell, split: str, scores: dict[str, float]) -> None:
    """Write the scores, x 100, behind what other runs wrote."""
    fresh = not output.exists()
    with output.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(["task", "split", "metric", "learning_rate", "seed", "value"])
        for metric, value in scores.items():
            writer.writerow(
                [
                    cell.task,
                    split,
                    metric,
                    cell.hyperparameters.learning_rate,
                    cell.seed,
                    f"{100 * value:.4f}",
                ]
            )


if __name__ == "__main__":
    typer.run(main)
