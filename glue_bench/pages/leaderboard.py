"""The leaderboard as a page: one line of fixed fields, a table, a legend of constants, and two tables of facts."""

import math
import re
from collections.abc import Iterable
from dataclasses import replace

import pandas as pd
from pandas import DataFrame, Series

from glue_bench.board.board import BLOCK_COLUMNS, BOTH_SEEDS, Board, boards_by_steps, steps_frame
from glue_bench.board.compare import (
    CONTRAST_COLUMNS,
    CONVERSION,
    Comparison,
    leaderboard_frame,
    score_columns,
)
from glue_bench.board.marks import collapsed_arms, incomplete_arms, unlike_arms
from glue_bench.config import HELD_OUT
from glue_bench.data.measures import AVERAGE, MEASURES, PRETRAINING_MEASURES, Measure
from glue_bench.data.tasks import COLUMNS, TASKS, titles
from glue_bench.pages.numbers import MISSING, number, short
from glue_bench.pages.page import (
    BETTER,
    DECIMALS,
    WORSE,
    Column,
    Page,
    Table,
    facts_table,
    with_legend,
)
from glue_bench.stats.verdicts import COVERS, Group

AGAINST = "{column} against `{reference}`: {better} better, {worse} worse, {alike} not told apart, {untested} untested"
PLANNED = "planned contrasts: {differ} of {planned} differ"
FLOOR = "{average}: best arm {best}, {baseline} {floor}"
NOTHING = "{column} against `{reference}`: nothing is compared ({why})"
OUTDATED = "{count} finished runs left out, which started from weights that were made again since"
PARTIAL, COLLAPSED, FEWER_RUNS, UNLIKE = "†", "‡", "*", "◇"
SMALLEST = "smallest difference"
COSTS = "Converted from {source}: what the conversion costs, no ranking"
SCORES_NOTE = (
    "Scores are of the validation set, times 100: Matthews correlation for CoLA, Pearson correlation "
    "for STS-B, accuracy elsewhere. Avg.: the mean of the task columns; WNLI never counts."
)
MEASURES_NOTE = (
    "Val. loss: cross-entropy per masked word on held-out text after pretraining, in nats; "
    "the lowest is best. Swap test: how often the encoder prefers a text to the same text with two neighbouring words "
    "swapped; chance is 50."
)
VERDICTS_NOTE = (
    "**Bold**: best of the column. ▲ ▼: better or worse than the reference at 5%, corrected for all arms "
    "of the column. No mark: not shown to differ, which does not mean equal."
)
BASELINES_NOTE = (
    "Majority class: the most frequent label of the validation set "
    "(STS-B: the mean). Word overlap, bag of words: scikit-learn on the arms' training rows. An arm at or below a "
    "baseline has shown nothing on that task."
)
MARKS_NOTE = (
    "† a part of the official rows, so that no published score compares. ‡ a run gave one answer to "
    "everything. * fewer runs than planned. ◇ another processor or precision than the reference. – no score."  # noqa: RUF001
)
LEGEND = {
    "task": SCORES_NOTE,
    AVERAGE: SCORES_NOTE,
    "validation_loss": MEASURES_NOTE,
    "swap_1": MEASURES_NOTE,
    "difference": "Difference: the arm less the reference in the column to its left, ± half of a 95% interval that "
    "holds for all arms together.",
    "medians": "Scores of tasks are medians over seeds. Measures of pretraining, differences, intervals and marks are "
    "of means.",
    "common": "Differences are over the pretraining seeds that all compared arms have.",
    "bold": VERDICTS_NOTE,
    BETTER: VERDICTS_NOTE,
    WORSE: VERDICTS_NOTE,
    "planned": "Planned contrasts, a family of their own, are in `statistics.md`; marks are exploratory.",
    "majority class": BASELINES_NOTE,
    "word overlap": BASELINES_NOTE,
    "bag of words": BASELINES_NOTE,
    SMALLEST: "Smallest difference: what an arm's measured difference must reach to get a mark (median over arms).",
    "differences": "† stands also over tasks whose rows are not the official ones. The line Data says how they differ.",
    PARTIAL: MARKS_NOTE,
    COLLAPSED: MARKS_NOTE,
    FEWER_RUNS: MARKS_NOTE,
    UNLIKE: MARKS_NOTE,
    MISSING: MARKS_NOTE,
}
"""What may stand in a leaderboard (a column, a mark, a row), and the line that explains it."""
ARMS = {
    **{name: Column(name.capitalize()) for name in ("arm", "variant", "options")},
    "summary": Column("What it does"),
    "rate": Column("Pretraining rate", show="{:g}".format),
}
SPLITS = {
    "validation_matched": "matched validation",
    "validation_mismatched": "mismatched validation",
}
CHOSEN = {"validation": "validation, which is optimistic", HELD_OUT: "the slice held out of train"}
ONE_SEGMENT = "one in pretraining, so that fine-tuning began with an untrained second one"
MARKS_MEAN = (
    "▲ ▼ better, worse than the reference; bold best; * fewer runs than planned\n"
    "† a part of the rows, or other rows; ‡ one answer to everything"
)


