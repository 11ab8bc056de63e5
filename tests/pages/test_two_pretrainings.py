"""Runs after two pretrainings with unequal numbers of seeds: scores, medians, R3; and texts."""

import json
import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from helpers.read_pages import READERS, read_html
from sklearn.metrics import matthews_corrcoef

from glue_bench.board.board import open_board
from glue_bench.board.chosen import arm_scores, chosen_runs, median_runs
from glue_bench.board.compare import compare
from glue_bench.data.diagnostic import Diagnostic
from glue_bench.data.measures import MEASURES
from glue_bench.pages.diagnostics import diagnostics_page
from glue_bench.pages.figures import arm_forest_rows
from glue_bench.pages.latex import to_latex
from glue_bench.pages.markup import sentence
from glue_bench.pages.numbers import abbreviate_number, format_number
from glue_bench.pages.page import Column, Page, Table
from glue_bench.pages.render import csv_text, render, to_html, to_json
from glue_bench.publish.every_eval import write_logs

SCORES = {1: (0.50, 0.60, 0.70), 2: (0.90,)}
"""The scores of fine-tuning seeds 1, 2, ..., by pretraining seed."""


def finish(bench, task="rte", scores=None, arm="add", **facts) -> None:
    """Finish runs after each pretraining."""
    for pretraining, of_seeds in (scores or SCORES).items():
        for seed, value in enumerate(of_seeds, 1):
            cell = bench.expect(task, seed=seed, arm=arm)
            cell["cell_id"] += f"-p{pretraining}"
            cell["steps"] = 9
            cell["pretraining_seed"] = pretraining
            bench.record(cell, score=value, **facts)


def test_the_error_of_a_score_is_over_pretrainings_whatever_their_numbers_of_seeds(bench):
    finish(bench)
    row = arm_scores(open_board(bench.plan()), "add").iloc[0]
    deviation = np.std([0.6, 0.9], ddof=1)
    assert row["n"] == 2
    assert row["mean"] == pytest.approx((0.6 + 0.9) / 2)
    assert row["std"] == pytest.approx(deviation)
    assert row["error"] == pytest.approx(deviation / math.sqrt(2))


def test_the_error_of_a_score_is_over_seeds_where_there_is_one_pretraining(bench):
    scores = (0.5, 0.6, 0.7, 0.9)
    finish(bench, scores={3: scores})
    row = arm_scores(open_board(bench.plan()), "add").iloc[0]
    assert row["n"] == 4
    assert row["std"] == pytest.approx(np.std(scores, ddof=1))


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ({1: (0.5, 0.6), 2: (0.7, 0.8)}, (1, 2)),
        ({1: (0.7, 0.6), 2: (0.6, 0.8)}, (1, 2)),
        ({2: (0.6, 0.9), 5: (0.6, 0.6)}, (2, 1)),
        ({1: (0.9, None), 2: (0.7, 0.8)}, (2, 1)),
    ],
    ids=[
        "the lower of the middle two",
        "ties",
        "the lower pretraining seed",
        "an undefined one is the lowest",
    ],
)
def test_the_median_run_is_over_the_runs_of_all_pretrainings(bench, scores, chosen):
    finish(bench, scores=scores)
    board = open_board(bench.plan())
    cell_id = median_runs(board, "add")["cell_id"]["rte"]
    cell = board.cells.set_index("cell_id").loc[cell_id]
    assert (cell["pretraining_seed"], cell["seed"]) == chosen


def test_a_run_is_chosen_for_each_arm_and_task(bench):
    for arm in ("add", "none"):
        for task in ("rte", "cola"):
            finish(bench, task, {1: (0.5, 0.6, 0.7)}, arm=arm)
    assert chosen_runs(open_board(bench.plan())) == {
        "add-rte-lr2e-05-s2-p1",
        "add-cola-lr2e-05-s2-p1",
        "none-rte-lr2e-05-s2-p1",
        "none-cola-lr2e-05-s2-p1",
    }


@pytest.fixture
def logs(bench, tmp_path):
    """The results of the logs of two arms, by model and metric."""
    finish(bench, "mrpc")
    finish(bench, "mrpc", {1: (0.2,), 2: (0.4,)}, arm="none")
    written = write_logs([open_board(bench.plan())], tmp_path, "my-lab")
    results_by_model = {}
    for name in written["files"]:
        log = json.loads((tmp_path / name).read_bytes())
        results = log["evaluation_results"]
        by_metric = {result["evaluation_result_id"]: result for result in results}
        results_by_model[log["model_info"]["name"]] = by_metric
    return results_by_model


METRICS = ["glue.mrpc.validation.accuracy", "glue.mrpc.validation.f1"]


