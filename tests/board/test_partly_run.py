"""Budgets, and a study of which some arms have run: its pages count what waits, and compare what has run."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.read_pages import read_markdown
from helpers.stored import Bench

from glue_bench.board.compare import open_comparison, reference_arm
from glue_bench.board.results import read_results
from glue_bench.pages.budget import budget_frame, budget_page, tokens_to_reach
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.marks import LEGEND
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.render import to_html, to_markdown
from glue_bench.pages.report import make_report

SEEDS = (1, 2, 3)
CONTRASTS = [["none", "add"], ["half", "add"], ["later", "add"], ["none", "later"]]
LOSSES = {"add": 4.0, "none": 5.0, "half": 4.1}


def pretrain(bench, arm, seed, stream="of {}"):
    """A record of a pretraining with the validation losses of pieces of text."""
    generator = np.random.default_rng([ord(arm[0]), seed])
    count = np.full(300, 50)
    sums = LOSSES[arm] * count + generator.normal(0, 5, 300)
    point = {
        "step": 10,
        "tokens": 900,
        "train_loss": 4.0,
        "validation_loss": sums.sum() / count.sum(),
        "seconds": 1.0,
    }
    facts = {"steps": 10, "tokens": 900, "stream": stream.format(seed), "losses": [point]}
    pieces = {"loss_sum": sums, "count": count, "document": np.zeros(300, np.int64)}
    bench.pretrain(arm, seed, pieces=pieces, validation_loss=point["validation_loss"], **facts)


def make_study(bench) -> Path:
    """add and none whole, `half` with two of three seeds, `later` and CoLA not begun."""
    for place, arm in enumerate((*LOSSES, "later")):
        if arm in ("add", "none"):
            bench.finish_predicted("rte", arm, 0.7)
        bench.expect("cola", arm=arm)
        bench.arms[arm] |= {"parameters": 1_000_000 * (place + 1)}
        for seed in SEEDS:
            if seed <= {"half": 2, "later": 0}.get(arm, 3):
                pretrain(bench, arm, seed)
            else:
                bench.pretrain(arm, seed, steps=10, finished=False)
    protocol = {"primary": "validation_loss", "contrasts": CONTRASTS}
    return bench.plan(config={"protocol": protocol, "pretraining": {}})


def table_of(page, place=0):
    """Header and texts of one of a page's tables."""
    table = read_markdown(to_markdown(page))[place]
    return table.header, table.texts


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
    """Also until the first cell has ended, and while an arm has more pretraining seeds than the reference."""
    for arm in LOSSES:
        for seed in SEEDS[: 2 if arm == "add" else 3]:
            pretrain(bench, arm, seed)
        for task in ("rte", "sst2"):
            bench.finish_predicted(
                task, arm, 0.7
            ) if arm in tuned and task == "rte" else bench.expect(task, arm=arm)
    config = {"protocol": {"primary": primary}, "pretraining": {}}
    report = make_report(
        open_comparison(bench.plan(config=config, data_source="demo"))
    )  # without published tables
    assert {row[0].text.rstrip("*") for row in report.parts[0].tables[0].rows} >= {*LOSSES}
    assert [said for said in (*LOSSES, LEGEND["common"]) if said not in to_html(report)] == []


def legend_of(bench, seeds_by_arm) -> tuple[str, ...]:
    """The legend of a study of three planned pretraining seeds, of which an arm has so many."""
    for arm, finished in seeds_by_arm.items():
        for seed in SEEDS:
            if seed <= finished:
                pretrain(bench, arm, seed)
            else:
                bench.pretrain(arm, seed, steps=10, finished=False)
            bench.expect(arm=arm)
    config = {"protocol": {"primary": "validation_loss"}, "pretraining": {}}
    page = leaderboard_page(open_comparison(bench.plan(config=config)))
    return tuple(line for table in page.tables for line in table.legend)


def test_seeds_that_all_arms_lack_are_left_out_of_no_difference(bench):
    assert LEGEND["common"] not in legend_of(bench, {"add": 2, "none": 2})


def test_seeds_that_the_reference_lacks_are_left_out_and_the_legend_says_so(bench):
    assert LEGEND["common"] in legend_of(bench, {"add": 2, "none": 3})


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return make_study(Bench(tmp_path_factory.mktemp("study") / "toy"))


