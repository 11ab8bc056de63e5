"""Budgets and searches of two pretraining seeds, arms, rates and devices, of unequal numbers, by hand."""

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
"""By arm and pretraining seed the validation loss after each hundred tokens."""
TO_REFERENCE = {("add", 1): 300, ("add", 2): 300, ("none", 1): 233, ("none", 2): 150}
"""By straight lines, to the last loss of `add` with the same seed."""


def pretrain(bench, arm, seed, **facts):
    """A pretraining with its curve."""
    losses = CURVES[arm, seed]
    points = [{"step": n, "tokens": 100 * n, "train_loss": loss, "validation_loss": loss, "seconds": n}
              for n, loss in enumerate(losses, 1)]  # fmt: skip
    bench.pretrain(arm, seed, losses=points, validation_loss=losses[-1], tokens=100 * seed, **facts)


@pytest.fixture
def results(bench):
    """Two arms with two seeds; the rate of `none` was searched for with three runs of unequal length."""
    places = {
        1: {"device": "cpu", "processor": "Chip", "threads": 1},
        2: {"device": "cuda", "threads": 2},
    }
    for arm in ("add", "none"):
        bench.finish(arm=arm)
    for number, tokens in enumerate((10, 20, 40)):
        rate = (1e-3, 2e-3, 2e-3)[number]
        point = {
            "step": 1,
            "tokens": tokens,
            "train_loss": 9.0,
            "validation_loss": 9.0,
            "seconds": 1.0,
        }
        facts = {"tokens": tokens, "validation_loss": 4.0 + number, "losses": [point]}
        bench.pretrain("none", 7 + number, is_search=True, rate=rate, **facts)
    names = tuple(f"none-{seed}" for seed in (7, 8, 9))
    for (arm, seed), searches in zip(CURVES, ((), (), names, names), strict=True):
        measure = {"name": "swap_1", "value": 0.5 + 0.1 * seed, "standard_error": 0.01, "n": 9}
        memory = {
            "peak_memory_bytes": 3_600_000 * seed,
            "environment": places[1 if arm == "add" else seed],
        }
        rate = 1e-3 if searches else 3e-3
        pretrain(
            bench,
            arm,
            seed,
            measures=[measure],
            stream=f"of {seed}",
            rate=rate,
            searches=searches,
            **memory,
        )
    return read_results(bench.plan())


def test_each_seed_is_compared_with_the_reference_of_that_seed(results):
    frame = budget_frame(results).set_index(["arm", "pretraining_seed"])
    assert frame["tokens_to_reference"].to_dict() == TO_REFERENCE


def test_what_a_pretraining_took_and_its_search_with_it(results):
    frame = budget_frame(results).set_index(["arm", "pretraining_seed"])
    assert frame["search_tokens"].dropna().to_dict() == {("none", 1): 70, ("none", 2): 70}
    assert frame["peak_memory_mb"].to_dict() == {
        place: 4 if place[1] == 1 else 7 for place in CURVES
    }
    assert frame["swap_1"].to_dict() == pytest.approx(
        {place: 50 + 10 * place[1] for place in CURVES}
    )
    assert frame["device"].to_dict() == {
        ("add", 1): "Chip, 1 thread",
        ("add", 2): "Chip, 1 thread",
        ("none", 1): "Chip, 1 thread",
        ("none", 2): "cuda",
    }


def test_the_losses_of_searches_are_no_losses_of_arms(results):
    assert set(results.losses["pretraining_id"]) == {f"{arm}-{seed}" for arm, seed in CURVES}


def test_the_page_has_the_means_over_both_seeds_and_all_devices_with_their_arms(results):
    table, facts = read_markdown(to_markdown(budget_page(results)))[:2]
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.texts}
    assert [rows[arm]["Validation loss"] for arm in ("add", "none")] == ["3.500", "2.500"]
    assert [rows[arm]["Tokens seen"] for arm in ("add", "none")] == ["150", "150"]
    assert [rows[arm]["Tokens to reference"] for arm in ("add", "none")] == ["300", "192"]
    assert [rows[arm]["Pretraining seeds"] for arm in ("add", "none")] == ["2", "2"]
    assert [rows[arm]["Swap test (%)"] for arm in ("add", "none")] == ["65", "65"]
    found = dict(facts.texts)
    assert found["Measured on"] == "Chip, 1 thread (add, none); cuda (none)"
    assert found["Shown"].endswith("for all arms of a seed (of 1, of 2)")


def test_a_second_seed_with_another_stream_is_told_whatever_the_first_one_has(bench):
    for arm in ("add", "none"):
        bench.finish(arm=arm)
        for seed in (1, 2):
            pretrain(
                bench, arm, seed, stream=f"of {seed}" + " of none" * (arm == "none" and seed == 2)
            )
    facts = read_markdown(to_markdown(budget_page(read_results(bench.plan()))))[1]
    assert dict(facts.texts)["Shown"].startswith("NOT the same")


def search(
    bench, losses: dict[str, dict[float, tuple[float | None, ...]]], chosen: dict[str, float]
):
    """Searches by arm, rate and seed, and the pretraining at the rate that is `chosen`."""
    seed = 10
    for arm, by_rate in losses.items():
        bench.finish(arm=arm)
        for rate, of_seeds in by_rate.items():
            for loss in of_seeds:
                seed += 1
                steps = 1 if arm == "add" else 2
                bench.pretrain(
                    arm, seed, is_search=True, rate=rate, validation_loss=loss, steps=steps
                )
        bench.pretrain(arm, 1, rate=chosen[arm])
    return read_results(bench.plan())


def test_a_search_shows_means_over_seeds_and_a_dash_where_one_diverged(bench):
    losses = {
        "add": {1e-3: (3.0, 4.0), 2e-3: (3.0, None)},
        "none": {1e-3: (5.0, 6.5), 2e-3: (4.0, 4.5)},
    }
    results = search(bench, losses, {"add": 1e-3, "none": 2e-3})
    table = budget_page(results).tables[-1]
    texts = {row[0].text.rstrip("*"): [cell.text for cell in row[1:]] for row in table.rows}
    assert texts == {"add": ["3.500", "–"], "none": ["5.750", "4.250"]}  # noqa: RUF001
    bold = {row[0].text.rstrip("*"): [cell.bold for cell in row[1:]] for row in table.rows}
    assert bold == {"add": [True, False], "none": [False, True]}
    assert table.caption == "Validation loss after 1 or 2 steps with 2 seeds, the mean."


def test_a_rate_is_chosen_for_its_own_arm(bench):
    losses = {"add": {1e-3: (3.0,), 2e-3: (3.5,)}, "none": {1e-3: (5.0,), 2e-3: (4.0,)}}
    frame = rates_frame(search(bench, losses, {"add": 1e-3, "none": 2e-3}))
    chosen = frame[frame["chosen"]].set_index("arm")["learning_rate"].to_dict()
    assert chosen == {"add": 1e-3, "none": 2e-3}
    assert len(frame) == 4


def test_columns_that_say_nothing_are_left_out(results):
    frame = budget_frame(results)
    assert {"pretraining_seed", "learning_rate", "search_tokens", "swap_1"} <= set(
        drop_silent_columns(frame)
    )
    first = frame[(frame["pretraining_seed"] == 1) & (frame["arm"] == "add")].assign(swap_1=np.nan)
    assert not {"pretraining_seed", "search_tokens", "swap_1"} & set(drop_silent_columns(first))
    assert math.isnan(first["swap_1"].item())
