"""The page of contrasts, how far scores spread, and how many seeds a difference takes."""

from itertools import chain

import numpy as np
import pytest
from helpers.read_pages import read_markdown
from helpers.simulated import fill_drawn, simulate

from glue_bench.board.compare import open_comparison
from glue_bench.board.leaderboard import make_leaderboard
from glue_bench.board.results import read_results
from glue_bench.pages.contrasts import CONTRAST_LEGEND, NOTHING_COMPARED, statistics_page
from glue_bench.pages.figures import arm_forest_rows
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.numbers import MISSING, abbreviate_number
from glue_bench.pages.render import to_markdown
from glue_bench.pages.seeds_needed import difference_page, measured_costs
from glue_bench.pages.spreads import SPREAD_LEGEND

ACCURACIES = {"low": 0.55, "high": 0.9, "higher": 0.9}


def fill(bench, accuracies=None, seeds=2):
    """Finish runs of two tasks for arms with these shares of right answers; return the folder."""
    for arm, accuracy in (accuracies or ACCURACIES).items():
        for task in ("cola", "mnli"):
            bench.finish_predicted(task, arm, accuracy, seeds=seeds)
    return bench.plan()


def rows_of(page):
    """Return the texts of the first table, as Markdown has them."""
    first, *_ = read_markdown(to_markdown(page))
    return first.texts


def test_a_page_of_one_arm_says_that_nothing_is_compared(bench):
    page = to_markdown(statistics_page(open_comparison(fill(bench, {"alone": 0.9}))))
    _, caption, *rest = page.split("\n\n")
    assert caption == NOTHING_COMPARED
    assert not any(line.startswith("- Difference") for line in rest)


@pytest.mark.parametrize("options", [{}, {"equivalent": 5.0}], ids=["differences", "equivalence"])
def test_each_family_and_column_has_a_legend_line_and_each_line_is_needed(bench, options):
    """A line is known by its first words."""
    fill(bench)
    bench.finish_predicted("rte", "made", 0.6, origin="grafted")
    bench.finish_predicted("rte", "low", 0.8)
    arms = [{"name": arm, "checkpoint": "org/model"} for arm in bench.arms]
    path = bench.plan(config={"arms": arms, "protocol": {"contrasts": [["high", "low"]]}})
    comparison = open_comparison(path)
    page = statistics_page(comparison, **options)
    legend = page.tables[0].legend
    for row in rows_of(page):
        family = row[0].partition(" (")[0]
        assert sum(line.startswith(f"{family}: ") for line in legend) == 1
    families = set()
    for key in ("declared", "reference", "conversion"):
        if CONTRAST_LEGEND[key] in legend:
            families.add(key)
    assert families == set(comparison.contrasts["kind"])
    assert (CONTRAST_LEGEND["p_equivalent"] in legend) == ("equivalent" in options)
    assert 3 <= max(len(table.legend) for table in page.tables) <= 8


@pytest.mark.parametrize("pair", [["high", "low"], ["low", "high"]], ids=" - ".join)
def test_the_planned_pair_of_two_arms_is_shown_once_in_each_column(bench, pair):
    """A contrast with the reference is the same contrast the other way round."""
    fill(bench, {"low": 0.55, "high": 0.9}, seeds=3)
    path = bench.plan(config={"protocol": {"contrasts": [pair], "reference": "low"}})
    comparison = open_comparison(path)
    shown = [row[:3] for row in rows_of(statistics_page(comparison))]
    contrast = " - ".join(pair)
    titles = ("Avg. of 3", "CoLA", "MNLI-m", "MNLI-mm")
    assert shown == [["planned (1)", title, contrast] for title in titles]
    assert [*arm_forest_rows(comparison, "cola").index] == [tuple(pair)]


def test_arms_within_the_margin_are_equivalent(bench):
    path = fill(bench, {"high": 0.9, "higher": 0.9, "low": 0.55})
    page = statistics_page(open_comparison(path), equivalent=20.0)
    verdicts = set()
    for _, _, contrast, *_, verdict in rows_of(page):
        arm = contrast.partition(" ")[0]
        verdicts.add((arm, verdict))
    assert verdicts == {("higher", "equivalent"), ("low", "worse")}


@pytest.mark.parametrize(("seeds", "is_warned"), [(2, True), (3, False)])
def test_two_seeds_have_a_word_of_caution(bench, seeds, is_warned):
    page = statistics_page(open_comparison(fill(bench, seeds=seeds)))
    lines = chain.from_iterable(table.legend for table in page.tables)
    assert (SPREAD_LEGEND["few runs"] in lines) == is_warned


