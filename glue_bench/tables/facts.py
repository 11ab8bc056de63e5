"""How the numbers of a leaderboard came about, and what its arms are: two tables of facts, made of fixed fields."""

from collections.abc import Iterator

import pandas as pd

from glue_bench.config import HELD_OUT
from glue_bench.data.tasks import TASKS, titles
from glue_bench.stats.verdicts import COVERS
from glue_bench.tables.averages import SEEDS
from glue_bench.tables.board import Board
from glue_bench.tables.compare import Comparison
from glue_bench.tables.numbers import banner, short
from glue_bench.tables.results import Results, comparable
from glue_bench.tables.table import Column, Table, facts_table

ARMS = {
    "arm": Column("Arm"),
    "variant": Column("Variant"),
    "options": Column("Options"),
    "summary": Column("What it does"),
    "rate": Column("Pretraining rate", show="{:g}".format),
}
SPLITS = {
    "train": "train",
    "validation_matched": "matched validation",
    "validation_mismatched": "mismatched validation",
}
EPOCHS = {
    ("last", "validation"): "last epoch",
    ("last", HELD_OUT): "last epoch",
    ("best", "validation"): "best epoch of each run by validation, which is optimistic",
    ("best", HELD_OUT): "best epoch of each run by the slice held out of train",
}
ONE_SEGMENT = "one in pretraining, so that fine-tuning began with an untrained second one"


def is_demo(results: Results) -> bool:
    """Whether any of the data is made up."""
    return "demo" in results.data_source


def marked_tasks(board: Board) -> tuple[str, ...]:
    """Tasks run on a part of their rows; of demo tables the banner has said all there is to say."""
    return () if is_demo(board.results) else board.results.partial_tasks


def setup_table(comparison: Comparison) -> Table:
    """How the numbers came about: a row for each fact that is known."""
    board, results = comparison.board, comparison.board.results
    epoch = EPOCHS[board.protocol.epoch, board.protocol.choose_on]
    facts = (
        ("Encoder", "; ".join(board.table["shape"].unique())),
        ("Weights", _weights(board)),
        ("Segments", ONE_SEGMENT if results.one_segment else ""),
        ("Seeds", _seeds(board)),
        ("Planned contrasts", _planned(comparison)),
        ("Intervals cover", covered(comparison)),
        ("Fine-tuning", "; ".join(_finetuning(board))),
        ("Reported", f"{board.protocol.seeds} over seeds; {epoch}; validation"),
        ("Data", _data(board)),
        ("Computed on", _computed_on(board.cells[board.cells["finished"]])),
        ("Runs", _runs(board)),
        *(("Unlike", line) for line in results.differences),
        *(("Left out", line) for line in results.problems),
    )
    return facts_table(facts)


def arms_table(board: Board) -> Table:
    """What each arm is, in the experiment's order, and the rate that a search chose for its pretraining."""
    results = board.results
    frame = results.arms.loc[board.arms].reset_index(drop=True)
    widths = [{} if pd.isna(width) else {"embedding_size": width} for width in frame["embedding_size"]]
    options = [given | width for given, width in zip(frame["options"], widths, strict=True)]
    frame["options"] = [", ".join(f"{name}: {value}" for name, value in given.items()) for given in options]
    trained = results.pretrainings[~results.pretrainings["is_search"] & results.pretrainings["searches"].notna()]
    frame["rate"] = frame["arm"].map(trained.dropna(subset="learning_rate").groupby("arm")["learning_rate"].first())
    filled = {name: column for name, column in ARMS.items() if any(map(column.text, frame[name]))}
    return Table(title="Arms", frame=frame, columns=filled)


def _weights(board: Board) -> str:
    """What the arms started from, by their origin; which arms, where there are several starts."""
    trained = board.results.pretrainings[~board.results.pretrainings["is_search"]]["tokens"].dropna()
    tokens = f", {' or '.join(dict.fromkeys(short(count, 2) for count in trained))} tokens" if len(trained) else ""
    starts = board.table.groupby(["origin", "start"], sort=False)["arm"].agg(", ".join).reset_index()
    told = []
    for row in starts.to_dict("records"):
        more = tokens if "steps of pretraining" in row["start"] else ""
        told.append(f"{row['origin']}: {row['start']}{more}" + (f" ({row['arm']})" if len(starts) > 1 else ""))
    return "; ".join(told)


