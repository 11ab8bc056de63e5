"""The committed results: records give the stored tables byte for byte, configurations and data the stored ids.

And every figure of the README and of a results page stands in the tables, at the printed precision and with its sign:
a contrast (difference, interval, answer) is one row of statistics.csv; any other figure is a value of the folder's
tables. The README may take from all of them, and from the papers' tables.
"""

import csv
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

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
    other = again / {"minilm": "statistics.csv", "study": "tupe-1.md"}.get(folder.name, "leaderboard.csv")
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
        assert re.fullmatch("[0-9a-f]{7,40}", record.environment.git_commit)


@each
def test_the_configuration_gives_the_stored_ids_and_descriptions(folder):
    """What it reads outside the project is taken from the committed plan."""
    plan, experiment = Store(folder).plan(), load_experiment(ROOT / "configs" / f"{folder.name}.yaml")
    inputs, cells = Inputs(experiment, folder), {cell.arm: cell for cell in plan.cells}
    if plan.pretrainings:
        inputs.corpus = SimpleNamespace(digest=plan.pretrainings[0].corpus)
    else:
        inputs.fingerprint = lambda arm: cells[arm.name].checkpoint
    inputs.data = plan.tasks.get
    inputs.tokenizer_digest = lambda arm: cells[arm.name].tokenizer
    inputs.origin = lambda arm: cells[arm.name].origin
    assert settle_jobs(experiment, inputs) == ([*plan.pretrainings], [*plan.cells])
    for arm in plan.experiment.arms:
        origin = cells[arm.name].origin
        described = VARIANTS[arm.variant].described(arm.options, SCRATCH if origin == "pretrained" else origin)
        assert plan.arms[arm.name].summary == described


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "text").is_dir(), reason="no ../shared here")
@pytest.mark.parametrize("name", ["study", "study_screen"])
def test_with_the_real_data_nothing_would_run_again(name):
    where = {"data": str(SHARED / "glue"), "corpus": [str(SHARED / "text")], "results": ROOT / "results"}
    cells = glue_bench.plan(ROOT / "configs" / f"{name}.yaml", **where)
    assert set(cells["state"]) == {"done"}
    assert set(cells["why"]) == {""}
    assert set(cells["cell_id"]) == {path.name for path in (ROOT / "results" / name / "cells").iterdir()}


@pytest.mark.skipif(not (SHARED / "glue").is_dir(), reason="no ../shared here")
def test_the_data_are_what_the_records_say():
    source = open_source(str(SHARED / "glue"))
    seen = {(cell.task, cell.data) for folder in FOLDERS for cell in Store(folder).plan().cells}
    assert dict(seen) == {task: source.load(task).digest for task, _ in seen}
    assert len(dict(seen)) == len(seen)


@pytest.mark.parametrize("task", TASKS)
def test_the_digest_of_data_sees_every_text_and_label(task):
    """Ids are made of it: equal content gives an equal digest, and one other value or another order another one."""
    data = open_source("demo").load(task)
    for split, frame in data.splits.items():
        changed = {"order": frame.iloc[::-1]} | {name: frame.copy() for name in frame}
        for name in frame:
            changed[name].loc[1, name] = changed[name].loc[1, name] + (1 if name == "label" else " x")
        made = {name: replace(data, splits={**data.splits, split: other}).digest for name, other in changed.items()}
        assert data.digest not in made.values()
        assert len(set(made.values())) == len(made)
        assert replace(data, splits={**data.splits, split: frame.copy()}).digest == data.digest
    fewer = {name: frame for name, frame in data.splits.items() if name != split}
    assert replace(data, splits=fewer).digest != data.digest


# Figures of pages

PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("results/*/README.md")))]
KINDS = (
    "leaderboard.*",
    "statistics.*",
    "budget.*",
    "rates.csv",
    "scores.csv",
    "losses.csv",
    "tupe-1.md",
    "agreement*",
)
NUMBER = re.compile(r"(?<![\w.,/-])[-+]?\d[\d,]*(?:\.\d+)?(?: million|%|k\b|M\b)?(?![\w/]|[.-]\d)")
INTERVAL = re.compile(r"(?:([-+]\d+\.\d+)[^\d;]{1,60}(?:\d+% interval )?\(?)?([-+]\d+\.\d+) to ([-+]?\d+\.\d+)")
SENTENCE = re.compile(r"`([\w-]+)` is (better|worse) than `([\w-]+)` \(([-+][\d.]+) nats\)")
ROW = re.compile(r"\| +`?([\w-]+)`? - `?([\w-]+)`? +\|(.*)")
UNITS = {" million": 1e6, "M": 1e6, "k": 1e3}
ANSWERS = {"yes": True, "holds": True, "does not hold": True, "not s": False}


class Contrast(NamedTuple):
    """A difference of two arms as a page prints it; what it leaves out is empty."""

    page: str
    arms: tuple[str, ...]
    numbers: tuple[str, ...]  # difference, low, high
    answer: str = ""