def test_what_few_rows_cannot_show_is_a_dash(bench):
    accuracies = {"a": 0.5, "b": 0.99}
    generator = np.random.default_rng(5)
    for outcomes in simulate(
        generator, columns=["sst2", "cola"], accuracies=accuracies, rows=8, seeds=2
    ):
        fill_drawn(bench, outcomes)
    comparison = open_comparison(bench.plan())
    spread = statistics_page(comparison).tables[1]
    foot = leaderboard_page(make_leaderboard(comparison)).tables[0].rows[-1]
    assert MISSING in {row[-1].text for row in spread.rows}
    assert MISSING in {cell.text for cell in foot}


def test_the_page_says_how_many_seeds_a_difference_takes(bench):
    comparison = open_comparison(fill(bench, {"a": 0.8, "b": 0.8}))
    page = difference_page(comparison, 40.0, 0.8)
    designs = [row[:4] for row in rows_of(page)]
    assert designs == [
        ["Avg. of 3", "fine-tuning", "1", "2"],
        ["CoLA", "fine-tuning", "1", "2"],
        ["MNLI-m", "fine-tuning", "1", "2"],
        ["MNLI-mm", "fine-tuning", "1", "2"],
    ]


def test_the_page_says_why_no_number_of_seeds_finds_a_small_difference(bench):
    comparison = open_comparison(fill(bench, {"a": 0.8, "b": 0.8}))
    page = difference_page(comparison, 0.1, 0.8)
    reasons = {row[0]: row[-1] for row in rows_of(page)}
    for name in ("MNLI-m", "MNLI-mm"):
        assert reasons[name].startswith("no number of seeds will do")


def test_a_seed_costs_a_run_at_every_rate(bench):
    for rate, seconds in ((1e-5, 10.0), (2e-5, 30.0)):
        bench.record(bench.expect("rte", seed=1, arm="a", rate=rate), seconds=seconds)
    costs = measured_costs(read_results(bench.plan()))
    assert costs.finetuning == 40.0


def test_without_runs_no_number_of_seeds_can_be_computed(bench, refused):
    assert "nothing has run yet" in refused("statistics", bench.plan(), "--difference", 1)


def tables_of(page, title):
    """Return the tables whose titles begin with this text."""
    return [table for table in page.tables if table.title.startswith(title)]


def test_the_shares_of_noise_add_up_in_every_column(bench):
    (table,) = tables_of(statistics_page(open_comparison(fill(bench, seeds=4))), "Where the noise")
    assert len(table.frame) == 4
    for row in table.frame.to_dict("records"):
        shares = [int(row[source][:-1]) for source in ("finetuning", "examples")]
        assert sum(shares) == pytest.approx(100, abs=1)
        assert row["pretraining"] == MISSING


def test_a_dash_of_the_spread_is_explained(bench):
    page = statistics_page(open_comparison(fill(bench, seeds=4)))
    (table,) = tables_of(page, "Spread")
    assert MISSING in table.frame["pretraining"].to_list()
    assert SPREAD_LEGEND["dash"] in table.legend


def test_the_lag_of_the_reference_has_an_interval():
    """It is the row of `lags.csv` with the most tokens before the rate falls."""
    comparison = open_comparison("results/study_long")
    (table,) = tables_of(statistics_page(comparison), "Lag of add")
    row = table.frame.set_index("arm").loc["untied"]
    last = comparison.lags.query("arm == 'untied' and not in_decay").iloc[-1]
    low, high = last["ratio_low"], last["ratio_high"]
    assert row["ratio"] == f"{last['ratio']:.2f} ({low:.2f} to {high:.2f})"
    assert row["tokens"] == abbreviate_number(last["tokens"])


def test_tokens_until_a_loss_are_the_mean_of_the_seeds():
    comparison = open_comparison("results/study")
    (table,) = tables_of(statistics_page(comparison), "Tokens until")
    reached = comparison.reached
    name = "loss 5.00"
    loss = float(name.removeprefix("loss "))
    of_add = reached[(reached["arm"] == "add") & (reached["loss"] == loss)]
    texts = table.frame.set_index("arm")[name]
    assert texts["add"] == abbreviate_number(of_add["tokens"].mean())
    assert texts["none"] == MISSING


def test_a_paired_test_stands_beside_the_rule_from_six_seeds_on():
    assert "p (paired t)" in to_markdown(statistics_page(open_comparison("results/study_eight")))
    assert "p (paired t)" not in to_markdown(statistics_page(open_comparison("results/study")))
