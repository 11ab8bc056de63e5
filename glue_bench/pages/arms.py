"""The table Arms below a leaderboard: what each arm is."""

from typing import Any

import pandas as pd

from glue_bench.board.board import Board
from glue_bench.pages.page import Column, Table

ARMS_TABLE_COLUMNS = {
    "arm": Column("Arm"),
    "variant": Column("Variant"),
    "options": Column("Options"),
    "summary": Column("What it does"),
    "rate": Column("Pretraining rate", show="{:g}".format),
}
"""The columns of the table. A column without a text in any row is left out."""


def arms_table(board: Board) -> Table:
    """Make the table of the arms, in the experiment's order, with their rates of pretraining."""
    frame = board.results.arms.loc[board.arms].reset_index(drop=True)
    frame["options"] = [options_text(arm) for arm in frame.to_dict("records")]
    frame["rate"] = frame["arm"].map(pretraining_rates(board))
    columns = {}
    for name, column in ARMS_TABLE_COLUMNS.items():
        if any(column.text(value) for value in frame[name]):
            columns[name] = column
    return Table(title="Arms", frame=frame, columns=columns)


def options_text(arm: dict[Any, Any]) -> str:
    """Write the options of an arm, and the size of its embeddings if it is not the hidden size."""
    options = dict(arm["options"])
    if not pd.isna(arm["embedding_size"]):
        options["embedding_size"] = arm["embedding_size"]
    return ", ".join(f"{name}: {value}" for name, value in options.items())


def pretraining_rates(board: Board) -> pd.Series:
    """Give the learning rate of each arm's pretraining, by arm; searches for it do not count."""
    pretrainings = board.results.pretrainings
    trained = pretrainings[~pretrainings["is_search"]].dropna(subset="learning_rate")
    return trained.groupby("arm")["learning_rate"].first()
