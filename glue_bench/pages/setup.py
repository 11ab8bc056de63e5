"""The table Setup below a leaderboard: how its numbers came about, a row for each fact.

To show another fact, write a function that returns its text, and name it in `setup_table`.
"""

from pandas import DataFrame, Series

from glue_bench.board.aggregation import BOTH_SEEDS
from glue_bench.board.board import Board
from glue_bench.board.compare import CONVERSION_KIND, Comparison
from glue_bench.config import FINISHED, HELD_OUT
from glue_bench.data.tasks import KNOWN
from glue_bench.pages.numbers import abbreviate_number
from glue_bench.pages.page import Table, facts_table
from glue_bench.pages.summary import OUTDATED_TEXT

WHAT_INTERVALS_COVER = {
    "examples": "other examples; of these models alone",
    "fine-tuning": "other fine-tuning seeds, other examples; not other pretrainings",
    "random": "other fine-tuning seeds, other examples",
    "pretraining": (
        "other pretrainings, other fine-tuning seeds, other examples (documents for Val. loss)"
    ),
}
"""What an interval covers, by the kind of its seeds; "random" means random initial weights."""
CHOSEN_ON = {
    "validation": "validation, which is optimistic",
    HELD_OUT: "the slice held out of train",
}
"""The names, in a sentence, of the rows by which an epoch or a rate was chosen."""
SPLIT_NAMES = {
    "validation_matched": "matched validation",
    "validation_mismatched": "mismatched validation",
}
ONE_SEGMENT = "one in pretraining, so that fine-tuning began with an untrained second one"


def setup_table(comparison: Comparison) -> Table:
    """Make the table of how the numbers came about; facts without a text are left out."""
    board = comparison.board
    facts = [
        ("Encoder", "; ".join(board.table["shape"].unique())),
        ("Weights", weights_text(board)),
        ("Segments", segments_text(board)),
        ("Seeds", seeds_text(board)),
        ("Planned contrasts", planned_contrasts_text(comparison)),
        ("Intervals cover", coverage_text(comparison)),
        ("Fine-tuning", finetuning_text(board)),
        ("Reported", reported_text(board)),
        ("Data", data_text(board)),
        ("Computed on", machines_text(board)),
        ("Runs", runs_text(board)),
    ]
    for problem in board.results.problems:
        facts.append(("Left out", problem))
    return facts_table(facts)


def weights_text(board: Board) -> str:
    """Say what the arms started from, by origin, and on how many tokens they were pretrained."""
    pretrainings = board.results.pretrainings
    tokens = pretrainings.loc[~pretrainings["is_search"], "tokens"].dropna()
    counts = dict.fromkeys(abbreviate_number(count, 2) for count in tokens)
    tokens_text = f", {' or '.join(counts)} tokens" if counts else ""
    starts = board.table.groupby(["origin", "start"], sort=False)["arm"].agg(", ".join)
    texts = []
    for row in starts.reset_index().to_dict("records"):
        text = f"{row['origin']}: {row['start']}{tokens_text}"
        if len(starts) > 1:
            text += f" ({row['arm']})"
        texts.append(text)
    return "; ".join(texts)


def segments_text(board: Board) -> str:
    """Say whether pretraining had one segment only."""
    pretraining = board.results.plan.experiment.pretraining
    if pretraining and pretraining.segments == "one":
        return ONE_SEGMENT
    return ""


def seeds_text(board: Board) -> str:
    """Say how many pretrainings an arm has on a task, and how many fine-tunings each has."""
    cells = trained_cells(board)
    if cells.empty:
        return ""
    seeds = cells.drop_duplicates(["arm", "task", *BOTH_SEEDS]).groupby(["arm", "task"])
    pretrainings = seeds["pretraining_seed"].nunique()
    finetunings = seeds.size() / pretrainings.clip(lower=1)
    finetuning_range = range_text(finetunings)
    if pretrainings.any():
        return f"{range_text(pretrainings)} pretraining, {finetuning_range} fine-tuning of each"
    return f"{finetuning_range} fine-tuning"


def trained_cells(board: Board) -> DataFrame:
    """Give the cells of arms that are fine-tuned here."""
    return board.cells[board.cells["origin"] != FINISHED]


def range_text(counts: Series) -> str:
    """Write the lowest and the highest of several counts; one number if they are equal."""
    lowest = f"{counts.min():g}"
    highest = f"{counts.max():g}"
    return lowest if lowest == highest else f"{lowest} to {highest}"


def planned_contrasts_text(comparison: Comparison) -> str:
    """Write the verdict of each planned contrast in the primary column."""
    planned = comparison.contrasts_of("declared")
    planned = planned[planned["column"] == comparison.primary]
    texts = []
    for row in planned.to_dict("records"):
        outcome = row["verdict"] or "not told apart"
        if row["why"]:
            outcome = "untested"
        texts.append(f"{row['arm']} - {row['reference']}: {outcome}")
    return "; ".join(texts)


def coverage_text(comparison: Comparison) -> str:
    """Say which other runs and rows the intervals hold for."""
    contrasts = comparison.contrasts_of("reference", CONVERSION_KIND)
    tested = contrasts[contrasts["why"] == ""]
    origins = comparison.board.table.set_index("arm")["origin"]
    has_random_weights = tested["reference"].map(origins) == "scratch"
    is_of_finetuning = tested["seeds"] == "fine-tuning"
    kinds = tested["seeds"].mask(has_random_weights & is_of_finetuning, "random")
    return " or ".join(WHAT_INTERVALS_COVER[kind] for kind in kinds.unique())


