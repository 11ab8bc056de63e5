"""The page of contrasts, how far scores spread, how many seeds a difference takes, and the verbs that print them."""

import numpy as np
from helpers.read_pages import read_markdown
from helpers.simulated import fill_drawn, simulate

from glue_bench.board.compare import open_comparison
from glue_bench.board.results import read_results
from glue_bench.pages.contrasts import LEGEND, statistics_page
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.render import to_markdown
from glue_bench.pages.seeds_needed import difference_page, measured_costs
from glue_bench.pages.spreads import LEGEND as SPREAD_LEGEND

RATES = {"low": 0.55, "high": 0.9, "higher": 0.9}


def fill(bench, rates=None, seeds=2):
    for arm, rate in (rates or RATES).items():
        for task in ("cola", "mnli"):
            bench.finish_predicted(task, arm, rate, seeds=seeds)
    return bench.plan()


def test_each_family_and_column_has_a_line_and_each_line_what_it_explains(bench):
    """In the words by which the lines begin."""
    fill(bench)
    bench.finish_predicted("rte", "made", 0.6, origin="grafted")
    bench.finish_predicted("rte", "low", 0.8)
    arms = [{"name": arm, "checkpoint": "org/model"} for arm in bench.arms]
    path = bench.plan(config={"arms": arms, "protocol": {"contrasts": [["high", "low"]]}})
    for options in ({}, {"equivalent": 5.0}):
        page = statistics_page(open_comparison(path), **options)
        rows = read_markdown(to_markdown(page))[0].texts
        legend = [line for table in page.tables for line in table.legend]
        assert 3 <= len(legend) <= 8
        for family in {row[0].partition(" (")[0] for row in rows}:
            assert sum(line.startswith(f"{family}: ") for line in page.tables[0].legend) == 1
        families = {key for key in ("declared", "reference", "conversion") if LEGEND[key] in legend}
        assert families == set(open_comparison(path).contrasts["kind"])
        assert (LEGEND["p_equivalent"] in legend) == ("equivalent" in options)


def test_arms_within_the_margin_are_equivalent(bench):
    rates = {"high": 0.9, "higher": 0.9, "low": 0.55}
    first, *_ = read_markdown(
        to_markdown(statistics_page(open_comparison(fill(bench, rates)), equivalent=20.0))
    )
    assert {(row[2].split()[0], row[-1]) for row in first.texts} == {
        ("higher", "equivalent"),
        ("low", "worse"),
    }


def test_two_seeds_have_a_word_of_caution_and_what_few_rows_cannot_show_is_a_dash(bench, new_bench):
    rates = {"a": 0.5, "b": 0.99}
    few, many = (
        statistics_page(open_comparison(fill(new_bench(f"{n}"), seeds=n))).tables[-1].legend
        for n in (2, 3)
    )
    assert (SPREAD_LEGEND["few runs"] in few, SPREAD_LEGEND["few runs"] in many) == (True, False)
    for outcomes in simulate(
        np.random.default_rng(5), columns=["sst2", "cola"], rates=rates, rows=8, seeds=2
    ):
        fill_drawn(bench, outcomes)
    comparison = open_comparison(bench.plan())
    spread, foot = (
        statistics_page(comparison).tables[1],
        leaderboard_page(comparison).tables[0].rows[-1],
    )
    assert MISSING in {row[-1].text for row in spread.rows} & {cell.text for cell in foot}


def test_the_page_says_how_many_seeds_a_difference_takes(bench):
    comparison = open_comparison(fill(bench, {"a": 0.8, "b": 0.8}))
    (table,) = read_markdown(to_markdown(difference_page(comparison, 40.0, 0.8)))
    columns = ("Avg. of 3", "CoLA", "MNLI-m", "MNLI-mm")
    assert [row[:4] for row in table.texts] == [
        [column, "fine-tuning", "1", "2"] for column in columns
    ]
    (small,) = read_markdown(to_markdown(difference_page(comparison, 0.1, 0.8)))
    reasons = {row[0]: row[-1] for row in small.texts}
    assert all(
        reasons[name].startswith("no number of seeds will do") for name in ("MNLI-m", "MNLI-mm")
    )


def test_a_seed_costs_a_run_at_every_rate(bench):
    for rate, seconds in ((1e-5, 10.0), (2e-5, 30.0)):
        bench.record(bench.expect("rte", 1, arm="a", rate=rate), seconds=seconds)
    assert measured_costs(read_results(bench.plan()))[1] == 40.0


def test_of_what_has_not_run_no_number_of_seeds_can_be_told(bench, refused):
    assert "nothing has run yet" in refused("statistics", bench.plan(), "--difference", 1)
