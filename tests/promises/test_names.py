"""An arm may have any legal name in every table, also the name of a column."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers.stored import Bench, digest

from glue_bench.analysis.chance import Analysis, Row, row
from glue_bench.board.board import averages_frame
from glue_bench.board.compare import Comparison, open_comparison
from glue_bench.board.leaderboard import make_leaderboard
from glue_bench.board.steps import steps_frame
from glue_bench.config.experiment import NAME_PATTERN
from glue_bench.pages.budget import budget_frame, budget_page, rates_frame
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.diagnostics import diagnostics_page
from glue_bench.pages.inside import CELL_PARTS, HEADLINES, inside_page
from glue_bench.pages.latex import to_latex
from glue_bench.pages.leaderboard import leaderboard_page
from glue_bench.pages.marks import LEADERBOARD_LEGEND
from glue_bench.pages.page import Page, Part, Table
from glue_bench.pages.papers import named_page
from glue_bench.pages.render import to_csv, to_html, to_json, to_markdown
from glue_bench.pages.report import make_report
from glue_bench.pages.seeds_needed import difference_page

ROWS = 60
RESERVED = [
    "average",
    "baseline",
    "chance",
    "index",
    "interval",
    "loss",
    "measure",
    "reference",
    "size",
    "value",
    "T",
]


def diagnostic_set() -> SimpleNamespace:
    """Return a diagnostic set of ROWS pairs in two categories."""
    labels = np.arange(ROWS) % 3
    phenomena = {
        ("", ""): labels >= 0,
        ("Logic", ""): labels > 0,
        ("Logic", "Negation"): labels > 1,
    }
    return SimpleNamespace(
        path=Path("diagnostic-full.tsv"),
        digest=digest("ax"),
        pairs=pd.DataFrame({"label": labels, "text_a": "a", "text_b": "b"}),
        phenomena=phenomena,
    )


def finish_mnli(bench: Bench, name: str, place: int) -> None:
    """Add two MNLI cells of an arm with predictions of the diagnostic set."""
    labels = np.arange(ROWS) % 3
    empty = np.zeros((1, 3))
    for seed in (1, 2):
        cell = bench.expect("mnli", seed=seed, arm=name)
        bench.record(cell, score=0.4 + place % 20 / 100, diagnostic=digest("ax"))
        is_wrong = np.random.default_rng([place, seed]).random(ROWS) < 0.3
        predicted = np.where(is_wrong, (labels + 1) % 3, labels)
        logits = {
            "validation_matched": empty,
            "validation_mismatched": empty,
            "test_ax": np.eye(3, dtype=np.float32)[predicted],
        }
        bench.predict(cell["cell_id"], logits)


def experiment_with(names: tuple[str, ...], folder: Path) -> Path:
    """Store an experiment with arms of these names. An arm's scores depend on its place alone."""
    bench = Bench(folder)
    for place, name in enumerate(names):
        bench.pretrain(name, seed=1)
        bench.pretrain(name, seed=2)
        bench.finish_predicted("rte", name, 0.5 + place % 30 / 100, seeds=2)
        finish_mnli(bench, name, place)
    contrasts = [[names[1], names[0]], [names[2], names[1]]]
    config = {
        "arms": [{"name": name} for name in names],
        "protocol": {"reference": names[0], "contrasts": contrasts},
        "pretraining": {"seeds": [1, 2]},
    }
    return bench.plan(config=config)


def analysis_of(names: tuple[str, ...]) -> Analysis:
    """Make an analysis of checkpoints with these names, each with different values."""
    frames: list[pd.DataFrame] = []
    for place, name in enumerate(names):
        rows = [row(measure, 0.1 + place / 1000, (0.05, 0.9), (0.2, 0.3)) for measure in HEADLINES]
        frames.append(pd.DataFrame(rows, columns=Row._fields).assign(checkpoint=name))
    left_out = {"checkpoint": [names[0]], "measure": ["order"], "reason": ["no head"]}
    return Analysis(
        text="a text",
        text_digest="t" * 64,
        sequences=9,
        subjects=pd.DataFrame({"checkpoint": names, "variant": "add", "weights": names}),
        measures=pd.concat(frames, ignore_index=True).astype({"layer": "Int64"}),
        left_out=pd.DataFrame(left_out),
        matrices={},
    )