def finetuning_text(board: Board) -> str:
    """Write the settings of fine-tuning; if one differs by task, its tasks stand in brackets."""
    tasks = board.results.tasks
    rates = rates_text(board)
    texts = [
        "" if rates else "none; the arms are scored as they are",
        setting_text(tasks, "epochs", "epochs {}"),
        setting_text(tasks, "batch_size", "batch {}"),
        setting_text(tasks, "max_length", "length {}"),
        f"rate {rates}" if rates else "",
        setting_text(tasks, "max_steps", "at most {} steps"),
        setting_text(tasks, "held_out_share", "{} of train held out"),
    ]
    from_mnli = ", ".join(tasks.loc[tasks["from_mnli"], "title"])
    if from_mnli:
        texts.append(f"from the arm's own MNLI run: {from_mnli}")
    return "; ".join(filter(None, texts))


def setting_text(tasks: DataFrame, name: str, form: str) -> str:
    """Write the value of a setting, or each of its values with the tasks that have it.

    Args:
        tasks: The tasks (the index) with the `title` and the `settings` (a mapping) of each.
        name: The name of the setting.
        form: The text around the values, with `{}` in their place.

    Returns:
        The text; empty if no task has the setting.
    """
    values = tasks["settings"].map(lambda of_task: of_task.get(name)).dropna()
    if values.empty:
        return ""
    texts = []
    for value, with_value in values.groupby(values):
        if values.nunique() > 1:
            titles = ", ".join(tasks.loc[with_value.index, "title"])
            texts.append(f"{value:g} ({titles})")
        else:
            texts.append(f"{value:g}")
    return form.format(", ".join(texts))


def rates_text(board: Board) -> str:
    """Write the learning rates, and how the reported one was chosen where a task has several.

    Without any fine-tuning the text is empty.
    """
    cells = trained_cells(board)
    rates = sorted(cells["learning_rate"].unique())
    text = ", ".join(f"{rate:g}" for rate in rates)
    rates_per_task = cells.groupby("task")["learning_rate"].nunique()
    if not rates_per_task.max() > 1:
        return text
    statistic = board.protocol.rate_statistic
    rows = CHOSEN_ON[board.protocol.choose_on].partition(",")[0]
    return f"the best of {text} for each arm and task, by the {statistic} on {rows}"


def reported_text(board: Board) -> str:
    """Say which statistic is reported, of which epoch, on which split."""
    protocol = board.protocol
    if trained_cells(board).empty:
        return "validation"
    epoch = "last epoch"
    if protocol.epoch != "last":
        epoch = f"best epoch of each run by {CHOSEN_ON[protocol.choose_on]}"
    return f"{protocol.seeds} over seeds; {epoch}; validation"


def data_text(board: Board) -> str:
    """Say where the rows are from, and which share of the official rows was read."""
    results = board.results
    tasks = results.tasks
    texts = [results.data_source]
    for task in results.partial_tasks:
        shares = ", ".join(other_rows(board, task)) or "in part"
        texts.append(f"{tasks['title'][task]} {shares}")
    has_unchecked = tasks["unchecked"].map(len) > 0
    is_complete_by_count = has_unchecked & ~tasks["partial"]
    by_count = ", ".join(tasks.loc[is_complete_by_count, "title"])
    if by_count:
        texts.append(f"{by_count} complete by count, content not checked")
    is_of_glue = any(KNOWN[task].benchmark == "GLUE" for task in tasks.index)
    if len(texts) == 1 and not results.banner and is_of_glue:
        return f"{results.data_source}, complete"
    return "; ".join(texts)


def other_rows(board: Board, task: str) -> list[str]:
    """Say in which splits of a task there are fewer rows than the official ones, or other rows."""
    rows = board.results.tasks["rows"][task]
    official = KNOWN[task].splits
    texts = []
    for split in ("train", *KNOWN[task].validation_splits):
        if split in rows and rows[split] != official[split].rows:
            percent = 100 * rows[split] / official[split].rows
            texts.append(f"{percent:.3g}% of {SPLIT_NAMES.get(split, split)}")
    for split, difference in board.results.tasks["differences"][task].items():
        texts.append(f"{SPLIT_NAMES.get(split, split)} with {difference}")
    return texts


def machines_text(board: Board) -> str:
    """Count the finished runs by processor and precision."""
    runs = board.cells[board.cells["finished"]]
    places = (runs["processor"] + ", " + runs["precision"]).str.strip(", ")
    counts = places.replace("", "unrecorded").value_counts().sort_index()
    texts = []
    for place, count in counts.items():
        noun = "run" if count == 1 else "runs"
        texts.append(f"{place}: {count} {noun}")
    return "; ".join(texts)


def runs_text(board: Board) -> str:
    """Count the runs that have finished, and what was left out of the tables."""
    finished = int(board.cells["finished"].sum())
    records = board.results.finished
    left_out = records.left_out + len(records.problems)
    texts = [
        f"{finished} of {len(board.cells)} planned",
        f"{left_out} records left out",
    ]
    if records.outdated:
        texts.append(OUTDATED_TEXT.format(count=len(records.outdated)))
    undefined = int(board.scores["value"].isna().sum())
    if undefined:
        texts.append(f"{undefined} undefined scores")
    return "; ".join(texts)
