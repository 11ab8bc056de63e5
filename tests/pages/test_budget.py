"""Budgets and searches of two seeds, arms, rates and devices, of unequal numbers, by hand."""

import math

import numpy as np
import pytest
from helpers.read_pages import read_markdown

from glue_bench.board.results import read_results
from glue_bench.pages.budget import budget_frame, budget_page, drop_silent_columns, rates_frame
from glue_bench.pages.render import to_markdown

CURVES = {
    ("add", 1): (5.0, 4.0, 3.0),
    ("add", 2): (5.0, 4.5, 4.0),
    ("none", 1): (4.0, 3.5, 2.0),
    ("none", 2): (4.5, 3.5, 3.0),
}
"""The validation loss after each hundred tokens, by arm and pretraining seed."""
TO_REFERENCE = {("add", 1): 300, ("add", 2): 300, ("none", 1): 233, ("none", 2): 150}
"""The tokens until the last loss of `add` in the same seed, by straight lines between losses."""
CHIP = {"device": "cpu", "processor": "Chip", "threads": 1}
GPU = {"device": "cuda", "threads": 2}
ENVIRONMENTS = {("add", 1): CHIP, ("add", 2): CHIP, ("none", 1): CHIP, ("none", 2): GPU}


def curve_point(step, loss, tokens):
    """Return a point of a curve of losses."""
    return {
        "step": step,
        "tokens": tokens,
        "train_loss": loss,
        "validation_loss": loss,
        "seconds": step,
    }


def pretrain(bench, arm, seed, **facts):
    """Finish a pretraining with its curve."""
    losses = CURVES[arm, seed]
    points = []
    for step, loss in enumerate(losses, 1):
        points.append(curve_point(step, loss, 100 * step))
    bench.pretrain(
        arm, seed=seed, losses=points, validation_loss=losses[-1], tokens=100 * seed, **facts
    )


def search_rates(bench):
    """Finish three runs of unequal length that search a rate for `none`; return their ids."""
    for seed, rate, tokens, loss in ((7, 1e-3, 10, 4.0), (8, 2e-3, 20, 5.0), (9, 2e-3, 40, 6.0)):
        bench.pretrain(
            "none",
            seed=seed,
            is_search=True,
            rate=rate,
            tokens=tokens,
            validation_loss=loss,
            losses=[curve_point(1, 9.0, tokens)],
        )
    return ("none-7", "none-8", "none-9")


@pytest.fixture
def results(bench):
    """Two arms with two seeds; the rate of `none` was searched for."""
    for arm in ("add", "none"):
        bench.finish(arm=arm)
    searches = search_rates(bench)
    for arm, seed in CURVES:
        measure = {"name": "swap_1", "value": 0.5 + 0.1 * seed, "standard_error": 0.01, "n": 9}
        pretrain(
            bench,
            arm,
            seed,
            measures=[measure],
            stream=f"of {seed}",
            rate=1e-3 if arm == "none" else 3e-3,
            searches=searches if arm == "none" else (),
            peak_memory_bytes=3_600_000 * seed,
            environment=ENVIRONMENTS[arm, seed],
        )
    return read_results(bench.plan())


@pytest.fixture
def budgets(results):
    """The budgets by arm and seed."""
    return budget_frame(results).set_index(["arm", "pretraining_seed"])


def test_each_seed_is_compared_with_the_reference_of_that_seed(budgets):
    assert budgets["tokens_to_reference"].to_dict() == TO_REFERENCE


def test_a_pretraining_has_the_tokens_of_its_search(budgets):
    expected = {("none", 1): 70, ("none", 2): 70}
    assert budgets["search_tokens"].dropna().to_dict() == expected


def test_memory_is_in_whole_megabytes(budgets):
    expected = {("add", 1): 4, ("add", 2): 7, ("none", 1): 4, ("none", 2): 7}
    assert budgets["peak_memory_mb"].to_dict() == expected


def test_the_swap_test_is_in_percent(budgets):
    expected = {("add", 1): 60, ("add", 2): 70, ("none", 1): 60, ("none", 2): 70}
    assert budgets["swap_1"].to_dict() == pytest.approx(expected)


def test_a_processor_has_its_threads(budgets):
    expected = {
        ("add", 1): "Chip, 1 thread",
        ("add", 2): "Chip, 1 thread",
        ("none", 1): "Chip, 1 thread",
        ("none", 2): "cuda",
    }
    assert budgets["device"].to_dict() == expected


