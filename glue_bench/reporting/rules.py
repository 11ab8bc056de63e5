"""The protocol in words: what is printed under every table."""

from collections.abc import Iterator

import pandas as pd

from glue_bench.benchmark.tasks import titles
from glue_bench.config import HELD_OUT, Protocol
from glue_bench.results.encoders import UNRECORDED, named_blocks, title
from glue_bench.results.frame import Results

FROM_MNLI = "§"


def protocol_notes(results: Results) -> list[str]:
    """How the numbers came about, from rates, seeds and epochs; a sentence or two each."""
    protocol = results.protocol
    several = results.cells.groupby("task")["learning_rate"].nunique().max() > 1
    parts = [f"{protocol.seeds} over seeds", _epoch(protocol), _rate(protocol) if several else "one learning rate"]
    notes = [f"Protocol: {'; '.join(parts)}."]
    if several:
        notes.append("Rates that tie: the lower one. A rate with fewer finished seeds than another is passed over.")
    if results.held_out_share:
        notes.append(f"{results.held_out_share:.3g} of each train set was held out of training.")
    if results.from_mnli:
        notes.append(f"{FROM_MNLI} {titles(results.from_mnli)}: from the arm's own MNLI run of the same seed.")
    return notes


def block_notes(results: Results) -> list[str]:
    """In what the runs of a block are not alike, and which encoders' shapes nothing records."""
    cells, notes = results.cells, mixed_notes(results)
    unrecorded = cells.loc[cells["shape"].str.startswith(UNRECORDED), "arm"].unique()
    if len(unrecorded):
        notes.append(
            f"The shape of the encoder is not recorded for {', '.join(unrecorded)}; the same `glue-bench run` again "
            "records it and runs no cell twice."
        )
    return notes


def mixed_notes(results: Results) -> list[str]:
    """A sentence about each block whose runs differ in precision or recipe, and about blocks of several recipes."""
    finished = results.cells[results.cells["finished"]]
    blocks = list(named_blocks(finished))
    notes = [note for name, block in blocks for note in _mixed(name, block)]
    for fact, said in (("recipe", "trained"), ("pretraining_recipe", "pretrained")):
        named = {name: block[fact].dropna().unique() for name, block in blocks}
        # A block that mixes recipes has said so itself.
        if finished[fact].nunique() > 1 and all(len(recipes) <= 1 for recipes in named.values()):
            shown = "; ".join(f"{title(name)}: {recipes[0]}" for name, recipes in named.items() if len(recipes))
            notes.append(f"The blocks' runs were {said} by different recipes ({shown}).")
    return notes


_MIXED = {
    "precision": "its runs were trained in more than one precision",
    "recipe": "its runs were trained by more than one recipe",
    "pretraining_recipe": "its runs start from weights that more than one recipe has pretrained",
}


def _mixed(name: str, block: pd.DataFrame) -> Iterator[str]:
    for fact, said in _MIXED.items():
        arms = {str(value): ", ".join(mine["arm"].unique()) for value, mine in block.groupby(fact)}
        if len(arms) > 1:
            shown = "; ".join(f"{value or 'unrecorded'}: {who}" for value, who in arms.items())
            yield f"{title(name)}: {said} ({shown})."


def problem_notes(results: Results) -> list[str]:
    """A line about each record that cannot be believed."""
    return [f"Left out: `{problem}`." for problem in results.problems]


def _epoch(protocol: Protocol) -> str:
    if protocol.epoch == "last":
        return "after the last epoch"
    if protocol.optimistic:
        return "**optimistic**: each run's best epoch on the validation set that is reported"
    return "each run's best epoch on the slice held out of train"


def _rate(protocol: Protocol) -> str:
    held_out = protocol.choose_on == HELD_OUT
    where = "the slice held out of train" if held_out else "the validation set that is reported"
    return f"for each arm and task the learning rate of the best {protocol.rate_statistic}, chosen on {where}"