def leaderboard_page(comparison: Comparison) -> Page:
    """The tables of the leaderboard, and below them how the numbers came about."""
    screen = screen_page(comparison)
    facts = (setup_table(comparison), arms_table(comparison.board))
    title = f"Leaderboard: {comparison.board.results.experiment}"
    return replace(screen, title=title, tables=(*leaderboard_tables(comparison, screen), *facts))


def leaderboard_tables(comparison: Comparison, screen: Page) -> list[Table]:
    """The tables of `screen_page` and the scores by steps of pretraining, with a legend."""
    board = comparison.board
    steps = steps_frame(board)
    tables = [*screen.tables]
    if len(steps):
        scores = {name: _column(board, name) for name in score_columns(comparison) if name in steps}
        columns = {"arm": Column("Arm"), "steps": Column("Steps", show="{:,}".format), **scores}
        steps = steps.sort_values(["arm", "steps"], kind="stable", ignore_index=True)
        marks = _marks_by_steps(board, steps, list(scores))
        tables.append(
            Table(title="Against steps of pretraining", frame=steps, columns=columns, marks=marks)
        )
    tasks_shown = {COLUMNS[column][0] for column in board.columns}
    more = {
        "planned": len(comparison.contrasts_of("declared")) > 0,
        "medians": board.protocol.seeds == "median",
        "differences": not tasks_shown.isdisjoint(board.results.altered_tasks),
        "common": any(map(comparison.leaves_seeds_out, board.columns + PRETRAINING_MEASURES)),
    }
    return with_legend(tables, LEGEND, [key for key, holds in more.items() if holds])


def screen_page(comparison: Comparison) -> Page:
    """What of the leaderboard a terminal shows: a table for each group of arms that are compared."""
    frame, groups = leaderboard_frame(comparison), groups_shown(comparison).items()
    tables = tuple(group_table(comparison, group, heading, frame) for heading, group in groups)
    decimals = column_decimals(score_columns(comparison))
    banner = comparison.board.results.banner
    return Page(title="", banner=banner, tables=tables, data=frame, column_decimals=decimals)


def column_decimals(names: Iterable[str]) -> dict[str, int]:
    """How many decimals CSV and JSON have, of the columns of a `leaderboard_frame` that have no two."""
    decimals = {}
    for name in names:
        for ending in ("", "_std", *(f"_{part}" for part in CONTRAST_COLUMNS)):
            if MEASURES[name].decimals != DECIMALS:
                decimals[name + ending] = MEASURES[name].decimals
    return decimals


