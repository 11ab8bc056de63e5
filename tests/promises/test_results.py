"""The committed results: records give the stored tables byte for byte, configurations and data the stored ids.

And every figure of the README and of a results page stands in the tables, at the printed precision and with its sign:
a contrast (difference, interval, answer) is one row of statistics.csv; any other figure is a value of the folder's
tables. The README may take from all of them, and from the papers' tables.
"""

import csv
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

import glue_bench
from glue_bench.config import SCRATCH, load_experiment
from glue_bench.data.sources import open_source
from glue_bench.data.tasks import TASKS
from glue_bench.model.variants import VARIANTS
from glue_bench.records.store import Store
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.inputs import Inputs

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
FOLDERS = sorted(path.parent for path in ROOT.glob("results/*/plan.json"))
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_there_are_results():
    assert {folder.name for folder in FOLDERS} >= {"minilm", "study", "study_screen"}


@each
def test_verify_finds_nothing_but_one_other_digit_in_a_table(folder, tmp_path):
    """Digests, ids, that predictions give the scores, that records give all tables."""
    again = shutil.copytree(folder, tmp_path / folder.name)
    other = again / {"minilm": "statistics.csv", "study": "tupe-1.md"}.get(
        folder.name, "leaderboard.csv"
    )
    text = other.read_text("utf-8")
    last = max(found.start() for found in re.finditer(r"\d", text))
    other.write_text(f"{text[:last]}{(int(text[last]) + 1) % 10}{text[last + 1 :]}", "utf-8")
    (found,) = glue_bench.verify(again)
    assert [other.name in fault for fault in found.faults] == [True]


@each
def test_every_planned_cell_and_pretraining_is_there_and_nothing_else(folder):
    """Each with its record, its predictions and the commit that made it, which had no changes of its own."""
    plan, finished = Store(folder).plan(), Store(folder).finished(Store(folder).plan())
    assert set(glue_bench.status(folder)["state"]) == {"done"}
    for kind, jobs in (("cells", plan.cells), ("pretrainings", plan.pretrainings)):
        assert {path.name for path in (folder / kind).glob("*")} == {job.id for job in jobs}
    assert all(record.logits for record in finished.records.values())
    for record in [*finished.records.values(), *finished.pretrainings.values()]:
        changes = (
            r"(\+changes)?" if folder.name == "study_eight" else ""
        )  # one number, as its configuration says
        assert re.fullmatch("[0-9a-f]{7,40}" + changes, record.environment.git_commit)


@each
def test_the_configuration_gives_the_stored_ids_and_descriptions(folder):
    """What it reads outside the project is taken from the committed plan."""
    plan, experiment = (
        Store(folder).plan(),
        load_experiment(ROOT / "configs" / f"{folder.name}.yaml"),
    )
    inputs, cells = Inputs(experiment, folder), {cell.arm: cell for cell in plan.cells}
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
        described = VARIANTS[arm.variant].described(
            arm.options, SCRATCH if origin == "pretrained" else origin
        )
        assert plan.arms[arm.name].summary == described


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "text").is_dir(), reason="no ../shared here")
@pytest.mark.parametrize("name", ["study", "study_eight", "study_screen"])
def test_with_the_real_data_nothing_would_run_again(name):
    where = {
        "data": str(SHARED / "glue"),
        "corpus": [str(SHARED / "text")],
        "results": ROOT / "results",
    }
    cells = glue_bench.plan(ROOT / "configs" / f"{name}.yaml", **where)
    assert cells[["state", "why"]].drop_duplicates().to_numpy().tolist() == [["done", ""]]
    assert set(cells["cell_id"]) == {
        path.name for path in (ROOT / "results" / name / "cells").iterdir()
    }


@pytest.mark.skipif(not (SHARED / "glue").is_dir(), reason="no ../shared here")
def test_the_data_are_what_the_records_say():
    source = SimpleNamespace(load=cache(open_source(str(SHARED / "glue")).load))
    for folder in FOLDERS:
        inputs = Inputs(load_experiment(ROOT / "configs" / f"{folder.name}.yaml"), folder)
        inputs.tasks.source = source
        assert all(
            inputs.tasks.data(task).digest == facts.digest
            for task, facts in inputs.store.plan().tasks.items()
        )


@pytest.mark.parametrize("task", TASKS)
def test_the_digest_of_data_sees_every_text_and_label(task):
    """Ids are made of it: equal content gives an equal digest, and one other value or another order another one."""
    data = open_source("demo").load(task)
    for split, frame in data.splits.items():
        changed = {"order": frame.iloc[::-1]} | {name: frame.copy() for name in frame}
        for name in frame:
            changed[name].loc[1, name] = changed[name].loc[1, name] + (
                1 if name == "label" else " x"
            )
        made = {
            name: replace(data, splits={**data.splits, split: other}).digest
            for name, other in changed.items()
        }
        assert data.digest not in made.values()
        assert len(set(made.values())) == len(made)
        assert replace(data, splits={**data.splits, split: frame.copy()}).digest == data.digest
    fewer = {name: frame for name, frame in data.splits.items() if name != split}
    assert replace(data, splits=fewer).digest != data.digest


