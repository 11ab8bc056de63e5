"""Pages of experiments that have two of each axis at once, and unequal numbers of each."""

import math
from itertools import product

import numpy as np
import pytest
from helpers.read_pages import read_markdown
from helpers.stored import ROWS

from glue_bench import predictions
from glue_bench.board.compare import open_comparison
from glue_bench.board.leaderboard import make_leaderboard, open_leaderboard
from glue_bench.board.results import read_results
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.marks import UNCONTROLLED
from glue_bench.pages.numbers import format_p
from glue_bench.pages.render import to_markdown
from glue_bench.pages.seeds_needed import measured_costs
from glue_bench.stats.power import Costs

STEPS = 8
OTHER = {"processor": "Other", "device": "cpu", "precision": "float32"}


def finish(bench, arm, task="rte", seed=1, pretraining=None, value=0.5, rate=2e-5, **facts) -> str:
    """Finish a run, perhaps after one of several pretrainings, and return its id."""
    cell = bench.expect(task, seed=seed, arm=arm, rate=rate)
    if pretraining is not None:
        cell["cell_id"] += f"-p{pretraining}"
        cell["steps"] = STEPS
        cell["pretraining_seed"] = pretraining
    bench.record(cell, score=value, **facts)
    return cell["cell_id"]


def predict(bench, cell_id: str, right: int) -> None:
    """Store predictions that are right on the first examples; all labels are 1."""
    is_right = np.arange(ROWS) < right
    bench.predict(cell_id, {"validation": np.stack([~is_right, is_right], axis=1)})


def finish_right(bench, right, task="rte"):
    """Finish runs with these numbers of right examples by arm and seed; return the folder.

    Seeds are counted from 1, or given.
    """
    for arm, counts in right.items():
        by_seed = counts if isinstance(counts, dict) else dict(enumerate(counts, 1))
        for seed, count in by_seed.items():
            cell_id = finish(bench, arm, task, seed, value=count / ROWS)
            predict(bench, cell_id, count)
    bench.label(task, {"validation": np.ones(ROWS, int)})
    return bench.plan()


def tables_of(path):
    """Return the tables of the leaderboard's page as Markdown has them."""
    page = leaderboard_page(open_leaderboard(path))
    return read_markdown(to_markdown(page))


def facts_of(path):
    """Return the facts of the setup."""
    (setup,) = [table for table in tables_of(path) if table.header[0] == "Setup"]
    return {row[0]: row[1] for row in setup.texts}


def row_of(tables, arm: str) -> dict[str, str]:
    """Return the texts of an arm in the first table, by title without the mark of the control."""
    first = tables[0]
    (texts,) = [row for row in first.texts if row[0] == arm]
    titles = [title.removesuffix(UNCONTROLLED) for title in first.header]
    return dict(zip(titles, texts, strict=True))


# Counts


def test_seeds_are_counted_within_each_pretraining_whatever_the_rates(bench):
    places = [("add", 1), ("add", 2), ("add", 3), ("none", 1), ("none", 2)]
    for rate, seed, (arm, pretraining) in product((2e-5, 3e-5), (1, 2), places):
        finish(bench, arm, seed=seed, pretraining=pretraining, rate=rate)
    assert facts_of(bench.plan())["Seeds"] == "2 to 3 pretraining, 2 fine-tuning of each"


def test_a_run_that_lacks_after_the_second_pretraining_is_marked_and_so_is_a_rate_that_lacks(bench):
    for arm in ("add", "none", "untied"):
        for pretraining, seed in product((1, 2), (1, 2)):
            finish(bench, arm, seed=seed, pretraining=pretraining, value=0.6)
        finish(bench, arm, rate=1e-5, pretraining=1, value=0.4)
    del bench.runs["none-rte-lr2e-05-s2-p2"]
    del bench.runs["untied-rte-lr1e-05-s1-p1"]
    tables = tables_of(bench.plan())
    assert row_of(tables, "add")["RTE"] == "60.00"
    assert row_of(tables, "none")["RTE"] == "60.00*"
    assert row_of(tables, "untied")["RTE"] == "60.00*"


def test_an_average_is_marked_where_a_column_of_its_own_lacks_runs_and_not_for_wnli(bench):
    for arm, task, seed in product(("add", "none"), ("rte", "cola", "wnli"), (1, 2)):
        finish(bench, arm, task, seed)
    del bench.runs["none-cola-lr2e-05-s2"]
    del bench.runs["add-wnli-lr2e-05-s2"]
    tables = tables_of(bench.plan())
    assert row_of(tables, "add")["Avg. of 2"] == "50.00"
    assert row_of(tables, "none")["Avg. of 2"] == "50.00*"
    assert row_of(tables, "add")["WNLI"] == "50.00*"


