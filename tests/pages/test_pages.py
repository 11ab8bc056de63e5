"""The leaderboard's page: who differs and by how much, floors, and what every mark means."""

import re
from io import StringIO
from pathlib import Path

import pytest
from helpers.read_pages import Read, read_markdown
from helpers.stored import Bench, history_of
from rich.console import Console

from glue_bench.board.leaderboard import open_leaderboard
from glue_bench.board.results import read_results
from glue_bench.data.measures import MEASURES
from glue_bench.data.tasks import TRAINABLE
from glue_bench.pages.leaderboard import leaderboard_page, screen_page
from glue_bench.pages.marks import LEADERBOARD_LEGEND
from glue_bench.pages.numbers import MISSING
from glue_bench.pages.page import Page
from glue_bench.pages.render import to_markdown
from glue_bench.pages.screen import print_page

ROOT = Path(__file__).parents[2]
MARKS = [key for key in LEADERBOARD_LEGEND if len(key) == 1]
STORED = sorted(path.parent for path in ROOT.glob("results/*/plan.json"))
KEYS_OF_TITLES = {
    "Difference": "difference",
    MEASURES["validation_loss"].title: "validation_loss",
    MEASURES["swap_1"].title: "swap_1",
}
"""The keys in the legend of columns that are no tasks."""


def page_and_tables(path: Path) -> tuple[Page, list[Read]]:
    """Return the page of a leaderboard, and its tables as they are read from Markdown."""
    page = leaderboard_page(open_leaderboard(path))
    return page, read_markdown(to_markdown(page))


def legend_of(page: Page) -> list[str]:
    """Return all lines of legends."""
    lines = []
    for table in page.tables:
        lines += table.legend
    return lines


def setup_facts(path: Path) -> dict[str, str]:
    """Return the facts of the table Setup by their names."""
    _, tables = page_and_tables(path)
    (setup,) = [table for table in tables if table.header[0] == "Setup"]
    return dict(setup.texts)


def test_a_plan_without_cells_has_a_page(bench):
    assert setup_facts(bench.plan())["Runs"] == "0 of 0 planned; 0 records left out"


def test_an_arm_alone_is_compared_with_baselines_only(bench):
    bench.finish_predicted("rte", "add", 0.8)
    page, (table, *_) = page_and_tables(bench.plan())
    assert re.fullmatch(
        r"RTE: best arm \d\d\.\d\d, majority class 50\.00\.", page.tables[0].caption
    )
    assert table.header == ["Arm", "Params", "RTE"]


def arms_with_bold_scores(table: Read) -> list[str]:
    """Return the arms of a table that have a bold text in some column."""
    arms = []
    for arm, *cells in table.rows:
        if any(cell.is_bold for cell in cells):
            arms.append(arm.text)
    return arms


def test_scores_that_are_equal_after_rounding_are_all_bold(bench):
    for arm, score in (("a", 0.6), ("b", 0.60001), ("c", 0.5)):
        bench.finish("rte", score=score, arm=arm)
    _, (table, *_) = page_and_tables(bench.plan())
    assert arms_with_bold_scores(table) == ["b", "a"]


def test_the_score_of_an_arm_alone_is_not_bold(bench):
    bench.finish("rte", score=0.9)
    _, (table, *_) = page_and_tables(bench.plan())
    assert arms_with_bold_scores(table) == []


@pytest.fixture(scope="module")
def marked(tmp_path_factory) -> Path:
    """Runs of an arm. Some collapsed, and some are missing."""
    bench = Bench(tmp_path_factory.mktemp("marked") / "toy")
    for seed, value in ((1, 0.60), (2, 0.62), (3, 0.67)):
        bench.finish("rte", seed=seed, score=value)
    bench.finish("cola", seed=1, score=0.6101, collapsed=["validation"])
    bench.finish("qnli", seed=1, score=-0.00001, partial=True)
    bench.finish("wnli", seed=1, score=0.5)
    bench.expect("wnli", seed=2)
    bench.expect("sst2", seed=1)
    bench.finish("stsb", seed=1, score=None)
    # A run that collapsed at another rate than the chosen one does not count.
    bench.finish("mrpc", seed=1, score=0.5, rate=1e-5, collapsed=["validation"])
    bench.finish("mrpc", seed=1, score=0.6)
    bench.finish("mnli", seed=1, score=0.33, collapsed=["validation_matched"])
    return bench.plan()


