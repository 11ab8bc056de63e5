"""Budgets, and a study that has partly run: pages count waiting runs, and compare finished ones."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.read_pages import read_markdown
from helpers.stored import Bench

from glue_bench.board.compare import open_comparison, reference_arm
from glue_bench.board.leaderboard import open_leaderboard
from glue_bench.board.results import read_results
from glue_bench.pages.budget import budget_frame, budget_page, tokens_to_reach
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.marks import LEADERBOARD_LEGEND
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.render import to_html, to_markdown
from glue_bench.pages.report import make_report

SEEDS = (1, 2, 3)
CONTRASTS = [["none", "add"], ["half", "add"], ["later", "add"], ["none", "later"]]
LOSSES = {"add": 4.0, "none": 5.0, "half": 4.1}
STUDY_SEEDS = {"add": 3, "none": 3, "half": 2, "later": 0}
LOSS_FIRST = {"protocol": {"primary": "validation_loss"}, "pretraining": {}}


def point_of(step: int, loss: float, tokens: int) -> dict:
    """Return a point of a curve of losses."""
    return {
        "step": step,
        "tokens": tokens,
        "train_loss": loss,
        "validation_loss": loss,
        "seconds": 1.0,
    }


def pretrain(bench, arm, seed, stream="of {}"):
    """Record a pretraining with the validation losses of pieces of text."""
    generator = np.random.default_rng([ord(arm[0]), seed])
    count = np.full(300, 50)
    sums = LOSSES[arm] * count + generator.normal(0, 5, 300)
    loss = sums.sum() / count.sum()
    bench.pretrain(
        arm,
        seed=seed,
        pieces={"loss_sum": sums, "count": count, "document": np.zeros(300, np.int64)},
        validation_loss=loss,
        steps=10,
        tokens=900,
        stream=stream.format(seed),
        losses=[point_of(10, loss, 900)],
    )


def pretrain_seeds(bench, arm, finished: int) -> None:
    """Plan three pretraining seeds of an arm; the first ones have finished."""
    for seed in SEEDS:
        if seed <= finished:
            pretrain(bench, arm, seed)
        else:
            bench.pretrain(arm, seed=seed, steps=10, finished=False)


def make_study(bench) -> Path:
    """Plan four arms. `half` has two of three seeds; `later` and CoLA have not begun."""
    for place, (arm, finished) in enumerate(STUDY_SEEDS.items(), 1):
        if arm in ("add", "none"):
            bench.finish_predicted("rte", arm, 0.7)
        bench.expect("cola", arm=arm)
        bench.arms[arm] |= {"parameters": 1_000_000 * place}
        pretrain_seeds(bench, arm, finished)
    protocol = {"primary": "validation_loss", "contrasts": CONTRASTS}
    return bench.plan(config={"protocol": protocol, "pretraining": {}})


def table_of(page, place=0):
    """Return header and texts of one of a page's tables."""
    table = read_markdown(to_markdown(page))[place]
    return table.header, table.texts


def facts_of(page) -> dict[str, str]:
    """Return the facts of a page's second table, by name."""
    _, rows = table_of(page, 1)
    return dict(rows)


@pytest.mark.parametrize(
    ("tuned", "primary"),
    [
        ((), "average"),
        ((), "validation_loss"),
        (("add",), "average"),
        (("none", "half"), "validation_loss"),
    ],
)
def test_whatever_has_run_has_a_report(tuned, primary, bench):
    """There may be no ended cell, or an arm with more pretrainings than the reference."""
    for arm in LOSSES:
        for seed in SEEDS[: 2 if arm == "add" else 3]:
            pretrain(bench, arm, seed)
        if arm in tuned:
            bench.finish_predicted("rte", arm, 0.7)
        else:
            bench.expect("rte", arm=arm)
        bench.expect("sst2", arm=arm)
    config = {"protocol": {"primary": primary}, "pretraining": {}}
    # Demo data stand beside no published table.
    report = make_report(open_comparison(bench.plan(config=config, data_source="demo")))
    rows = report.parts[0].tables[0].rows
    assert {row[0].text.rstrip("*") for row in rows} >= set(LOSSES)
    page = to_html(report)
    for text in (*LOSSES, LEADERBOARD_LEGEND["common"]):
        assert text in page