def groups_shown(comparison: Comparison) -> dict[str, Group]:
    """The groups that have a table, by its heading: an arm alone has none beside those that were converted from it.

    A block is called by its origin, and by its shape too where an origin has several; a block alone has no heading.
    """
    groups, blocks = comparison.assessed, comparison.board.table.set_index("arm")[BLOCK_COLUMNS]
    shown = [
        group for group in groups if not any(set(group.arms) < set(other.arms) for other in groups)
    ]
    origins = [blocks["origin"][group.reference] for group in shown if group.kind != CONVERSION]

    def heading(group: Group) -> str:
        if group.kind == CONVERSION:
            return COSTS.format(source=group.reference)
        origin, shape = blocks.loc[group.reference]
        name = f"{origin}, {shape}" if origins.count(origin) > 1 else str(origin)
        return name[:1].upper() + name[1:] if len(shown) > 1 else ""

    return {heading(group): group for group in shown}


def of_group(frame: DataFrame, group: Group) -> DataFrame:
    """The rows of a frame that are of a group."""
    return frame[(frame["kind"] == group.kind) & (frame["reference"] == group.reference)]


def group_table(comparison: Comparison, group: Group, heading: str, frame: DataFrame) -> Table:
    """One row per arm of a `leaderboard_frame`, best first; then the baselines, and what a difference must reach."""
    board, names = comparison.board, score_columns(comparison)
    rows = frame[frame["arm"].isin(group.arms) | (frame["origin"] == "baseline")].reset_index(
        drop=True
    )
    if group.kind == CONVERSION:  # ranks nothing
        rows = rows.sort_values(
            "arm", key=lambda arms: arms != group.reference, kind="stable", ignore_index=True
        )
    is_compared = (rows["reference"] == group.reference).any()
    is_reference = rows["arm"] == group.reference
    # What the source of a conversion differs from is another group's.
    of_contrasts = [f"{name}_{what}" for name in names for what in CONTRAST_COLUMNS]
    rows = rows.assign(**rows[of_contrasts].mask(is_reference))
    arms = rows[rows["arm"].isin(group.arms)]
    columns = {
        "arm": Column("Arm"),
        "parameters": Column("Params", show=short),
        names[0]: _column(board, names[0]),
    }
    if is_compared:
        exact = MEASURES[names[0]].decimals
        difference, half = (f"{names[0]}_{what}" for what in ("difference", "smallest"))
        halves = (
            rows[half]
            .map(f" ± {{:z.{exact}f}}".format, na_action="ignore")
            .astype(object)
            .fillna("")
        )
        texts = (
            rows[difference].map(f"{{:+z.{exact}f}}".format, na_action="ignore").astype(object)
            + halves
        )
        rows["difference"] = texts.mask(is_reference, "reference")
        columns["difference"] = Column("Difference", show=str)
    columns |= {name: _column(board, name) for name in names[1:]}
    smallest = {name: arms[f"{name}_smallest"].astype(float).dropna().median() for name in names}
    widest = {name: max((high - low for low, high in (one.limits for one in comparison.estimates(name))), default=0.0)
              for name in names}  # fmt: skip
    reached = {
        name: least if least <= widest[name] else math.nan
        for name, least in smallest.items()
        if least >= 0
    }
    rows = pd.concat(
        [rows, *([DataFrame([{"arm": SMALLEST, **reached}])] if reached else [])], ignore_index=True
    )
    unlike = unlike_arms(board, group) if is_compared else set()
    of_arms = [UNLIKE if arm in unlike else "" for arm in rows["arm"]]
    best = {name: is_best(arms[name], MEASURES[name]) for name in names}
    notes = set(rows["arm"].iloc[len(arms) :])
    if any(is_partial(board, name) for name in names):
        notes.add(PARTIAL)
    return Table(
        title=heading,
        caption=caption(comparison, [group], _floor(board, rows, arms)),
        frame=rows[list(columns)],
        columns=columns,
        bold=DataFrame({} if group.kind == CONVERSION else best),
        marks=_marks(comparison, rows).assign(arm=of_arms),
        feet=len(rows) - len(arms),
        notes=frozenset(notes),
    )


