"""The verb that scores classifiers which were fine-tuned elsewhere."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from glue_bench import api
from glue_bench.cli.common import Device, Plugins, Tokenizer, split_names
from glue_bench.cli.run import (
    DEFAULT_RESULTS,
    Data,
    DryRun,
    Limit,
    Precision,
    Results,
    run_and_print,
    write_described,
)
from glue_bench.errors import UserError

Checkpoints = Annotated[
    list[str],
    Argument(
        metavar="CHECKPOINT...",
        help="Fine-tuned classifiers: hub ids or folders, also A,B; {task} or {TASK} stands for "
        "the task.",
    ),
]
Tasks = Annotated[
    list[str] | None,
    Option(metavar="TASK", help="The tasks that they were fine-tuned on: A,B or repeated."),
]
Labels = Annotated[
    list[str] | None,
    Option(
        metavar="CLASS",
        help="The classes of the outputs in order, where a checkpoint does not name them: A,B.",
    ),
]
Predict = Annotated[
    list[str] | None,
    Option(metavar="SPLIT", help="test: also predict test splits, for a submission."),
]
BatchSize = Annotated[int | None, Option(metavar="N", help="The most rows computed at once.")]
MaxLength = Annotated[int | None, Option(metavar="N", help="Tokens of the longest row, else 128.")]
WriteFile = Annotated[
    Path | None, Option(metavar="FILE", help="Write the experiment's file and run nothing.")
]
Name = Annotated[str | None, Option(metavar="NAME", help="The name of the results.")]


def evaluate(
    checkpoints: Checkpoints,
    task: Tasks = None,
    labels: Labels = None,
    predict: Predict = None,
    max_length: MaxLength = None,
    batch_size: BatchSize = None,
    tokenizer: Tokenizer = None,
    name: Name = None,
    write: WriteFile = None,
    data: Data = None,
    limit: Limit = None,
    results: Results = DEFAULT_RESULTS,
    dry_run: DryRun = False,
    device: Device = "auto",
    precision: Precision = "auto",
    plugin: Plugins = None,
) -> None:
    """Score classifiers that were fine-tuned elsewhere, and say which of them differ."""
    splits = split_names(predict, "--predict")
    if not set(splits) <= {"validation", "test"}:
        raise UserError("--predict takes test; validation splits are always predicted")

    experiment = api.describe_evaluation(
        split_names(checkpoints, "CHECKPOINT"),
        tasks=split_names(task, "--task"),
        labels=split_names(labels, "--labels"),
        predicts_test="test" in splits,
        max_length=max_length,
        batch_size=batch_size,
        tokenizer=tokenizer,
        name=name,
        data=data,
        limit=limit,
    )

    if write is not None:
        write_described(experiment, write)
        return

    run_and_print(
        experiment,
        plugins=plugin or (),
        dry_run=dry_run,
        results=results,
        device=device,
        precision=precision,
    )