def legend_of(bench, seeds_by_arm) -> list[str]:
    """Return the legend of a study of three planned pretraining seeds."""
    for arm, finished in seeds_by_arm.items():
        pretrain_seeds(bench, arm, finished)
        bench.expect(arm=arm)
    page = leaderboard_page(open_leaderboard(bench.plan(config=LOSS_FIRST)))
    lines: list[str] = []
    for table in page.tables:
        lines += table.legend
    return lines


def test_seeds_that_all_arms_lack_are_left_out_of_no_difference(bench):
    assert LEADERBOARD_LEGEND["common"] not in legend_of(bench, {"add": 2, "none": 2})


def test_seeds_that_the_reference_lacks_are_left_out_and_the_legend_says_so(bench):
    assert LEADERBOARD_LEGEND["common"] in legend_of(bench, {"add": 2, "none": 3})


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return make_study(Bench(tmp_path_factory.mktemp("study") / "toy"))


def test_the_caption_counts_waiting_runs(study):
    caption = leaderboard_page(open_leaderboard(study)).tables[0].caption
    counts = "0 better, 1 worse, 0 not told apart, 2 untested"
    assert caption.startswith(f"Val. loss against `add`: {counts}; ")
    assert "planned contrasts: 1 of 4 differ" in caption


def test_the_page_has_the_outcome_of_planned_contrasts(study):
    facts = facts_of(leaderboard_page(open_leaderboard(study)))
    expected = "none - add: worse; half - add: untested; later - add: untested"
    assert facts["Planned contrasts"].startswith(expected)


def test_the_page_compares_the_runs_that_have_finished(study):
    """`half` has fewer pretraining seeds than planned."""
    header, rows = table_of(leaderboard_page(open_leaderboard(study)))
    assert header == ["Arm", "Params", "Val. loss", "Difference", "RTE§"]
    texts_by_arm = {row[0]: row[2:] for row in rows}
    assert list(texts_by_arm)[:4] == ["add", "half", "none", "later"]
    assert texts_by_arm["none"][0].endswith("▼")
    assert texts_by_arm["half"][0].endswith("*")
    expected = [MISSING, "", MISSING]
    assert texts_by_arm["later"] == expected


def test_contrasts_that_wait_are_shown_with_their_reason(study):
    _, rows = table_of(statistics_page(open_comparison(study)))
    planned: dict[str, list[str]] = {}
    for row in rows:
        if row[:2] == ["planned (4)", "Val. loss"]:
            planned[row[2]] = row
    assert list(planned) == ["none - add", "half - add", "later - add", "none - later"]
    assert planned["none - add"][7] == "worse"
    assert planned["half - add"][7] == "1 of 3 pretraining seeds are missing (half)"
    assert planned["later - add"][3:] == [MISSING] * 4 + ["no finished run (later)"]


def test_the_budget_says_that_all_arms_of_a_seed_were_shown_the_same(study):
    facts = facts_of(budget_page(read_results(study)))
    assert facts["Shown"].endswith("for all arms of a seed (of 1, of 2, of 3)")


def test_the_budget_says_that_an_arm_was_shown_something_else(bench):
    make_study(bench)
    pretrain(bench, "none", 2, "of another")
    facts = facts_of(budget_page(read_results(bench.plan())))
    assert "NOT the same" in facts["Shown"]


def test_an_arm_that_has_not_begun_has_a_row_in_the_budget(study):
    header, rows = table_of(budget_page(read_results(study)))
    row = dict(zip(header, rows[-1], strict=True))
    assert row["Arm"] == "later"
    assert row["Pretraining seeds"] == "0"
    assert row["Tokens seen"] == MISSING


