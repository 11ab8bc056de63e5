"""The committed results: records give the stored tables byte for byte, configurations and data the
stored ids.

And every figure of the README and of a results page stands in the tables, at the printed precision
and with its sign: a contrast (difference, interval, answer) is one row of statistics.csv; any other
figure is a value of the folder's tables, of its experiment file, or of the page of benchmarks that
it links. The README may take from all tables, and from the papers' tables. A figure in a code quote
counts, too. Of pages of docs/explanation/ the intervals are read here, and all figures by
test_explained_figures.
"""

import csv
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers.figures import figures_in, is_shown, prose

import glue_bench
from glue_bench.config import SCRATCH, load_experiment
from glue_bench.data.sources import open_source
from glue_bench.data.task_data import TaskData
from glue_bench.data.tasks import TASKS
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.inputs import Inputs

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
FOLDERS = sorted(path.parent for path in ROOT.glob("results/*/plan.json"))
of_each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_there_are_results():
    assert {folder.name for folder in FOLDERS} >= {"minilm", "study", "study_screen"}


@of_each_folder
def test_verify_finds_nothing_but_one_other_digit_in_a_table(folder, tmp_path):
    """Digests, ids, that predictions give the scores, that records give all tables."""
    names = {"minilm": "statistics.csv", "study": "tupe-1.md"}
    copied = shutil.copytree(folder, tmp_path / folder.name)
    table = copied / names.get(folder.name, "leaderboard.csv")
    text = table.read_text("utf-8")
    last = max(match.start() for match in re.finditer(r"\d", text))
    digit = (int(text[last]) + 1) % 10
    table.write_text(f"{text[:last]}{digit}{text[last + 1 :]}", "utf-8")
    (verified,) = glue_bench.verify(copied)
    assert [table.name in fault for fault in verified.faults] == [True]


@of_each_folder
def test_every_planned_cell_and_pretraining_is_there_and_nothing_else(folder):
    plan = Store(folder).plan()
    for kind, jobs in (("cells", plan.cells), ("pretrainings", plan.pretrainings)):
        assert {path.name for path in (folder / kind).glob("*")} == {job.id for job in jobs}


@of_each_folder
def test_every_cell_is_done_and_has_predictions(folder):
    finished = Store(folder).finished(Store(folder).plan())
    assert set(glue_bench.status(folder)["state"]) == {"done"}
    without_logits = [name for name, record in finished.records.items() if not record.logits]
    assert without_logits == []


@of_each_folder
def test_a_record_has_the_commit_that_made_it_without_changes(folder):
    finished = Store(folder).finished(Store(folder).plan())
    # In study_eight one number was changed, as its configuration says.
    changes = r"(\+changes)?" if folder.name == "study_eight" else ""
    for record in [*finished.records.values(), *finished.pretrainings.values()]:
        assert re.fullmatch("[0-9a-f]{7,40}" + changes, record.environment.git_commit)


@of_each_folder
def test_the_configuration_gives_the_stored_ids_and_descriptions(folder):
    """What it reads outside the project is taken from the committed plan."""
    plan = Store(folder).plan()
    experiment = load_experiment(ROOT / "configs" / f"{folder.name}.yaml")
    inputs = Inputs(experiment, folder)
    cells = {cell.arm: cell for cell in plan.cells}
    if plan.pretrainings:
        inputs.text.corpus = SimpleNamespace(digest=plan.pretrainings[0].corpus)
    inputs.tasks.data = plan.tasks.get
    for name, arm in inputs.arms.items():
        arm.fingerprint = cells[name].checkpoint
        arm.tokenizer_digest = cells[name].tokenizer
        arm.origin = cells[name].origin
    assert settle_jobs(inputs) == ([*plan.pretrainings], [*plan.cells])
    for arm in plan.experiment.arms:
        origin = cells[arm.name].origin
        start = SCRATCH if origin == "pretrained" else origin
        description = VARIANTS[arm.variant].described(arm.options, start)
        assert plan.arms[arm.name].summary == description


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "text").is_dir(), reason="no ../shared here")
@pytest.mark.parametrize("name", ["study", "study_eight", "study_screen"])
def test_with_the_real_data_nothing_would_run_again(name):
    sources = {
        "data": str(SHARED / "glue"),
        "corpus": [str(SHARED / "text")],
        "results": ROOT / "results",
    }
    cells = glue_bench.plan(ROOT / "configs" / f"{name}.yaml", **sources)
    folders = (ROOT / "results" / name / "cells").iterdir()
    assert cells[["state", "why"]].drop_duplicates().to_numpy().tolist() == [["done", ""]]
    assert set(cells["cell_id"]) == {path.name for path in folders}