@pytest.mark.parametrize("axis", ["seed", "pretraining"])
def test_a_processor_is_compared_with_the_references_run_of_the_same_seeds(bench, axis):
    """The reference and `same` ran on two processors, and `other` on them the other way round."""
    processors_by_arm = {"add": ("One", "Two"), "same": ("One", "Two"), "other": ("Two", "One")}
    for arm, processors in processors_by_arm.items():
        for number, processor in enumerate(processors, 1):
            seeds = {"seed": 1, "pretraining": 1} | {axis: number}
            environment = {"processor": processor, "precision": "float32", "device": "cpu"}
            finish(bench, arm, environment=environment, **seeds)
    tables = tables_of(bench.plan())
    names = [row[0] for row in tables[0].texts]
    assert [name for name in names if "◇" in name] == ["other◇"]
    assert facts_of(bench.path)["Computed on"] == "One, float32: 3 runs; Two, float32: 3 runs"


def test_the_machines_of_a_run_and_of_its_pretraining_are_both_named(bench):
    for seed, device in ((1, "cpu"), (2, "cuda")):
        environment = {"processor": "Chip", "device": device, "precision": "bf16"}
        bench.pretrain("add", seed=seed, environment=environment, steps=STEPS)
        job = bench.pretrained[f"add-{seed}"][0].pretraining
        cell = bench.expect()
        cell["cell_id"] = f"run-{seed}"
        cell["pretraining"] = job.id
        cell["steps"] = STEPS
        cell["pretraining_seed"] = seed
        bench.record(cell, environment=OTHER)
    path = bench.plan(config={"pretraining": {"steps": STEPS, "seeds": [1, 2]}})
    assert facts_of(path)["Computed on"].split("; ") == [
        "Chip, then Other, bf16, then float32: 1 run",
        "cuda, then Other, bf16, then float32: 1 run",
    ]


def test_runs_that_wait_were_computed_nowhere(bench):
    environment = {"processor": "One", "precision": "float32", "device": "cpu"}
    for seed in (1, 2):
        finish(bench, "add", seed=seed, environment=environment)
    bench.expect("rte", seed=3)
    assert facts_of(bench.plan())["Computed on"] == "One, float32: 2 runs"


# Facts


def test_the_setup_has_the_shares_of_both_validation_sets_of_mnli(bench):
    rows = {
        "train": 392702,
        "validation_matched": 4908,
        "validation_mismatched": 983,
        "test_matched": 9796,
    }
    data = {"source": "tsv", "partial": True, "rows": rows}
    bench.record(bench.expect("mnli"), data=data)
    expected = "tsv; MNLI 50% of matched validation, 10% of mismatched validation"
    assert facts_of(bench.plan())["Data"] == expected


def test_the_setup_names_both_sources_of_data(bench):
    for task, source in (("rte", "tsv"), ("cola", "hub"), ("mrpc", "tsv")):
        bench.finish(task, source=source)
    assert facts_of(bench.plan())["Data"] == "hub, tsv, complete"


def test_the_setup_names_every_task_that_starts_from_mnli(bench):
    source = finish(bench, "add", "mnli")
    for task in ("rte", "stsb"):
        finish(bench, "add", task)
        bench.cells[-1]["mnli"] = source
    finish(bench, "add", "cola")
    config = {"finetuning": {"from_mnli": ["rte", "stsb"], "learning_rates": [2e-5]}}
    assert facts_of(bench.plan(config=config))["Fine-tuning"].endswith(
        "; from the arm's own MNLI run: STS-B, RTE"
    )


def test_the_setup_says_that_rates_were_chosen_if_any_task_has_several(bench):
    finish(bench, "add", "cola")
    for rate in (2e-5, 3e-5):
        finish(bench, "add", "rte", rate=rate)
    chosen = "rate the best of 2e-05, 3e-05 for each arm and task, by the median on validation"
    config = {"protocol": {"rate": "best-median"}}
    assert facts_of(bench.plan(config=config))["Fine-tuning"].endswith(chosen)


def test_the_first_line_names_the_better_of_two_baselines(bench):
    gold = np.array([0, 1, 1, 1])
    for arm, value in (("add", 0.5), ("none", 0.25)):
        bench.finish(arm=arm, score=value)
    baselines = {"worse than most": {"validation": 1 - gold}, "always right": {"validation": gold}}
    bench.label("rte", {"validation": gold}, **baselines)
    caption = leaderboard_page(open_leaderboard(bench.plan())).tables[0].caption
    assert caption.endswith("RTE: best arm 50.00, always right 100.00.")


def test_the_rate_of_an_arms_pretraining_is_the_one_that_was_chosen_and_not_one_of_its_search(
    bench,
):
    for arm, rate in (("add", 4e-3), ("none", 1e-3)):
        bench.finish(arm=arm)
        bench.pretrain(arm, seed=7, is_search=True, rate=2e-3)
        bench.pretrain(arm, seed=1, rate=rate)
    tables = tables_of(bench.plan())
    (arms,) = [table for table in tables if table.title == "Arms"]
    place = arms.header.index("Pretraining rate")
    assert {row[0]: row[place] for row in arms.texts} == {"add": "0.004", "none": "0.001"}