@pytest.mark.parametrize("model", ["toy-add", "toy-none"])
def test_a_log_has_a_result_for_each_metric(logs, model):
    assert set(logs[model]) == set(METRICS)


@pytest.mark.parametrize("metric", METRICS)
def test_a_log_states_independent_runs_and_all_that_they_come_from(logs, metric):
    details = logs["toy-add"][metric]["score_details"]
    assert details["score"] == pytest.approx(0.75)
    assert details["uncertainty"]["num_samples"] == 2
    assert len(json.loads(details["details"]["runs"])) == 4


def test_r3_is_the_mean_over_pretrainings_of_the_means_over_their_seeds(bench, tmp_path):
    generator = np.random.default_rng(0)
    labels = np.arange(30) % 3
    values: dict[int, list[float]] = {1: [], 2: []}

    finish(bench, "mnli")
    for cell in bench.cells:
        is_right = generator.random(30) < 0.7
        guesses = np.where(is_right, labels, generator.integers(0, 3, 30))
        splits = {"validation_matched": np.zeros((1, 3)), "test_ax": np.eye(3)[guesses]}
        bench.predict(cell["cell_id"], splits)
        values[cell["pretraining_seed"]].append(100 * matthews_corrcoef(labels, guesses))

    diagnostic = Diagnostic(
        path=tmp_path / "diagnostic-full.tsv",
        pairs=pd.DataFrame({"text_a": "a", "text_b": "b", "label": labels}),
        phenomena={("", ""): np.ones(30, bool)},
    )
    row = diagnostics_page(open_board(bench.plan()), diagnostic).rows.iloc[0]

    means = [np.mean(values[1]), np.mean(values[2])]
    assert row["n"] == 2
    assert row["mean"] == pytest.approx(np.mean(means))
    assert row["std"] == pytest.approx(np.std(means, ddof=1))


def test_rows_of_a_forest_have_the_lowest_loss_on_top_behind_the_planned_ones(bench):
    levels = {
        "add": (3.0, 3.0),
        "b": (2.01, 2.02),
        "c": (2.5, 2.5),
        "d": (4.0, 4.0),
        "e": (3.5, 3.5),
    }

    documents = np.arange(8)
    counts = np.full(8, 50)
    for arm, by_seed in levels.items():
        bench.finish(arm=arm)
        for seed, level in enumerate(by_seed, 1):
            sums = (level + 0.001 * documents) * counts
            pieces = {"loss_sum": sums, "count": counts, "document": documents}
            bench.pretrain(arm, seed=seed, pieces=pieces)

    path = bench.plan(config={"protocol": {"contrasts": [["d", "add"]]}})
    comparison = compare(open_board(path))
    rows = arm_forest_rows(comparison, "validation_loss")

    assert [arm for arm, _ in rows.index] == ["d", "b", "c", "e"]
    assert rows["planned"].tolist() == [True, False, False, False]
    seeds = rows["seeds"]["b", "add"]
    expected = [-0.99, -0.98]
    assert seeds.tolist() == pytest.approx(expected)


def test_rows_of_a_forest_have_the_highest_score_on_top(bench):
    for arm, value in {"add": 0.5, "b": 0.4, "c": 0.7, "d": 0.6}.items():
        bench.finish(arm=arm, score=value)
    rows = arm_forest_rows(compare(open_board(bench.plan())), "rte")
    assert [arm for arm, _ in rows.index] == ["c", "d", "b"]


# Texts


def two_tables() -> Page:
    """Return two tables, the first one with two feet, captions and legends."""
    frame = pd.DataFrame({"a": ["x_1", "y&2", "floor", "smallest"], "b": [-1.5, 2.25, 0.5, -0.004]})
    columns = {"a": Column("A"), "b": Column("B", 2)}
    bold = pd.DataFrame({"b": [True, False, True, False]})
    marks = pd.DataFrame({"a": ["", "◇", "", ""], "b": ["▲", "", "†", ""]})
    first = Table(
        frame=frame,
        columns=columns,
        feet=2,
        caption="One `a_b` and `c`.",
        legend=("**Bold**: x.",),
        bold=bold,
        marks=marks,
    )
    second = Table(
        frame=frame[:1], columns=columns, title="More", caption="Two.", legend=("y.", "z.")
    )
    return Page(title="Both", tables=(first, second))


@pytest.mark.parametrize("format", READERS)
def test_marks_and_bold_belong_to_their_own_row_and_column(format):
    read = READERS[format]
    first, second = read(render(two_tables(), format))
    assert first.rows == [
        [("x_1", False), ("-1.50▲", True)],
        [("y&2◇", False), ("2.25", False)],
        [("floor", False), ("0.50†", True)],
        [("smallest", False), ("0.00", False)],
    ]
    assert second.rows == [[("x_1", False), ("-1.50", False)]]