@pytest.fixture(scope="module")
def row_of_add(marked) -> dict[str, str]:
    """The scores of the arm by title."""
    _, (table, *_) = page_and_tables(marked)
    return dict(zip(table.header, table.texts[0], strict=True))


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("RTE", "63.00"),
        ("CoLA", "61.01‡"),
        ("QNLI†", "0.00"),
        ("WNLI", "50.00*"),
        ("MRPC", "60.00"),
        ("MNLI-m", "33.00‡"),
        ("MNLI-mm", "33.00"),
        ("STS-B", MISSING),
    ],
)
def test_a_score_is_a_mean_with_marks(row_of_add, title, text):
    assert row_of_add[title] == text


def test_a_task_that_has_not_run_has_no_column(row_of_add):
    assert "SST-2" not in row_of_add


def test_runs_and_undefined_scores_are_counted(marked):
    expected = "10 of 12 planned; 0 records left out; 2 undefined scores"
    assert setup_facts(marked)["Runs"] == expected


def run_on(bench, processors):
    """Finish the runs of arms with seeds 1, 2, ... on RTE, each on a processor.

    "bf16" behind a processor is the precision of that run alone.
    """
    for arm, names in processors.items():
        for seed, name in enumerate(names, start=1):
            processor, _, precision = name.partition(" ")
            environment = {"processor": processor, "precision": "float32", "device": "cpu"}
            cell = bench.expect("rte", seed=seed, arm=arm)
            bench.record(cell, environment=environment, precision=precision or None)


PROCESSORS = [
    ({"add": ("One", "One"), "none": ("One", "One"), "untied": ("One", "Two")}, {"untied"}),
    ({"add": ("One", "Two"), "none": ("Two", "One")}, {"none"}),
    ({"add": ("One", "One"), "none": ("One", "One bf16")}, {"none"}),
]
"""The processors of each arm's runs with seeds 1 and 2, and the arms that are marked.

The reference is `add`.
"""


@pytest.mark.parametrize(
    ("processors", "marked"),
    PROCESSORS,
    ids=["another", "the other way round", "precision"],
)
def test_an_arm_is_marked_if_a_run_used_another_machine_than_the_references_run_of_its_seed(
    processors, marked, bench
):
    run_on(bench, processors)
    _, (table, *_) = page_and_tables(bench.plan())
    names = [name for name, *_ in table.texts]
    assert {name.removesuffix("◇") for name in names if name.endswith("◇")} == marked


def test_the_processors_and_precisions_of_runs_are_counted(bench):
    run_on(bench, PROCESSORS[-1][0])
    assert setup_facts(bench.plan())["Computed on"] == "One, bf16: 1 run; One, float32: 3 runs"


STAGES = ("pretraining", "mnli", "rte")
ELSEWHERE = [{"processor": "Two"}, {"device": "GPU"}, {"precision": "bf16"}]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fact", ELSEWHERE, ids=lambda fact: next(iter(fact)))
def test_an_arm_is_marked_if_any_run_behind_its_score_used_another_machine(bench, stage, fact):
    """A score of RTE comes from a pretraining, a run of MNLI, and one of RTE."""
    usual = {"processor": "One", "precision": "float32", "device": "cpu"}
    for arm in ("add", "none"):
        places = dict.fromkeys(STAGES, usual)
        if arm == "none":
            places[stage] = usual | fact
        job = bench.pretrain(arm, steps=10, environment=places["pretraining"])
        mnli = bench.expect("mnli", arm=arm)
        rte = bench.expect("rte", arm=arm)
        mnli |= {"pretraining": job.id, "steps": 10}
        rte |= {"pretraining": job.id, "steps": 10, "mnli": mnli["cell_id"]}
        bench.record(mnli, environment=places["mnli"])
        bench.record(rte, environment=places["rte"])
    folder = bench.plan(config={"pretraining": {}})
    _, (table, *_) = page_and_tables(folder)
    assert {name for name, *_ in table.texts} >= {"add", "none◇"}


