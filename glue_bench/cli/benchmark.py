"""Verbs that tell what GLUE is, and what a data source holds of it."""

from typing import Annotated

import typer

from glue_bench.cli.app import app
from glue_bench.cli.printing import cell_text, new_table, print_table, say
from glue_bench.terminal import echo


@app.command()
def data(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="hub, demo, or a folder with GLUE in it.")],
) -> None:
    """Show what a data source holds: rows, official rows, label balance, digests; complete or partial."""
    from glue_bench.data.sources import describe, open_source

    if source == "hub":
        say("asking the hub ...")
    opened = open_source(source)
    frame = describe(opened)
    shown = frame.drop(columns="status").rename(columns={"official_rows": "official"})
    table = new_table(*shown.columns, wrap="labels")
    for row in shown.itertuples(index=False):
        table.add_row(*(cell_text(value) for value in row))
    print_table(table)
    for status, tasks in frame.groupby("status", sort=False)["task"].unique().items():
        echo(f"{status}: {', '.join(tasks)}")


@app.command()
def tasks() -> None:
    """List GLUE's tasks."""
    from glue_bench.data.tasks import TASKS

    table = new_table("task", "question", "metrics", "train", "validation", "test", wrap="question")
    for task in TASKS.values():
        sizes = [sum(s.rows for n, s in task.splits.items() if n.startswith(kind)) for kind in ("train", "val", "test")]
        table.add_row(task.name, task.summary, ", ".join(task.metrics), *(str(size or "-") for size in sizes))
    print_table(table)