def is_partial(board: Board, name: str) -> bool:
    """Whether a column is of a task that was run on a part of its official rows."""
    return name in COLUMNS and COLUMNS[name][0] in board.results.partial_tasks


def _column(board: Board, name: str) -> Column:
    title = board.title_of(name)
    if is_partial(board, name):
        title += PARTIAL
    return Column(title, MEASURES[name].decimals, note="task" if name in COLUMNS else name)


def caption(comparison: Comparison, groups: Iterable[Group], floor: str = "") -> str:
    """One line of fixed fields: who differs in the first column, how many planned contrasts do, and the `floor`."""
    contrasts, fields = (
        comparison.contrasts[comparison.contrasts["column"] == comparison.primary],
        list[str](),
    )
    for group in groups:
        rows = of_group(contrasts, group)
        named = {
            "column": comparison.board.title_of(comparison.primary),
            "reference": group.reference,
        }
        tested = rows[rows["why"] == ""]
        counts = {
            side or "alike": (tested["verdict"] == side).sum() for side in ("better", "worse", "")
        }
        if len(tested):
            fields.append(AGAINST.format(**named, **counts, untested=len(rows) - len(tested)))
        elif len(rows):
            reason = re.sub(r" \([^)]*\)$", "", rows["why"].iloc[0].split("; ")[0])
            fields.append(NOTHING.format(**named, why=reason))
    if len(planned := comparison.contrasts_of("declared")):
        differ = ((planned["column"] == comparison.primary) & (planned["verdict"] != "")).sum()
        fields.append(PLANNED.format(differ=differ, planned=planned["family"].iloc[0]))
    if floor:
        fields.append(floor)
    if outdated := comparison.board.results.finished.outdated:
        fields.append(OUTDATED.format(count=len(outdated)))
    return "; ".join(fields) + "." if fields else ""


def _floor(board: Board, rows: DataFrame, arms: DataFrame) -> str:
    """The best arm beside the best baseline that has every column."""
    column = AVERAGE if len(board.average.parts) > 1 else next(iter(board.average.parts))
    known = (
        rows[rows["origin"] == "baseline"]
        .dropna(subset=AVERAGE)
        .sort_values(AVERAGE, kind="stable")
    )
    if arms[column].isna().all() or known.empty:
        return ""
    best, floor = (number(scores.max()) for scores in (arms[column], known[AVERAGE]))
    return FLOOR.format(
        average=board.title_of(column), best=best, baseline=known["arm"].iloc[-1], floor=floor
    )


def is_best(scores: Series, measure: Measure) -> Series:
    """Which have the best score as it is shown, so that a tie to two decimals is a tie; none where all tie."""
    shown = scores.map(lambda value: float(number(value, measure.decimals)), na_action="ignore")
    best = shown == (shown.min() if measure.lowest_is_best else shown.max())
    return best & (best.sum() < shown.count())


def _marks(comparison: Comparison, rows: DataFrame) -> DataFrame:
    """Behind each score its verdict, and whether a run of it collapsed or is missing."""
    marks = DataFrame(index=rows.index)
    for name in score_columns(comparison):
        signs = (
            rows[f"{name}_verdict"]
            .map({"better": BETTER, "worse": WORSE})
            .astype(object)
            .fillna("")
        )
        signs += rows["collapsed"].map(
            lambda columns, name=name: COLLAPSED if is_listed(columns, name) else ""
        )
        signs += rows["incomplete"].map(
            lambda columns, name=name: FEWER_RUNS if is_listed(columns, name) else ""
        )
        marks[name] = signs.where(rows[name].notna(), "")
    return marks