def test_the_machine_of_a_score_is_not_known_without_the_record_of_its_start(bench):
    place = {"processor": "One", "precision": "float32", "device": "cpu"}
    job = bench.pretrain(steps=10, finished=False)
    cell = bench.expect("rte")
    cell |= {"pretraining": job.id, "steps": 10}
    bench.record(cell, environment=place)
    (row,) = read_results(bench.plan(config={"pretraining": {}})).cells.to_dict("records")
    assert row["processor"] == ""
    assert row["precision"] == ""


@pytest.fixture
def tables_of_conversion(bench):
    """The rows by arm of two tables: of a block, and of a conversion."""
    for arm, origin, accuracy in (
        ("add", "pretrained", 0.5),
        ("w", "pretrained", 0.9),
        ("u", "grafted", 0.6),
    ):
        bench.finish_predicted("rte", arm, accuracy, origin=origin)
    arms = [
        {"name": "add", "checkpoint": "one"},
        {"name": "w", "checkpoint": "two"},
        {"name": "u", "checkpoint": "two"},
    ]
    _, tables = page_and_tables(bench.plan(config={"arms": arms}))
    by_arm = []
    for table in tables[:2]:
        texts_by_arm = {}
        for arm, _, *texts in table.texts:
            texts_by_arm[arm] = texts
        by_arm.append(texts_by_arm)
    return by_arm


def test_the_source_of_a_conversion_has_its_marks_in_its_own_block_alone(
    tables_of_conversion,
):
    block, conversion = tables_of_conversion
    assert block["w"][0].endswith("▲")
    assert conversion["u"][0].endswith("▼")
    assert conversion["w"][0][-1] not in MARKS


def test_the_source_of_a_conversion_is_its_reference(tables_of_conversion):
    _, conversion = tables_of_conversion
    assert conversion["w"][1] == "reference"
    _, _, half = conversion["u"][1].partition(" ± ")
    assert conversion["smallest difference"][0] == half


SETTINGS = "epochs 3 (MRPC), 5 (CoLA, RTE); batch 32; length 128; rate {}; 0.1 of train held out"
HELD_OUT = {"epochs": 5, "held_out_share": 0.1}


@pytest.fixture
def held_out(bench):
    """Runs of three tasks that held a slice of train out."""
    for task, epochs in (("rte", 5), ("mrpc", 3), ("cola", 5)):
        bench.record(bench.expect(task), hyperparameters=HELD_OUT | {"epochs": epochs})
    return bench


def test_the_setup_has_the_settings_of_runs(held_out):
    assert setup_facts(held_out.plan())["Fine-tuning"] == SETTINGS.format("2e-05")


@pytest.fixture
def best_epochs(held_out):
    """The folder of these runs with a second rate, and a protocol that chooses on the slice."""
    held_out.record(held_out.expect("rte", rate=3e-5), hyperparameters=HELD_OUT)
    protocol = {"epoch": "best", "choose_on": "held_out", "seeds": "median"}
    return held_out.plan(config={"protocol": protocol, "finetuning": {"held_out_share": 0.1}})


def test_the_setup_says_on_which_rows_a_rate_was_chosen(best_epochs):
    rates = (
        "the best of 2e-05, 3e-05 for each arm and task, by the mean on the slice held out of train"
    )
    assert setup_facts(best_epochs)["Fine-tuning"] == SETTINGS.format(rates)


def test_the_setup_says_which_epoch_and_which_statistic_is_reported(best_epochs):
    epoch = "best epoch of each run by the slice held out of train"
    assert setup_facts(best_epochs)["Reported"] == f"median over seeds; {epoch}; validation"
    assert LEADERBOARD_LEGEND["medians"] in to_markdown(page_and_tables(best_epochs)[0])


