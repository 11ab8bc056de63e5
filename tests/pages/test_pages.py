"""The leaderboard's page: who differs, from what, by how much, what floors there are, and what every mark means."""

import re
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
from helpers.read_pages import Read, read_markdown
from helpers.stored import history_of
from rich.console import Console

from glue_bench.board.compare import open_comparison
from glue_bench.board.results import read_results
from glue_bench.data.measures import MEASURES
from glue_bench.data.tasks import TRAINABLE
from glue_bench.pages.leaderboard import leaderboard_page, screen_page
from glue_bench.pages.marks import LEGEND
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.page import Page
from glue_bench.pages.render import to_markdown
from glue_bench.pages.screen import print_page

ROOT = Path(__file__).parents[2]
MARKS = [key for key in LEGEND if len(key) == 1]
STORED = sorted(path.parent for path in ROOT.glob("results/*/plan.json"))
TITLED = {"Difference": "difference"} | {
    MEASURES[name].title: name for name in ("validation_loss", "swap_1")
}


def shown(path: Path) -> tuple[Page, list[Read]]:
    """The page, and its tables as Markdown has them."""
    page = leaderboard_page(open_comparison(path))
    return page, read_markdown(to_markdown(page))


def facts(path: Path) -> dict[str, str]:
    """The table Setup."""
    _, tables = shown(path)
    (setup,) = [table for table in tables if table.header[0] == "Setup"]
    return {row[0][0]: row[1][0] for row in setup.rows}


def test_a_plan_without_cells_has_a_page_and_an_arm_alone_is_compared_with_floors_only(bench):
    assert facts(bench.plan())["Runs"] == "0 of 0 planned; 0 records left out"
    bench.finish_predicted("rte", "add", 0.8)
    page, (table, *_) = shown(bench.plan())
    assert re.fullmatch(
        r"RTE: best arm \d\d\.\d\d, majority class 50\.00\.", page.tables[0].caption
    )
    assert table.header == ["Arm", "Params", "RTE"]


def test_equal_scores_as_shown_are_both_bold_and_one_arm_alone_is_not(bench):
    for arm, value in (("a", 0.6), ("b", 0.60001), ("c", 0.5)):
        bench.finish("rte", 1, value, arm=arm)
    bench.finish("rte", 1, 0.9, arm="alone", origin="scratch")
    _, tables = shown(bench.plan())
    bold = {
        row[0][0]: row[2][1]
        for table in tables[:2]
        for row in table.rows
        if row[0][0] in ("a", "b", "c", "alone")
    }
    assert bold == {"a": True, "b": True, "c": False, "alone": False}
    assert [table.title for table in tables[:2]] == ["Pretrained", "Scratch"]


def test_a_score_shows_the_mean_and_where_runs_collapsed_or_are_missing(bench):
    for seed, value in ((1, 0.60), (2, 0.62), (3, 0.67)):
        bench.finish("rte", seed, value)
    bench.finish("cola", 1, 0.6101, collapsed=["validation"])
    bench.finish("qnli", 1, -0.00001, partial=True)
    bench.finish("wnli", 1, 0.5)
    bench.expect("wnli", 2)
    bench.expect("sst2", 1)
    bench.finish("stsb", 1, None)
    bench.finish(
        "mrpc", 1, 0.5, rate=1e-5, collapsed=["validation"]
    )  # it counts at the chosen rate only
    bench.finish("mrpc", 1, 0.6)
    bench.finish("mnli", 1, 0.33, collapsed=["validation_matched"])
    _, (table, *_) = shown(bench.plan())
    row = dict(zip(table.header, (text for text, _ in table.rows[0]), strict=True))
    assert (row["RTE"], row["CoLA"], row["QNLI†"], row["WNLI"]) == (
        "63.00",
        "61.01‡",
        "0.00",
        "50.00*",
    )
    assert (row["MRPC"], row["MNLI-m"], row["MNLI-mm"]) == ("60.00", "33.00‡", "33.00")
    assert row["STS-B"] == MISSING
    assert "SST-2" not in row
    assert facts(bench.path)["Runs"] == "10 of 12 planned; 0 records left out; 2 undefined scores"


