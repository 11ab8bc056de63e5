"""In what the runs behind a table are not alike, in sentences."""

from itertools import product

import pandas as pd

from glue_bench.tables.arms import UNRECORDED, named_blocks, title
from glue_bench.tables.numbers import code
from glue_bench.tables.results import comparable
from glue_bench.values import series

MIXED = {
    "precision": "its runs were trained in more than one precision",
    "recipe": "its runs were trained by more than one recipe",
    "pretraining_recipe": "its runs start from weights that more than one recipe has pretrained",
}


OVER_SEEDS = (
    "runs of different seeds or tasks ran on unlike processors, those of one seed and task on one: arms compare, and "
    "the spread over seeds may contain what processors change."
)


def block_notes(cells: pd.DataFrame) -> list[str]:
    """In what the runs of a block are not alike, and which encoders' shapes nothing records; `cells` of a board."""
    notes = mixed_notes(cells)
    unrecorded = cells.loc[cells["shape"].str.startswith(UNRECORDED), "arm"].unique()
    if len(unrecorded):
        notes.append(
            f"The shape of the encoder is not recorded for {', '.join(unrecorded)}; the same `glue-bench run` again "
            "records it and runs no cell twice."
        )
    return notes + lost_weights_note(cells) + processor_notes(cells)


def lost_weights_note(cells: pd.DataFrame) -> list[str]:
    """A sentence about runs of a pretraining that came out otherwise when it was run once more."""
    lost = cells.loc[cells["of_lost_weights"], "arm"].value_counts(sort=False)
    if lost.empty:
        return []
    shown = ", ".join(f"{count} of {code(arm)}" for arm, count in lost.items())
    return [
        f"Some runs ({shown}) started from weights that were lost; their pretraining was run once more and came out "
        "otherwise, and what the tables say of it is of the second time."
    ]


def searched_note(rates: pd.DataFrame) -> list[str]:
    """Which learning rate each arm was pretrained at, where rates were searched: of a `rates_frame`."""
    chosen = rates[rates["chosen"].astype(bool)]
    if chosen.empty:
        return []
    tried = sorted(rates["learning_rate"].unique())
    arms_at = chosen.groupby("learning_rate")["arm"].agg(list).to_dict()
    *rare, most = sorted(arms_at, key=lambda rate: len(arms_at[rate]))
    said = [f"{rate:g} for {series(map(code, arms_at[rate]))}" for rate in rare]
    said.append(f"{most:g} for {'the others' if rare else 'all'}")
    return [
        f"Each arm was pretrained at the best of {len(tried)} learning rates "
        f"({', '.join(f'{rate:g}' for rate in tried)}): {', '.join(said)}. See `budget.md` for the search."
    ]


def processor_notes(cells: pd.DataFrame) -> list[str]:
    """A sentence about each block whose finished runs were computed on unlike processors."""
    notes, over_seeds = [], []
    known = cells[cells["finished"] & (cells["processor"] != "")]
    for name, block in named_blocks(known.assign(processor=comparable(known["processor"]))):
        if block.groupby(["task", "pretraining_seed", "seed"], dropna=False)["processor"].nunique().max() < 2:
            over_seeds += [title(name)] * (block["processor"].nunique() > 1)
            continue
        places = block.groupby("arm", sort=False)["processor"].agg(lambda mine: series(sorted(set(mine))))
        arms = {where: ", ".join(map(code, mine.index)) for where, mine in places.groupby(places, sort=False)}
        shown = "; ".join(f"{who} on {where}" for where, who in arms.items())
        pretrained = ", pretraining included," * bool(block["pretraining_seed"].notna().any())
        notes.append(
            f"{title(name)}: the arms ran{pretrained} on unlike processors ({shown}), which round differently: a "
            "difference across them may be due to that, in part."
        )
    return notes + [f"{', '.join(over_seeds)}: {OVER_SEEDS}"] * bool(over_seeds)


def mixed_notes(cells: pd.DataFrame) -> list[str]:
    """A sentence about each block whose runs differ in precision or recipe, and about blocks of several recipes."""
    finished = cells[cells["finished"]]
    blocks = list(named_blocks(finished))
    notes = []
    for (name, block), (fact, said) in product(blocks, MIXED.items()):
        arms = {str(value): ", ".join(mine["arm"].unique()) for value, mine in block.groupby(fact)}
        if len(arms) > 1:
            shown = "; ".join(f"{value or 'unrecorded'}: {who}" for value, who in arms.items())
            notes.append(f"{title(name)}: {said} ({shown}).")
    for fact, said in (("recipe", "trained"), ("pretraining_recipe", "pretrained")):
        named = {name: block[fact].dropna().unique() for name, block in blocks}
        # A block that mixes recipes has said so itself.
        if finished[fact].nunique() > 1 and all(len(recipes) <= 1 for recipes in named.values()):
            shown = "; ".join(f"{title(name)}: {recipes[0]}" for name, recipes in named.items() if len(recipes))
            notes.append(f"The blocks' runs were {said} by different recipes ({shown}).")
    return notes
