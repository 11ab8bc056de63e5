"""The leaderboard as a page: one line of fixed fields, a table, a legend of constants, and two tables of facts."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import pandas as pd
from pandas import DataFrame

from glue_bench.data.tasks import COLUMNS
from glue_bench.stats.verdicts import Group
from glue_bench.tables.arms import BLOCK, FACTS, block_names, blocks_of
from glue_bench.tables.board import AVERAGE, Board, floors, steps_frame
from glue_bench.tables.compare import CONVERSION, Comparison
from glue_bench.tables.facts import arms_table, marked_tasks, setup_table
from glue_bench.tables.numbers import MISSING, banner, decimals_of, number, short
from glue_bench.tables.results import comparable
from glue_bench.tables.table import BETTER, WORSE, Column, Page, Table, with_legend

AGAINST = "{column} against `{reference}`: {better} better, {worse} worse, {alike} not told apart, {untested} untested"
PLANNED = "planned contrasts: {differ} of {planned} differ"
FLOOR = "{average}: best arm {best}, {baseline} {floor}"
NOTHING = "{column} against `{reference}`: nothing is compared ({why})"
PARTIAL, COLLAPSED, FEWER, UNLIKE = "†", "‡", "*", "◇"
MARKS = (BETTER, WORSE, PARTIAL, COLLAPSED, FEWER, UNLIKE, MISSING)
SMALLEST = "smallest difference"
OF_CONTRASTS = ["difference", "low", "high", "verdict", "smallest"]
COSTS = "Converted from {source}: what the conversion costs, no ranking"
_SCORES = (
    "Scores are of the validation set, times 100: Matthews correlation for CoLA, Pearson correlation for STS-B, "
    "accuracy elsewhere. Avg. is the mean of the task columns shown; WNLI never counts."
)
_MEASURES = (
    "Val. loss: cross-entropy per masked word on held-out text after pretraining, in nats; the lowest is best. Swap "
    "test: how often the encoder prefers a text to the same text with two neighbouring words swapped; chance is 50."
)
_VERDICTS = (
    "**Bold**: best of the column. ▲ ▼: better or worse than the reference at 5%, corrected for all arms of the "
    "column. No mark: not shown to differ, which does not mean equal."
)
_FLOORS = (
    "Majority class, word overlap, bag of words: scikit-learn on the same rows, no neural network. An arm at or below "
    "them has shown nothing on that task."
)
_MARKED = (
    "† a part of the official rows, so that no published score compares. ‡ a run gave one answer to everything. "
    "* fewer runs than planned. ◇ another processor or precision than the reference. – no score."  # noqa: RUF001
)
LEGEND = {
    **dict.fromkeys(("task", AVERAGE), _SCORES),
    **dict.fromkeys(("validation_loss", "swap_1"), _MEASURES),
    "difference": "Difference: the arm less the reference in the column to its left, ± half of a 95% interval that "
    "holds for all arms together.",
    **dict.fromkeys(("bold", BETTER, WORSE), _VERDICTS),
    "planned": "Planned contrasts are a family of their own; `statistics.md` has their intervals. Marks are "
    "exploratory beside them.",
    **dict.fromkeys(("majority class", "word overlap", "bag of words"), _FLOORS),
    SMALLEST: "Smallest difference: what an arm's measured difference must reach to get a mark: the median over arms, "
    "each has its own.",
    **dict.fromkeys((PARTIAL, COLLAPSED, FEWER, UNLIKE, MISSING), _MARKED),
}
"""What may stand in a leaderboard (a column, a mark, a row), and the line that explains it."""
MARKS_MEAN = "▲ ▼ better, worse than the reference; bold best\n† a part of the rows; ‡ one answer to everything"


def leaderboard_page(comparison: Comparison) -> Page:
    """The tables of `screen_page` with a legend, the scores by steps of pretraining, and the facts."""
    board = comparison.board
    tables, steps = [*screen_page(comparison).tables], steps_frame(board)
    if len(steps):
        scores = {name: _column(board, name) for name in score_columns(comparison) if name in steps}
        columns = {"arm": Column("Arm"), "steps": Column("Steps", show="{:,}".format), **scores}
        steps = steps.sort_values(["arm", "steps"], kind="stable", ignore_index=True)
        tables.append(Table(title="Against steps of pretraining", frame=steps, columns=columns))
    tables = explained(tables, LEGEND, ["planned"] if len(comparison.of("declared")) else [])
    return Page(
        title=f"Leaderboard: {board.results.experiment}",
        banner=banner(board.results.data_source),
        tables=(*tables, setup_table(comparison), arms_table(board)),
        data=leaderboard_frame(comparison),
    )


def screen_page(comparison: Comparison) -> Page:
    """What of the leaderboard a terminal shows: a table for each group of arms that are compared."""
    tables = tuple(group_table(comparison, group, heading) for heading, group in groups_shown(comparison).items())
    return Page(title="", banner=banner(comparison.board.results.data_source), tables=tables)


def groups_shown(comparison: Comparison) -> dict[str, Group]:
    """The groups that have a table, by its heading: a block of origin and shape within another group has none.

    The heading is empty where there is one block alone.
    """
    groups = comparison.assessed
    shown = [group for group in groups if not any(set(group.arms) < set(other.arms) for other in groups)]
    names = block_names((group.origin, group.shape) for group in shown if group.origin != CONVERSION)
    headings = {(group.origin, group.shape): COSTS.format(source=group.shape) for group in shown}
    headings |= {key: name[:1].upper() + name[1:] if len(shown) > 1 else "" for key, name in names.items()}
    return {headings[group.origin, group.shape]: group for group in shown}


def score_columns(comparison: Comparison) -> list[str]:
    """The columns in the order of a page: the one that decides, the measures, the average, the tasks."""
    board = comparison.board
    measures = [name for name in comparison.columns["column"].unique() if name not in (AVERAGE, *board.columns)]
    columns = [*measures, *([AVERAGE] if len(board.average.parts) > 1 else []), *board.columns]
    return sorted(columns, key=lambda column: column != comparison.primary)


def lowest_is_best(comparison: Comparison) -> set[str]:
    """The columns of which the lowest value is the best."""
    return {each.column for one in comparison.assessed for each in one.estimates if each.lowest_is_best}


def scores_frame(comparison: Comparison) -> DataFrame:
    """The board's table with the measures and their deviations; in a block the best of the first column comes first."""
    table, columns = comparison.board.table, score_columns(comparison)
    measures = [name for name in columns if name not in (AVERAGE, *comparison.board.columns)]
    for measure in measures:
        mine = comparison.arms[comparison.arms["column"] == measure].drop_duplicates("arm").set_index("arm")
        means, deviations = (table["arm"].map(mine[name]) for name in ("mean", "deviation"))
        table = table.assign(**{measure: means, f"{measure}_std": deviations})
    if columns and columns[0] in measures:
        up = columns[0] in lowest_is_best(comparison)
        blocks = [block.sort_values(columns[0], ascending=up, kind="stable") for _, block in blocks_of(table)]
        table = pd.concat(blocks, ignore_index=True)
    return table