# Contrasts


def test_the_smallest_difference_is_the_median_of_an_even_number_of_arms(bench):
    right = {
        "add": (200, 210),
        "a": (190, 230),
        "b": (150, 250),
        "c": (205, 209),
        "d": (220, 221),
    }
    comparison = open_comparison(finish_right(bench, right))
    _, lower, upper, _ = sorted(comparison.contrasts["smallest"])
    expected = f"{lower / 2 + upper / 2:.2f}"
    foot = leaderboard_page(make_leaderboard(comparison)).tables[0].rows[-1]
    assert expected in [cell.text for cell in foot]
    assert statistics_page(comparison).tables[1].rows[0][-1].text == expected


def test_spreads_of_an_average_follow_from_its_columns_by_hand(bench):
    """A run of the average of two tasks varies by a quarter of the sum of their variances."""
    finish_right(bench, {"add": (200, 240), "none": (220, 220)}, "rte")
    path = finish_right(bench, {"add": (300, 310), "none": (250, 290)}, "sst2")
    table = statistics_page(open_comparison(path)).tables[1]
    spreads = {row[0].text: row[2].text for row in table.rows}
    of_rte = (10**2 / 2 + 0) / 2
    of_sst2 = (2.5**2 / 2 + 10**2 / 2) / 2
    expected = {
        "Avg. of 2": f"{math.sqrt((of_rte + of_sst2) / 4):.2f}",
        "RTE": f"{math.sqrt(of_rte):.2f}",
        "SST-2": f"{math.sqrt(of_sst2):.2f}",
    }
    assert spreads == expected


def test_costs_are_means_over_runs_of_a_task_and_a_rate_and_leave_searches_out(bench):
    for arm, factor in (("add", 1), ("none", 3)):
        for task, seconds in (("rte", 10), ("cola", 100)):
            for seed in (1, 2):
                of_seed = factor * seconds
                finish(bench, arm, task, seed, rate=1e-5, seconds=of_seed)
                finish(bench, arm, task, seed, rate=2e-5, seconds=of_seed + 4)
        bench.pretrain(arm, seed=1, seconds=500.0 * factor)
        bench.pretrain(arm, seed=9, seconds=7.0, is_search=True)
    finish(bench, "add", "rte", 3, rate=1e-5, seconds=60.0)
    of_first_rate = (10 + 10 + 30 + 30 + 60) / 5
    expected = Costs(1000.0, of_first_rate + 24 + 200 + 204)
    assert measured_costs(read_results(bench.plan())) == pytest.approx(expected)


def test_a_contrast_says_in_how_many_common_seeds_it_has_its_sign(bench):
    """Two arms have three seeds in common. In one of them the difference has the other sign."""
    right = {"add": {2: 200, 3: 230, 4: 200, 5: 200}, "none": {1: 260, 2: 250, 3: 220, 4: 260}}
    comparison = open_comparison(finish_right(bench, right))
    (row,) = statistics_page(comparison).tables[0].rows
    assert row[5].text == "2 of 3"


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0, "< 0.0001"),
        (0.00009, "< 0.0001"),
        (0.0001, "0.0001"),
        (0.04996, "0.0500"),
        (1.0, "1.0000"),
        (math.nan, "–"),  # noqa: RUF001
    ],
)
def test_a_p_value_is_never_shown_as_0(p, text):
    assert format_p(p) == text


# Predictions


@pytest.fixture
def of_mnli(bench):
    """The predictions on MNLI of an experiment with two arms and two tasks."""
    logits = {
        "validation_matched": np.eye(3)[[1, 1, 2]],
        "validation_mismatched": np.eye(3)[[2, 0]],
        "test_matched": np.eye(3)[[0, 1]],
    }
    for arm in ("add", "none"):
        bench.predict(finish(bench, arm, "mnli", seed=2), logits)
    bench.predict(finish(bench, "add", "rte"), {"validation": np.eye(2)})
    labels = {"validation_matched": np.array([0, 1, 2]), "validation_mismatched": np.array([2, 2])}
    bench.label("mnli", labels)
    bench.label("rte", {"validation": np.array([0, 1])})
    return predictions(bench.plan(), task="mnli")


def test_predictions_are_of_the_task_that_is_asked_for(of_mnli):
    assert set(of_mnli["task"]) == {"mnli"}


@pytest.mark.parametrize("arm", ["add", "none"])
@pytest.mark.parametrize(
    ("split", "predicted", "labels"),
    [
        ("validation_matched", [1, 1, 2], [0, 1, 2]),
        ("validation_mismatched", [2, 0], [2, 2]),
        ("test_matched", [0, 1], []),
    ],
)
def test_predictions_have_every_split_with_its_own_labels(of_mnli, arm, split, predicted, labels):
    rows = of_mnli[(of_mnli["arm"] == arm) & (of_mnli["split"] == split)]
    assert rows["predicted"].tolist() == predicted
    assert rows["label"].dropna().tolist() == labels
