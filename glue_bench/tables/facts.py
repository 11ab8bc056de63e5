"""How the numbers of a leaderboard came about, and what its arms are: two tables of facts, made of fixed fields."""

import pandas as pd

from glue_bench.config import HELD_OUT
from glue_bench.data.tasks import TASKS, titles
from glue_bench.stats.verdicts import COVERS
from glue_bench.tables.board import SEEDS, Board
from glue_bench.tables.compare import Comparison
from glue_bench.tables.numbers import banner, short
from glue_bench.tables.results import comparable
from glue_bench.tables.table import Column, Table, facts_table

ARMS = {
    "arm": Column("Arm"),
    "variant": Column("Variant"),
    "options": Column("Options"),
    "summary": Column("What it does"),
    "rate": Column("Pretraining rate", show="{:g}".format),
}
SPLITS = {"validation_matched": "matched validation", "validation_mismatched": "mismatched validation"}
EPOCHS = {
    ("last", "validation"): "last epoch",
    ("last", HELD_OUT): "last epoch",
    ("best", "validation"): "best epoch of each run by validation, which is optimistic",
    ("best", HELD_OUT): "best epoch of each run by the slice held out of train",
}
ONE_SEGMENT = "one in pretraining, so that fine-tuning began with an untrained second one"


def marked_tasks(board: Board) -> tuple[str, ...]:
    """Tasks run on a part of their rows; of demo tables the banner has said all there is to say."""
    return () if "demo" in board.results.data_source else board.results.partial_tasks


def setup_table(comparison: Comparison) -> Table:
    """How the numbers came about: a row for each fact that is known."""
    board, results = comparison.board, comparison.board.results
    pretrainings = [plan.experiment.pretraining for plan in results.plans]
    tested = comparison.columns.dropna(subset="smallest")
    random = (tested["origin"] == "scratch") & (tested["seeds"] == "fine-tuning")
    kinds = dict.fromkeys(tested["seeds"].mask(random, "random"))
    named = comparison.of("declared")
    named = named[named["column"] == comparison.primary]
    told = named["verdict"].mask(named["verdict"] == "", "not told apart").mask(named["why"] != "", "untested")
    epoch = EPOCHS[board.protocol.epoch, board.protocol.choose_on]
    done, undefined = board.cells[board.cells["finished"]], int(board.scores["value"].isna().sum())
    processors = pd.Series(comparable(done["processor"]), done.index)
    places = (processors + ", " + done["precision"]).str.strip(", ").replace("", "unrecorded").value_counts()
    runs = f"{len(done)} of {len(board.cells)} planned; {results.left_out} records left out"
    facts = (
        ("Encoder", "; ".join(board.table["shape"].unique())),
        ("Weights", _weights(board)),
        ("Segments", ONE_SEGMENT if any(each and each.segments == "one" for each in pretrainings) else ""),
        ("Seeds", _seeds(board)),
        ("Planned contrasts", "; ".join(named["arm"] + " - " + named["reference"] + ": " + told)),
        ("Intervals cover", " or ".join(COVERS[kind] for kind in kinds)),
        ("Fine-tuning", _finetuning(board)),
        ("Reported", f"{board.protocol.seeds} over seeds; {epoch}; validation"),
        ("Data", _data(board)),
        ("Computed on", "; ".join(f"{place}: {count} runs" for place, count in places.sort_index().items())),
        ("Runs", runs + (f"; {undefined} undefined scores" if undefined else "")),
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
    more = starts["start"].str.contains("steps of pretraining").map({True: tokens, False: ""})
    names = " (" + starts["arm"] + ")" if len(starts) > 1 else ""
    return "; ".join(starts["origin"] + ": " + starts["start"] + more + names)


def _seeds(board: Board) -> str:
    runs = board.cells.drop_duplicates(["arm", "task", *SEEDS]).groupby(["arm", "task"])
    pretrainings, number = runs["pretraining_seed"].nunique(), runs.size()
    told = [
        " to ".join(dict.fromkeys(f"{each:g}" for each in (numbers.min(), numbers.max())))
        for numbers in (pretrainings, number / pretrainings.clip(lower=1))
    ]
    return f"{told[0]} pretraining, {told[1]} fine-tuning of each" if pretrainings.any() else f"{told[1]} fine-tuning"


def _finetuning(board: Board) -> str:
    tasks, settings = board.results.tasks, board.results.tasks["settings"]

    def told(name: str, form: str) -> str:
        """A setting by task: its value, or each of its values with the tasks that have it."""
        values = settings.map(lambda each: each.get(name)).dropna()
        groups = {f"{value:g}": titles(tuple(mine.index)) for value, mine in values.groupby(values)}
        shown = (value + (f" ({which})" if len(groups) > 1 else "") for value, which in groups.items())
        return form.format(", ".join(shown)) if groups else ""

    rates = ", ".join(map("{:g}".format, sorted(board.cells["learning_rate"].unique())))
    if board.cells.groupby("task")["learning_rate"].nunique().max() > 1:
        chosen = "the slice held out of train" if board.protocol.choose_on == HELD_OUT else "validation"
        rates = f"the best of {rates} for each arm and task, by the {board.protocol.rate_statistic} on {chosen}"
    parts = [told("epochs", "epochs {}"), told("batch_size", "batch {}"), told("max_length", "length {}")]
    parts += [f"rate {rates}", told("max_steps", "at most {} steps"), told("held_out_share", "{} of train held out")]
    tuned = titles(tuple(tasks.index[tasks["from_mnli"]]))
    return "; ".join(filter(None, [*parts, tuned and f"from the arm's own MNLI run: {tuned}"]))


def _data(board: Board) -> str:
    """Where the rows are from, and which share of the official ones was there."""
    results, told = board.results, [board.results.data_source]
    for task in marked_tasks(board):
        rows, official = results.tasks["rows"][task], TASKS[task].splits
        shares = [
            f"{100 * rows[split] / official[split].rows:.3g}% of {SPLITS.get(split, split)}"
            for split in ("train", *TASKS[task].validation_splits)
            if split in rows and rows[split] != official[split].rows
        ]
        told.append(f"{TASKS[task].title} {', '.join(shares) or 'in part'}")
    return "; ".join(told) if len(told) > 1 or banner(told[0]) else f"{told[0]}, complete"