def group_table(comparison: Comparison, group: Group, heading: str) -> Table:
    """One row per arm, best first; then the baselines, and what a difference must reach."""
    board, names, mine = comparison.board, score_columns(comparison), _of_group(comparison, group)
    frame = scores_frame(comparison)
    frame = frame[frame["arm"].isin(group.arms)]
    if group.origin == CONVERSION:  # ranks nothing
        frame = frame.sort_values("arm", key=lambda arms: arms != group.reference, kind="stable")
    smallest = mine.dropna(subset="smallest").groupby("column")["smallest"].median()
    feet = [floors(board), DataFrame([{"arm": SMALLEST, **smallest}] if len(smallest) else [])]
    rows = pd.concat([frame, *(each for each in feet if len(each))], ignore_index=True)
    columns = {"arm": Column("Arm"), "parameters": Column("Params", show=short)}
    for i, name in enumerate(names):
        columns[name] = _column(board, name)
        if i == 0 and len(mine):
            columns["difference"] = Column("Difference", show=str)
            rows["difference"] = rows["arm"].map(_differences(mine, name) | {group.reference: "reference"})
    best = {} if group.origin == CONVERSION else best_of(frame, names, lowest_is_best(comparison))
    fields = [against(comparison, group), planned_contrasts(comparison), _floor(board, group)]
    return Table(
        title=heading,
        caption="; ".join(filter(None, fields)) + "." if any(fields) else "",
        frame=rows[list(columns)],
        columns=columns,
        bold=DataFrame({name: rows["arm"].isin(best.get(name, ())) for name in names}),
        marks=_marks(comparison, group, rows),
        feet=len(rows) - len(frame),
    )