PAGES = [
    "README.md",
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("results/*/README.md"))),
]
TABLE = re.compile("(leaderboard|statistics|budget|rates|scores|losses|agreement|tupe-1).*")
CONTRAST = re.compile(
    r"^\|.*\| `([\w-]+)` - `([\w-]+)` \| ([-+][\d.]+) \(([-+][\d.]+) to ([-+][\d.]+)\) \|(?:[^|]*\|)*? ([a-z ]+) \|$",
    re.MULTILINE,
)
INTERVAL = re.compile(r"\(([-+]\d+\.\d+) to ([-+]\d+\.\d+)\b")
NUMBER = re.compile(r"(?<![\w.,/-])[-+]?\d[\d,]*(?:\.\d+)?(?: million|%|k\b|M\b)?(?![\w/]|[.-]\d)")
UNITS = {" million": 1e6, "M": 1e6, "k": 1e3, "%": 1.0}


def tables(page: str) -> list[Path]:
    """The tables that a page may take from: of its own folder and of those that continue it, the README of all."""
    own = "" if page == "README.md" else Path(page).parent.name
    folders = [folder for folder in FOLDERS if folder.name.startswith(own)]
    return [path for folder in folders for path in folder.glob("*.*") if TABLE.fullmatch(path.name)]


def is_shown(text: str, value: float) -> bool:
    """Whether a value is printed so; without a sign it may be a size."""
    unit = next((unit for unit in UNITS if text.endswith(unit)), "")
    number = text.removesuffix(unit).replace(",", "")
    sizes = (value,) if text[0] in "+-" else (value, -value)
    near = 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9
    return any(abs(one / UNITS.get(unit, 1.0) - float(number)) <= near for one in sizes)


@pytest.mark.parametrize("page", PAGES)
def test_every_contrast_is_a_row_of_the_statistics(page):
    """Its difference, interval and answer; of rows of its arms those named beforehand, of an interval alone any row."""
    text = (ROOT / page).read_text("utf-8")
    texts = [
        path.read_text("utf-8").splitlines()
        for path in tables(page)
        if path.match("statistics*.csv")
    ]
    rows = [row for lines in texts for row in csv.DictReader(lines)]
    assert len(CONTRAST.findall(text)) == text.count("` - `")
    for *arms, difference, low, high, answer in CONTRAST.findall(text):
        mine = [
            row
            for row in rows
            if [row["arm"], row["reference"]] == arms and "loss" in row["column"]
        ]
        mine = [row for row in mine if row["kind"] == "declared"] or mine
        verdicts = {"not shown": [""], "yes": ["better", "worse"]}.get(answer, [answer])
        shown = [(difference, "difference"), (low, "low"), (high, "high")]
        found = [
            row for row in mine if all(is_shown(number, float(row[name])) for number, name in shown)
        ]
        assert any(row["verdict"] in verdicts for row in found), (arms, found)
    for low, high in INTERVAL.findall(text):
        found = [row for row in rows if row["low"] and is_shown(low, float(row["low"]))]
        assert any(is_shown(high, float(row["high"])) for row in found), (low, high)


@cache
def values(page: str) -> list[float]:
    """Every number of the tables that a page may take from."""
    found = set[float]()
    for path in tables(page):
        text = path.read_text("utf-8")
        for cell in (
            re.split(r"[,\s]", text)
            if path.suffix == ".csv"
            else re.findall(r"[-+]?\d[\d,]*(?:\.\d+)?", text)
        ):
            with suppress(ValueError):
                found.add(float(cell.replace(",", "")))
    return [*found]


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_stands_in_the_tables(page):
    """The numbers with decimals, a sign, a unit or thousands; versions of programs are none."""
    text = (ROOT / page).read_text("utf-8")
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(
        r"\]\([^)]*\)|https?://\S+|`[^`]*`|\b(?:torch|Python) \d[\d.]*",
        " ",
        text.replace("\n", " "),
    )
    figures = [
        found
        for found in NUMBER.finditer(text)
        if re.search(r"\.\d|^[-+]\d|,\d{3}|%|million|k|M", found[0])
    ]
    made_up = [
        found for found in figures if not any(is_shown(found[0], value) for value in values(page))
    ]
    assert [text[max(0, found.start() - 30) : found.end() + 12] for found in made_up] == []