PLACES = [
    ({"add": ("One", "One"), "none": ("One", "One"), "untied": ("One", "Two")}, {"untied"}),
    ({"add": ("One", "Two"), "none": ("Two", "One")}, {"none"}),
    ({"add": ("One", "One"), "none": ("One", "One bf16")}, {"none"}),
]


@pytest.mark.parametrize(
    ("places", "marked"), PLACES, ids=["another", "the other way round", "precision"]
)
def test_an_arm_that_ran_elsewhere_than_the_reference_with_that_seed_is_marked(
    places, marked, bench
):
    for arm, names in places.items():
        for seed, name in enumerate(names, start=1):
            environment = {
                "processor": name.removesuffix(" bf16"),
                "precision": "float32",
                "device": "cpu",
            }
            precision = "bf16" if "bf16" in name else None  # that of the run itself counts
            bench.record(
                bench.expect("rte", seed, arm=arm), environment=environment, precision=precision
            )
    _, (table, *_) = shown(bench.plan())
    assert {row[0][0] for row in table.rows} == {arm + "◇" * (arm in marked) for arm in places}
    if (places, marked) == PLACES[-1]:
        assert facts(bench.path)["Computed on"] == "One, bf16: 1 run; One, float32: 3 runs"


STAGES = ("pretraining", "mnli", "rte")
ELSEWHERE = [{"processor": "Two"}, {"device": "GPU"}, {"precision": "bf16"}]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fact", ELSEWHERE, ids=lambda fact: next(iter(fact)))
def test_an_arm_is_marked_whichever_of_the_runs_behind_its_score_was_elsewhere(bench, stage, fact):
    """A score of RTE comes from a pretraining, a run of MNLI, and one of RTE."""
    usual = {"processor": "One", "precision": "float32", "device": "cpu"}
    for arm in ("add", "none"):
        places = dict.fromkeys(STAGES, usual)
        if arm == "none":
            places[stage] = usual | fact
        job = bench.pretrain(arm, steps=10, environment=places["pretraining"])
        mnli, rte = bench.expect("mnli", arm=arm), bench.expect("rte", arm=arm)
        mnli |= {"pretraining": job.id, "steps": 10}
        rte |= {"pretraining": job.id, "steps": 10, "mnli": mnli["cell_id"]}
        bench.record(mnli, environment=places["mnli"])
        bench.record(rte, environment=places["rte"])
    folder = bench.plan(config={"pretraining": {}})
    cells = read_results(folder).cells
    of_rte = cells[cells["task"] == "rte"]
    assert len(of_rte[["processor", "precision"]].drop_duplicates()) == 2
    _, (table, *_) = shown(folder)
    assert {row[0][0] for row in table.rows} >= {"add", "none◇"}


def test_where_a_run_came_from_is_not_known_without_the_record_of_its_start(bench):
    place = {"processor": "One", "precision": "float32", "device": "cpu"}
    job = bench.pretrain(steps=10, finished=False)
    cell = bench.expect("rte")
    cell |= {"pretraining": job.id, "steps": 10}
    bench.record(cell, environment=place)
    (row,) = read_results(bench.plan(config={"pretraining": {}})).cells.to_dict("records")
    assert (row["processor"], row["precision"]) == ("", "")


def test_the_source_of_a_conversion_has_the_marks_of_its_own_block_there_alone(bench):
    origins = {"add": "pretrained", "w": "pretrained", "u": "grafted"}
    for (arm, origin), accuracy in zip(origins.items(), (0.5, 0.9, 0.6), strict=True):
        bench.finish_predicted("rte", arm, accuracy, origin=origin)
    arms = [{"name": arm, "checkpoint": "one" if arm == "add" else "two"} for arm in origins]
    _, tables = shown(bench.plan(config={"arms": arms}))
    rows = [
        {row[0][0]: [text for text, _ in row[2:]] for row in table.rows} for table in tables[:2]
    ]
    assert (rows[0]["w"][0][-1], rows[1]["u"][0][-1], rows[1]["w"][0][-1] in MARKS) == (
        "▲",
        "▼",
        False,
    )
    assert rows[1]["w"][1] == "reference"
    assert rows[1]["smallest difference"][0] == rows[1]["u"][1].partition(" ± ")[2]