def _of_group(comparison: Comparison, group: Group) -> DataFrame:
    """The contrasts of a group's arms with its reference."""
    found = comparison.of("conversion" if group.origin == CONVERSION else "reference")
    return found[found["arm"].isin(group.arms) & (found["reference"] == group.reference)]


def _column(board: Board, name: str) -> Column:
    is_partial = name in COLUMNS and COLUMNS[name][0] in marked_tasks(board)
    return Column(board.title_of(name) + (PARTIAL if is_partial else ""), decimals_of(name))


def against(comparison: Comparison, group: Group) -> str:
    """How many arms of a group are better and worse than its reference in the first column; nothing of one arm."""
    mine = _of_group(comparison, group)
    mine = mine[mine["column"] == comparison.primary]
    named = {"column": comparison.board.title_of(comparison.primary), "reference": group.reference}
    if mine.empty:
        return ""
    tested = mine[mine["why"] == ""]
    if tested.empty:
        return NOTHING.format(**named, why=re.sub(r" \([^)]*\)$", "", mine["why"].iloc[0].split("; ")[0]))
    counts = {side or "alike": (tested["verdict"] == side).sum() for side in ("better", "worse", "")}
    return AGAINST.format(**named, **counts, untested=len(mine) - len(tested))


def planned_contrasts(comparison: Comparison) -> str:
    """How many of the contrasts that the experiment names differ in the first column."""
    found = comparison.of("declared")
    differ = ((found["column"] == comparison.primary) & (found["verdict"] != "")).sum()
    return PLANNED.format(differ=differ, planned=len(comparison.board.protocol.contrasts)) if len(found) else ""


def _floor(board: Board, group: Group) -> str:
    """The best arm beside the best baseline that has every column."""
    column = AVERAGE if len(board.average.parts) > 1 else next(iter(board.average.parts))
    arms = board.table.loc[board.table["arm"].isin(group.arms), column].dropna()
    known = floors(board).dropna(subset=AVERAGE).sort_values(AVERAGE, kind="stable")
    if arms.empty or known.empty:
        return ""
    best = {"best": number(arms.max()), "baseline": known["arm"].iloc[-1], "floor": number(known[AVERAGE].iloc[-1])}
    return FLOOR.format(average=board.title_of(column), **best)


def best_of(frame: DataFrame, columns: Iterable[str], lowest: Collection[str] = ()) -> dict[str, frozenset[str]]:
    """Column -> the arms with the best score as shown, so that a tie to two decimals is a tie; none where all tie."""
    leaders = {}
    for name in columns:
        values, decimals = frame.set_index("arm")[name].dropna(), decimals_of(name)
        shown = values.map(lambda value, decimals=decimals: float(number(value, decimals)))
        best = frozenset(shown.index[shown == (shown.min() if name in lowest else shown.max())])
        leaders[name] = best if len(best) < len(shown) else frozenset()
    return leaders


def explained(tables: Sequence[Table], legend: Mapping[str, str], more: Iterable[str] = ()) -> list[Table]:
    """The tables; below the last of them the lines of a legend whose column, mark or row one of them has, each once."""
    keys = set(more)
    for table in tables:
        cells = [cell for row in table.rows for cell in row]
        marks = "".join([*table.marks.fillna("").to_numpy().ravel(), *(title[-1:] for title in table.header)])
        keys |= {MISSING for cell in cells if cell.text == MISSING} | {"bold" for cell in cells if cell.bold}
        keys |= {"task" if name in COLUMNS else name for name in table.columns} | (set(marks) & set(MARKS))
        keys |= {row[0].text for row in table.rows[len(table.rows) - table.feet :]}
    return with_legend(tables, tuple(dict.fromkeys(line for key, line in legend.items() if key in keys)))