def contrasts(page: str) -> Iterator[Contrast]:
    """The rows of tables that name two arms, and in sentences the intervals, and verdicts between two arms."""
    rows = [found for line in (ROOT / page).read_text("utf-8").splitlines() if (found := ROW.search(line))]
    for row in rows:
        numbers = re.findall(r"[-+]?\d+\.\d+", row[3])
        if len(numbers) >= 3:
            answer = next((cell.strip() for cell in row[3].split("|") if re.match(r" *[a-z]{3}", cell)), "")
            yield Contrast(page, (row[1], row[2]), tuple(numbers[:3]), answer)
    text = re.sub(r"\|[^|]*(?=\|)", "", prose(page)) if rows else prose(page)
    for numbers in INTERVAL.findall(text):
        yield Contrast(page, (), numbers)
    for arm, verdict, reference, difference in SENTENCE.findall(text):
        yield Contrast(page, (arm, reference), (difference,), verdict)
    for listed in re.findall(r"not shown to differ: (.*?)\.", text):
        for pair in re.findall(r"`([\w-]+)` and `([\w-]+)`", listed):
            yield Contrast(page, pair, (), "not shown")


def prose(page: str) -> str:
    """A page in one line, without code, links' targets and comments."""
    text = (ROOT / page).read_text("utf-8")
    text = re.sub(r"```.*?```|<!--.*?-->|<picture>.*?</picture>", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)|https?://\S+", "", text)
    return re.sub(r"[ \t]*\n>?[ \t]*", " ", text)


def folders(page: str) -> list[Path]:
    """The folders whose tables a page may take from."""
    return FOLDERS if page == "README.md" else [(ROOT / page).parent]


@cache
def statistics(page: str) -> list[dict[str, str]]:
    """The rows that a page may take from: those named beforehand first."""
    texts = [(path / "statistics.csv").read_text("utf-8") for path in folders(page)]
    rows = [row for text in texts for row in csv.DictReader(StringIO(text))]
    return sorted(rows, key=lambda row: row["kind"] != "declared")


@cache
def values(page: str) -> list[float]:
    """Every number of the tables that a page may take from."""
    paths = [path for folder in folders(page) for kind in KINDS for path in folder.glob(kind)]
    found = set[float]()
    for path in paths:
        text = path.read_text("utf-8")
        cells = re.split(r"[,\s]", text) if path.suffix == ".csv" else re.findall(r"[-+]?\d[\d,]*(?:\.\d+)?", text)
        plain = (cell.replace(",", "") for cell in cells if re.fullmatch(r"[-+]?\d[\d,]*(\.\d+)?(e-?\d+)?", cell))
        found |= set(map(float, plain))
    return sorted(found)


def is_shown(text: str, value: float) -> bool:
    """Whether a value is printed so; without a sign it may be a size."""
    unit = next((size for name, size in UNITS.items() if text.endswith(name)), 1.0)
    digits = text.strip(" milonMk%")
    near = 0.5 * 10 ** -len(digits.partition(".")[2]) + 1e-9
    return any(
        abs(one / unit - float(digits.replace(",", ""))) <= near
        for one in ((value,) if text[0] in "+-" else (value, -value))
    )


def answers(answer: str, verdict: str) -> bool:
    """Whether what a page says agrees with a verdict."""
    if answer in ("better", "worse"):
        return answer == verdict
    said = next((shown for words, shown in ANSWERS.items() if answer.startswith(words)), None)
    return said is None or said == bool(verdict)


def is_row(contrast: Contrast, row: dict[str, str]) -> bool:
    """Whether a row of statistics.csv has the contrast's numbers and its answer."""
    columns = zip(contrast.numbers, (row["difference"], row["low"], row["high"]), strict=False)
    printed = [(text if text[0] in "+-" else f"+{text}", value) for text, value in columns if text]
    same = all(value and is_shown(text, float(value)) for text, value in printed)
    return same and answers(contrast.answer, row["verdict"])


@pytest.mark.parametrize("contrast", [one for page in PAGES for one in contrasts(page)], ids=str)
def test_every_contrast_is_a_row_of_the_statistics(contrast):
    """Of those of its arms the ones named beforehand, if there are some; of any arms if it names none."""
    rows = statistics(contrast.page)
    if contrast.arms:
        rows = [row for row in rows if (row["arm"], row["reference"]) == contrast.arms and "loss" in row["column"]]
        rows = [row for row in rows if row["kind"] == "declared"] or rows
    assert any(is_row(contrast, row) for row in rows)


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_stands_in_the_tables(page):
    """The numbers with decimals, a sign, a unit or thousands; versions of programs are none."""
    text = re.sub(r"`[^`]*`|\b(?:torch|Python|recipe) \d[\d.]*", "` `", prose(page))
    figures = [found for found in NUMBER.finditer(text) if re.search(r"\.\d|^[-+]\d|,\d{3}|%|million|k|M", found[0])]
    made_up = [found for found in figures if not any(is_shown(found[0], value) for value in values(page))]
    assert [text[max(0, found.start() - 30) : found.end() + 12] for found in made_up] == []