@pytest.mark.parametrize(("epoch", "score"), [("last", "50.00‡"), ("best", "70.00")])
def test_one_answer_after_the_last_epoch_is_no_mark_of_an_earlier_epoch(bench, epoch, score):
    bench.record(
        bench.expect(),
        collapsed=["validation"],
        history=history_of("validation", "accuracy", 0.7, 0.5),
    )
    _, (table, *_) = page_and_tables(bench.plan(config={"protocol": {"epoch": epoch}}))
    assert table.header == ["Arm", "Params", "RTE"]
    assert table.texts[0][2] == score


def test_the_setup_says_how_much_of_the_data_there_was(bench):
    rows = {"train": 249, "validation": 277, "test": 3000}
    data = {"source": "tsv", "digest": "d", "partial": True, "rows": rows}
    bench.record(bench.expect("rte"), data=data)
    bench.finish("qnli", seed=1, partial=True)
    assert setup_facts(bench.plan())["Data"] == "tsv; QNLI in part; RTE 10% of train"


def test_the_setup_says_which_records_were_left_out(bench):
    bench.finish("qnli", seed=1)
    damaged = bench.finish("qnli", seed=2)["cell_id"]
    bench.plan()
    bench.file(damaged).write_text("{")
    stray = bench.path / "cells" / "stray"
    stray.mkdir()
    (stray / "record.json").write_text("{")
    setup = setup_facts(bench.path)
    assert setup["Runs"] == "1 of 2 planned; 2 records left out"
    assert f"cells/{damaged}/record.json: damaged or edited" in setup["Left out"]


OTHER_ROWS = {
    "source": "tsv",
    "digest": "d",
    "partial": True,
    "rows": {"train": 2490, "validation": 277, "test": 3000},
    "differences": {"validation": "CSV quotes around texts"},
}


def test_other_rows_of_the_official_number_have_a_mark_and_a_line(bench):
    bench.record(bench.expect("rte"), data=OTHER_ROWS)
    bench.finish("cola", seed=1, score=0.5)
    page, (table, *_) = page_and_tables(bench.plan())
    assert "RTE†" in table.header
    assert setup_facts(bench.path)["Data"] == "tsv; RTE validation with CSV quotes around texts"
    assert LEADERBOARD_LEGEND["differences"] in legend_of(page)


OFFICIAL_RTE = {
    "source": "tsv",
    "digest": "d",
    "partial": True,
    "rows": {"train": 2490, "validation": 277},
}


def test_scores_on_official_rows_are_not_called_partial_because_there_are_no_test_files(bench):
    bench.record(bench.expect("rte"), data=OFFICIAL_RTE)
    _, (table, *_) = page_and_tables(bench.plan())
    assert "RTE" in table.header
    assert setup_facts(bench.path)["Data"] == "tsv, complete"


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
def test_a_split_with_other_rows_than_the_official_ones_is_marked(bench, fact):
    bench.record(bench.expect("rte"), data=OFFICIAL_RTE | fact)
    _, (table, *_) = page_and_tables(bench.plan())
    assert "RTE†" in table.header


def test_other_rows_of_a_task_that_has_no_column_yet_have_no_line(bench):
    bench.finish("cola", seed=1, score=0.5)
    bench.expect("rte")
    bench.tasks["rte"] = OTHER_ROWS
    page, _ = page_and_tables(bench.plan())
    assert LEADERBOARD_LEGEND["differences"] not in legend_of(page)


def test_content_that_could_not_be_compared_is_not_called_complete(bench):
    bench.record(
        bench.expect("qqp"),
        data={"source": "tsv", "digest": "d", "unchecked": ("train", "validation")},
    )
    bench.plan()
    assert setup_facts(bench.path)["Data"] == "tsv; QQP complete by count, content not checked"


