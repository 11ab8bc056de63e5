"""The statistics of an experiment as a page: which arms differ from the reference, and how that was decided."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from glue_bench.data.tasks import COLUMNS
from glue_bench.errors import UserError
from glue_bench.reporting.alike import block_notes
from glue_bench.reporting.findings import covers, pair_of, title_of
from glue_bench.reporting.formats import render_page, render_with
from glue_bench.reporting.grid import Grid, Page, PageSection
from glue_bench.reporting.notes import banner, problem_notes, protocol_notes, searches_rates
from glue_bench.stats.power import Costs, power_frame
from glue_bench.stats.verdicts import APART, VERDICT_COLUMNS, all_pairs, equivalence, letters_frame
from glue_bench.tables.arms import block_names, blocks_of, named_blocks, title
from glue_bench.tables.averages import AVERAGE, NOT_AVERAGED
from glue_bench.tables.board import open_board
from glue_bench.tables.budget import measured_costs
from glue_bench.tables.compare import Comparison, compare
from glue_bench.tables.numbers import MISSING, code, decimals_of, frame_csv, json_text, number, plain_rows

P_DECIMALS = 6
LEAST_P = 0.0001
CONVERSION = (
    "What the conversion costs: arms that were grafted or adapted, less the arm whose checkpoint they started from. "
    "This ranks nothing: the weights were trained for that arm."
)
DECLARED = (
    "What the experiment names beforehand, {number} in all: each the first arm less the second, corrected by Holm's "
    "method for all of them. Their intervals hold for all of them together, so that one may include 0 where Holm's "
    "method, which goes step by step, finds a difference. The lines on {primary} are what the experiment was made to "
    "ask, and the ones to cite. Above, the differences of all arms from the reference are another family of tests, "
    "with other intervals."
)
WITH_VERDICT = "Only those with a verdict; `statistics.csv` has all."
ON_OTHERS = "Those on other columns are exploratory, and only those with a verdict are shown."
NOT_RUN = "Not tested yet, because an arm has not run, but counted in the correction: {which}."
NOT_ALIKE = "Not tested, but counted in the correction, because " + APART + ": {which}."
LETTERS = "Arms that share a letter cannot be told apart; this is not transitive, so an arm may have several letters."
EQUIVALENT = (
    "p (equivalent) tests that two arms differ by less than {margin:g}: the larger p of two one-sided tests, times the "
    "number of comparisons. Equivalent is said where it is below 0.05 and the arms are not told apart."
)
VARIES = (
    "How much a score changes when it is measured again; standard deviations, in points (of a loss in nats). Between "
    "pretrainings: how much an arm's score changes with the pretraining seed, beyond what that seed does to all arms "
    "(with one fine-tuning seed for each pretraining, fine-tuning is included). Between fine-tunings: how much one run "
    "changes with the fine-tuning seed. Over examples: how much a difference from the reference would change with "
    "another validation set of this size (of the validation loss, with other documents; the root mean square over the "
    "other arms); no number of seeds reduces it. "
    "Smallest difference: the median over the arms of the least difference that would have had a verdict."
)
OF_AVERAGE = {
    "fine-tuning": (
        " Of the average: columns count as independent over seeds, so that their variances are added and divided by "
        "their number squared. (`average_std` of `leaderboard.csv` is of the averages of single seeds; nothing is "
        "judged by it.)"
    ),
    "pretraining": (
        " Of the average: what the averages of single pretraining seeds vary by, so that what columns have in common "
        "counts. (`average_std` of `leaderboard.csv` also contains what a seed does to all arms alike; nothing is "
        "judged by it.)"
    ),
}
"""What the row of the average is made of, by the kind of seeds that the intervals cover."""
NUMBERS_OF_SEEDS = ("pretraining_seeds", "finetuning_seeds")
DEVIATIONS = ("pretraining_deviation", "finetuning_deviation", "example_deviation", "smallest")
RULES = (
    "A difference is that of two means over seeds, taken before rounding, in points (0 to 100; of a loss nats). p is "
    "two-sided, of Student's t with the variance of the difference over examples and over seeds; the variance over "
    "seeds is pooled over the arms (of contrasts named beforehand, over those that they name), or the arm's own where "
    "that is larger. An own one is known from few runs, which can make an interval much wider, even where it is hardly "
    "larger (`statistics.csv` has errors and degrees of freedom).",
    "Of the differences from the reference each column is one family of tests. p (adjusted) is p times the number of "
    "arms that are compared with the reference, those that have not run included, and the 95% intervals hold for all "
    "of these together: an interval excludes 0 exactly where p (adjusted) is below 0.05, and only then is an arm "
    "called better or worse.",
    "An arm without a verdict is not shown to be equal: its interval says which differences remain possible. Smallest "
    "is half the width of that interval: a measured difference as large as this has a verdict.",
)
CHOSEN_RATE = (
    "Only finished runs at the chosen learning rate are compared; that the rate was chosen on the same validation set "
    "is not part of the interval."
)
UNTESTED = "Nothing was tested; the notes say what is missing."
BEST_EPOCH = (
    "Scores are those of each run's best epoch and stored predictions those of its last: an arm is tested only where "
    "these are the same epoch in all its runs."
)


def render_statistics(
    path: str | Path, format: str = "markdown", *, equivalent: float | None = None, pairs: bool = False
) -> str:
    """Who differs in the experiment in the folder `path`; CSV has the contrasts alone.

    `equivalent` is a margin in points: tests of differing by less are added. `pairs` adds all pairs, with letters.

    Raises:
        UserError: the format is unknown, the margin is not above 0, there is no experiment in `path`.
    """
    statistics = compare(open_board(path))
    frames = contrast_frames(statistics, equivalent=equivalent, pairs=pairs)
    if format == "csv":
        return frame_csv(in_one(frames), P_DECIMALS)
    page = statistics_page(statistics, frames, equivalent)
    if format == "json":
        whole = {"title": page.title, "notes": list(page.notes)}
        return json_text(whole | {name: plain_rows(frame, P_DECIMALS) for name, frame in frames.items()})
    return render_page(page, format)


def contrast_frames(
    statistics: Comparison, *, equivalent: float | None = None, pairs: bool = False
) -> dict[str, pd.DataFrame]:
    """The frames of contrasts, those that have any: `reference`, `conversion`, `declared`, and `pair` if asked for.

    Raises:
        UserError: the margin `equivalent` is not above 0.
    """
    if equivalent is not None and not equivalent > 0:
        raise UserError(f"--equivalent {equivalent:g}: give points above 0, such as 0.5")
    frames = {
        **{kind: statistics.of(kind) for kind in ("reference", "conversion", "declared")},
        "pair": all_pairs(statistics.assessed if pairs else ()),
    }
    filled = {name: frame for name, frame in frames.items() if len(frame)}
    return filled if equivalent is None else {name: equivalence(frame, equivalent) for name, frame in filled.items()}


def in_one(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """All contrasts, with their `kind` in front."""
    kinds = [frame.assign(kind=kind)[["kind", *frame]] for kind, frame in frames.items()]
    return pd.concat(kinds, ignore_index=True) if kinds else pd.DataFrame(columns=["kind", *VERDICT_COLUMNS])


def render_power(
    path: str | Path, difference: float, power: float, format: str = "markdown", costs: Sequence[float] = ()
) -> str:
    """Seeds needed to see a difference, cheapest by the `costs` of a pretraining and of a fine-tuning seed.

    Without `costs` those that were measured, in seconds. Raises as `render_statistics` and `power_frame`.
    """
    statistics = compare(open_board(path))
    found = Costs(*(costs or measured_costs(statistics.board.results)))
    frame = power_frame(statistics.assessed, difference, power, found)
    if frame.empty:
        raise UserError(f"{path}: nothing has run yet, so that no spread is known; run a part of the experiment first")
    return render_with(power_page(statistics, frame), frame, format, P_DECIMALS)


def power_page(statistics: Comparison, frame: pd.DataFrame) -> Page:
    """How many seeds would show a difference, block by block; `frame` is a `power_frame`."""
    sections = [PageSection(title=title(name), grid=_power_grid(mine)) for name, mine in named_blocks(frame)]
    difference, power = frame[["difference", "power"]].iloc[0]
    notes = (
        f"Seeds of each arm with which a true difference of {difference:g} points (of a loss, nats) from the reference "
        f"is called better or worse with probability {power:g}, after the correction for all arms of a column. "
        "Experiments with the variances found here are drawn and judged as `glue-bench statistics` judges; those of "
        "few seeds are rough.",
        *(
            f"With {seeds} seeds the intervals cover {said}."
            for seeds, mine in frame.dropna(subset="seeds").groupby("seeds", sort=False)
            for said in covers(mine)
        ),
        "Of designs with several pretraining seeds the cheapest is shown, by what a pretraining and a fine-tuning seed "
        "of an arm (on all tasks) cost: measured seconds, unless they were given.",
    )
    return Page(title=f"Seeds needed: {statistics.board.results.experiment}", sections=tuple(sections), notes=notes)


def statistics_page(
    statistics: Comparison, frames: dict[str, pd.DataFrame] | None = None, equivalent: float | None = None
) -> Page:
    """The contrasts of the primary column and what single columns show, block by block, and what varies."""
    frames = contrast_frames(statistics) if frames is None else frames
    board, results = statistics.board, statistics.board.results
    columns = statistics.columns["column"].unique()
    averaged = [column for column in columns if column in COLUMNS and column != NOT_AVERAGED]
    titles = ", ".join(map(title_of, averaged))
    tested = any((frame["why"] == "").any() for frame in frames.values())
    return Page(
        title=f"Statistics: {results.experiment}",
        sections=tuple(_sections(statistics, frames)),
        banner=banner(results),
        notes=(
            *(RULES if tested else []),
            *([CHOSEN_RATE] if tested and searches_rates(board) else []),
            *(f"Intervals cover {said}." for said in (covers(statistics.columns) if tested else ())),
            *([f"Average: the mean of the {len(averaged)} columns {titles}."] if len(averaged) > 1 else []),
            *([] if equivalent is None else [EQUIVALENT.format(margin=equivalent)]),
            *protocol_notes(board),
            *([BEST_EPOCH] if board.protocol.epoch == "best" else []),
            *block_notes(board.cells),
            *problem_notes(results),
            *_missing(statistics),
        ),
    )


def _sections(statistics: Comparison, frames: dict[str, pd.DataFrame]) -> Iterable[PageSection]:
    frame = frames.get("reference", statistics.of("reference"))
    names = block_names(key for key, _ in blocks_of(frame))
    decides = title_of(statistics.primary) if statistics.primary in COLUMNS else statistics.primary.replace("_", " ")
    for key, mine in blocks_of(frame):
        reference, primary = mine["reference"].iloc[0], mine["column"] == statistics.primary
        heading, has_run = f"{title(names[key])}: differences from {reference}", mine["difference"].notna()
        text = _not_run(mine[primary & ~has_run])
        decided = mine[primary & has_run].sort_values("difference", ascending="loss" in statistics.primary)
        yield PageSection(title=f"{heading}, {decides}", text=text, grid=_grid(decided))
        if primary.all():
            continue
        told, tested = mine[~primary & (mine["verdict"] != "")], (mine["why"] == "").any()
        text, grid = (
            (WITH_VERDICT, _grid(told)) if len(told) else ("None after correction." if tested else UNTESTED, None)
        )
        yield PageSection(title=f"{heading}, single columns", text=text, grid=grid)
    if "conversion" in frames:
        yield PageSection(title="What the conversion costs", text=CONVERSION, grid=_grid(frames["conversion"]))
    if "declared" in frames:
        yield _declared(statistics, frames["declared"])
    if "pair" in frames:
        letters = letters_frame(statistics.assessed, frames["pair"])
        for name, mine in named_blocks(letters):
            yield PageSection(title=f"{title(name)}: all pairs", text=LETTERS, grid=_letter_grid(mine))
    for name, mine in named_blocks(statistics.columns.dropna(subset="smallest")):
        text = VARIES + "".join(OF_AVERAGE[kind] for kind in mine.loc[mine["column"] == AVERAGE, "seeds"])
        yield PageSection(title=f"{title(name)}: what varies", text=text, grid=_column_grid(mine))


def _declared(statistics: Comparison, contrasts: pd.DataFrame) -> PageSection:
    """The contrasts that were named, on the column that decides, and what others show of them."""
    has_run, primary = contrasts["difference"].notna(), contrasts["column"] == statistics.primary
    number, column = len(statistics.board.protocol.contrasts), title_of(statistics.primary)
    said = [DECLARED.format(number=number, primary=column)]
    said += [ON_OTHERS] * bool((~primary).any())
    apart = contrasts["why"] == APART
    said += [_not_run(contrasts[primary & ~has_run & ~apart]), _not_run(contrasts[primary & apart], NOT_ALIKE)]
    text = " ".join(filter(None, said))
    grid = _grid(contrasts[has_run & (primary | (contrasts["verdict"] != ""))])
    return PageSection(title="Contrasts named beforehand", text=text, grid=grid)


def _not_run(contrasts: pd.DataFrame, reason: str = NOT_RUN) -> str:
    """Which contrasts wait for an arm, or have no test for another reason."""
    which = ", ".join(map(pair_of, contrasts.to_dict("records")))
    return reason.format(which=which) if which else ""


def _grid(contrasts: pd.DataFrame) -> Grid | None:
    """A table of contrasts; none without any."""
    if contrasts.empty:
        return None
    losses = contrasts["column"].str.contains("loss")
    unit = "Nats" if losses.all() else "Points or nats" if losses.any() else "Points"
    header = ["Column", "Difference of", unit, "95% interval", "Seeds", "p", "p (adjusted)", "Smallest", "Verdict"]
    if "equivalent" in contrasts:
        header.insert(-1, "p (equivalent)")
    return Grid.of(header, map(_texts, contrasts.to_dict("records")), texts=(0, 1, len(header) - 1))


def _texts(row: Mapping[Any, Any]) -> list[str]:
    known, n, decimals = not row["why"], (row["n_arm"], row["n_reference"]), decimals_of(row["column"])
    verdict = row["verdict"] or ("equivalent" if row.get("equivalent") else "")
    return [
        title_of(row["column"]),
        pair_of(row),
        number(row["difference"], decimals) or MISSING,
        f"{number(row['low'], decimals)} to {number(row['high'], decimals)}" if known else MISSING,
        f"{n[0]}" if n[0] == n[1] else f"{n[0]}, {n[1]}",
        p_text(row["p"]),
        p_text(row["p_adjusted"]),
        number(row["smallest"], decimals) or MISSING,
        *([p_text(row["p_equivalent"])] if "equivalent" in row else []),
        verdict or row["why"],
    ]


def _letter_grid(letters: pd.DataFrame) -> Grid:
    columns = list(dict.fromkeys(letters["column"]))
    cells = {(row["arm"], row["column"]): row for row in letters.to_dict("records")}
    rows = [
        (
            arm,
            *(
                f"{number(row['mean'], decimals_of(column))} {row['letters']}" if row else MISSING
                for column in columns
                for row in [cells.get((arm, column))]
            ),
        )
        for arm in dict.fromkeys(letters["arm"])
    ]
    return Grid.of(("Arm", *map(title_of, columns)), rows)


def _column_grid(columns: pd.DataFrame) -> Grid:
    header = ("Column", "Pretraining seeds", "Fine-tuning seeds", "Between pretrainings", "Between fine-tunings",
              "Over examples", "Smallest difference")  # fmt: skip
    rows = [
        (
            title_of(row["column"]),
            *("" if pd.isna(row[name]) else f"{row[name]:g}" for name in NUMBERS_OF_SEEDS),
            *(number(row[name], decimals_of(row["column"])) or MISSING for name in DEVIATIONS),
        )
        for row in columns.to_dict("records")
    ]
    return Grid.of(header, rows)


def p_text(p: float) -> str:
    """Three significant decimals at most, and never 0."""
    if pd.isna(p):
        return MISSING
    return f"< {LEAST_P:.4f}" if p < LEAST_P else f"{p:.4f}"


def _power_grid(frame: pd.DataFrame) -> Grid:
    header = ("Column", "Pretraining seeds", "Fine-tuning seeds for each", "Cost of an arm", "Note")
    rows = [
        (
            title_of(row["column"]),
            *(MISSING if pd.isna(row[name]) else f"{row[name]:,}" for name in NUMBERS_OF_SEEDS),
            MISSING if pd.isna(row["cost"]) else f"{row['cost']:,.0f}",
            row["why"],
        )
        for row in frame.to_dict("records")
    ]
    return Grid.of(header, rows, texts=(0, 4))


def _missing(statistics: Comparison) -> list[str]:
    """Why there is no interval, each reason once, with the arms and columns that it is about."""
    arms = statistics.arms
    without = arms[(arms["why"] != "") & arms.groupby("arm")["mean"].transform("count").gt(0)]
    return [
        f"No interval and no test for {', '.join(map(code, mine['arm'].unique()))} on "
        f"{', '.join(map(title_of, mine['column'].unique()))}: {reason}."
        for reason, mine in without.groupby("why", sort=False)
    ]
