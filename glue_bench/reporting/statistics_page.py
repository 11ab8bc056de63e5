"""The statistics of an experiment as a page: ranks, which pairs are told apart, and how that was decided."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from glue_bench.benchmark.tasks import COLUMNS
from glue_bench.records.store import open_store
from glue_bench.reporting.assessment import Assessment, assess_experiment
from glue_bench.reporting.document import Grid, GridCell, Page, PageSection
from glue_bench.reporting.formats import chosen_format, render_page
from glue_bench.reporting.notes import BANNER, block_notes, column_title, is_demo, problem_notes, protocol_notes
from glue_bench.reporting.numbers import MISSING, frame_csv, json_text, number, plain_rows
from glue_bench.results.encoders import block_names, named_blocks, title
from glue_bench.stats.measures import AVERAGE, NOT_AVERAGED
from glue_bench.stats.pairs import ALPHA, AssessedBlock
from glue_bench.stats.power import power_frame
from glue_bench.stats.ties import of_block, tied_best

P_DECIMALS = 6
LEAST_P = 0.0001
RANKS_MEAN = "Mean, rank and group of each arm, by column."
RULES = (
    "Rank is 1 + the number of arms told apart from an arm and better. Arms that share a letter cannot be told apart; "
    "this is not transitive, so an arm may have several letters. Bold is the highest mean and all not told apart "
    "from it.",
    "Differences are of means over seeds of the main metric, in points (0 to 100). Their 95% interval covers other "
    "seeds and other examples: the variance over {resamples:,} bootstrap samples of the examples, one sample for all "
    "arms, plus that of the runs over seeds, less what both count; Student's t with Satterthwaite's degrees of "
    "freedom. Runs count as independent between arms.",
    "p is the largest of three: of that t statistic; of the same with the seeds' variance pooled over all arms; and "
    "of a permutation test that swaps two arms' predictions of an example, all seeds together ({resamples:,} swaps or "
    "more). Two arms are told apart where it is below 0.05 after Holm's correction for all pairs and columns of a "
    "block. Intervals are not corrected.",
    "Tied means not told apart, never shown to be equal: the interval says which differences remain possible.",
    "Only finished runs at the chosen learning rate are compared; that the rate was chosen on the same validation "
    "set is not part of the interval.",
)
LAST_EPOCH = (
    "Stored predictions are those of the last epoch, so that these differences are not those of the leaderboard."
)


def render_statistics(path: str | Path, format: str = "markdown") -> str:
    """Pairs and ranks of the experiment in the folder `path`; CSV has the pairs alone.

    Raises:
        UserError: the format is unknown, there is no experiment in `path`.
    """
    chosen_format(format)
    statistics = assess_experiment(open_store(path))
    if format == "csv":
        return frame_csv(statistics.pairs, P_DECIMALS)
    page = statistics_page(statistics)
    if format == "json":
        return _json(page, pairs=statistics.pairs, ranks=statistics.ranks)
    return render_page(page, format)


def render_power(path: str | Path, difference: float, power: float, format: str = "markdown") -> str:
    """Seeds needed to see a difference; raises as `render_statistics` and `power_frame`."""
    chosen_format(format)
    statistics = assess_experiment(open_store(path))
    page = power_page(statistics, difference, power)
    if format not in ("csv", "json"):
        return render_page(page, format)
    frame = power_frame(statistics.blocks, difference, power)
    return frame_csv(frame, P_DECIMALS) if format == "csv" else _json(page, rows=frame)


def _json(page: Page, **frames: pd.DataFrame) -> str:
    rows = {name: plain_rows(frame, P_DECIMALS) for name, frame in frames.items()}
    return json_text({"title": page.title, "notes": list(page.notes), **rows})


def statistics_page(statistics: Assessment) -> Page:
    """Ranks, the pairs on the average, and the pairs told apart on single columns, block by block."""
    names = block_names(block.key for block in statistics.blocks)
    sections = [
        section for block in statistics.blocks for section in _sections(statistics, block, title(names[block.key]))
    ]
    results = statistics.board.results
    return Page(
        title=f"Statistics: {statistics.board.results.experiment}",
        sections=tuple(sections),
        banner=BANNER if is_demo(statistics.board.results) else "",
        notes=(
            *(rule.format(resamples=statistics.resamples) for rule in RULES),
            *_average_note(statistics.blocks),
            *protocol_notes(results),
            *([LAST_EPOCH] if results.protocol.epoch == "best" else []),
            *block_notes(results),
            *problem_notes(results),
            *_missing(statistics.blocks),
        ),
    )


def power_page(statistics: Assessment, difference: float, power: float) -> Page:
    """How many seeds would show a difference, block by block. Raises as `power_frame`."""
    frame = power_frame(statistics.blocks, difference, power)
    sections = [PageSection(title=title(name), grid=_power_grid(mine)) for name, mine in named_blocks(frame)]
    note = (
        f"Seeds that each of two arms needs so that a true difference of {difference:g} points has p < {ALPHA:g} "
        f"(two-sided, one test, not corrected) with probability {power:g}. From this experiment's own spread: of one "
        "run over seeds, pooled over the arms, and of a difference over dev sets of this size, which seeds do not "
        "reduce. Both are estimates; with few seeds they are rough."
    )
    return Page(title=f"Seeds needed: {statistics.board.results.experiment}", sections=tuple(sections), notes=(note,))


def title_of(column: str) -> str:
    """The title of a column, or of the average."""
    return "Average" if column == AVERAGE else column_title(column)


def _sections(statistics: Assessment, block: AssessedBlock, heading: str) -> Iterable[PageSection]:
    yield PageSection(title=f"{heading}: ranks", text=RANKS_MEAN, grid=_rank_grid(statistics, block))
    pairs = of_block(statistics.pairs, block.key)
    if pairs.empty:
        return
    average = pairs[pairs["column"] == AVERAGE]
    yield PageSection(title=f"{heading}: pairs on the average", grid=_pair_grid(average))
    told = pairs[(pairs["column"] != AVERAGE) & pairs["verdict"].isin(["a", "b"])]
    text = "" if len(told) else "None."
    yield PageSection(
        title=f"{heading}: pairs told apart on single tasks", text=text, grid=_pair_grid(told) if len(told) else None
    )


def _rank_grid(statistics: Assessment, block: AssessedBlock) -> Grid:
    columns = [assessed.column for assessed in block.assessed]
    mine = of_block(statistics.ranks, block.key).to_dict("records")
    best = {column: tied_best(statistics.ranks, statistics.pairs, block.key, column) for column in columns}
    cells = {}
    for row in mine:
        mean = number(row["mean"]) or MISSING
        text = mean if pd.isna(row["rank"]) else f"{mean} ({row['rank']:.0f} {row['group']})"
        cells[row["arm"], row["column"]] = GridCell(text, bold=row["arm"] in best[row["column"]])
    rows = [(GridCell(arm), *(cells[arm, column] for column in columns)) for arm in block.assessed[0].arms]
    return Grid(header=("Arm", *map(title_of, columns)), rows=tuple(rows))


def _pair_grid(pairs: pd.DataFrame) -> Grid:
    header = ("Column", "Arms", "Difference", "95% interval", "Seeds", "p", "p (Holm)", "Verdict")
    rows = tuple(tuple(map(GridCell, _pair_texts(row))) for _, row in pairs.iterrows())
    return Grid(header=header, rows=rows, texts=frozenset({0, 1, 7}))


def _pair_texts(row: pd.Series) -> tuple[str, ...]:
    a, b = row["arm_a"], row["arm_b"]
    known = bool(row["verdict"])
    p = max(row["p_bootstrap"], row["p_pooled"], row["p_permutation"])
    return (
        title_of(row["column"]),
        f"{a} - {b}",
        number(row["difference"]) or MISSING,
        f"{number(row['low'])} to {number(row['high'])}" if known else MISSING,
        f"{row['seeds_a']}" if row["seeds_a"] == row["seeds_b"] else f"{row['seeds_a']}, {row['seeds_b']}",
        p_text(p),
        p_text(row["p_holm"]),
        {"a": f"{a} better", "b": f"{b} better", "tied": "tied"}.get(row["verdict"], row["why"]),
    )


def p_text(p: float) -> str:
    """Three significant decimals at most, and never 0."""
    if pd.isna(p):
        return MISSING
    return f"< {LEAST_P:.4f}" if p < LEAST_P else f"{p:.4f}"


def _power_grid(frame: pd.DataFrame) -> Grid:
    header = ("Column", "Seeds", "Deviation over seeds", "Deviation over dev sets", "Note")
    rows = tuple(
        (
            GridCell(title_of(row["column"])),
            GridCell(MISSING if pd.isna(row["seeds"]) else f"{row['seeds']:,}"),
            GridCell(number(row["seed_deviation"]) or MISSING),
            GridCell(number(row["example_deviation"]) or MISSING),
            GridCell(row["why"]),
        )
        for _, row in frame.iterrows()
    )
    return Grid(header=header, rows=rows, texts=frozenset({0, 4}))


def _average_note(blocks: Sequence[AssessedBlock]) -> list[str]:
    columns = {a.column: None for block in blocks for a in block.assessed if a.column not in (AVERAGE, NOT_AVERAGED)}
    titles = ", ".join(title_of(column) for column in columns)
    whole = len(columns) == len(COLUMNS) - 1
    name = "nine columns, no WNLI" if whole else "the nine columns without WNLI, as far as they are here"
    return [f"Average: the mean of {titles} ({name})."] if columns else []


def _missing(blocks: Sequence[AssessedBlock]) -> list[str]:
    """Why there is no interval, each reason once, with the arms and columns that it is about."""
    reasons: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for assessed in (one for block in blocks if len(block.assessed[0].arms) > 1 for one in block.assessed):
        for arm, reason in assessed.why.items():
            arms, columns = reasons.setdefault(reason, ({}, {}))
            arms[arm] = columns[title_of(assessed.column)] = None
    return [
        f"No interval, test or rank for {', '.join(arms)} on {', '.join(columns)}: {reason}."
        for reason, (arms, columns) in reasons.items()
    ]
