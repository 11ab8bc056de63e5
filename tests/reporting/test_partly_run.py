"""A study of which some arms have run: its pages name what waits, and say nothing of it besides."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from read_pages import read_markdown
from stored import Bench

from glue_bench.records.record import PretrainingRecord
from glue_bench.reporting.budget_page import budget_page
from glue_bench.reporting.export import find, render
from glue_bench.reporting.notes import lacks_seeds
from glue_bench.reporting.report.build import build_report
from glue_bench.reporting.statistics_page import render_statistics, statistics_page
from glue_bench.tables.board import open_board
from glue_bench.tables.budget import budget_frame
from glue_bench.tables.compare import compare
from glue_bench.tables.results import read_results

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2, 3)
CONTRASTS = [["none", "add"], ["half", "add"], ["later", "add"], ["none", "later"]]
SEEDS_IN_COMMON = "Differences and marks of tasks are of the pretraining seeds that all arms have"
LOSSES = {"add": 4.0, "none": 5.0, "half": 4.1}


def pretrain(bench, arm, seed):
    """A record of a pretraining with the validation losses of pieces of text."""
    generator = np.random.default_rng([ord(arm[0]), seed])
    count = np.full(300, 50)
    sums = LOSSES[arm] * count + generator.normal(0, 5, 300)
    identity = {"variant": "add", "options": {}, "tokenizer": "t", "start": "s", "corpus": "c", "packing": 2}
    point = {"step": 10, "tokens": 900, "train_loss": 4.0, "validation_loss": sums.sum() / count.sum(), "seconds": 1.0}
    facts = {"pretraining_id": f"{arm}-{seed}", "arm": arm, "origin": "pretrained", "losses": [point]}
    facts |= {"schema_version": 1, "steps": 10, "tokens": 900, "seconds": 1.0, "stream": f"of {seed}"}
    facts |= {"identity": identity | {"settings": {}}, "validation_loss": point["validation_loss"]}
    record = PretrainingRecord.model_validate(facts)
    bench.store.write_pretraining(record, {"loss_sum": sums, "count": count, "document": np.zeros(300, np.int64)})


def make_study(bench, half=2, contrasts=CONTRASTS) -> Path:
    """add and none whole, `half` with two of three seeds, `later` and CoLA not begun."""
    for place, arm in enumerate((*LOSSES, "later")):
        if arm in ("add", "none"):
            bench.finish_predicted("rte", arm, 0.7)
        bench.expect("cola", arm=arm)
        bench.arms[arm] |= {"parameters": 1_000_000 * (place + 1)}
        for seed in SEEDS[: {"half": half, "later": 0}.get(arm, 3)]:
            pretrain(bench, arm, seed)
    planned = [{"pretraining_id": f"{arm}-{seed}", "arm": arm, "seed": seed} for arm in bench.arms for seed in SEEDS]
    protocol = {"primary": "validation_loss", "contrasts": contrasts}
    return bench.plan(pretrainings=planned, config={"protocol": protocol})


def test_arms_that_are_pretrained_and_not_fine_tuned_have_a_page(new_bench):
    """Until the first cell has ended, and while one arm has more pretraining seeds than the reference."""
    bench = new_bench("none")
    for arm in LOSSES:
        bench.expect("rte", arm=arm)
        for seed in SEEDS[: 2 if arm == "add" else 3]:
            pretrain(bench, arm, seed)
    planned = [{"pretraining_id": f"{arm}-{seed}", "arm": arm, "seed": seed} for arm in LOSSES for seed in SEEDS]
    path = bench.plan(pretrainings=planned, config={"protocol": {"primary": "validation_loss"}})
    assert "| none" in render(path)
    assert SEEDS_IN_COMMON not in render(path)


def test_where_differences_are_of_fewer_pretraining_seeds_than_scores():
    cells = pd.DataFrame([("none", "rte", seed, True) for seed in SEEDS] + [("none", "cola", 1, False)])
    cells.columns = ["arm", "task", "pretraining_seed", "finished"]
    row = {"arm": "none", "column": "rte", "seeds": "pretraining", "why": "", "n_arm": 2}
    assert lacks_seeds(cells, pd.DataFrame([row]))
    others = [{"n_arm": 3}, {"column": "validation_loss"}, {"why": "no finished run"}, {"arm": "later"}]
    assert not lacks_seeds(cells, pd.DataFrame([row | other for other in others]))


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    return make_study(Bench(tmp_path_factory.mktemp("study") / "toy"))


def test_the_sentence_on_top_is_about_what_was_asked(study):
    lead = read_lead(render(study))
    assert lead.startswith(
        "On the validation loss, of 4 contrasts named beforehand: the arm `none` is worse than `add` (+1.0"
    )
    assert lead.endswith("; 1 cannot be tested yet (`statistics.md` says why); 2 wait for further runs.")


def test_marks_that_no_contrast_asks_for_are_named(study, new_bench):
    assert "Marks on other columns were not asked for: cite them as exploratory." in render(study)
    text = render(make_study(new_bench("few"), contrasts=[["half", "add"]]))
    assert "Marks on other columns, and those of `none`, which no contrast compares with `add`, were not" in text


def read_lead(text):
    return text.split("\n\n")[1]


def test_without_contrasts_the_sentence_counts_who_waits(bench):
    lead = read_lead(render(make_study(bench, contrasts=[])))
    assert lead.startswith("On the validation loss, the arm `none` (+1")
    told, _, reasons = lead.partition("; 2 arms cannot be compared yet (")
    assert told.endswith("is worse than `add`")
    assert set(reasons.removesuffix(").").split(", ")) == {"no finished run", "1 of 3 pretraining seeds are missing"}


def test_the_table_has_what_has_run(study):
    table = next(iter(read_markdown(render(study))))
    assert table.header == ["Arm", "Val. loss", "RTE"]
    rows = {row[0][0]: [cell[0] for cell in row[1:]] for row in table.rows}
    assert list(rows)[:3] == ["add", "half", "none"]
    assert rows["none"][0].endswith("▼")
    assert rows["half"][0].endswith("*"), "it has fewer seeds of pretraining"
    assert "Nothing has run yet of the arm `later`; of the task CoLA." in render(study)


def test_an_arm_without_all_seeds_takes_none_from_the_others(study, new_bench):
    folders = (study, make_study(new_bench("b"), half=0))
    whole, without = (compare(open_board(path)).of("declared").set_index(["column", "arm"]) for path in folders)
    first, second = (found.loc[[("validation_loss", "none")]] for found in (whole, without))
    names = ["difference", "low", "high", "n_arm"]
    assert first.iloc[0][names].to_list() == second.iloc[0][names].to_list()
    half = whole.loc[[("validation_loss", "half")]].iloc[0]
    assert half["why"] == "1 of 3 pretraining seeds are missing (half)"
    assert half["difference"] == pytest.approx(0.1, abs=0.02)


def test_contrasts_that_wait_are_named_and_counted(study):
    page = statistics_page(find(study).comparison)
    (section,) = [one for one in page.sections if one.title == "Contrasts named beforehand"]
    assert "What the experiment names beforehand, 4 in all" in section.text
    assert section.text.endswith("but counted in the correction: later - add, none - later.")
    assert [row[1].text for row in section.grid.rows if row[0].text == "Val. loss"] == ["none - add", "half - add"]
    assert section.grid.header[2] == "Nats"
    assert "later" not in [cell.text for one in page.sections if one.grid for row in one.grid.rows for cell in row]
    assert render_statistics(study, "csv").count("later - ") == 0


def test_budgets_have_a_row_for_each_arm_that_was_pretrained(study):
    page = budget_page(budget_frame(read_results(study)), "toy")
    grid = page.sections[0].grid
    rows = [dict(zip(grid.header, (cell.text for cell in row), strict=True)) for row in grid.rows]
    assert [(row["Arm"], row["Pretraining seeds"]) for row in rows] == [("add", "3"), ("none", "3"), ("half", "2")]
    assert float(rows[1]["Validation loss"]) == pytest.approx(5.0, abs=0.05)
    assert rows[1]["Tokens to reference"] == "–"  # noqa: RUF001
    assert "Not pretrained yet: `later`." in page.notes


def test_each_place_of_pretraining_is_told_with_its_arms(study):
    budgets = budget_frame(read_results(study))
    for places, said in (
        (["One"] * 3, "on One; whatever"),
        (["One", "Two", "One"], "on One (`add`, `half`); Two (`none`); whatever"),
    ):
        where = dict(zip(("add", "none", "half"), places, strict=True))
        notes = budget_page(budgets.assign(device=budgets["arm"].map(where)), "toy").notes
        assert any(said in note for note in notes)


def test_the_report_is_drawn_with_a_loss_that_decides(study):
    report = build_report(study)
    figures = {figure.name: figure for figure in report.figures}
    assert {"contrasts-validation_loss", "difference-validation_loss", "cost-parameters"} <= figures.keys()
    assert figures["cost-parameters"].description == "The least is that of add; add has the lowest loss."
    assert "later" not in figures["difference-validation_loss"].svg
    assert "none - add" in figures["contrasts-validation_loss"].svg
    assert "Fine-tuned: 2 of 4 arms, 1 of 2 tasks" in report.text