def leaderboard_frame(comparison: Comparison) -> DataFrame:
    """What CSV and JSON have: a row for each arm, as the board's table, then one for each baseline.

    Behind the scores `data_source` and `partial_tasks` (separated by `;`), shape, start, parameters, and `reference`;
    then for each column `<col>_` and difference, low, high, verdict and smallest. The origin of a baseline is
    "baseline".
    """
    board, contrasts = comparison.board, comparison.of("reference", "conversion")
    keys, baselines = [*BLOCK, "arm"], floors(board).assign(origin="baseline", variant="")
    table = pd.concat([scores_frame(comparison), baselines], ignore_index=True)
    made = {"data_source": board.results.data_source, "partial_tasks": ";".join(board.results.partial_tasks)}
    table = table.drop(columns=FACTS).assign(**made).join(table[FACTS])
    table = table.merge(contrasts[[*keys, "reference"]].drop_duplicates(), on=keys, how="left")
    for column in score_columns(comparison):
        mine = contrasts[contrasts["column"] == column].set_index(keys)[OF_CONTRASTS]
        table = table.join(mine.add_prefix(f"{column}_"), on=keys)
    return table.astype({f"{column}_n": "Int64" for column in board.columns})


def _differences(contrasts: DataFrame, column: str) -> dict[str, str]:
    """By arm its difference from the reference, and half of its interval where it has one."""
    mine, exact = contrasts[contrasts["column"] == column].dropna(subset="difference"), decimals_of(column)
    halves = mine["smallest"].map(lambda half: f" ± {number(half, exact)}").where(mine["why"] == "", "")
    return dict(zip(mine["arm"], mine["difference"].map(f"{{:+z.{exact}f}}".format) + halves, strict=True))


def _marks(comparison: Comparison, group: Group, rows: DataFrame) -> DataFrame:
    """Behind a score its verdict, and whether a run collapsed or is missing; behind an arm, that it ran elsewhere."""
    board, mine, marked = comparison.board, _of_group(comparison, group), dict[str, list[str]]()
    sides = {(row["arm"], row["column"]): row["verdict"] for row in mine.to_dict("records")}
    measured = comparison.arms[~comparison.arms["column"].isin((AVERAGE, *board.columns))]
    seeds = max(board.cells["pretraining_seed"].nunique(), measured["n"].max()) if len(measured) else 0
    fewer = {(row["arm"], row["column"]) for row in measured.to_dict("records") if row["n"] < seeds}
    for name in score_columns(comparison):
        marked[name] = []
        for row in rows.to_dict("records"):
            arm, told = row["arm"], ""
            if arm in board.planned and pd.notna(row[name]):
                told = {"better": BETTER, "worse": WORSE}.get(sides.get((arm, name), ""), "")
                is_task = name in board.columns
                told += COLLAPSED if is_task and board.collapsed[arm][name] else ""
                less = row[f"{name}_n"] < board.planned[arm][name] if is_task else (arm, name) in fewer
                told += FEWER if less else ""
            marked[name].append(told)
    unlike = unlike_arms(board.cells, group.reference) if len(mine) else set()
    return DataFrame(marked | {"arm": [UNLIKE if arm in unlike else "" for arm in rows["arm"]]}, index=rows.index)


def unlike_arms(cells: DataFrame, reference: str) -> set[str]:
    """The arms that have a run on another processor, or in another precision, than the reference's of that seed."""
    known = cells[cells["finished"] & (cells["processor"] != "")]
    known = known.assign(processor=comparable(known["processor"]))
    keys, facts = ["task", "pretraining_seed", "seed"], ["processor", "precision"]
    of_reference = known[known["arm"] == reference].drop_duplicates(keys)[[*keys, *facts]]
    both = known.merge(of_reference, on=keys, suffixes=("", "_reference"))
    others = both[[f"{fact}_reference" for fact in facts]].to_numpy()
    return set(both.loc[(both[facts].to_numpy() != others).any(axis=1), "arm"])