def _marks_by_steps(board: Board, frame: DataFrame, names: list[str]) -> DataFrame:
    """Behind each score of a `steps_frame` whether a run of it collapsed or is missing."""
    boards = boards_by_steps(board)
    collapsed = {after.steps: collapsed_arms(after) for after in boards}
    incomplete = {after.steps: incomplete_arms(after, {}) for after in boards}
    marks = DataFrame(index=frame.index)
    for name in names:
        signs = []
        for arm, steps in zip(frame["arm"], frame["steps"], strict=True):
            sign = COLLAPSED if arm in collapsed[steps].get(name, ()) else ""
            if arm in incomplete[steps].get(name, ()):
                sign += FEWER_RUNS
            signs.append(sign)
        marks[name] = Series(signs, index=frame.index, dtype=object).where(frame[name].notna(), "")
    return marks


def is_listed(columns: object, name: str) -> bool:
    """Whether a column is among those of a text with semicolons; not in a row that has no such text."""
    return isinstance(columns, str) and name in columns.split(";")


def setup_table(comparison: Comparison) -> Table:
    """How the numbers came about: a row for each fact that is known."""
    board, results, protocol = comparison.board, comparison.board.results, comparison.board.protocol
    pretraining = results.plan.experiment.pretraining
    tested = comparison.contrasts_of("reference", CONVERSION)
    origins = board.table.set_index("arm")["origin"]
    tested = tested[tested["why"] == ""]
    random = (tested["reference"].map(origins) == "scratch") & (tested["seeds"] == "fine-tuning")
    kinds = dict.fromkeys(tested["seeds"].mask(random, "random"))
    named = comparison.contrasts_of("declared")
    named = named[named["column"] == comparison.primary]
    outcomes = (
        named["verdict"]
        .mask(named["verdict"] == "", "not told apart")
        .mask(named["why"] != "", "untested")
    )
    epoch = (
        "last epoch"
        if protocol.epoch == "last"
        else f"best epoch of each run by {CHOSEN[protocol.choose_on]}"
    )
    done = board.cells[board.cells["finished"]]
    undefined = int(board.scores["value"].isna().sum())
    places = (
        (done["processor"] + ", " + done["precision"])
        .str.strip(", ")
        .replace("", "unrecorded")
        .value_counts()
    )
    left_out = results.finished.left_out + len(results.finished.problems)
    runs = f"{len(done)} of {len(board.cells)} planned; {left_out} records left out"
    if results.finished.outdated:
        runs += f"; {OUTDATED.format(count=len(results.finished.outdated))}"
    facts = (
        ("Encoder", "; ".join(board.table["shape"].unique())),
        ("Weights", _weights(board)),
        ("Segments", ONE_SEGMENT if pretraining and pretraining.segments == "one" else ""),
        ("Seeds", _seeds(board) if len(board.cells) else ""),
        (
            "Planned contrasts",
            "; ".join(named["arm"] + " - " + named["reference"] + ": " + outcomes),
        ),
        ("Intervals cover", " or ".join(COVERS[kind] for kind in kinds)),
        ("Fine-tuning", _finetuning(board)),
        ("Reported", f"{protocol.seeds} over seeds; {epoch}; validation"),
        ("Data", _data(board)),
        (
            "Computed on",
            "; ".join(
                f"{place}: {n} run{'s' * (n > 1)}" for place, n in places.sort_index().items()
            ),
        ),
        ("Runs", runs + (f"; {undefined} undefined scores" if undefined else "")),
        *(("Left out", line) for line in results.problems),
    )
    return facts_table(facts)


def arms_table(board: Board) -> Table:
    """What each arm is, in the experiment's order, and the rate of its pretraining."""
    results = board.results
    frame = results.arms.loc[board.arms].reset_index(drop=True)
    widths = [
        {} if pd.isna(width) else {"embedding_size": width} for width in frame["embedding_size"]
    ]
    options = [own | width for own, width in zip(frame["options"], widths, strict=True)]
    frame["options"] = [
        ", ".join(f"{name}: {value}" for name, value in own.items()) for own in options
    ]
    trained = results.pretrainings[~results.pretrainings["is_search"]]
    frame["rate"] = frame["arm"].map(
        trained.dropna(subset="learning_rate").groupby("arm")["learning_rate"].first()
    )
    filled = {name: column for name, column in ARMS.items() if any(map(column.text, frame[name]))}
    return Table(title="Arms", frame=frame, columns=filled)