def test_a_rule_stands_above_the_first_of_two_feet():
    lines = to_latex(two_tables()).splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("floor & ")]
    assert lines[place - 1] == r"\midrule"
    assert lines[place + 1] == r"smallest & 0.00 \\"


def test_two_feet_are_the_foot_of_a_table_in_html():
    html = to_html(two_tables())
    foot = html[html.index("<tfoot>") : html.index("</tfoot>")]
    assert foot.count("<tr>") == 2
    assert len(read_html(html)[0].rows) == 4


def test_captions_and_legends_of_both_tables_are_in_json():
    document = json.loads(to_json(two_tables()))
    assert document["captions"] == ["One `a_b` and `c`.", "Two."]
    assert document["legend"] == ["**Bold**: x.", "y.", "z."]
    assert [table["title"] for table in document["tables"]] == ["", "More"]
    assert document["rows"][1] == {"a": "y&2", "b": 2.25}


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("markdown", "`a_b` is **5%** of `c` and **d\\_**."),
        ("latex", r"\texttt{a\_b} is \textbf{5\%} of \texttt{c} and \textbf{d\_}."),
        (
            "html",
            "<code>a_b</code> is <strong>5%</strong> of <code>c</code> and <strong>d_</strong>.",
        ),
    ],
)
def test_every_bold_or_code_part_of_a_sentence_is_marked(format, expected):
    assert sentence("`a_b` is **5%** of `c` and **d_**.", format) == expected


def test_every_special_character_of_latex_is_escaped_each_time():
    frame = pd.DataFrame({"a": ["a_b_c & 1% #2 $ {x} ~ ^ \\"]})
    page = Page(title="t", tables=(Table(frame=frame, columns={"a": Column("A")}),))
    row = r"a\_b\_c \& 1\% \#2 \$ \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \\"
    assert row in to_latex(page)


def test_texts_with_commas_quotes_and_line_breaks_come_back_from_csv(tmp_path):
    arms = ['a,"b"', "c\nd", "e;f", "'g'"]
    frame = pd.DataFrame({"arm": arms, "value": [1.25, -0.001, math.nan, 3.0]})
    (tmp_path / "a.csv").write_text(csv_text(frame, 2))
    read = pd.read_csv(tmp_path / "a.csv")
    assert read["arm"].tolist() == arms
    assert csv_text(frame, 2).splitlines()[0] == "arm,value"
    assert read["value"].dropna().tolist() == [1.25, 0.0, 3.0]


@pytest.mark.parametrize(
    ("count", "digits", "text"),
    [
        (999, 3, "999"),
        (1000, 3, "1k"),
        (380_000, 2, "380k"),
        (4_385_920, 3, "4.39M"),
        (999_500, 3, "1M"),
        (999_499, 3, "999k"),
        (999.7, 3, "1k"),
        (-999_999, 2, "-1M"),
        (999_999_999, 6, "1B"),
        (131e9, 3, "131B"),
        (16.5e12, 3, "16.5T"),
        (2.5e15, 2, "2.5P"),
        (-4_385_920, 3, "-4.39M"),
        (3.15e18, 2, "3.1E"),
    ],
)
def test_large_numbers_are_shortened_with_the_unit_below_them(count, digits, text):
    assert abbreviate_number(count, digits) == text


@pytest.mark.parametrize("digits", [2, 3, 6])
def test_a_shortened_number_is_below_1000_of_its_unit_and_near_the_number(digits):
    sizes = {"": 1, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
    generator = np.random.default_rng(0)
    counts = list(10 ** generator.uniform(3, 19, 500))
    for power, share in product(range(4, 18), (0, 1e-7, 4e-4, 6e-4, 6e-3)):
        counts.append(10.0**power * (1 - share))
    tolerance = 0.5 * 10.0 ** (1 - digits) + 1e-9
    for count in counts:
        text = abbreviate_number(count, digits)
        value = float(text.rstrip("kMBTPE"))
        size = sizes[text.lstrip("0123456789.")]
        assert value < 1000 or text.endswith("E")
        assert value * size == pytest.approx(count, rel=tolerance)


@pytest.mark.parametrize(
    ("column", "decimals"), [("rte", 2), ("validation_loss", 3), ("train_loss", 3), ("swap_1", 2)]
)
def test_losses_have_three_decimals_and_points_two(column, decimals):
    assert MEASURES[column].decimals == decimals


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.004, "0.00"), (-0.006, "-0.01"), (0.005, "0.01"), (math.nan, "")],
)
def test_a_number_that_rounds_to_0_has_no_sign(value, text):
    assert format_number(value, 2) == text
