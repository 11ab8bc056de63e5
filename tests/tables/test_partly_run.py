"""A study of which some arms have run: its pages count what waits, and compare what has run."""

from pathlib import Path

import numpy as np
import pytest
from read_pages import read_markdown
from stored import Bench

from glue_bench.tables.budget import budget_page
from glue_bench.tables.contrasts import statistics_page
from glue_bench.tables.export import find
from glue_bench.tables.pages import leaderboard_page
from glue_bench.tables.report import make_report
from glue_bench.tables.results import read_results
from glue_bench.tables.table import MISSING

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2, 3)
CONTRASTS = [["none", "add"], ["half", "add"], ["later", "add"], ["none", "later"]]
LOSSES = {"add": 4.0, "none": 5.0, "half": 4.1}


def pretrain(bench, arm, seed, stream="of {}"):
    """A record of a pretraining with the validation losses of pieces of text."""
    generator = np.random.default_rng([ord(arm[0]), seed])
    count = np.full(300, 50)
    sums = LOSSES[arm] * count + generator.normal(0, 5, 300)
    point = {"step": 10, "tokens": 900, "train_loss": 4.0, "validation_loss": sums.sum() / count.sum(), "seconds": 1.0}
    facts = {"steps": 10, "tokens": 900, "stream": stream.format(seed), "losses": [point]}
    pieces = {"loss_sum": sums, "count": count, "document": np.zeros(300, np.int64)}
    bench.pretrain(arm, seed, pieces=pieces, validation_loss=point["validation_loss"], **facts)


def make_study(bench, half=2) -> Path:
    """add and none whole, `half` with two of three seeds, `later` and CoLA not begun."""
    for place, arm in enumerate((*LOSSES, "later")):
        if arm in ("add", "none"):
            bench.finish_predicted("rte", arm, 0.7)
        bench.expect("cola", arm=arm)
        bench.arms[arm] |= {"parameters": 1_000_000 * (place + 1)}
        for seed in SEEDS:
            if seed <= {"half": half, "later": 0}.get(arm, 3):
                pretrain(bench, arm, seed)
            else:
                bench.pretrain(arm, seed, steps=10, finished=False)
    protocol = {"primary": "validation_loss", "contrasts": CONTRASTS}
    return bench.plan(config={"protocol": protocol, "pretraining": {}})


def table_of(page, place=0):
    """Header and texts of one of a page's tables."""
    table = read_markdown(page.to_markdown())[place]
    return table.header, table.texts


def test_arms_that_are_pretrained_and_not_fine_tuned_have_a_page(bench):
    """Until the first cell has ended, and while one arm has more pretraining seeds than the reference."""
    for arm in LOSSES:
        bench.expect("rte", arm=arm)
        for seed in SEEDS[: 2 if arm == "add" else 3]:
            pretrain(bench, arm, seed)
    path = bench.plan(config={"protocol": {"primary": "validation_loss"}, "pretraining": {}})
    _, rows = table_of(leaderboard_page(find(path)))
    assert [row[0] for row in rows] == ["add", "half", "none", "smallest difference"]


@pytest.mark.parametrize(
    ("tuned", "primary"), [((), "average"), (("add",), "average"), (("none", "half"), "validation_loss")]
)
def test_whatever_has_run_has_a_report(tuned, primary, bench):
    for arm in LOSSES:
        for seed in SEEDS:
            pretrain(bench, arm, seed)
        for task in ("rte", "sst2"):
            bench.finish_predicted(task, arm, 0.7) if arm in tuned and task == "rte" else bench.expect(task, arm=arm)
    config = {"protocol": {"primary": primary}, "pretraining": {}}
    report = make_report(find(bench.plan(config=config, data_source="demo"))).to_html()  # without published tables
    assert [arm for arm in LOSSES if arm not in report] == []


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return make_study(Bench(tmp_path_factory.mktemp("study") / "toy"))


def test_the_page_counts_what_waits_and_shows_what_has_run(study):
    page = leaderboard_page(find(study))
    caption = page.tables[0].caption
    assert caption.startswith("Val. loss against `add`: 0 better, 1 worse, 0 not told apart, 2 untested; ")
    assert "planned contrasts: 1 of 4 differ" in caption
    facts = dict(table_of(page, 1)[1])
    assert facts["Planned contrasts"].startswith("none - add: worse; half - add: untested; later - add: untested")
    header, rows = table_of(page)
    assert header == ["Arm", "Params", "Val. loss", "Difference", "RTE"]
    shown = {row[0]: row[2:] for row in rows}
    assert list(shown)[:4] == ["add", "half", "none", "later"]
    assert shown["none"][0].endswith("▼")
    assert shown["half"][0].endswith("*"), "it has fewer seeds of pretraining"
    assert shown["later"] == ["–", "", "–"]  # noqa: RUF001


def test_contrasts_that_wait_are_shown_with_their_reason_and_counted(study):
    page = statistics_page(find(study))
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
    assert (later["Arm"], later["Pretraining seeds"], later["Tokens seen"]) == ("later", "0", MISSING)
    make_study(bench := new_bench("c"))
    pretrain(bench, "none", 2, "of another")
    assert "NOT the same" in dict(table_of(budget_page(read_results(bench.plan())), 1)[1])["Shown"]