def test_what_runs_were_fine_tuned_by_and_which_epoch_of_which_seeds_is_reported(bench):
    for task, epochs in (("rte", 5), ("mrpc", 3), ("cola", 5)):
        bench.record(bench.expect(task), hyperparameters={"epochs": epochs, "held_out_share": 0.1})
    expected = (
        "epochs 3 (MRPC), 5 (CoLA, RTE); batch 32; length 128; rate {}; 0.1 of train held out"
    )
    assert facts(bench.plan())["Fine-tuning"] == expected.format("2e-05")
    bench.record(
        bench.expect("rte", rate=3e-5), hyperparameters={"epochs": 5, "held_out_share": 0.1}
    )
    protocol = {"epoch": "best", "choose_on": "held_out", "seeds": "median"}
    setup = facts(bench.plan(config={"protocol": protocol, "finetuning": {"held_out_share": 0.1}}))
    rates = (
        "the best of 2e-05, 3e-05 for each arm and task, by the mean on the slice held out of train"
    )
    assert setup["Fine-tuning"] == expected.format(rates)
    assert (
        setup["Reported"]
        == "median over seeds; best epoch of each run by the slice held out of train; validation"
    )
    assert LEGEND["medians"] in to_markdown(shown(bench.path)[0])


def test_one_answer_after_the_last_epoch_says_nothing_of_an_earlier_one(bench):
    bench.record(
        bench.expect(), 0.5, ["validation"], history=history_of("validation", "accuracy", 0.7, 0.5)
    )
    for epoch, score in {"last": "50.00‡", "best": "70.00"}.items():
        _, (table, *_) = shown(bench.plan(config={"protocol": {"epoch": epoch}}))
        assert table.rows[0][2][0] == score


def test_how_much_of_the_data_there_was_and_what_was_left_out_is_said(bench):
    data = {"source": "tsv", "digest": "d", "partial": True}
    bench.record(
        bench.expect("rte"), data=data | {"rows": {"train": 249, "validation": 277, "test": 3000}}
    )
    bench.finish("qnli", 1, partial=True)
    bench.finish("qnli", 2, partial=True)
    bench.plan()
    damaged = bench.cells[-1]["cell_id"]
    bench.file(damaged).write_text("{")
    (bench.path / "cells" / "stray").mkdir()
    (bench.path / "cells" / "stray" / "record.json").write_text("{")
    setup = facts(bench.path)
    assert setup["Data"] == "tsv; QNLI in part; RTE 10% of train"
    assert setup["Runs"] == "2 of 3 planned; 2 records left out"
    assert f"cells/{damaged}/record.json: damaged or edited" in setup["Left out"]


OTHER_ROWS = {
    "source": "tsv",
    "digest": "d",
    "partial": True,
    "rows": {"train": 2490, "validation": 277, "test": 3000},
    "differences": {"validation": "CSV quotes around texts"},
}


def test_rows_of_the_official_number_that_are_others_are_marked_and_the_difference_is_said(bench):
    bench.record(bench.expect("rte"), data=OTHER_ROWS)
    bench.finish("cola", 1, 0.5)
    page, (table, *_) = shown(bench.plan())
    assert "RTE†" in table.header
    assert facts(bench.path)["Data"] == "tsv; RTE validation with CSV quotes around texts"
    assert LEGEND["differences"] in [line for each in page.tables for line in each.legend]


OFFICIAL_RTE = {
    "source": "tsv",
    "digest": "d",
    "partial": True,
    "rows": {"train": 2490, "validation": 277},
}


def test_scores_on_official_rows_are_not_called_partial_because_there_are_no_test_files(bench):
    bench.record(bench.expect("rte"), data=OFFICIAL_RTE)
    _, (table, *_) = shown(bench.plan())
    assert "RTE" in table.header
    assert facts(bench.path)["Data"] == "tsv, complete"


