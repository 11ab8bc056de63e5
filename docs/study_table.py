"""Write the README of results/study, what the study says to each claim: `python docs/study_table.py`."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from glue_bench.records.store import Store
from glue_bench.reporting.assessment import LEAST_DOCUMENTS, Assessment
from glue_bench.reporting.export import find
from glue_bench.reporting.findings import Findings, pair_of, verdict
from glue_bench.reporting.markdown import aligned, sentence
from glue_bench.reporting.numbers import MISSING
from glue_bench.reporting.report.build import extent
from glue_bench.results.budgets import at_an_end, budget_frame, rates_frame
from glue_bench.results.protocol import AVERAGE
from glue_bench.stats.outcomes import effective_number
from glue_bench.values import series

BOUND = 0.05
"""Nats: docs/study.md calls two arms alike whose interval lies within this on both sides of 0."""
HEADER = ("Claim", "Contrast", "Nats", "95% interval", "Answer", "What it cannot say")
EXPECTED = {"better": "better", "worse": "worse", "either": ""}
CLAIMS = {
    tuple(row["contrast"]): (row["claim"], EXPECTED[row["expected"]], row["open"])
    for row in yaml.safe_load(Path(__file__).with_name("study_claims.yaml").read_text("utf-8"))
}
"""Of each contrast the claim, how the first arm is by it ("" for either way), and what the contrast leaves open."""
ANSWERS = (
    "*Holds at this size*: the difference is as the claim says, after the correction for all contrasts. *Does not "
    "hold at this size*: it is the other way round, or the whole interval, with 0 in it, lies between "
    f"-{BOUND:g} and +{BOUND:g} nats. *Not seen at this size*: neither. A measured difference as large as the one "
    "named there would have counted whatever the other contrasts show; a true one of that size is found about half "
    "of the time.\n\n"
    "Nats are of the validation loss, the first arm less the second: below 0 the first one predicts better. "
    "A difference of -0.3 nats makes the perplexity 0.74 times as large. "
    "The intervals hold together, for all contrasts named beforehand, and are those to cite; the statistics page also "
    "compares every arm with the reference, which is another family of tests with other intervals."
)
APART = "; the two arms were pretrained on two processors"
REACHED = (
    "Beside the loss: the validation loss with which `{reference}` ends, after {tokens:.2f} million tokens, is reached "
    "by {first} (means over seeds)."
)
SWAPPED = (
    "In the swap test, which asks whether the text as it was written is preferred to one with two neighbouring words "
    "exchanged, the arms have: {arms}."
)
NOT_ASKED = (
    "Not asked for beforehand, and to be cited as exploratory: the arms that no contrast compares with `{reference}`, "
    "less `{reference}` (intervals of all differences from it together): {arms}."
)
FINE_TUNED = (
    "Fine-tuning: on the average of {columns} GLUE tasks {found} (differences: {differences}); a measured difference "
    "of {least} points, depending on the arm, would have counted."
)
AT_AN_END = (
    "For {arms} the {end} of the three rates was the best one, so that one beyond it, which was not tried, may be "
    "better, and the contrasts of such an arm may be unfair to it.\n\n"
)
AROUND = """# study: is adding as good as concatenating, and do untied positions help?

{lead}