@pytest.mark.skipif(not (SHARED / "glue").is_dir(), reason="no ../shared here")
def test_the_data_are_what_the_records_say():
    source = SimpleNamespace(load=cache(open_source(str(SHARED / "glue")).load))
    for folder in FOLDERS:
        inputs = Inputs(load_experiment(ROOT / "configs" / f"{folder.name}.yaml"), folder)
        inputs.tasks.source = source
        for task, facts in inputs.store.plan().tasks.items():
            assert inputs.tasks.data(task).digest == facts.digest, (folder.name, task)


def with_split(data: TaskData, split: str, frame: pd.DataFrame) -> TaskData:
    """Return the data of a task with another frame in the place of a split."""
    return replace(data, splits={**data.splits, split: frame})


@pytest.mark.parametrize("task", TASKS)
def test_the_digest_of_data_sees_every_text_and_label_and_their_order(task):
    """Ids are made of it: one other value or another order gives another digest."""
    data = open_source("demo").load(task)
    for split, frame in data.splits.items():
        changed_frames = [frame.iloc[::-1]]
        for name in frame:
            changed = frame.copy()
            changed.loc[1, name] += 1 if name == "label" else " x"
            changed_frames.append(changed)
        digests = {with_split(data, split, changed).digest for changed in changed_frames}
        assert data.digest not in digests
        assert len(digests) == len(changed_frames)


@pytest.mark.parametrize("task", TASKS)
def test_the_digest_of_data_is_that_of_equal_data(task):
    data = open_source("demo").load(task)
    for split, frame in data.splits.items():
        assert with_split(data, split, frame.copy()).digest == data.digest


@pytest.mark.parametrize("task", TASKS)
def test_the_digest_of_data_sees_every_split(task):
    data = open_source("demo").load(task)
    for split in data.splits:
        fewer = {name: frame for name, frame in data.splits.items() if name != split}
        assert replace(data, splits=fewer).digest != data.digest


SAME_LOSS = 0.05
"""Nats: the margin of the rules in configs/ by which two losses are the same."""
PAGES = ["README.md"]
PAGES += [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("results/*/README.md"))]
EXPLANATIONS = [
    "docs/explanation/reading-a-leaderboard.md",
    "docs/explanation/why-embeddings-are-added.md",
]
"""The pages of docs/explanation/ that quote results; figures of the others are examples."""
TABLE = re.compile(
    "(leaderboard|statistics|budget|rates|scores|losses|lags|lag_seeds|reached|ratios|ratio_seeds|"
    "agreement|tupe-1).*"
)
CONTRAST = re.compile(
    r"^\|.*\| `([\w-]+)` - `([\w-]+)` "  # two arms
    r"\| ([-+][\d.]+) \(([-+][\d.]+) to ([-+][\d.]+)\) "  # their difference and its interval
    r"\|(?:[^|]*\|)*? ([a-z ]+) \|$",  # an answer in words
    re.MULTILINE,
)
INTERVAL = re.compile(r"\(([-+]\d+\.\d+) to ([-+]\d+\.\d+)\b")


def tables(page: str) -> list[Path]:
    """Return the tables that a page may take from.

    They are those of its folder and of the folders that continue it. The README may take from all,
    and a page of docs/explanation/ from the folders that it links.
    """
    text = (ROOT / page).read_text("utf-8")
    is_explanation = page.startswith("docs/")
    name = Path(page).parent.name
    paths: list[Path] = []
    for folder in FOLDERS:
        is_own = page == "README.md" or folder.name.startswith(name)
        if is_explanation:
            is_own = f"results/{folder.name}/" in text
        if is_own:
            paths += [path for path in folder.glob("*.*") if TABLE.fullmatch(path.name)]
    return paths


