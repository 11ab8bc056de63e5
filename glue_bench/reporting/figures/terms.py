"""What attention adds up from words and positions: the panels of its terms, and each term's share.

The frames are those of `glue-bench analyse`; see Ke, He & Liu 2021 (TUPE), figure 2, for the panels.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from glue_bench.reporting.figures import style
from glue_bench.reporting.figures.heat import even_scale, heat_panel, heat_stack, scale_bar

OVER_SEQUENCES = {"rms": "RMS over sequences", "mean": "mean over sequences"}
BASELINES = {
    "turned": ("positions turned", "v", style.CYCLE[5]),
    "permuted": ("positions permuted", "s", style.CYCLE[1]),
    "covariance": ("positions at random", "^", style.CYCLE[3]),
    "fresh": ("fresh weights", "D", style.CYCLE[2]),
}
PAIR = ["query", "key"]


@style.paper_style()
def term_panels(terms: pd.DataFrame, value: str = "rms") -> Figure:
    """The terms of the logits in the first block that the frame has, heads together: a panel for each term.

    `terms` is the frame terms of one checkpoint: block, query, key (word, position or bias; rest is left out), i, j
    (positions of query and key, in tokens), and `value`, "rms" or "mean" over sequences, in logits that are centred
    over the keys. All panels have one scale. Both values are worth a look: words differ between sequences, so that
    their terms fade from the mean, which shows what depends on places alone; the RMS shows how large each term is.
    """
    mine = _without_rest(terms[terms["block"] == terms["block"].min()])
    panels = list(mine.groupby(PAIR, sort=False))
    figure, grid = style.panel_grid(len(panels), 1.65, 2)
    scale = even_scale(mine[value], signed=value == "mean")
    for place, (axes, ((query, key), cells)) in enumerate(zip(grid, panels, strict=True)):
        heat_panel(axes, cells, value, scale)
        axes.set_title(_term_name(query, key))
        axes.set_xlabel("key (token)" if place + 2 >= len(grid) else "")
        axes.set_ylabel("query (token)" if place % 2 == 0 else "")
    scale_bar(figure, grid, f"logits, {OVER_SEQUENCES[value]}")
    return figure


@style.paper_style()
def term_panels_by_head(terms_heads: pd.DataFrame, value: str = "rms") -> Figure:
    """As `term_panels`, with a row of squares for each head of block 1; in each the queries go down, the keys across.

    `terms_heads` is the frame of that name of one checkpoint: as terms, and `head`. Each head has a scale of its own,
    which its squares share, because one head may hold logits that are many times those of the others: colours are
    shares of the head's largest logit, which stands beside its number.
    """
    mine = _without_rest(terms_heads)
    largest = mine[value].abs().groupby(mine["head"]).max()
    mine = mine.assign(share=mine[value] / mine["head"].map(largest.where(largest > 0, 1.0)))
    panels = list(mine.groupby(PAIR, sort=False))
    figure = style.new_figure(style.COLUMN, 1.05 + 0.615 * mine["head"].nunique())
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False).ravel()
    scale = Normalize(-1 if value == "mean" else 0, 1)
    for axes, ((query, key), cells) in zip(grid, panels, strict=True):
        heat_stack(axes, cells, "share", scale)
        axes.set_title(_term_name(query, key).replace(" to", "\nto"), fontsize=style.SMALL)
        axes.set_xlabel("key (token)", fontsize=style.SMALL)
    grid[0].set_yticks(grid[0].get_yticks(), [f"{head} ({most:.2g})" for head, most in largest.items()])
    grid[0].set_ylabel("head (largest), query")
    scale_bar(figure, list(grid), f"share of the head's largest, {OVER_SEQUENCES[value]}")
    return figure


@style.paper_style()
def term_shares(shares: pd.DataFrame, baselines: pd.DataFrame | None = None) -> Figure:
    """Each term's share of the variance of the logits in block 1, heads together: a panel for each checkpoint.

    `shares` is the frame terms_share: checkpoint, block, head (0: their mean), query, key, share, low and high (95%
    interval over sequences). A share may be below 0; all of them sum to 1. `baselines` is the frame terms_baseline:
    checkpoint, baseline (one of BASELINES), query, key, share: what a term holds where positions mean nothing.
    """
    mine = shares[(shares["head"] == 0) & (shares["block"] == shares["block"].min())]
    panels = list(mine.groupby("checkpoint", sort=False))
    pairs = list(mine[PAIR].drop_duplicates().itertuples(index=False, name=None))
    figure, grid = style.panel_grid(len(panels), 0.55 + 0.14 * len(pairs), sharey=True)
    nothing = {} if baselines is None else dict(iter(baselines.groupby(["checkpoint", "baseline"])))
    places, drawn = np.arange(len(pairs)), dict[str, Any]()
    for axes, (checkpoint, rows) in zip(grid, panels, strict=True):
        for name, (label, marker, colour) in BASELINES.items():
            if (found := nothing.get((checkpoint, name))) is not None:
                share = found.set_index(PAIR)["share"].reindex(pairs)
                (drawn[label],) = axes.plot(share, places, marker, color=colour, markerfacecolor=style.PAPER)
        share, low, high = (rows.set_index(PAIR)[key].reindex(pairs) for key in ("share", "low", "high"))
        drawn["measured"] = axes.errorbar(share, places, xerr=[share - low, high - share], fmt="o", color=style.INK)
        axes.axvline(0, color=style.INK, linewidth=0.6)
        axes.set(title=style.panel_name(checkpoint, len(panels)), xlabel="share of variance")
    grid[0].set_yticks(range(len(pairs)), [_term_name(*pair) for pair in pairs])
    grid[0].set_ylim(len(pairs) - 0.4, -0.6)
    style.legend_below(figure, list(drawn.values()), list(drawn))
    return figure


def _without_rest(terms: pd.DataFrame) -> pd.DataFrame:
    return terms[terms["query"].ne("rest") & terms["key"].ne("rest")]


def _term_name(query: object, key: object) -> str:
    return f"{query} to {key}" if query in ("word", "position", "rest") else str(query)