def _weights(board: Board) -> str:
    """What the arms started from, by their origin; which arms, where there are several starts."""
    trained = board.results.pretrainings[~board.results.pretrainings["is_search"]][
        "tokens"
    ].dropna()
    tokens = (
        f", {' or '.join(dict.fromkeys(short(count, 2) for count in trained))} tokens"
        if len(trained)
        else ""
    )
    starts = (
        board.table.groupby(["origin", "start"], sort=False)["arm"].agg(", ".join).reset_index()
    )
    names = " (" + starts["arm"] + ")" if len(starts) > 1 else ""
    return "; ".join(starts["origin"] + ": " + starts["start"] + tokens + names)


def _seeds(board: Board) -> str:
    runs = board.cells.drop_duplicates(["arm", "task", *BOTH_SEEDS]).groupby(["arm", "task"])
    pretrainings, number = runs["pretraining_seed"].nunique(), runs.size()
    kinds = pretrainings, number / pretrainings.clip(lower=1)
    first, then = (
        " to ".join(dict.fromkeys(map("{:g}".format, (each.min(), each.max())))) for each in kinds
    )
    return (
        f"{first} pretraining, {then} fine-tuning of each"
        if pretrainings.any()
        else f"{then} fine-tuning"
    )


def _finetuning(board: Board) -> str:
    tasks, settings = board.results.tasks, board.results.tasks["settings"]

    def text(name: str, form: str) -> str:
        """A setting by task: its value, or each of its values with the tasks that have it."""
        values = settings.map(lambda each: each.get(name)).dropna()
        groups = {f"{value:g}": titles(tuple(same.index)) for value, same in values.groupby(values)}
        shown = (
            value + (f" ({which})" if len(groups) > 1 else "") for value, which in groups.items()
        )
        return form.format(", ".join(shown)) if groups else ""

    rates = ", ".join(map("{:g}".format, sorted(board.cells["learning_rate"].unique())))
    if board.cells.groupby("task")["learning_rate"].nunique().max() > 1:
        chosen = CHOSEN[board.protocol.choose_on].partition(",")[0]
        rates = f"the best of {rates} for each arm and task, by the {board.protocol.rate_statistic} on {chosen}"
    parts = [
        text("epochs", "epochs {}"),
        text("batch_size", "batch {}"),
        text("max_length", "length {}"),
    ]
    parts += [
        f"rate {rates}",
        text("max_steps", "at most {} steps"),
        text("held_out_share", "{} of train held out"),
    ]
    tuned = titles(tuple(tasks.index[tasks["from_mnli"]]))
    return "; ".join(filter(None, [*parts, tuned and f"from the arm's own MNLI run: {tuned}"]))


def _data(board: Board) -> str:
    """Where the rows are from, and which share of the official ones was there."""
    results, parts = board.results, [board.results.data_source]
    for task in results.partial_tasks:
        rows, official = results.tasks["rows"][task], TASKS[task].splits
        shares = [
            f"{100 * rows[split] / official[split].rows:.3g}% of {SPLITS.get(split, split)}"
            for split in ("train", *TASKS[task].validation_splits)
            if split in rows and rows[split] != official[split].rows
        ]
        differences = results.tasks["differences"][task]
        shares += [
            f"{SPLITS.get(split, split)} with {words}" for split, words in differences.items()
        ]
        parts.append(f"{TASKS[task].title} {', '.join(shares) or 'in part'}")
    unchecked = results.tasks["unchecked"].map(len) > 0
    if by_count := titles(tuple(results.tasks.index[unchecked & ~results.tasks["partial"]])):
        parts.append(f"{by_count} complete by count, content not checked")
    return "; ".join(parts) if len(parts) > 1 or results.banner else f"{parts[0]}, complete"