def write_everything(bench) -> Path:
    """Write an experiment with everything that a legend can explain. One arm is clearly worse."""
    for arm, accuracy in (("add", 0.8), ("none", 0.5), ("concat", 0.805)):
        for task in ("rte", "sst2"):
            bench.finish_predicted(task, arm, accuracy)
    for arm in ("add", "none"):
        bench.finish("cola", seed=1, score=0.5, arm=arm, collapsed=["validation"], partial=True)
        bench.expect("wnli", seed=1, arm=arm)
        bench.finish("stsb", seed=1, score=None, arm=arm)
        environment = {"processor": arm, "precision": "float32"}
        bench.record(bench.expect("qnli", seed=1, arm=arm), environment=environment)
        bench.record(bench.expect("mrpc", seed=1, arm=arm))
    bench.expect("mrpc", seed=2, arm="add")
    return bench.plan(config={"protocol": {"contrasts": [["none", "add"]]}})


def key_of_column(title: str) -> str:
    """Return the key of a column in the legend."""
    if title.startswith("Avg."):
        return "average"
    return KEYS_OF_TITLES.get(title, "task")


def keys_of_table(table: Read) -> set[str]:
    """Return the keys of the legend lines that a table needs."""
    keys = set()
    for title in table.header[1:]:
        if title not in ("Params", "Steps"):
            keys.add(key_of_column(title))
            keys |= {title[-1]} & set(MARKS)
    for name, *cells in table.rows:
        keys |= {name.text, name.text[-1]} & set(LEADERBOARD_LEGEND)
        for cell in cells:
            keys |= set(cell.text[-3:]) & set(MARKS)  # there may be several marks
            if cell.is_bold:
                keys.add("bold")
    return keys


def needed_keys(text: str) -> set[str]:
    """Return the keys of the legend lines that a leaderboard needs, by what its tables show."""
    keys = {"planned"} if "planned contrasts:" in text else set()
    for table in read_markdown(text):
        if {"Params", "Steps"} & set(table.header):
            keys |= keys_of_table(table)
    return keys


def test_each_mark_has_a_legend_line_and_each_legend_line_a_mark(bench):
    page = leaderboard_page(open_leaderboard(write_everything(bench)))
    legend = legend_of(page)
    assert set(legend) == {LEADERBOARD_LEGEND[key] for key in needed_keys(to_markdown(page))}
    assert len(legend) <= 8


@pytest.mark.parametrize("folder", STORED, ids=lambda folder: folder.name)
def test_each_mark_of_a_committed_leaderboard_has_a_legend_line_and_each_legend_line_a_mark(folder):
    """The file is what its records give: see tests/promises/test_results.py."""
    text = (folder / "leaderboard.md").read_text("utf-8")
    lines = text.replace("\\", "").splitlines()
    legend = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    assert set(legend) == {LEADERBOARD_LEGEND[key] for key in needed_keys(text)}
    assert len(legend) <= 8


@pytest.fixture
def screen_lines(bench):
    """The lines that a terminal of 80 columns shows for six arms and all tasks."""
    arms = ("untied-relative", "add-relative", "concat-split", "add", "none", "concat")
    for arm in arms:
        for task in TRAINABLE:
            accuracy = 0.4 if arm == "none" else 0.999
            bench.finish_predicted(task, arm, accuracy, seeds=2)
    page = screen_page(open_leaderboard(bench.plan(data_source="demo")))
    console = Console(width=80, record=True, file=StringIO(), force_terminal=True)
    print_page(page, console, "runs/toy/leaderboard.md")
    return console.export_text().splitlines()


def test_six_arms_and_all_tasks_fit_a_terminal_of_80_by_24(screen_lines):
    assert max(map(len, screen_lines)) <= 80
    assert len(screen_lines) <= 22
    assert sum(line.startswith("untied-relative") for line in screen_lines) == 1


def test_a_terminal_shows_the_first_columns_and_names_the_file_with_the_rest(screen_lines):
    (header,) = [line.split() for line in screen_lines if line.startswith("Arm")]
    expected = ["Arm", "Params", "Avg.", "of", "9", "Difference"]
    assert header[:6] == expected
    assert screen_lines[-1].endswith("): runs/toy/leaderboard.md")
