"""R3 on a made-up diagnostic set: per arm, category and phenomenon."""

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from glue_bench.board.board import open_board
from glue_bench.data.diagnostic import CATEGORIES, read_diagnostic
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.pages.diagnostics import (
    ONE_LABEL_NOTE,
    UNVERIFIED_TEXT,
    diagnostics_page,
)
from glue_bench.pages.render import to_markdown

ROWS = 1104
LABELS = np.arange(ROWS) % 3
LOGIC = np.arange(ROWS) < 600
DOUBLE = np.arange(ROWS) % 4 == 0
ALL_NEUTRAL = LABELS == 1
CELLS = ["mean", "std", "n", "examples", "labels"]


def diagnostic_row(number: int) -> list[str]:
    """A row of the labelled file: the phenomena of each category, a domain, a pair, its label."""
    logic = []
    if LOGIC[number]:
        logic.append("Negation")
    if LOGIC[number] and DOUBLE[number]:
        logic.append("Double negation")
    knowledge = "World knowledge" if ALL_NEUTRAL[number] else ""
    label = TASKS["ax"].labels[LABELS[number]]
    phenomena = ["", "", ";".join(logic), knowledge]
    return [*phenomena, "", f"premise {number}", f"hypothesis {number}", label]


@pytest.fixture
def diagnostic(tmp_path):
    """Rows of Logic, some with a double negation, and rows of Knowledge, which are all neutral."""
    rows = [[*CATEGORIES, "Domain", "Premise", "Hypothesis", "Label"]]
    for number in range(ROWS):
        rows.append(diagnostic_row(number))
    path = tmp_path / "diagnostic-full.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return read_diagnostic(path)


def guesses(seed: int, right: float = 0.7) -> np.ndarray:
    """Draw classes that are right on a share of the rows."""
    generator = np.random.default_rng(seed)
    is_right = generator.random(ROWS) < right
    return np.where(is_right, LABELS, generator.integers(0, 3, ROWS))


def finish(
    bench, seed=1, predicted=None, digest=None, value=0.5, source="tsv", *, partial=False, **place
) -> None:
    """Finish a run of MNLI that predicted these classes for AX, if any."""
    cell = bench.expect("mnli", seed=seed, **place)
    bench.record(cell, score=value, source=source, partial=partial, diagnostic=digest)
    splits = {
        "validation_matched": np.zeros((1, 3)),
        "test_matched": np.zeros((1, 3), np.float32),
    }
    if predicted is not None:
        splits["test_ax"] = np.eye(3, dtype=np.float32)[predicted]
    bench.predict(cell["cell_id"], splits)


def page_of(bench, diagnostic):
    return diagnostics_page(open_board(bench.plan()), diagnostic)


@pytest.mark.parametrize(
    ("differences", "data"),
    [
        (None, "MNLI in part: no published score compares"),
        (
            {"train": "other rows"},
            "MNLI with other rows than the official ones: no published score compares",
        ),
    ],
)
def test_the_page_warns_of_partial_and_of_other_rows_of_mnli(bench, diagnostic, differences, data):
    finish(bench, 1, LABELS)
    bench.tasks["mnli"] |= {"partial": True, "differences": differences}
    _, facts = page_of(bench, diagnostic).tables
    texts = dict([cell.text for cell in row] for row in facts.rows)
    assert texts["Data"] == data


@pytest.fixture
def page(bench, diagnostic):
    """The page of runs: three of `add` at two rates, two of `concat`, `none`, one without AX."""
    for seed in (1, 2, 3):
        finish(bench, seed, guesses(seed), value=0.6, rate=2e-5)
        finish(bench, seed, LABELS, value=0.4, rate=1e-5)
    for seed in (1, 2):
        finish(bench, seed, guesses(seed), arm="concat")
    finish(bench, 1, LABELS, arm="none")
    finish(bench, 2, arm="none")
    return page_of(bench, diagnostic)


