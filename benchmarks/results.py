"""Write the tables and figures of results/ again, from the records there; `make results` fails if a byte differs.

python benchmarks/results.py [FOLDER ...]
"""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from glue_bench.board.board import make_board
from glue_bench.board.compare import Comparison, compare, open_comparison
from glue_bench.files import write_atomically
from glue_bench.pages.contrasts import statistics_page
from glue_bench.pages.figures import result_figures
from glue_bench.pages.files import write_tables
from glue_bench.pages.papers import named_page
from glue_bench.pages.published import PAPERS
from glue_bench.pages.render import to_csv, to_markdown

RESULTS = Path(__file__).resolve().parents[1] / "results"
FRESH = {
    "study_eight": range(5, 9)
}  # pretraining seeds that were not seen when the contrasts were chosen


def rewrite(comparison: Comparison) -> list[Path]:
    """Write an experiment's tables, and the published tables and figures that its folder has; the paths written."""
    folder, written = comparison.board.results.folder, write_tables(comparison)
    papers = {f"{name}.md": name for name in PAPERS if (folder / f"{name}.md").is_file()}
    files = {
        name: to_markdown(named_page(paper, folder)).encode() for name, paper in papers.items()
    }
    files |= {
        name: drawn
        for name, drawn in result_figures(comparison).items()
        if (folder / name).is_file()
    }
    if folder.name in FRESH:
        files["statistics_fresh.csv"] = to_csv(
            statistics_page(of_seeds(comparison, FRESH[folder.name]))
        ).encode()
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [*written, *(folder / name for name in files)]


def of_seeds(comparison: Comparison, seeds: Iterable[int]) -> Comparison:
    """The comparison of some pretraining seeds alone."""
    results, where = comparison.board.results, {"cells": "pretraining_seed", "pretrainings": "seed"}
    frames = {name: getattr(results, name) for name in where}
    kept = {name: frame[frame[where[name]].isin(seeds)] for name, frame in frames.items()}
    return compare(make_board(replace(results, **kept)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = sorted(plan.parent for plan in RESULTS.glob("*/plan.json"))
    parser.add_argument("folders", nargs="*", type=Path, default=every)
    for folder in parser.parse_args().folders:
        print(*rewrite(open_comparison(folder)), sep="\n")
