"""What a reader has to know before comparing numbers, in sentences: the notes under every table."""

from itertools import product

import pandas as pd

from glue_bench.benchmark.tasks import COLUMNS, TASKS, titles
from glue_bench.config import HELD_OUT, Protocol
from glue_bench.reporting.assessment import HIGHEST
from glue_bench.reporting.numbers import MISSING, number
from glue_bench.results.averages import available, averages_frame
from glue_bench.results.board import Board
from glue_bench.results.encoders import UNRECORDED, named_blocks, title
from glue_bench.results.frame import Results
from glue_bench.results.protocol import AVERAGES, LEADING

BANNER = "Made from the embedded demo data: not a benchmark."
PARTIAL, COLLAPSED, FROM_MNLI = "†", "‡", "§"
MIXED = {
    "precision": "its runs were trained in more than one precision",
    "recipe": "its runs were trained by more than one recipe",
    "pretraining_recipe": "its runs start from weights that more than one recipe has pretrained",
}


def leaderboard_notes(board: Board, bold_means: str = HIGHEST) -> list[str]:
    """What a reader has to know before comparing the numbers."""
    planned = uniform_plan(board)
    # Where cells were not planned alike, each says its own number.
    seeds = f"n = {planned} seed{'s' if planned > 1 else ''}" if planned else "(n) seeds"
    return [
        f"A cell is {board.results.protocol.seeds} ± sample standard deviation over {seeds}, x100, on the "
        "validation split. One seed has no deviation, nor has an average whose parts differ in their seeds. "
        f"{bold_means}; blocks are not comparable with each other.",
        *protocol_notes(board.results),
        *_average_notes(board),
        *winner_notes(board, averages_frame(board)),
        *_run_notes(board),
    ]


def uniform_plan(board: Board) -> int | None:
    """The number of seeds that every arm has in every column by plan; None where they differ."""
    counts = {count for by_column in board.planned.values() for count in by_column.values()}
    return counts.pop() if len(counts) == 1 else None


def _average_notes(board: Board) -> list[str]:
    tasks = set(board.results.cells["task"])
    notes = []
    for convention in (AVERAGES[name] for name in LEADING):
        absent = ", ".join(TASKS[task].title for task in convention.tasks if task not in tasks)
        why = f"not shown, the experiment has no {absent}" if absent else convention.rule
        notes.append(f"{convention.title}: {why}.")
    return notes


def _run_notes(board: Board) -> list[str]:
    results = board.results
    missing, undefined = len(results.missing), int(results.scores["value"].isna().sum())
    collapsed = ", ".join(
        f"{row['arm']} {column_title(column)} {count} of {row[f'{column}_n']}"
        for row in board.table.to_dict("records")
        for column, count in board.collapsed[row["arm"]].items()
        if count
    )
    notes = {
        f"{PARTIAL} partial data: not comparable with published scores.": marked_tasks(board),
        f"{COLLAPSED} collapsed runs, which predict one class or a constant and count in the mean: "
        f"{collapsed}.": collapsed,
        "Undefined scores of finished runs (constant predictions), which make their mean missing: "
        f"{undefined}.": undefined,
        f"{missing} of {len(results.cells)} planned cells are missing: {MISSING} is a missing value, "
        "(2 of 3) counts finished and planned seeds.": missing,
        f"Records outside the plan (settings or recipe changed since), left out: {results.left_out}.": results.left_out,
    }
    return [
        *(note for note, applies in notes.items() if applies),
        *segment_notes(results),
        *results.differences,
        *block_notes(results),
        *problem_notes(results),
    ]


def marked_tasks(board: Board) -> tuple[str, ...]:
    """Tasks run on a part of their rows; of demo tables the banner has said all there is to say."""
    return () if is_demo(board.results) else board.results.partial_tasks


def is_demo(results: Results) -> bool:
    """Whether any of the data is made up."""
    return "demo" in results.data_source


def winner_notes(board: Board, frame: pd.DataFrame) -> list[str]:
    """A warning for each block in which the choice of a convention decides who wins."""
    notes = []
    for name, block in named_blocks(frame):
        winners = _winners(block, available(board))
        if len(winners) > 1:
            told = "; ".join(f"{who} by {', '.join(titles)}" for who, titles in winners.items())
            notes.append(f"**The winner depends on the convention of averaging** ({name}): {told}.")
    return notes


def _winners(block: pd.DataFrame, names: list[str]) -> dict[str, list[str]]:
    """The arms that win, ties to two decimals together -> the conventions by which; only arms that have them all."""
    ranked = block.set_index("arm")[names].dropna()
    winners: dict[str, list[str]] = {}
    for name in names if len(ranked) > 1 else []:
        best = ranked.index[ranked[name].map(number) == number(ranked[name].max())]
        winners.setdefault(" and ".join(best), []).append(AVERAGES[name].short)
    return winners


def column_title(column: str) -> str:
    """MNLI-m, MNLI-mm; elsewhere the task's own title."""
    task = TASKS[COLUMNS[column][0]]
    return task.title + column.removeprefix(task.name).replace("_", "-")


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


def segment_notes(results: Results) -> list[str]:
    """That no second segment was seen before fine-tuning, where that is so."""
    if not results.one_segment:
        return []
    return [
        f"Segments: pretraining ({', '.join(results.one_segment)}) had one segment only, so that what stands for the "
        "second one was not trained before fine-tuning."
    ]


def mixed_notes(results: Results) -> list[str]:
    """A sentence about each block whose runs differ in precision or recipe, and about blocks of several recipes."""
    finished = results.cells[results.cells["finished"]]
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