@pytest.mark.parametrize(
    ("category", "phenomenon", "is_shown"),
    [
        ("", "", np.ones(ROWS, bool)),
        ("Logic", "", LOGIC),
        ("Logic", "Double negation", LOGIC & DOUBLE),
    ],
    ids=["all", "category", "phenomenon"],
)
def test_r3_is_the_mean_over_seeds_of_the_three_class_correlation_at_the_reported_rate(
    page, category, phenomenon, is_shown
):
    values = []
    for seed in (1, 2, 3):
        values.append(100 * matthews_corrcoef(LABELS[is_shown], guesses(seed)[is_shown]))
    expected = [np.mean(values), np.std(values, ddof=1), 3, is_shown.sum(), 3]
    rows = page.rows.set_index(["arm", "category", "phenomenon"])
    cells = rows.loc[("add", category, phenomenon), CELLS]
    assert cells.tolist() == pytest.approx(expected)


def test_the_table_has_a_row_for_each_phenomenon_and_a_column_for_each_arm(page):
    table, _ = page.tables
    expected = ["Category", "Phenomenon", "Pairs", "add", "concat", "none"]
    assert table.header == expected
    categories = dict.fromkeys(row[0].text for row in table.rows)
    assert list(categories) == ["All", "Logic", "Knowledge"]


def test_a_phenomenon_whose_pairs_have_one_label_has_a_mark(page):
    table, _ = page.tables
    texts = [cell.text for cell in table.rows[-1]]
    expected = ["World knowledge", str(ALL_NEUTRAL.sum())]
    assert texts[1:3] == expected
    assert texts[-1] == "0.00°"
    assert ONE_LABEL_NOTE in table.legend


def test_two_runs_show_no_spread(page):
    table, _ = page.tables
    add, concat, none = (cell.text for cell in table.rows[0][3:])
    assert "±" in add
    assert "±" not in concat
    assert none == "100.00"


def test_runs_that_predicted_no_ax_are_counted(page):
    _, facts = page.tables
    texts = [row[1].text for row in facts.rows]
    assert "1 finished runs of MNLI that predicted no AX" in texts


def test_sentences_that_are_known_to_agree_need_no_warning(bench, diagnostic):
    finish(bench, 1, LABELS, digest=diagnostic.digest)
    assert UNVERIFIED_TEXT not in to_markdown(page_of(bench, diagnostic))


def test_sentences_that_are_not_known_to_agree_have_a_warning(bench, diagnostic):
    finish(bench, 1, LABELS, digest=None)
    assert UNVERIFIED_TEXT in to_markdown(page_of(bench, diagnostic))


def test_without_predictions_of_ax_the_advice_is_to_predict_them(bench, diagnostic):
    finish(bench, 1)
    with pytest.raises(UserError, match=r"no run of '.*toy' has predicted AX; set `finetuning"):
        page_of(bench, diagnostic)


def test_predictions_of_another_number_of_pairs_are_refused(bench, diagnostic):
    finish(bench, 1, LABELS[:1000])
    with pytest.raises(UserError, match="has 1104 rows, but 'add-mnli-lr2e-05-s1' predicted 1000"):
        page_of(bench, diagnostic)


def test_predictions_of_different_pairs_are_refused(bench, diagnostic):
    for seed, letter in ((1, "a"), (2, "b")):
        finish(bench, seed, LABELS, digest=letter * 64)
    message = "'add-mnli-lr2e-05-s1' and 'add-mnli-lr2e-05-s2' predicted different AX data"
    with pytest.raises(UserError, match=message):
        page_of(bench, diagnostic)


def test_runs_that_predicted_an_ax_which_was_replaced_are_left_out(bench, diagnostic):
    finish(bench, 1, LABELS, digest="0" * 64)
    finish(bench, 2, LABELS, digest=diagnostic.digest)
    bench.tasks["mnli"] |= {"diagnostic": diagnostic.digest}
    assert set(page_of(bench, diagnostic).rows["n"]) == {1}