def _seeds(board: Board) -> str:
    runs = board.cells.drop_duplicates(["arm", "task", *SEEDS]).groupby(["arm", "task"])
    pretrainings, number = runs["pretraining_seed"].nunique(), runs.size()
    if not pretrainings.any():
        return f"{_span(number)} fine-tuning"
    return f"{_span(pretrainings)} pretraining, {_span(number / pretrainings.clip(lower=1))} fine-tuning of each"


def _span(numbers: pd.Series) -> str:
    return " to ".join(dict.fromkeys(f"{each:g}" for each in (numbers.min(), numbers.max())))


def covered(comparison: Comparison) -> str:
    """What the intervals cover, by the kind of seeds that they are made of; nothing where nothing is tested."""
    tested = comparison.columns.dropna(subset="smallest")
    random = (tested["origin"] == "scratch") & (tested["seeds"] == "fine-tuning")
    return " or ".join(COVERS[kind] for kind in dict.fromkeys(tested["seeds"].mask(random, "random")))


def _planned(comparison: Comparison) -> str:
    """The contrasts that the experiment names, each with its verdict in the column by which arms are judged."""
    named = comparison.of("declared")
    named = named[named["column"] == comparison.primary]
    verdicts = named["verdict"].mask(named["verdict"] == "", "not told apart").mask(named["why"] != "", "untested")
    return "; ".join(named["arm"] + " - " + named["reference"] + ": " + verdicts)


def _finetuning(board: Board) -> Iterator[str]:
    settings = board.results.tasks.loc[board.results.tasks["settings"].map(bool), "settings"]
    for name, title in (("epochs", "epochs"), ("batch_size", "batch"), ("max_length", "length")):
        values = settings.map(lambda each, name=name: each.get(name)).dropna()
        if len(values) == len(settings) > 0:
            yield f"{title} {_with_tasks(values)}"
    rates = ", ".join(map("{:g}".format, sorted(board.cells["learning_rate"].unique())))
    if board.cells.groupby("task")["learning_rate"].nunique().max() > 1:
        chosen = "the slice held out of train" if board.protocol.choose_on == HELD_OUT else "validation"
        rates = f"the best of {rates} for each arm and task, by the {board.protocol.rate_statistic} on {chosen}"
    yield f"rate {rates}"
    most = settings.map(lambda each: each.get("max_steps")).dropna()
    if len(most):
        yield f"at most {_with_tasks(most)} steps"
    if board.results.held_out_share:
        yield f"{board.results.held_out_share:.3g} of train held out"
    if board.results.from_mnli:
        yield f"from the arm's own MNLI run: {titles(board.results.from_mnli)}"


def _with_tasks(values: pd.Series) -> str:
    """A setting by task: its value, or each of its values with the tasks that have it."""
    groups = {f"{value:g}": titles(tuple(mine.index)) for value, mine in values.groupby(values)}
    return ", ".join(value + (f" ({tasks})" if len(groups) > 1 else "") for value, tasks in groups.items())


def _data(board: Board) -> str:
    """Where the rows are from, and which share of the official ones was there."""
    results, partial = board.results, marked_tasks(board)
    if not partial:
        return results.data_source + ("" if banner(results.data_source) else ", complete")
    return "; ".join([results.data_source, *(f"{TASKS[task].title} {_share(results, task)}" for task in partial)])


def _share(results: Results, task: str) -> str:
    rows, official = results.tasks["rows"][task], TASKS[task].splits
    shown = [
        f"{100 * rows[split] / official[split].rows:.3g}% of {SPLITS.get(split, split)}"
        for split in ("train", *TASKS[task].validation_splits)
        if split in rows and rows[split] != official[split].rows
    ]
    return ", ".join(shown) or "in part"


def _computed_on(cells: pd.DataFrame) -> str:
    processors = pd.Series(comparable(cells["processor"]), cells.index)
    places = (processors + ", " + cells["precision"]).str.strip(", ").replace("", "unrecorded")
    return "; ".join(f"{place}: {count} runs" for place, count in places.value_counts().sort_index().items())


def _runs(board: Board) -> str:
    undefined = int(board.scores["value"].isna().sum())
    finished, left_out = board.cells["finished"].sum(), board.results.left_out
    counts = f"{finished} of {len(board.cells)} planned; {left_out} records left out"
    return counts + (f"; {undefined} undefined scores" if undefined else "")
