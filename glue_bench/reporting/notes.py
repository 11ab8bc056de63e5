"""What a reader has to know before comparing numbers, in sentences: the notes under every table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from glue_bench.config import HELD_OUT
from glue_bench.data.task_data import LIMITED
from glue_bench.data.tasks import COLUMNS, TASKS, titles
from glue_bench.reporting.alike import block_notes, searched_note
from glue_bench.reporting.findings import BETTER, WORSE, Findings, covers, title_of
from glue_bench.tables.arms import blocks_of
from glue_bench.tables.averages import AVERAGE, NOT_AVERAGED
from glue_bench.tables.board import Board
from glue_bench.tables.numbers import MISSING, code, decimals_of, number
from glue_bench.tables.results import Results
from glue_bench.values import BLOCK, series

BANNER = "Made from the embedded demo data: not a benchmark."
PARTIAL, COLLAPSED, FEWER = "†", "‡", "*"
MAJORITY, SMALLEST = "majority class", "smallest difference"
SPLITS = {
    "train": "training",
    "validation_matched": "matched validation",
    "validation_mismatched": "mismatched validation",
}
METRICS = {
    **{"matthews_correlation": "Matthews correlation", "accuracy": "accuracy", "f1": "F1"},
    **{"pearson": "Pearson correlation", "spearmanr": "Spearman correlation"},
}
MEANS = " Scores are medians; marks, differences and their intervals are of means over the same runs."
UNEVEN = 1.2
"""From this ratio of the largest to the smallest on, the smallest differences of single arms are said."""
CONTRASTS_NAMED = " {lead} the contrasts named beforehand, a family of tests of their own on {primary}."
UNASKED = " Marks {which} were not asked for: cite them as exploratory."
MEASURED = {
    "validation_loss": "that of pretraining, in nats for each masked token",
    "swap_1": "how often text is preferred to the same text with two neighbouring words exchanged (chance is 50, and "
    "an encoder that knows no order has exactly 50, because all its pairs are ties)",
}


def leaderboard_notes(findings: Findings) -> list[str]:
    """What a reader has to know before comparing the numbers: eight lines at most."""
    board, results = findings.board, findings.results
    scores = [(*COLUMNS[column], TASKS[COLUMNS[column][0]].metrics[0]) for column in board.columns]
    made = f"{_seeds(board)}, {_runs(board)}.{_settings(results)}"
    measured = "".join(f" {title_of(name)}: {MEASURED[name]}." for name in findings.measures if name in MEASURED)
    partial = "; ".join(f"{TASKS[task].title}: {_share(results, task)}" for task in marked_tasks(board))
    alike = board.reported.loc[board.reported["collapsed"].map(bool), "arm"].value_counts()
    collapsed = ", ".join(f"{arm} ({alike[arm]})" for arm in board.arms if arm in alike.index)
    unlike = [*results.differences, *block_notes(board.cells)]
    lines = [
        f"Scores: {metric_note(scores)}, times 100, on the validation set; {made}{measured}",
        _average_note(board),
        _marks_note(findings),
        _feet_note(findings),
        partial and f"{PARTIAL} Only a part of the data was there, so that no published score compares: {partial}.",
        collapsed and f"{COLLAPSED} Has runs that gave one answer to everything; they count in the mean: {collapsed}.",
        " ".join(_missing_notes(findings)),
        " ".join([*searched_note(findings.rates), *segment_notes(results), *unlike, *problem_notes(results)]),
    ]
    return [line for line in lines if line]


def metric_note(scores: Iterable[tuple[str, str, str] | None]) -> str:
    """Which metric each task has, the most frequent one last: (task, split, metric)."""
    tasks: dict[str, list[str]] = {}
    for task, _, metric in filter(None, scores):
        tasks.setdefault(metric, []).append(TASKS[task].title)
    *rare, most = sorted(tasks, key=lambda metric: len(tasks[metric]))
    named = [f"{METRICS[metric]} for {series(dict.fromkeys(tasks[metric]))}" for metric in rare]
    return ", ".join([*named, f"{METRICS[most]}{' for the others' if named else ''}"])


def _seeds(board: Board) -> str:
    """How many runs a score is made of."""
    planned = {arm: set(counts.values()) for arm, counts in board.planned.items()}
    alike = set().union(*planned.values())
    statistic = board.protocol.seeds
    if alike == {1}:
        return "one run each"
    of_each = board.cells.groupby(["arm", "task"])["pretraining_seed"].nunique()
    if len(alike) == 1:
        runs, pretrainings = alike.pop(), of_each.min()
        if pretrainings < max(2, of_each.max()):
            return f"the {statistic} over {runs} runs with different seeds"
        times = "one fine-tuning" if runs == pretrainings else f"{runs / pretrainings:g} fine-tunings"
        return f"the {statistic} over {runs} runs, {times} of each of {pretrainings} pretrainings"
    shown = ", ".join(f"{arm} {'-'.join(map(str, dict.fromkeys((min(n), max(n)))))}" for arm, n in planned.items())
    return f"the {statistic} over runs with different seeds ({shown})"


def _average_note(board: Board) -> str:
    absent = [column for column in COLUMNS if column not in (*board.columns, NOT_AVERAGED)]
    if len(board.average.parts) < 2:
        return ""
    wnli = " WNLI does not count in it." if NOT_AVERAGED in board.columns else ""
    if not absent:
        return f"{board.average.title}: the mean of nine columns, as in TUPE's table 1.{wnli}"
    missing = ", ".join(dict.fromkeys(TASKS[COLUMNS[column][0]].title for column in absent))
    return (
        f"{board.average.title}: the mean of the columns that are here, without {missing}; it compares with no paper's "
        f"average.{wnli}"
    )


def _marks_note(findings: Findings) -> str:
    lowest = f" (of {', '.join(map(title_of, findings.lowest_is_best))} the lowest)" if findings.lowest_is_best else ""
    ranked = any(len(block) > 1 and not findings.converted(key) for key, block in blocks_of(findings.table))
    bold = f"Bold is the best of its column{lowest}. " if ranked else ""
    tested = findings.contrasts[findings.contrasts["why"] == ""]
    if tested.empty:
        return bold.strip()
    references = _references(tested)
    covered = " or ".join(covers(tested))
    covered += f" (of {title_of('validation_loss')} other documents)" * ("validation_loss" in findings.measures)
    in_each = " of each block" * (len(blocks_of(tested)) > 1)
    means = MEANS * (findings.board.protocol.seeds == "median")
    return (
        f"{bold}{BETTER} and {WORSE} mark what is better or worse than {references} beyond chance (if all arms were "
        f"equal, also in how much they vary from seed to seed, at most about one column in twenty{in_each} would have "
        f"a mark; among many columns a false one is likelier). The test allows for {covered}. Without a mark, a "
        f"difference is not shown; that does not mean that the arms are equal.{_unasked(findings, tested)}{means}"
    )


def _references(contrasts: pd.DataFrame) -> str:
    return " or ".join(map(code, dict.fromkeys(contrasts["reference"])))


def _unasked(findings: Findings, tested: pd.DataFrame) -> str:
    """Which marks no contrast that was named beforehand asks for, where any were named."""
    named = {frozenset(pair) for pair in findings.board.protocol.contrasts}
    if not named:
        return ""
    primary = findings.columns[0]
    marked = tested[(tested["verdict"] != "") & (tested["column"] == primary)]
    pairs = zip(marked["arm"], marked["reference"], strict=True)
    others = marked.loc[pd.Series([{*pair} not in named for pair in pairs], marked.index, dtype=bool)]
    one = others["reference"].nunique() == 1
    compared = f"which no contrast compares with {_references(others) if one else 'the reference of their block'},"
    which = ["on other columns"] * bool((tested["column"] != primary).any())
    which += [f"{'those ' * bool(which)}of {series(map(code, others['arm']))}, {compared}"] * bool(len(others))
    lead = "The sentence on top is of" if findings.by_contrasts else "`statistics.md` has"
    said = CONTRASTS_NAMED.format(lead=lead, primary=title_of(primary))
    return said + UNASKED.format(which=", and ".join(which)) * bool(which)


def _feet_note(findings: Findings) -> str:
    tested = findings.contrasts[findings.contrasts["smallest"].notna()]
    smallest = (
        f"{SMALLEST.capitalize()}: how large a measured difference from {_references(tested)} must be to get a mark. "
        f"Each arm has its own limit; the row shows the median of them{_spread_of_smallest(findings)}. If a true "
        "difference is as large as its limit, about half of such experiments find it (`glue-bench power`)."
    )
    return " ".join([*_majority_notes(findings)] + [smallest] * bool(len(tested)))


def _majority_notes(findings: Findings) -> Iterator[str]:
    """What the majority class is, and on which columns no arm is far above it."""
    if not findings.constants:
        return
    yield f"{MAJORITY.capitalize()}: the score of always giving the most frequent answer, 0 for a correlation."
    least = findings.contrasts.groupby([*BLOCK, "column"])["smallest"].median().groupby("column").min()
    constants = {name: by for name, by in findings.constants.items() if name in findings.columns}
    above = {name: findings.table[name].max() - constant for name, constant in constants.items()}
    if low := [title_of(name) for name, by in above.items() if by <= 0]:
        yield f"No arm's score is above it on {', '.join(low)}: nothing can be read off there."
    if near := [title_of(name) for name, by in above.items() if 0 < by < least.get(name, 0)]:
        seen = "little can be read off there"
        yield f"On {', '.join(near)} the best arm is above it by less than the smallest difference: {seen}."


def _spread_of_smallest(findings: Findings) -> str:
    """From where to where it goes over the arms in the first column and the average, and how far in others, if much."""
    told, first = [], dict.fromkeys(each for each in (findings.columns[0], AVERAGE) if each in findings.columns)
    for name in first:
        of_arms = findings.contrasts.loc[findings.contrasts["column"] == name, "smallest"].dropna()
        if len(of_arms) and of_arms.max() >= UNEVEN * of_arms.min():
            least, most = (number(value, decimals_of(name)) for value in (of_arms.min(), of_arms.max()))
            title = findings.board.average.title if name == AVERAGE else title_of(name)
            told.append(f"on {title} {least} to {most}")
    others = findings.contrasts[~findings.contrasts["column"].isin(list(first))].groupby([*BLOCK, "column"])["smallest"]
    times = (others.max() / others.median()).max()
    if times >= UNEVEN:
        told.append(f"on {'other' if told else 'some'} columns up to {times:.1f} times the median")
    return f" ({', '.join(told)}, depending on the arm; `statistics.csv` has each arm's)" if told else ""


def _share(results: Results, task: str) -> str:
    """The share of the official rows that was there, of each split that lacks some."""
    rows, official = results.tasks["rows"][task], TASKS[task].splits
    shown = [
        f"{100 * rows[split] / official[split].rows:.3g}% of the {SPLITS.get(split, split)} rows"
        for split in ("train", *TASKS[task].validation_splits)
        if split in rows and rows[split] != official[split].rows
    ]
    if "train" not in rows:
        shown.append("only a part of train or test (the records do not say how much)")
    return ", and ".join(shown) or "all but test"


def _missing_notes(findings: Findings) -> Iterator[str]:
    board = findings.board
    missing, undefined = len(board.missing), int(board.scores["value"].isna().sum())
    if missing:
        yield f"{missing} of {len(board.cells)} planned runs are missing{_missing_marks(findings)}."
    tasks = set(board.cells["task"]) - {COLUMNS[column][0] for column in board.columns}
    absent = [
        ("arm", list(map(code, findings.waiting))),
        ("task", [TASKS[task].title for task in TASKS if task in tasks]),
    ]
    if waiting := [f"the {what}{'s' * (len(which) > 1)} {', '.join(which)}" for what, which in absent if which]:
        yield f"Nothing has run yet of {'; of '.join(waiting)}."
    if lacks_seeds(board.cells, findings.contrasts):
        yield "Differences and marks of tasks are of the pretraining seeds that all arms have, scores of all runs."
    if undefined:
        yield f"{undefined} scores of finished runs are undefined (a constant has no correlation); so is their mean."
    if board.results.left_out:
        yield f"{board.results.left_out} records are not of this plan (settings or recipe have changed) and left out."


def _missing_marks(findings: Findings) -> str:
    """What marks the scores of missing runs, as far as the table shows such scores."""
    table = findings.board.table.set_index("arm")
    counts = [
        (table[f"{column}_n"].get(arm, 0), planned)
        for arm, by_column in findings.board.planned.items()
        for column, planned in by_column.items()
        if arm not in findings.waiting
    ]
    marks = [f"{FEWER} marks a score of fewer seeds than planned"] * any(0 < n < planned for n, planned in counts)
    marks += [f"{MISSING} stands where a score has none"] * any(n == 0 < planned for n, planned in counts)
    return f": {', and '.join(marks)}" * bool(marks)


def lacks_seeds(cells: pd.DataFrame, contrasts: pd.DataFrame) -> bool:
    """Whether an arm has finished more pretraining seeds of some task than its difference there counts.

    `cells` are those of a board, `contrasts` a frame of VERDICT_COLUMNS.
    """
    tested = contrasts[contrasts["why"] == ""]
    run = cells[cells["finished"]].groupby(["arm", "task"])["pretraining_seed"].nunique()
    return any(
        row["seeds"] == "pretraining" and row["n_arm"] < run.get((row["arm"], COLUMNS[row["column"]][0]), 0)
        for row in tested[tested["column"].isin(COLUMNS)].to_dict("records")
    )


def marked_tasks(board: Board) -> tuple[str, ...]:
    """Tasks run on a part of their rows; of demo tables the banner has said all there is to say."""
    return () if is_demo(board.results) else board.results.partial_tasks


def banner(results: Results) -> str:
    """What stands above every table whose numbers are not to be compared with others; else nothing."""
    if is_demo(results):
        return BANNER
    if LIMITED in results.data_source:
        return f"Made from a part of each split ({results.data_source}): not a benchmark."
    return ""


def is_demo(results: Results) -> bool:
    """Whether any of the data is made up."""
    return "demo" in results.data_source


def protocol_notes(board: Board) -> list[str]:
    """How the numbers came about, from rates, seeds and epochs; a sentence or two each."""
    one = len(board.cells[["pretraining_seed", "seed"]].drop_duplicates()) == 1
    seeds = "one run each" if one else f"the {board.protocol.seeds} over seeds"
    return [f"Protocol: {seeds}, {_runs(board)}.{_settings(board.results)}"]


def _runs(board: Board) -> str:
    """Which epoch and rate of the runs is reported."""
    protocol, epoch = board.protocol, "after the last epoch"
    if protocol.optimistic:
        epoch = "**optimistic**: after each run's best epoch on the validation set that is reported"
    elif protocol.epoch == "best":
        epoch = "after each run's best epoch on the slice held out of train"
    rates = board.cells["learning_rate"].unique()
    if searches_rates(board):
        held_out = protocol.choose_on == HELD_OUT
        where = "the slice held out of train" if held_out else "the validation set that is reported"
        rate = (
            f"at the learning rate with the best {protocol.rate_statistic} for each arm and task, chosen on {where} "
            "(of equals the lower one; a rate with fewer finished seeds is passed over)"
        )
    elif len(rates) == 1:
        rate = f"fine-tuned at the learning rate {rates[0]:g}".replace("e-0", "e-")
    else:
        rate = "fine-tuned at one learning rate for each task"
    return f"{epoch}, {rate}"


def searches_rates(board: Board) -> bool:
    """Whether a task has runs at several learning rates, of which one is chosen."""
    return bool(board.cells.groupby("task")["learning_rate"].nunique().max() > 1)


def _settings(results: Results) -> str:
    settings = [each for each in results.tasks["settings"] if each]
    notes = [*_length(settings)]
    steps = [each.get("max_steps") for each in settings]
    notes += [f" Runs end after {steps[0]:,} updates at most."] if any(steps) else []
    if results.held_out_share:
        notes.append(f" {results.held_out_share:.3g} of each train set was held out of training.")
    if results.from_mnli:
        notes.append(f" {titles(results.from_mnli)}: from the arm's own MNLI run of the same seed.")
    if results.described:
        notes.append(" `README.md` in the experiment's folder says more about these runs.")
    return "".join(notes)


def _length(settings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How long and on what batches the runs were fine-tuned, where all records say so."""
    told: dict[str, set[Any]] = {
        name: {each.get(name) for each in settings} for name in ("epochs", "batch_size", "max_length")
    }
    if all(values and None not in values for values in told.values()):
        # 1, 2 or 5
        epochs, batches, lengths = (
            " or ".join(", ".join(map(str, sorted(values))).rsplit(", ", 1)) for values in told.values()
        )
        yield f" Fine-tuning: {epochs} epochs in batches of {batches}, texts of up to {lengths} tokens."


def segment_notes(results: Results) -> list[str]:
    """That no second segment was seen before fine-tuning, where that is so."""
    if not results.one_segment:
        return []
    return [
        f"Pretraining ({', '.join(results.one_segment)}) showed texts of one segment only, so that the embedding "
        "of the second segment was untrained when fine-tuning began."
    ]


def problem_notes(results: Results) -> list[str]:
    """A line about each record that cannot be believed."""
    return [f"Left out: `{problem}`." for problem in results.problems]
