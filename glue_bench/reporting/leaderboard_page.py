"""The leaderboard's page: what it says and in which order, for whatever format it is written in, and for the screen."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from glue_bench.config import AS_PUBLISHED
from glue_bench.data.tasks import COLUMNS
from glue_bench.reporting.findings import BETTER, WORSE, Findings, title_of, verdict
from glue_bench.reporting.grid import Grid, GridCell, Page, PageSection
from glue_bench.reporting.notes import (
    COLLAPSED,
    FEWER,
    MAJORITY,
    PARTIAL,
    SMALLEST,
    banner,
    leaderboard_notes,
    marked_tasks,
)
from glue_bench.tables.arms import block_names, blocks_of, title
from glue_bench.tables.averages import AVERAGE, SEEDS, main_scores
from glue_bench.tables.board import Board, steps_frame
from glue_bench.tables.numbers import MISSING, decimals_of, number, short
from glue_bench.values import BlockKey

ORIGIN_MEANS = {
    "pretrained": "The weights were trained with this way of combining embeddings.",
    "adapted": "The weights come from another variant's checkpoint, then pretrained further with this one.",
    "grafted": "The weights come from another variant's checkpoint and were only converted.",
    AS_PUBLISHED: "Checkpoints as they are published, with their own heads and tokenizers: they differ in many things.",
    "scratch": "No pretraining: fine-tuned from random weights.",
}
COSTS = "what the conversion costs, no ranking"
COST_MEANS = "Beside each score stands its difference from {references}, whose checkpoint was converted."
BOTH = (0, 1)
STEPS_MEAN = "Each fine-tuned checkpoint of the pretraining; the tables above are of the last."


def leaderboard_page(findings: Findings) -> Page:
    """The verdict, one section per block, GLUE against steps, and the notes."""
    steps = steps_frame(findings.board)
    sections = [
        PageSection(title=name, text=_block_means(findings, key, block), grid=block_grid(findings, key, block))
        for name, key, block in _blocks(findings)
    ]
    if len(steps):
        grid = steps_grid(findings, steps)
        sections.append(PageSection(title="Against steps of pretraining", text=STEPS_MEAN, grid=grid))
    described = findings.board.cells.drop_duplicates("arm").query("summary != '' and arm not in @findings.waiting")
    if len(described):
        rows = zip(described["arm"], described["summary"], strict=True)
        sections.append(PageSection(title="Arms", grid=Grid.of(("Arm", "What it does"), rows, texts=BOTH)))
    return Page(
        title=f"Leaderboard: {findings.results.experiment}",
        banner=banner(findings.results),
        lead=verdict(findings),
        sections=tuple(sections),
        notes=tuple(leaderboard_notes(findings)),
    )


def leaderboard_screen(findings: Findings) -> Page:
    """What of it a terminal shows: the verdict and the tables."""
    blocks = list(_blocks(findings))
    sections = [
        PageSection(title=name if len(blocks) > 1 else "", grid=block_grid(findings, key, block))
        for name, key, block in blocks
    ]
    return Page(title="", banner=banner(findings.results), lead=verdict(findings), sections=tuple(sections))


def block_grid(findings: Findings, key: BlockKey, block: pd.DataFrame) -> Grid:
    """The arms, by their average, and their scores; below them what the scores are to be compared with."""
    converted, names = findings.converted(key), findings.columns
    best = {} if converted else best_of(block, names, findings.lowest_is_best)
    rows: list[tuple[GridCell | str, ...]] = []
    for row in block.to_dict("records"):
        cells = (_cell(findings, row, name, best.get(name, ()), row["arm"] in converted) for name in names)
        rows.append((row["arm"], *_size(key, row), *cells))
        runs = _run_rows(findings, row["arm"]) if findings.runs else ()
        rows += [(run, *_size(key), *scores) for run, *scores in runs]
    feet: list[tuple[GridCell | str, ...]] = [
        (what, *_size(key), *(_plain(values.get(name, math.nan), decimals=decimals_of(name)) for name in names))
        for what, values in ((MAJORITY, {} if converted else findings.constants), (SMALLEST, findings.smallest(key)))
        if values
    ]
    sizes = ["Parameters"] * len(_size(key))
    header = ("Arm", *sizes, *(_header(findings.board, name) for name in names))
    return Grid.of(header, rows, feet)


def _size(key: BlockKey, row: Mapping[Any, Any] | None = None) -> list[str]:
    """What stands in the column of parameters, which only the block of published checkpoints has."""
    if key[0] != AS_PUBLISHED:
        return []
    return [MISSING if row is None or pd.isna(row["parameters"]) else short(row["parameters"])]


def best_of(block: pd.DataFrame, columns: Iterable[str], lowest: Collection[str] = ()) -> dict[str, frozenset[str]]:
    """Column -> the arms with the best score as shown, so that a tie to two decimals is a tie; none where all tie."""
    leaders = {}
    for name in columns:
        scores = block.set_index("arm")[name].dropna()
        top, decimals = scores.min() if name in lowest else scores.max(), decimals_of(name)
        best = frozenset(str(arm) for arm, value in scores.items() if number(value, decimals) == number(top, decimals))
        leaders[name] = best if len(best) < len(scores) else frozenset()
    return leaders


def _blocks(findings: Findings) -> Iterator[tuple[str, BlockKey, pd.DataFrame]]:
    """The title, the key and the rows of each block."""
    blocks = blocks_of(findings.table[~findings.table["arm"].isin(findings.waiting)])
    names = block_names(key for key, _ in blocks)
    for key, block in blocks:
        yield title(names[key]) + (f": {COSTS}" if findings.converted(key) else ""), key, block


def _block_means(findings: Findings, key: BlockKey, block: pd.DataFrame) -> str:
    """What the arms of a block have in common, what they started from, and how large they are."""
    arms = {str(start): ", ".join(mine["arm"]) for start, mine in block.groupby("start", sort=False)}
    starts = "; ".join(arms if len(arms) == 1 else (f"{start} ({who})" for start, who in arms.items()))
    sources: dict[str, list[str]] = {}
    for arm, source in findings.converted(key).items():
        sources.setdefault(source, []).append(arm)
    references = [f"`{source}`" + f" ({', '.join(who)})" * (len(sources) > 1) for source, who in sources.items()]
    cost = f" {COST_MEANS.format(references=' or '.join(references))}" if sources else ""
    renamed = block[block["arm"] != block["variant"]]
    variants = ", ".join(f"{arm} is {variant}" for arm, variant in zip(renamed["arm"], renamed["variant"], strict=True))
    if key[0] == AS_PUBLISHED:
        return f"{ORIGIN_MEANS[key[0]]} Started from: {starts}."
    return f"{ORIGIN_MEANS[key[0]]}{cost} Encoder: {key[1]}; {_parameters(block)}. Started from: {starts}." + (
        f" Variants: {variants}." if variants else ""
    )


def _parameters(block: pd.DataFrame) -> str:
    """The parameters of the arms, those of one number together."""
    arms: dict[str, list[str]] = {}
    for arm, count in zip(block["arm"], block["parameters"], strict=True):
        arms.setdefault(MISSING if pd.isna(count) else short(count), []).append(arm)
    shown = arms if len(arms) == 1 else (f"{count} ({', '.join(who)})" for count, who in arms.items())
    return f"parameters: {', '.join(shown)}"


def _cell(findings: Findings, row: Mapping[Any, Any], name: str, best: Collection[str], converted: bool) -> GridCell:
    """A score, its verdict, and light marks where a run has collapsed or is missing."""
    if math.isnan(row[name]):
        return GridCell(MISSING)
    board, contrast = findings.board, findings.by_place.get((row["arm"], name), {})
    marks = {"better": BETTER, "worse": WORSE}.get(contrast.get("verdict", ""), "")
    if name in board.columns:
        marks += COLLAPSED if board.collapsed[row["arm"]][name] else ""
        marks += FEWER if row[f"{name}_n"] < board.planned[row["arm"]][name] else ""
    elif (row["arm"], name) in findings.incomplete:
        marks += FEWER
    difference, decimals = contrast.get("difference", math.nan) if converted else math.nan, decimals_of(name)
    aside = "" if math.isnan(difference) else f"{difference:+z.{decimals}f}"
    return GridCell(number(row[name], decimals), row["arm"] in best, marks, aside)


def _run_rows(findings: Findings, arm: str) -> Iterator[tuple[GridCell | str, ...]]:
    """A row for each run of an arm, by its seeds."""
    scores = main_scores(findings.board.runs)
    seeds: Any
    for seeds, runs in scores[scores["arm"] == arm].groupby(SEEDS, dropna=False):
        values = {(row["task"], row["split"]): row["value"] for row in runs.to_dict("records")}
        name = " ".join(f"{seed:g}" for seed in seeds if not pd.isna(seed))
        cells = (_plain(values.get(COLUMNS.get(column, ("", "")), math.nan)) for column in findings.columns)
        yield f"- seed {name}", *cells


def _header(board: Board, name: str) -> str:
    """The title of a column, marked where only a part of its data was there."""
    if name == AVERAGE:
        return board.average.title
    return title_of(name) + PARTIAL * (name in COLUMNS and COLUMNS[name][0] in marked_tasks(board))


def legend(findings: Findings, page: Page) -> str:
    """What the marks that are in a page's tables mean, in a few words."""
    grids = [section.grid for section in page.sections if section.grid]
    marked = [name for grid in grids for name in grid.header]
    cells = [cell for grid in grids for row in grid.rows for cell in row]
    marked += [cell.marks for cell in cells]
    references = " or ".join(dict.fromkeys(findings.contrasts["reference"]))
    meanings = {BETTER: f"better than {references}", WORSE: f"worse than {references}", COLLAPSED: "collapsed runs"}
    meanings |= {FEWER: "fewer seeds than planned", PARTIAL: "part of the data"}
    shown = [f"{mark} {meaning}" for mark, meaning in meanings.items() if mark in "".join(marked)]
    return ", ".join(["bold: best"] * any(cell.bold for cell in cells) + shown)


def steps_grid(findings: Findings, steps: pd.DataFrame) -> Grid:
    """One row per arm and fine-tuned checkpoint of `steps`, a `steps_frame`."""
    names = [name for name in findings.columns if name in steps]
    rows = [
        (row["arm"], f"{row['steps']:,}", *(_plain(row[name]) for name in names))
        for row in steps.sort_values(["arm", "steps"], kind="stable").to_dict("records")
    ]
    header = ("Arm", "Steps", *(_header(findings.board, name) for name in names))
    return Grid.of(header, rows)


def _plain(value: float, bold: bool = False, decimals: int = 2) -> GridCell:
    return GridCell(number(value, decimals) or MISSING, bold)