@pytest.mark.parametrize(
    "fact",
    [
        {"rows": {"train": 2490, "validation": 200, "test": 3000}},
        {"rows": {"train": 249, "validation": 277, "test": 3000}},
        {"rows": {"train": 2490, "validation": 277, "test": 300}},
        {"differences": {"train": "other rows"}},
    ],
    ids=[
        "fewer rows of validation",
        "fewer rows of train",
        "fewer rows of test",
        "other rows of train",
    ],
)
def test_a_split_that_is_there_and_not_the_official_one_is_marked(bench, fact):
    bench.record(bench.expect("rte"), data=OFFICIAL_RTE | fact)
    _, (table, *_) = shown(bench.plan())
    assert "RTE†" in table.header


def test_other_rows_of_a_task_that_has_no_column_yet_have_no_line(bench):
    bench.finish("cola", 1, 0.5)
    bench.expect("rte")
    bench.tasks["rte"] = OTHER_ROWS
    page, _ = shown(bench.plan())
    assert LEGEND["differences"] not in [line for each in page.tables for line in each.legend]


def test_content_that_could_not_be_compared_is_not_called_complete(bench):
    bench.record(
        bench.expect("qqp"),
        data={"source": "tsv", "digest": "d", "unchecked": ("train", "validation")},
    )
    bench.plan()
    assert facts(bench.path)["Data"] == "tsv; QQP complete by count, content not checked"


def everything(bench) -> Path:
    """All that a legend can explain: of three arms one is clearly worse."""
    for (arm, accuracy), task in product(
        (("add", 0.8), ("none", 0.5), ("concat", 0.805)), ("rte", "sst2")
    ):
        bench.finish_predicted(task, arm, accuracy)
    for arm in ("add", "none"):
        bench.finish("cola", 1, 0.5, arm=arm, collapsed=["validation"], partial=True)
        bench.expect("wnli", 1, arm=arm)
        bench.finish("stsb", 1, None, arm=arm)
        bench.record(
            bench.expect("qnli", 1, arm=arm), environment={"processor": arm, "precision": "float32"}
        )
        bench.record(bench.expect("mrpc", 1, arm=arm))
    bench.expect("mrpc", 2, arm="add")
    return bench.plan(config={"protocol": {"contrasts": [["none", "add"]]}})


@pytest.mark.parametrize(
    "folder", [*STORED, None], ids=lambda folder: getattr(folder, "name", "everything")
)
def test_each_mark_has_a_line_and_each_line_a_mark(folder, bench):
    page, tables = shown(folder or everything(bench))
    needed = {"planned"} if "planned contrasts:" in page.tables[0].caption else set()
    for table in tables:
        if not {"Params", "Steps"} & set(table.header):
            continue
        for name in table.header[1:]:
            titled = {**TITLED, "Params": "parameters", "Steps": "steps"}.get(name)
            needed.add(titled or ("average" if name.startswith("Avg.") else "task"))
            needed |= {name[-1]} & set(MARKS)
        for (first, _), *cells in table.rows:
            needed |= {first} & set(LEGEND) | {mark for mark in "◇" if mark in first}
            needed |= {
                mark
                for text, _ in cells
                for mark in MARKS
                if text.endswith(mark) or mark in text[-3:]
            }
            needed |= {"bold" for _, bold in cells if bold}
    needed -= {"parameters", "steps"}
    assert needed <= set(LEGEND)
    legend = [line for table in page.tables for line in table.legend]
    assert {*legend} == {LEGEND[key] for key in needed}
    assert len(legend) <= 8


def test_six_arms_and_all_tasks_fit_a_terminal_of_80_by_24(bench):
    for arm in ("untied-relative", "add-relative", "concat-split", "add", "none", "concat"):
        for task in TRAINABLE:
            bench.finish_predicted(task, arm, 0.4 if arm == "none" else 0.999, seeds=2)
    console = Console(width=80, record=True, file=StringIO(), force_terminal=True)
    print_page(
        screen_page(open_comparison(bench.plan(data_source="demo"))),
        console,
        "runs/toy/leaderboard.md",
    )
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 22
    assert sum(line.startswith("untied-relative") for line in lines) == 1
    header = next(line for line in lines if line.startswith("Arm")).split()
    assert header[:6] == ["Arm", "Params", "Avg.", "of", "9", "Difference"]
    assert lines[-1].endswith("): runs/toy/leaderboard.md")