{pretrained} {extent} Question, arms, contrasts and what counts as an answer were
[written before the runs](../../docs/study.md); how intervals are computed was changed twice after arms had run, and one
condition for calling two arms different was dropped, which no answer depends on
([what and why](../../docs/study.md#what-was-changed-later)). Of QNLI and QQP there was only a part of the rows
([how large a part](leaderboard.md#notes)).

{table}

{answers}

{beside}

{finetuned}

{varies}

{edges}[leaderboard.md](leaderboard.md) has all arms that have run, [statistics.md](statistics.md) the differences
of the losses, and of other columns those with a verdict, [statistics.csv](statistics.csv) all of them,
[budget.md](budget.md) what each arm cost ([budget.csv](budget.csv) for each seed). [tupe-1.md](tupe-1.md) has our rows
under those of TUPE's table 1, and [analysis/](analysis/analysis.md) what is inside the encoders of seed 1
of ten arms ([what follows](../../docs/why-added.md#in-arms-that-were-pretrained-alike)), and
[analysis_last/](analysis_last/analysis.md) of the other three. Their swap tests are on another text than the
leaderboard's, which is the held-out one. [rates.csv](rates.csv) has the searches for
learning rates, [losses.csv](losses.csv) the loss curves, [scores.csv](scores.csv) the score of each run. `records/`
and `pretraining/` have one JSON file for each fine-tuning run and each pretraining, with its environment;
`predictions/` has the logits on validation, and `labels/` the gold labels of validation as numbers, by which
statistics are recomputed. The `validation_loss` of [intrinsic.csv](intrinsic.csv) is of a part of the held-out text,
that of the other files is of all of it. Most of the held-out text is the end of documents that were trained on, so that
the loss does not say how an arm predicts text of another kind. Two layers of width 128 after 6.5 million tokens are not
BERT; one text, one vocabulary and one held-out part are behind all numbers; each rate is the best of three, found with
one seed.

{state} {tuned} What differs between these commits and processors, and how much that changed a loss where it was
measured (0.016 nats at most, in twelve pairs), is in [the design](../../docs/study.md#the-runs).
[The configuration](../../configs/study.yaml) has all settings. `TEXT_FOLDER` holds the
[43 MB of English text](../../docs/study.md#what-is-the-same-for-all), and `GLUE_FOLDER` GLUE in the classic TSV layout.

```console
glue-bench run configs/study.yaml --data GLUE_FOLDER --corpus TEXT_FOLDER --results results --workers 2 \\
    --precision float32
glue-bench table tupe-1 results/study -o results/study/tupe-1.md
glue-bench report results/study
glue-bench verify results/study
python docs/study_table.py
```
"""


def readme(folder: Path) -> str:
    """The page of the experiment in a folder.

    Raises:
        UserError: there is no experiment in the folder.
    """
    findings = find(folder)
    if (assessment := findings.assessment) is None:
        raise ValueError("one experiment has contrasts, several have none")
    contrasts = assessment.contrasts[assessment.contrasts["column"] == assessment.primary].to_dict("records")
    found = {(row["arm"], row["reference"]): row for row in contrasts}
    named = [(first, second) for first, second in findings.results.protocol.contrasts]
    store, records = Store(folder), read_pretrainings(folder)
    plan, budgets = store.read_plan(), budget_frame(store)
    compared = {facts.pretraining_id for facts in plan.all_pretrainings() if not facts.is_search} if plan else set()
    kept = [record for record in records if record["pretraining_id"] in compared]
    rows = [[*told(found.get(pair), pair)] for pair in named]
    for row, pair in zip(rows, named, strict=True):
        made = [processors(kept, arm) for arm in pair]
        row[-1] += APART * (all(made) and len(set.union(*made)) > 1)
    columns = assessment.columns[assessment.columns["column"] == assessment.primary].to_dict("records")
    measured = assessment.arms[assessment.arms["column"] == assessment.primary].dropna(subset="mean")
    reached = beside(budgets, assessment.blocks[0].group.reference)
    return AROUND.format(
        pretrained=f"Pretrained: {len(measured)} of {assessment.arms['arm'].nunique()} arms.",
        lead=sentence(verdict(findings)),
        extent=extent(findings.results),
        table=aligned([HEADER, *([sentence(text) for text in row] for row in rows)], {0, 1, 4, 5}),
        answers=ANSWERS,
        finetuned=finetuned(findings),
        varies="\n\n".join([*varies(columns, held_out(store, kept)), *spreads(assessment, budgets), *reach(contrasts)]),
        beside="\n\n".join(filter(None, (reached, others(findings, assessment.primary, named)))),
        edges="".join(map(AT_AN_END.format_map, at_an_end(rates_frame(store)))),
        state=state(kept, [record for record in records if record not in kept]),
        tuned=tuned(store, findings.results.cells),
    )


def told(row: Mapping[Any, Any] | None, pair: tuple[str, str]) -> tuple[str, ...]:
    """A row of the table."""
    claim, expected, open_question = CLAIMS.get(pair, (f"{pair[0]} is better than {pair[1]}.", "better", ""))
    if row is None or math.isnan(row["difference"]):
        return claim, " - ".join(pair), MISSING, MISSING, "not run yet", open_question
    numbers = [f"{row[name]:+z.3f}" for name in ("difference", "low", "high")]
    interval = MISSING if row["why"] else f"{numbers[1]} to {numbers[2]}"
    return claim, pair_of(row), numbers[0], interval, answer(row, expected), open_question


def answer(row: Mapping[Any, Any], expected: str) -> str:
    """What a contrast says to a claim that its first arm is `expected`: "better" or "worse" than the second."""
    if row["why"]:
        return f"cannot be tested: {row['why']}"
    alike = row["low"] > -BOUND and row["high"] < BOUND
    if row["verdict"]:
        said = "holds" if row["verdict"] == expected else "does not hold"
        said = f"{said if expected else 'holds'} at this size"
        if row["verdict"] != expected:
            said += ": it is the other way round" if expected else f": {row['arm']} is {row['verdict']}"
        return said + f", by less than {BOUND:g} nats" * alike
    if alike:
        return f"does not hold at this size: less than {BOUND:g} nats either way"
    against = (row["difference"] > 0) == (expected == "better") if expected else False  # a lower loss is better
    return (
        f"not seen at this size{'; measured the other way round' * against} (to count, the measured difference had "
        f"to reach {row['smallest']:.3f} nats)"
    )


def finetuned(findings: Findings) -> str:
    """What fine-tuning showed on the average, of all arms against the reference."""
    rows = findings.contrasts[(findings.contrasts["column"] == AVERAGE) & (findings.contrasts["why"] == "")]
    if rows.empty:
        return "Fine-tuning: no arm can be compared on an average of GLUE tasks yet."
    reference, told = rows["reference"].iloc[0], rows[rows["verdict"] != ""].to_dict("records")
    found = series([f"`{row['arm']}` is {row['verdict']} than `{row['reference']}`" for row in told])
    smallest = dict.fromkeys(f"{value:.2f}" for value in (rows["smallest"].min(), rows["smallest"].max()))
    return FINE_TUNED.format(
        columns=len(findings.board.average.parts),
        found=found or f"no arm is shown to differ from `{reference}`",
        differences=", ".join(f"`{row['arm']}` {row['difference']:+.2f}" for row in rows.to_dict("records")),
        least=" to ".join(smallest),
    )


def beside(budgets: pd.DataFrame, reference: str) -> str:
    """The second and the third measure: tokens until the reference's last loss, and the swap test."""
    arms = budgets.groupby("arm")[["tokens", "tokens_to_reference", "swap_1"]].agg(
        lambda column: column.mean(skipna=False)
    )
    first = arms["tokens_to_reference"].drop(reference).dropna().sort_values() / 1e6
    reached = series([f"`{arm}` after {value:.2f}" for arm, value in first.items()]) or "no other arm"
    said = REACHED.format(reference=reference, tokens=arms["tokens"][reference] / 1e6, first=reached)
    swapped = series([f"`{arm}` {value:.1f}%" for arm, value in arms["swap_1"].dropna().sort_values().items()])
    return f"{said} {SWAPPED.format(arms=swapped)}" if swapped else said


def others(findings: Findings, primary: str, named: Sequence[tuple[str, str]]) -> str:
    """The differences from the reference on the primary measure that no contrast asks for; "" where there is none."""
    rows = findings.contrasts[(findings.contrasts["column"] == primary) & (findings.contrasts["why"] == "")]
    told = [row for row in rows.to_dict("records") if (row["arm"], row["reference"]) not in named]
    said = [f"`{row['arm']}` {row['difference']:+.3f} ({row['low']:+.3f} to {row['high']:+.3f})" for row in told]
    return NOT_ASKED.format(reference=told[0]["reference"], arms=series(said)) if told else ""


def varies(columns: list[dict[Any, Any]], documents: np.ndarray) -> Iterator[str]:
    """How far the primary measure varies from pretraining to pretraining; `documents` are sizes of held-out ones."""
    held = "pieces of the held-out text"
    if len(documents) and effective_number(documents) >= LEAST_DOCUMENTS:
        held = (
            f"the documents whose ends were held out ({len(documents)} of unequal length, which count like "
            f"{effective_number(documents):.1f} equal ones)"
        )
    for column in columns:
        if not math.isnan(column["pretraining_deviation"]):
            yield (
                f"From one pretraining seed to the next ({column['pretraining_seeds']:g} for each arm) the loss of an "
                f"arm changes by {column['pretraining_deviation']:.3f} nats (standard deviation) besides what the seed "
                "does to all arms alike. An interval has two parts: this spread over seeds, and that of the difference "
                f"over {held}."
            )


def held_out(store: Store, records: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """How many masked tokens of the held-out text each document has; the same for all pretrainings."""
    losses = store.read_validation(records[0]["pretraining_id"]) if records else {}
    if not losses:
        return np.zeros(0)
    return np.bincount(np.unique(losses["document"], return_inverse=True)[1], losses["count"])


def spreads(assessment: Assessment, budgets: pd.DataFrame) -> Iterator[str]:
    """Which arms are judged by a spread of their own, and from where to where the plain standard deviations go."""
    for one in (one for block in assessment.blocks for one in block.estimates if one.column == assessment.primary):
        spread = one.spreads[0]
        own = zip(one.arms, spread.variance, spread.own, strict=True)
        wider = series(
            [f"`{arm}` {math.sqrt(variance * one.seeds[arm]):.3f}" for arm, variance, is_own in own if is_own]
        )
        pooled = f"{math.sqrt(spread.pooled):.3f}"
        if wider:
            yield (
                f"An arm's own spread counts where it is larger than that of all together ({wider}), and else the "
                f"{pooled}, so that the intervals of steadier arms are wider than their own seeds would make them."
            )
    own = budgets.groupby("arm")["validation_loss"].std().dropna().sort_values()
    if len(own) > 1:
        least, most = own.index[[0, -1]]
        yield (
            "Another figure, by which nothing is judged, is the plain standard deviation of an arm's losses over its "
            f"seeds, in which what the seed does to all arms remains: {own.iloc[0]:.3f} (`{least}`) to "
            f"{own.iloc[-1]:.3f} (`{most}`)."
        )


def reach(contrasts: Sequence[Mapping[Any, Any]]) -> Iterator[str]:
    """Whether any interval of these runs could have shown that two arms are alike."""
    halves = [row["smallest"] for row in contrasts if not math.isnan(row["smallest"])]
    if halves and min(halves) >= BOUND:
        yield (
            f"The narrowest interval reaches {min(halves):.3f} nats to either side, so that these runs can show that "
            f"arms differ, and cannot show that two are alike within {BOUND:g}."
        )


def processors(records: Sequence[Mapping[str, Any]], arm: str) -> set[str]:
    """Those on which an arm was pretrained."""
    mine = [record.get("environment") or {} for record in records if record["arm"] == arm]
    return {one["processor"] for one in mine if one.get("processor")}


def state(kept: Sequence[Mapping[str, Any]], searches: Sequence[Mapping[str, Any]]) -> str:
    """With which code and on which processors the pretrainings were run, and how many of them."""
    commits = Counter(str(record.get("environment", {}).get("git_commit"))[:7] for record in (*kept, *searches))
    machines: dict[str, set[str]] = {}
    for record in kept:
        machines.setdefault(_machine(record), set()).add(f"`{record['arm']}`")
    for record in searches:  # those that ran where their arm did need no word of their own
        if f"`{record['arm']}`" not in machines.get(_machine(record), ()):
            machines.setdefault(_machine(record), set()).add(f"the search of `{record['arm']}`")
    where = "; ".join(f"{', '.join(sorted(what))} on one thread of {machine}" for machine, what in machines.items())
    counts = [f"{commit} ({number} runs)" for commit, number in commits.items()]
    hours = sum(record.get("seconds", 0.0) for record in (*kept, *searches)) / 3600
    return (
        f"The pretrainings, those of the searches included, were run with the code of commit {series(counts)}: {where}."
        f" They took {hours:.1f} hours of one thread."
    )


def _machine(record: Mapping[str, Any]) -> str:
    made = record.get("environment", {})
    return f"{made.get('processor')} in {made.get('precision')}"


def tuned(store: Store, cells: pd.DataFrame) -> str:
    """With which code the fine-tunings were run, and where."""
    made = [record for record in store.scan_records()[0] if record.cell_id in set(cells["cell_id"])]
    if not made:
        return "Nothing is fine-tuned yet."
    commits = series(sorted({str(record.environment.git_commit)[:7] for record in made}))
    moved = int(cells.loc[cells["finished"], "processor"].str.contains(", then ").sum())
    where = (
        "each on a processor with the name of that of its pretraining"
        if not moved
        else f"{moved} of them on another processor"
    )
    hours = sum(record.seconds.total for record in made) / 3600
    return (
        f"All {len(made)} fine-tunings, in batches of 32 and with dropout 0.1, are of {commits}, {where}; they took "
        f"{hours:.1f} hours of one thread."
    )


def read_pretrainings(folder: Path) -> list[dict[str, Any]]:
    """The records of pretrainings as they are stored."""
    return [json.loads(path.read_text("utf-8")) for path in sorted((folder / "pretraining").glob("*.json"))]


if __name__ == "__main__":
    place = Path(__file__).parents[1] / "results" / "study"
    (place / "README.md").write_text(readme(place), encoding="utf-8")
