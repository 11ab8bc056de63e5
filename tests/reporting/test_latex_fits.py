"""What LaTeX itself says of the fragments: no box is overfull in an article of one column or two."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from glue_bench.reporting.export import render
from glue_bench.reporting.formats import render_page
from glue_bench.reporting.grid import Grid, GridCell, Page, PageSection
from glue_bench.reporting.latex import layout_of
from glue_bench.reporting.statistics_page import render_statistics

RESULTS = Path(__file__).resolve().parents[2] / "results"
ARMS = ("add", "untied-relative", "WWWW-MMMM-wide", "smallest difference", "illicit-ill", "add-SINUSOIDAL")
HEADERS = ("Avg. of 9", "CoLA", "SST-2", "MNLI-mm", "QQP†", "Val. loss", "Difference of", "p (adjusted)", "Swap test")
needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex with booktabs")


def wide_page(arms: int, columns: int, generator: random.Random) -> Page:
    """A table of numbers with every kind of mark."""

    def cell() -> GridCell:
        marks = generator.choice(["", "", "▲", "▼‡", "†*"])
        aside = generator.choice(["", f"{generator.uniform(-99, 99):+.2f}"])
        return GridCell(f"{generator.uniform(-10, 100):.2f}", generator.random() < 0.3, marks, aside)

    header = ("Arm", *(generator.choice(HEADERS) for _ in range(columns)))
    rows = tuple((GridCell(generator.choice(ARMS)), *(cell() for _ in range(columns))) for _ in range(arms))
    return Page(title="Made up", sections=(PageSection(title="Pretrained", grid=Grid(header=header, rows=rows)),))


def log_of(fragments: list[str], layout: str, folder: Path) -> str:
    text = "\n\\clearpage\n".join(fragments)
    preamble = rf"\documentclass[10pt,{layout}]{{article}}\usepackage{{booktabs}}\begin{{document}}"
    (folder / "page.tex").write_text(f"{preamble}\n{text}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="latin-1", check=False)
    assert ended.returncode == 0, ended.stdout[-2000:]
    return ended.stdout


@needs_latex
@pytest.mark.parametrize("layout", ["onecolumn", "twocolumn"])
def test_no_box_is_overfull(layout, tmp_path):
    generator = random.Random(1)
    fragments = [render_page(wide_page(arms, n, generator), "latex") for arms in (3, 18) for n in range(1, 13)]
    for folder in (RESULTS / "study", RESULTS / "minilm"):
        fragments += [
            render(folder, "latex"),
            render_statistics(folder, "latex"),
        ]
    assert re.findall(r"Overfull.*", log_of(fragments, layout, tmp_path)) == []


def test_eight_columns_of_scores_are_one_table():
    """A table is not cut in two where it would fit: the estimate of widths is close to Computer Modern's."""
    row = (GridCell("untied-relative"), *(GridCell("81.36", bold=i < 2, marks="▲" * (i == 3)) for i in range(8)))
    header = ("Arm", "Avg. of 7", "CoLA", "SST-2", "MRPC", "STS-B", "QQP†", "QNLI†", "RTE")
    layout = layout_of(Grid(header=header, rows=(row,) * 7, feet=((GridCell("smallest difference"), *row[1:]),)))
    assert len(layout.parts) == 1