def test_the_page_counts_what_waits_and_shows_what_has_run(study):
    page = leaderboard_page(open_comparison(study))
    caption = page.tables[0].caption
    assert caption.startswith(
        "Val. loss against `add`: 0 better, 1 worse, 0 not told apart, 2 untested; "
    )
    assert "planned contrasts: 1 of 4 differ" in caption
    facts = dict(table_of(page, 1)[1])
    assert facts["Planned contrasts"].startswith(
        "none - add: worse; half - add: untested; later - add: untested"
    )
    header, rows = table_of(page)
    assert header == ["Arm", "Params", "Val. loss", "Difference", "RTE"]
    shown = {row[0]: row[2:] for row in rows}
    assert list(shown)[:4] == ["add", "half", "none", "later"]
    assert shown["none"][0].endswith("▼")
    assert shown["half"][0].endswith("*"), "it has fewer seeds of pretraining"
    assert shown["later"] == ["–", "", "–"]  # noqa: RUF001


def test_contrasts_that_wait_are_shown_with_their_reason_and_counted(study):
    page = statistics_page(open_comparison(study))
    _, rows = table_of(page)
    planned = {row[2]: row for row in rows if row[0] == "planned (4)" and row[1] == "Val. loss"}
    assert list(planned) == ["none - add", "half - add", "later - add", "none - later"]
    assert planned["none - add"][7] == "worse"
    assert planned["half - add"][7] == "1 of 3 pretraining seeds are missing (half)"
    assert planned["later - add"][3:] == ["–", "–", "–", "–", "no finished run (later)"]  # noqa: RUF001


def test_whether_all_arms_of_a_seed_were_shown_the_same_is_said(study, new_bench):
    page = budget_page(read_results(study))
    assert dict(table_of(page, 1)[1])["Shown"].endswith("for all arms of a seed (of 1, of 2, of 3)")
    header, rows = table_of(page)
    later = dict(zip(header, rows[-1], strict=True))
    assert (later["Arm"], later["Pretraining seeds"], later["Tokens seen"]) == (
        "later",
        "0",
        MISSING,
    )
    make_study(bench := new_bench("c"))
    pretrain(bench, "none", 2, "of another")
    assert "NOT the same" in dict(table_of(budget_page(read_results(bench.plan())), 1)[1])["Shown"]


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
    for arm, losses in {
        "add": (5.0, 4.0, 3.0),
        "untied-relative": (5.0, 2.5, 2.5),
        "none": (6.0, 5.0, 4),
    }.items():
        bench.finish(arm=arm)
        points = [{"step": n, "tokens": 100 * n, "train_loss": loss, "validation_loss": loss, "seconds": n}
                  for n, loss in enumerate(losses, 1)]  # fmt: skip
        bench.pretrain(arm, losses=points, validation_loss=losses[-1], tokens=300)
    budgets = budget_frame(
        read_results(bench.plan(config={"protocol": {"reference": reference}}))
    ).set_index("arm")
    goal, found = reference or "add", budgets["tokens_to_reference"]
    assert found[goal] == tokens
    assert (found.isna() == (budgets["validation_loss"] > budgets["validation_loss"][goal])).all()


def test_a_mean_that_lacks_a_seed_is_a_dash(bench):
    """Of three seeds the third is not trained yet, and only in the first `none` reaches the reference."""
    for arm, seed in product(("add", "none"), (1, 2, 3)):
        bench.expect(arm=arm)
        loss = 3.0 if arm == "add" or seed == 1 else 4.0
        point = {
            "step": 1,
            "tokens": 100,
            "train_loss": loss,
            "validation_loss": loss,
            "seconds": 1.0,
        }
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
        for seed, rate in enumerate(2 * (1e-3, 2e-3, 4e-3), 2):  # by two seeds
            bench.pretrain(
                arm, seed, is_search=True, rate=rate, validation_loss=1.0 + (rate != best)
            )
    table = budget_page(read_results(bench.plan())).tables[-1]
    assert table.caption == "Validation loss after 1 steps with 2 seeds, the mean."
    assert [row[0].text for row in table.rows] == ["high*", "low*", "middle"]
    assert [[cell.bold for cell in row].index(True) for row in table.rows] == [3, 1, 2]