def sources(page: str) -> list[Path]:
    """Return the files that a page may take a figure from.

    Beside the tables they are the experiment's file, which has the limits of the rules, and the
    page of benchmarks, if the page links it.
    """
    paths = tables(page)
    paths += ROOT.glob(f"configs/{Path(page).parent.name}.yaml")
    benchmarks = ROOT / "benchmarks" / "README.md"
    if "(../../benchmarks/README.md" in (ROOT / page).read_text("utf-8"):
        paths.append(benchmarks)
    return paths


def statistics_rows(page: str) -> list[dict[str, str]]:
    """Return the rows of the statistics that a page may take from."""
    rows: list[dict[str, str]] = []
    for path in tables(page):
        if path.match("statistics*.csv"):
            rows += csv.DictReader(path.read_text("utf-8").splitlines())
    return rows


def declared_rows(rows: list[dict[str, str]], arms: list[str]) -> list[dict[str, str]]:
    """Return the rows of two arms' losses: those of contrasts that were named beforehand, if
    there are any.
    """
    arm_rows: list[dict[str, str]] = []
    for row in rows:
        if [row["arm"], row["reference"]] == arms and "loss" in row["column"]:
            arm_rows.append(row)
    return [row for row in arm_rows if row["kind"] == "declared"] or arm_rows


@pytest.mark.parametrize("page", PAGES)
def test_every_line_with_two_arms_is_read_as_a_contrast(page):
    text = (ROOT / page).read_text("utf-8")
    assert len(CONTRAST.findall(text)) == text.count("` - `")


@pytest.mark.parametrize("page", PAGES)
def test_every_contrast_is_a_row_of_the_statistics(page):
    """Its difference, interval and answer are in one row."""
    rows = statistics_rows(page)
    for *arms, difference, low, high, answer in CONTRAST.findall((ROOT / page).read_text("utf-8")):
        verdicts = {
            "not shown": [""],
            "the same": [""],
            "yes": ["better", "worse"],
        }.get(answer, [answer])
        if answer == "the same":
            assert max(abs(float(low)), abs(float(high))) < SAME_LOSS, arms
        numbers = {"difference": difference, "low": low, "high": high}
        matching: list[dict[str, str]] = []
        for row in declared_rows(rows, arms):
            if all(is_shown(number, float(row[name])) for name, number in numbers.items()):
                matching.append(row)
        assert any(row["verdict"] in verdicts for row in matching), (arms, matching)


@pytest.mark.parametrize("page", PAGES + EXPLANATIONS)
def test_every_interval_is_that_of_a_row_of_the_statistics(page):
    rows = [row for row in statistics_rows(page) if row["low"]]
    for low, high in INTERVAL.findall((ROOT / page).read_text("utf-8")):
        matching = [row for row in rows if is_shown(low, float(row["low"]))]
        assert any(is_shown(high, float(row["high"])) for row in matching), (low, high)


@cache
def values(page: str) -> np.ndarray:
    """Return every number of the files that a page may take a figure from."""
    numbers: set[float] = set()
    for path in sources(page):
        text = path.read_text("utf-8")
        if path.suffix == ".csv":
            words = re.split(r"[,\s]", text)
        else:
            words = re.findall(r"[-+]?\d[\d,]*(?:\.\d+)?", text)
        for word in words:
            with suppress(ValueError):
                numbers.add(float(word.replace(",", "")))
    return np.array([*numbers])


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_stands_in_the_tables(page):
    text = prose((ROOT / page).read_text("utf-8"))
    made_up: list[str] = []
    for figure in figures_in(text):
        if not is_shown(figure[0], values(page)):
            made_up.append(text[max(0, figure.start() - 30) : figure.end() + 12])
    assert made_up == []