def test_losses_of_searches_do_not_count_as_losses_of_arms(results):
    assert set(results.losses["pretraining_id"]) == {"add-1", "add-2", "none-1", "none-2"}


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Validation loss", {"add": "3.500", "none": "2.500"}),
        ("Tokens seen", {"add": "150", "none": "150"}),
        ("Tokens to reference", {"add": "300", "none": "192"}),
        ("Pretraining seeds", {"add": "2", "none": "2"}),
        ("Swap test (%)", {"add": "65", "none": "65"}),
    ],
)
def test_the_page_has_the_means_over_both_seeds(results, title, expected):
    table, *_ = read_markdown(to_markdown(budget_page(results)))
    place = table.header.index(title)
    assert {row[0]: row[place] for row in table.texts} == expected


def facts_of(results):
    """Return the facts below the table."""
    _, facts, *_ = read_markdown(to_markdown(budget_page(results)))
    return dict(facts.texts)


def test_the_page_has_all_devices_with_their_arms(results):
    assert facts_of(results)["Measured on"] == "Chip, 1 thread (add, none); cuda (none)"


def test_the_page_says_that_arms_of_a_seed_saw_the_same(results):
    assert facts_of(results)["Shown"].endswith("for all arms of a seed (of 1, of 2)")


def test_the_page_warns_if_arms_of_any_seed_saw_another_stream(bench):
    for arm in ("add", "none"):
        bench.finish(arm=arm)
        pretrain(bench, arm, 1, stream="of 1")
        pretrain(bench, arm, 2, stream=f"of {arm}")
    assert facts_of(read_results(bench.plan()))["Shown"].startswith("NOT the same")


Losses = dict[str, dict[float, tuple[float | None, ...]]]


def search(bench, losses: Losses, chosen: dict[str, float]):
    """Finish searches by arm, rate and seed, and a pretraining at the `chosen` rate of each arm."""
    seed = 10
    for arm, by_rate in losses.items():
        bench.finish(arm=arm)
        steps = 1 if arm == "add" else 2
        for rate, of_seeds in by_rate.items():
            for loss in of_seeds:
                seed += 1
                bench.pretrain(
                    arm, seed=seed, is_search=True, rate=rate, validation_loss=loss, steps=steps
                )
        bench.pretrain(arm, seed=1, rate=chosen[arm])
    return read_results(bench.plan())


@pytest.fixture
def search_table(bench):
    """The table of a search with two seeds; one of them diverged at one rate."""
    losses = {
        "add": {1e-3: (3.0, 4.0), 2e-3: (3.0, None)},
        "none": {1e-3: (5.0, 6.5), 2e-3: (4.0, 4.5)},
    }
    results = search(bench, losses, {"add": 1e-3, "none": 2e-3})
    return budget_page(results).tables[-1]


def test_a_search_shows_means_over_seeds_and_a_dash_where_one_diverged(search_table):
    texts = [[cell.text for cell in row] for row in search_table.rows]
    assert texts == [
        ["add*", "3.500", "–"],  # noqa: RUF001
        ["none*", "5.750", "4.250"],
    ]


def test_a_search_has_the_chosen_rate_in_bold(search_table):
    bold = [[cell.bold for cell in row[1:]] for row in search_table.rows]
    expected = [[True, False], [False, True]]
    assert bold == expected


def test_a_search_says_its_steps_and_seeds(search_table):
    assert search_table.caption == "Validation loss after 1 or 2 steps with 2 seeds, the mean."


def test_a_rate_is_chosen_for_its_own_arm(bench):
    losses = {"add": {1e-3: (3.0,), 2e-3: (3.5,)}, "none": {1e-3: (5.0,), 2e-3: (4.0,)}}
    frame = rates_frame(search(bench, losses, {"add": 1e-3, "none": 2e-3}))
    chosen = frame[frame["chosen"]].set_index("arm")["learning_rate"].to_dict()
    assert chosen == {"add": 1e-3, "none": 2e-3}
    assert len(frame) == 4


def test_columns_that_say_something_are_kept(results):
    names = set(drop_silent_columns(budget_frame(results)))
    assert {"pretraining_seed", "learning_rate", "search_tokens", "swap_1"} <= names


def test_columns_that_say_nothing_are_left_out(results):
    frame = budget_frame(results)
    is_first = (frame["pretraining_seed"] == 1) & (frame["arm"] == "add")
    first = frame[is_first].assign(swap_1=np.nan)
    names = set(drop_silent_columns(first))
    assert names.isdisjoint({"pretraining_seed", "search_tokens", "swap_1"})
    assert math.isnan(first["swap_1"].item())
