"""R3 on a made-up diagnostic set: per arm, category and phenomenon."""

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from glue_bench.board.board import open_board
from glue_bench.data.diagnostic import CATEGORIES, read_diagnostic
from glue_bench.data.tasks import TASKS
from glue_bench.errors import UserError
from glue_bench.pages.diagnostics import diagnostics_page
from glue_bench.pages.render import to_markdown

ROWS = 1104
LABELS = np.arange(ROWS) % 3
LOGIC = np.arange(ROWS) < 600
DOUBLE = np.arange(ROWS) % 4 == 0
ALL_NEUTRAL = LABELS == 1


@pytest.fixture
def diagnostic(tmp_path):
    """Rows of Logic, some of them with a double negation, and of Knowledge, all of which are neutral."""
    lines = ["\t".join([*CATEGORIES, "Domain", "Premise", "Hypothesis", "Label"])]
    for row in range(ROWS):
        logic = ["Negation"] * int(LOGIC[row]) + ["Double negation"] * int(LOGIC[row] & DOUBLE[row])
        knowledge = "World knowledge" * int(ALL_NEUTRAL[row])
        label = TASKS["ax"].labels[LABELS[row]]
        lines.append(
            "\t".join(
                [
                    "",
                    "",
                    ";".join(logic),
                    knowledge,
                    "",
                    f"premise {row}",
                    f"hypothesis {row}",
                    label,
                ]
            )
        )
    path = tmp_path / "diagnostic-full.tsv"
    path.write_text("\n".join(lines) + "\n")
    return read_diagnostic(path)


def guesses(seed: int, right: float = 0.7) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.where(generator.random(ROWS) < right, LABELS, generator.integers(0, 3, ROWS))


def finish(
    bench, seed=1, predicted=None, digest=None, value=0.5, source="tsv", partial=False, **place
) -> None:
    cell = bench.expect("mnli", seed, **place)
    bench.record(cell, value, source=source, partial=partial, diagnostic=digest)
    splits = {"test_matched": np.zeros((1, 3), np.float32)}
    if predicted is not None:
        splits["test_ax"] = np.eye(3, dtype=np.float32)[predicted]
    bench.predict(cell["cell_id"], {"validation_matched": np.zeros((1, 3)), **splits})


@pytest.mark.parametrize(
    ("differences", "data"),
    [
        ({}, "MNLI in part: no published score compares"),
        (
            {"train": "other rows"},
            "MNLI with other rows than the official ones: no published score compares",
        ),
    ],
)
def test_the_page_says_whether_the_rows_of_mnli_are_a_part_or_others(
    bench, diagnostic, differences, data
):
    finish(bench, 1, LABELS)
    bench.tasks["mnli"] |= {"partial": True, "differences": differences or None}
    page = diagnostics_page(open_board(bench.plan()), diagnostic)
    facts = dict([cell.text for cell in row] for row in page.tables[1].rows)
    assert facts["Data"] == data


def test_r3_is_the_mean_over_seeds_of_the_three_class_correlation_at_the_reported_rate(
    bench, diagnostic
):
    for seed in (1, 2, 3):
        finish(bench, seed, guesses(seed), value=0.6, rate=2e-5)
        finish(bench, seed, LABELS, value=0.4, rate=1e-5)
    for seed in (1, 2):
        finish(bench, seed, guesses(seed), arm="concat")
    finish(bench, 1, LABELS, arm="none")
    finish(bench, 2, arm="none")
    page = diagnostics_page(open_board(bench.plan()), diagnostic)
    rows_of_add = page.rows.set_index(["arm", "category", "phenomenon"]).loc["add"]
    places = {
        ("", ""): LOGIC | True,
        ("Logic", ""): LOGIC,
        ("Logic", "Double negation"): LOGIC & DOUBLE,
    }
    for place, rows in places.items():
        values = [100 * matthews_corrcoef(LABELS[rows], guesses(seed)[rows]) for seed in (1, 2, 3)]
        expected = [np.mean(values), np.std(values, ddof=1), 3, rows.sum(), 3]
        assert rows_of_add.loc[
            place, ["mean", "std", "n", "examples", "labels"]
        ].tolist() == pytest.approx(expected)
    table, setup = page.tables
    assert table.header == ["Category", "Phenomenon", "Pairs", "add", "concat", "none"]
    assert list(dict.fromkeys(row[0].text for row in table.rows)) == ["All", "Logic", "Knowledge"]
    last = [cell.text for cell in table.rows[-1]]  # all pairs of it have one label
    assert [*last[1:3], last[-1]] == ["World knowledge", str(ALL_NEUTRAL.sum()), "0.00°"]
    assert table.legend[1].startswith("° all pairs have one label")
    add, concat, none = (cell.text for cell in table.rows[0][3:])
    assert (none, "±" in add, "±" in concat) == (
        "100.00",
        True,
        False,
    )  # of two runs the spread cannot be told
    assert "1 finished runs of MNLI that predicted no AX" in [row[1].text for row in setup.rows]


def test_what_is_known_of_the_sentences_and_of_the_data_is_said(bench, diagnostic):
    finish(bench, 1, LABELS, digest=diagnostic.digest)
    warning = "labels and predictions are known to agree in their number only"
    assert warning not in to_markdown(diagnostics_page(open_board(bench.plan()), diagnostic))
    finish(bench, 1, LABELS, partial=True, arm="none")
    bench.runs["add-mnli-lr2e-05-s1"][1]["diagnostic"] = None
    page = diagnostics_page(open_board(bench.plan()), diagnostic)
    assert warning in to_markdown(page)
    assert "| Data    | MNLI in part" in to_markdown(page)


def test_what_cannot_be_scored_is_one_line(bench, new_bench, diagnostic):
    finish(bench, 1)
    with pytest.raises(UserError, match=r"no run of '.*toy' has predicted AX; set `finetuning"):
        diagnostics_page(open_board(bench.plan()), diagnostic)
    finish(few := new_bench("few"), 1, LABELS[:1000])
    with pytest.raises(UserError, match="has 1104 rows, but 'add-mnli-lr2e-05-s1' predicted 1000"):
        diagnostics_page(open_board(few.plan()), diagnostic)
    other = new_bench("other")
    for seed, digest in ((1, "a"), (2, "b")):
        finish(other, seed, LABELS, digest=digest * 64)
    with pytest.raises(
        UserError,
        match="'add-mnli-lr2e-05-s1' and 'add-mnli-lr2e-05-s2' predicted different AX data",
    ):
        diagnostics_page(open_board(other.plan()), diagnostic)


def test_runs_that_predicted_an_ax_which_was_replaced_are_left_out(bench, diagnostic):
    finish(bench, 1, LABELS, digest="0" * 64)
    finish(bench, 2, LABELS, digest=diagnostic.digest)
    bench.tasks["mnli"] |= {"diagnostic": diagnostic.digest}
    page = diagnostics_page(open_board(bench.plan()), diagnostic)
    assert {*page.rows["n"]} == {1}
