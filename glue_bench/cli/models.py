"""Verbs about data, variants and checkpoints: lists, conversions, and the inside of encoders."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from glue_bench import api
from glue_bench.cli.common import Device, Plugins, Tokenizer, print_rows, say, split_names
from glue_bench.terminal import echo

SPLIT_KINDS = ("train", "validation", "test")


def data(
    source: Annotated[
        str | None,
        Argument(metavar="SOURCE", help="hub, demo, a folder with GLUE, or a task file (.yaml)."),
    ] = None,
) -> None:
    """Show what a data source holds: rows, official rows, label balance, digests.

    Without a source, list the tasks.
    """
    if source is None:
        _list_tasks()
        return
    if source == "hub":
        say("asking the hub ...")

    frame = api.describe_data(source)
    columns = frame.drop(columns=["difference", "status"])
    if not columns["official_rows"].any():
        columns = columns.drop(columns=["official_rows", "skipped"])
    columns = columns.rename(columns={"official_rows": "official"})

    texts = columns.replace("", "-")
    headings = [str(heading) for heading in texts.columns]
    rows = texts.itertuples(index=False)
    print_rows(headings, rows, wrap="labels")

    tasks_by_status = frame.groupby("status", sort=False)["task"].unique()
    for status, tasks in tasks_by_status.items():
        names = ", ".join(tasks)
        echo(f"{status}: {names}")
    for row in frame[frame["difference"] != ""].itertuples():
        echo(f"{row.task} {row.split}: {row.difference}")


def _list_tasks() -> None:
    """Print the known tasks with the official sizes of their splits, GLUE's first."""
    rows = []
    for task in api.known_tasks():
        sizes = []
        for kind in SPLIT_KINDS:
            size = sum(split.rows for name, split in task.splits.items() if name.startswith(kind))
            sizes.append(size or "-")
        rows.append((task.name, task.summary, ", ".join(task.metrics), *sizes))
    print_rows(("task", "question", "metrics", *SPLIT_KINDS), rows, wrap="question")


def variants(plugin: Plugins = None) -> None:
    """List the ways of combining embeddings, or check the variants of plugins."""
    if not plugin:
        from glue_bench import VARIANTS

        rows = ((name, variant.summary, variant.source) for name, variant in VARIANTS.items())
        print_rows(("variant", "what it does", "source"), rows, wrap="what it does")
        return
    say("checking the contract ...")
    checked = api.check_plugins(plugin)
    clauses = ", ".join(api.contract_clauses())
    for name, variant in checked.items():
        echo(f"{name}: {variant.summary} ({variant.source})\nclauses: {clauses}")
        echo(f"{name} passes the contract")


def recipes(
    name: Annotated[
        str | None, Argument(metavar="[NAME]", help="Print one recipe as an experiment has it.")
    ] = None,
) -> None:
    """List published settings of fine-tuning, which `recipe: NAME` or --recipe NAME takes."""
    if name is not None:
        echo(api.recipe_text(name), nl=False)
        return
    table = api.recipes()
    rows = zip(table.recipe, table.title, table.source, strict=True)
    print_rows(("recipe", "title", "source"), rows, wrap="source")
    echo("\nglue-bench recipes NAME prints its settings, and what of the source they cannot say")


def convert(
    source: Annotated[
        str, Argument(metavar="SOURCE", help="A checkpoint: hub id, folder or TUPE file (.pt).")
    ],
    out: Annotated[
        Path, Argument(metavar="OUT", help="The folder to write, which must not exist.")
    ],
    variant: Annotated[
        str, Option(metavar="NAME", help="The variant to convert to: see `glue-bench variants`.")
    ],
    option: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="An option of the variant; may be repeated."),
    ] = None,
    revision: Annotated[str | None, Option(metavar="REV", help="The revision of a hub id.")] = None,
    tokenizer: Tokenizer = None,
    plugin: Plugins = None,
) -> None:
    """Convert a checkpoint to another variant, and measure what was lost."""
    options = api.variant_options(option or ())
    say("reading the checkpoint ...")
    api.load_plugins(plugin or ())
    record = api.convert(source, out, variant, options, revision=revision, tokenizer=tokenizer)

    echo(f"{record['source']} ({record['source_variant']}) -> {out} ({record['variant']})\n")
    relative_errors = record["relative_error"]
    formatted = map(_format_error, relative_errors)
    errors = " ".join(formatted)
    explanation = "hidden states of random tokens, the input first, then by block"

    rows = {
        "conversion": "exact, up to rounding" if record["exact"] else "approximate",
        "origin": record["origin"],
        "relative error": f"{errors} ({explanation})",
        "masked-LM head": record["masked_lm_head"],
        "tokenizer": record["tokenizer"] or "none in the source",
    }
    if record["variance_kept"]:
        shares = [f"{table} {share:.1%}" for table, share in record["variance_kept"].items()]
        rows["variance kept"] = ", ".join(shares)

    print_rows(("", ""), rows.items())
    echo(f"\nwritten to {out}, every figure to {out / 'conversion.json'}")
    echo(
        "it is read by AutoModel.from_pretrained after `import glue_bench`, "
        "and as an arm's `checkpoint`"
    )


def _format_error(error: float) -> str:
    """Format a relative error: two decimals, or one digit where these would be zeros."""
    return f"{error:.2f}" if error >= 0.01 else f"{error:.1g}"


def analyse(
    sources: Annotated[
        list[str], Argument(metavar="SOURCE", help="Checkpoints, or folders of experiments.")
    ],
    corpus: Annotated[
        list[str] | None, Option(metavar="TEXT", help="Text to read, as for `run`; else a book.")
    ] = None,
    sequences: Annotated[int, Option(metavar="N", min=8, help="Sequences of text to read.")] = 512,
    only: Annotated[
        list[str] | None,
        Option(
            metavar="NAME,...",
            help="Of terms, subspaces, decoding, positions, dimensions, order; repeatable.",
        ),
    ] = None,
    tokenizer: Tokenizer = None,
    device: Device = "auto",
    plugin: Plugins = None,
    output: Annotated[
        Path, Option("-o", "--output", metavar="FOLDER", help="Where results go.")
    ] = Path("analysis"),
) -> None:
    """Measure the inside of encoders: do words and positions mix, or stay apart?"""
    say("reading the checkpoints and the text ...")
    api.check_folder(output)
    api.load_plugins(plugin or ())
    names = split_names(only, "--only")
    analysis = api.analyse(
        sources, corpus=corpus, sequences=sequences, only=names, tokenizer=tokenizer, device=device
    )
    for line in analysis.gone:
        say(f"left out: {line}")
    api.save_analysis(analysis, output)
    say("drawing ...")
    api.save_figures(analysis, output)
    page = output / "analysis.md"
    text = page.read_text(encoding="utf-8")
    echo(text, nl=False)
    say(f"written to {output}")
