"""Verbs about variants and checkpoints: list variants, convert between them, measure what a checkpoint has learnt."""

from pathlib import Path
from typing import Annotated, Any

import typer

from glue_bench.cli.app import Plugins, app
from glue_bench.cli.printing import new_table, print_table, say
from glue_bench.terminal import echo


@app.command()
def convert(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A checkpoint: hub id, folder, or an official TUPE file (.pt).")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write; it must not exist, or be empty.")],
    variant: Annotated[str, typer.Option(metavar="NAME", help="The variant to convert to: see `glue-bench variants`.")],
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="An option of the variant; may be repeated.")
    ] = None,
    revision: Annotated[str | None, typer.Option(metavar="REV", help="The revision of a hub id.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Hub id or folder of a tokenizer, in place of SOURCE's own.")
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Write a checkpoint as one of another variant, and measure what was lost."""
    from glue_bench.values import parse_options

    options = parse_options(option or ())
    say("reading the checkpoint ...")
    from glue_bench.testing import load_plugins
    from glue_bench.training.convert import convert as convert_checkpoint

    load_plugins(plugin or ())
    record = convert_checkpoint(source, out, variant, options, revision=revision, tokenizer=tokenizer)
    _print_conversion(record, out)


@app.command()
def variants(plugin: Plugins = None) -> None:
    """List the ways of combining embeddings, and hold those of plugins to the contract."""
    from glue_bench.model.variants import VARIANTS
    from glue_bench.testing import load_plugins

    load_plugins(plugin or ())
    table = new_table("variant", "what it does", "source", wrap="what it does")
    for name, variant in VARIANTS.items():
        table.add_row(name, variant.summary, variant.source)
    print_table(table)


def _print_conversion(record: dict[str, Any], out: Path) -> None:
    from rich.table import Table

    echo(f"{record['source']} ({record['source_variant']}) -> {out} ({record['variant']})\n")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    for name, value in _describe_conversion(record).items():
        table.add_row(name, value)
    print_table(table)
    echo(f"\nwritten to {out}, every figure to {out / 'conversion.json'}")
    echo("it is read by AutoModel.from_pretrained after `import glue_bench`, and as an arm's `checkpoint`")


def _describe_conversion(record: dict[str, Any]) -> dict[str, str]:
    """What a conversion did and what it lost, as rows of a table."""
    distance, losses, kept = record["distance"], record["masked_lm_loss"], record["variance_kept"]
    errors = [f"{error:.2f}" if error >= 0.01 else f"{error:.1g}" for error in distance["relative_error"]]
    rows = {
        "conversion": _EXACT[record["exact"]],
        "origin": f"{record['origin']}: {_ORIGINS[record['origin']]}",
        "hidden states": f"relative error {errors[-1]}, mean cosine {distance['cosine']:.4f} after the last block",
        "error by layer": f"{' '.join(errors)} (the input first)",
        "masked-LM head": record["masked_lm_head"],
    }
    if losses:
        rows["masked-LM loss"] = f"{losses['before']:.3f} before, {losses['after']:.3f} after"
    if kept:
        rows["variance kept"] = ", ".join(f"{table} {share:.1%}" for table, share in kept.items())
    sample = record["sample"]
    size = f"{sample['tokens']} tokens" + (f", {sample['masked']} of them masked" if losses is not None else "")
    if sample["kind"] == "text":
        return rows | {"measured on": f"{sample['sequences']} pairs of English sentences, {size}"}
    return rows | {
        "measured on": f"random token ids, for want of a tokenizer that masks (--tokenizer names one): {size}"
    }


_EXACT = {
    True: "exact: it computes what the source computes, up to rounding",
    False: "approximate: not all that the source computes is kept",
}
_ORIGINS = {
    "pretrained": "the weights were trained with this variant",
    "adapted": "grafted, then pretrained further",
    "grafted": "weights of another variant, only converted",
    "scratch": "not pretrained",
}
