"""When an arm has caught up with the reference, and which arm that is."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from glue_bench.tables.budget import budget_frame, budget_page, tokens_to_reach
from glue_bench.tables.compare import reference_arm
from glue_bench.tables.results import read_results
from glue_bench.tables.table import MISSING


def curve(*losses: float | None) -> pd.DataFrame:
    """A validation loss (None: not measured) every 100 tokens."""
    tokens = [100 * n for n in range(1, len(losses) + 1)]
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


def test_the_reference_is_the_one_chosen_the_first_additive_arm_or_the_first():
    variants = pd.Series({"none": "none", "mine": "add", "other": "add"})
    assert reference_arm(variants, "other") == "other"
    assert reference_arm(variants, "gone") == reference_arm(variants) == "mine"
    assert reference_arm(pd.Series({"none": "none", "untied": "untied"})) == "none"


@pytest.mark.parametrize(("reference", "tokens"), [(None, 300), ("untied-relative", 200)])
def test_the_budget_counts_to_the_reference_that_the_protocol_names(reference, tokens, bench):
    for arm, losses in {"add": (5.0, 4.0, 3.0), "untied-relative": (5.0, 2.5, 2.5), "none": (6.0, 5.0, 4)}.items():
        bench.finish(arm=arm)
        points = [{"step": n, "tokens": 100 * n, "train_loss": loss, "validation_loss": loss, "seconds": n}
                  for n, loss in enumerate(losses, 1)]  # fmt: skip
        bench.pretrain(arm, losses=points, validation_loss=losses[-1], tokens=300)
    budgets = budget_frame(read_results(bench.plan(config={"protocol": {"reference": reference}}))).set_index("arm")
    goal, found = reference or "add", budgets["tokens_to_reference"]
    assert found[goal] == tokens
    assert (found.isna() == (budgets["validation_loss"] > budgets["validation_loss"][goal])).all()


def test_a_mean_that_lacks_a_seed_is_a_dash(bench):
    """Of three seeds the third is not trained yet, and only in the first `none` reaches the reference."""
    for arm, seed in product(("add", "none"), (1, 2, 3)):
        bench.expect(arm=arm)
        loss = 3.0 if arm == "add" or seed == 1 else 4.0
        point = {"step": 1, "tokens": 100, "train_loss": loss, "validation_loss": loss, "seconds": 1.0}
        facts = {"losses": [point], "validation_loss": loss, "tokens": 300} if seed < 3 else {}
        bench.pretrain(arm, seed, finished=seed < 3, **facts)
    table, *_ = budget_page(read_results(bench.plan())).tables
    rows = [dict(zip(table.header, (cell.text for cell in row), strict=True)) for row in table.rows]
    assert [row["Tokens to reference"] for row in rows] == ["100", MISSING]
    assert [(row["Pretraining seeds"], row["Tokens seen"]) for row in rows] == [("2", "300")] * 2


def test_a_chosen_rate_at_an_end_of_the_search_has_a_mark(bench):
    for arm, best in (("low", 1e-3), ("middle", 2e-3), ("high", 4e-3)):
        bench.finish(arm=arm)
        bench.pretrain(arm, rate=best)
        for seed, rate in enumerate((1e-3, 2e-3, 4e-3), 2):
            bench.pretrain(arm, seed, is_search=True, rate=rate, validation_loss=1.0 + (rate != best))
    table = budget_page(read_results(bench.plan())).tables[-1]
    assert [row[0].text for row in table.rows] == ["high*", "low*", "middle"]
    assert [[cell.bold for cell in row].index(True) for row in table.rows] == [3, 1, 2]