def pages_of(comparison: Comparison, names: tuple[str, ...]) -> Iterator[Page]:
    """Yield every page that names arms."""
    path = comparison.board.results.folder
    yield leaderboard_page(make_leaderboard(comparison))
    yield statistics_page(comparison, equivalent=1.0)
    yield difference_page(comparison, 1.0, 0.8)
    yield budget_page(comparison.board.results)
    yield named_page("tupe-1", path)
    yield diagnostics_page(comparison.board, diagnostic_set())
    yield inside_page(analysis_of(names))
    yield inside_page(analysis_of(names[:1]))


def columns_of(comparison: Comparison) -> set[str]:
    """Return the names of the columns of all frames."""
    results = comparison.board.results
    pages = list(pages_of(comparison, tuple(results.arms.index)))

    frames = [
        make_leaderboard(comparison).frame,
        comparison.contrasts,
        budget_frame(results),
        rates_frame(results),
        averages_frame(comparison.board),
        steps_frame(comparison.board),
        comparison.board.table,
        comparison.board.scores,
        comparison.board.cells,
        *(value for value in vars(results).values() if isinstance(value, pd.DataFrame)),
        *(page.rows for page in pages),
    ]

    names: set[str] = set()
    for frame in frames:
        names.update(map(str, [*frame.columns, *frame.index.names]))
    for page in pages:
        for table in page.tables:
            names.update(map(str, [*table.columns, *table.frame.columns]))
    return names


def texts_of(tables: tuple[Table, ...]) -> list[list[list[str]]]:
    """Return the headers and cells of tables."""
    texts: list[list[list[str]]] = []
    for table in tables:
        rows = [[cell.text for cell in row] for row in table.rows]
        texts.append([table.header, *rows])
    return texts


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Make pages of one experiment twice: with neutral arm names, and with names of columns."""
    names = tuple(f"zq{place:04}" for place in range(3))
    first = experiment_with(names, tmp_path_factory.mktemp("few") / "toy")

    columns = (
        columns_of(open_comparison(first))
        | set(CELL_PARTS)
        | set(LEADERBOARD_LEGEND)
        | set(RESERVED)
    )

    odd = tuple(sorted(name for name in columns - set(names) if re.fullmatch(NAME_PATTERN, name)))
    neutral = tuple(f"zq{place:04}" for place in range(len(odd)))

    odd_path = experiment_with(odd, tmp_path_factory.mktemp("odd") / "toy")
    odd_comparison = open_comparison(odd_path)
    neutral_path = experiment_with(neutral, tmp_path_factory.mktemp("neutral") / "toy")
    neutral_comparison = open_comparison(neutral_path)

    return SimpleNamespace(
        odd=odd,
        odd_pages=list(pages_of(odd_comparison, odd)),
        neutral_pages=list(pages_of(neutral_comparison, neutral)),
        odd_report=make_report(odd_comparison),
        neutral_report=make_report(neutral_comparison),
    )


def renamed(texts: object, experiments: SimpleNamespace) -> object:
    """Return the texts with each neutral name replaced by the odd name of the same arm."""
    if isinstance(texts, list):
        return [renamed(text, experiments) for text in texts]
    return re.sub(r"zq(\d{4})", lambda match: experiments.odd[int(match[1])], str(texts))


def test_names_of_columns_are_among_the_odd_names(experiments):
    expected = ["measure", "interval", "chance", "category", "arm", "average", "validation_loss"]
    assert set(expected) - set(experiments.odd) == set()


@pytest.mark.parametrize("place", range(8))
def test_a_page_is_the_same_whatever_arms_are_called(experiments, place):
    expected = experiments.neutral_pages[place]
    page = experiments.odd_pages[place]
    assert texts_of(page.tables) == renamed(texts_of(expected.tables), experiments)


@pytest.mark.parametrize("write", [to_markdown, to_csv, to_json, to_latex, to_html])
def test_every_format_can_write_the_odd_names(experiments, write):
    for page in experiments.odd_pages:
        assert write(page)


def texts_of_part(part: Part) -> list[list[list[str]]]:
    """Return the texts of all tables of a part of a report."""
    texts = texts_of(part.tables)
    for folded in part.folded:
        texts += texts_of_part(folded)
    return texts


def test_the_report_is_the_same_whatever_arms_are_called(experiments):
    expected = [texts_of_part(part) for part in experiments.neutral_report.parts]
    texts = [texts_of_part(part) for part in experiments.odd_report.parts]
    assert texts == renamed(expected, experiments)