def curve(*losses: float | None) -> pd.DataFrame:
    """Return a validation loss (None: not measured) every 100 tokens."""
    tokens = [100 * step for step in range(1, len(losses) + 1)]
    return pd.DataFrame({"tokens": tokens, "validation_loss": np.array(losses, float)})


@pytest.mark.parametrize(
    ("loss", "points", "tokens"),
    [
        (3.0, curve(5.0, 4.0, 3.0), 300),
        (3.5, curve(5.0, 4.0, 3.0), 250),
        (3.5, curve(5.0, None, 4.0, None, 3.0), 400),
        (6.0, curve(5.0, 4.0), 100),
        (3.9, curve(5.0, 4.0), None),
        (4.0, curve(5.0, 3.0, 6.0, 2.0), 150),
        (4.0, curve(None, None), None),
    ],
)
def test_tokens_to_reach_by_hand(loss, points, tokens):
    assert tokens_to_reach(loss, points) == tokens


def test_the_reference_is_the_chosen_arm_the_first_additive_one_or_the_first():
    variants = pd.Series({"none": "none", "first": "add", "second": "add"})
    assert reference_arm(variants, "second") == "second"
    assert reference_arm(variants, "gone") == "first"
    assert reference_arm(variants) == "first"
    assert reference_arm(pd.Series({"none": "none", "untied": "untied"})) == "none"


@pytest.mark.parametrize(("reference", "tokens"), [(None, 300), ("untied-relative", 200)])
def test_the_budget_counts_to_the_reference_that_the_protocol_names(reference, tokens, bench):
    curves = {
        "add": (5.0, 4.0, 3.0),
        "untied-relative": (5.0, 2.5, 2.5),
        "none": (6.0, 5.0, 4.0),
    }
    for arm, losses in curves.items():
        bench.finish(arm=arm)
        points = [point_of(step, loss, 100 * step) for step, loss in enumerate(losses, 1)]
        bench.pretrain(arm, losses=points, validation_loss=losses[-1], tokens=300)
    path = bench.plan(config={"protocol": {"reference": reference}})
    budgets = budget_frame(read_results(path)).set_index("arm")
    goal = reference or "add"
    is_behind = budgets["validation_loss"] > budgets["validation_loss"][goal]
    assert budgets["tokens_to_reference"][goal] == tokens
    assert budgets["tokens_to_reference"].isna().equals(is_behind)


def test_a_mean_that_lacks_a_seed_is_a_dash(bench):
    """The third of three seeds is not trained yet.

    Only in the first seed does `none` reach the reference.
    """
    for arm, seed in product(("add", "none"), (1, 2)):
        bench.expect(arm=arm)
        loss = 3.0 if arm == "add" or seed == 1 else 4.0
        points = [point_of(1, loss, 100)]
        bench.pretrain(arm, seed=seed, losses=points, validation_loss=loss, tokens=300)
    for arm in ("add", "none"):
        bench.pretrain(arm, seed=3, finished=False)
    header, rows = table_of(budget_page(read_results(bench.plan())))
    for row, tokens in zip(rows, ("100", MISSING), strict=True):
        texts = dict(zip(header, row, strict=True))
        assert texts["Tokens to reference"] == tokens
        assert texts["Pretraining seeds"] == "2"
        assert texts["Tokens seen"] == "300"


def test_a_chosen_rate_at_an_end_of_the_search_has_a_mark(bench):
    rates = (1e-3, 2e-3, 4e-3)
    for arm, best in zip(("low", "middle", "high"), rates, strict=True):
        bench.finish(arm=arm)
        bench.pretrain(arm, rate=best)
        for seed, rate in enumerate(2 * rates, 2):
            loss = 1.0 if rate == best else 2.0
            bench.pretrain(arm, seed=seed, is_search=True, rate=rate, validation_loss=loss)
    table = budget_page(read_results(bench.plan())).tables[-1]
    assert table.caption == "Validation loss after 1 steps with 2 seeds, the mean."
    assert [row[0].text for row in table.rows] == ["high*", "low*", "middle"]
    bold_places = [[cell.bold for cell in row].index(True) for row in table.rows]
    assert bold_places == [3, 1, 2]
