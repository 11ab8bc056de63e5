"""Write the tables and figures of results/ again, from the records there; `make results` fails if a byte differs.

python benchmarks/results.py [FOLDER ...]
"""

import argparse
from pathlib import Path

from glue_bench.files import write_atomically
from glue_bench.tables.compare import Comparison
from glue_bench.tables.export import open_comparison, write_tables
from glue_bench.tables.figures import result_figures
from glue_bench.tables.papers import TABLES, named_page

RESULTS = Path(__file__).resolve().parents[1] / "results"


def rewrite(comparison: Comparison) -> list[Path]:
    """Write an experiment's tables, and the published tables and figures that its folder has; the paths written."""
    folder, written = comparison.board.results.folder, write_tables(comparison)
    papers = {f"{name}.md": name for name in TABLES if (folder / f"{name}.md").is_file()}
    files = {name: named_page(paper, folder).to_markdown().encode() for name, paper in papers.items()}
    files |= {name: drawn for name, drawn in result_figures(comparison).items() if (folder / name).is_file()}
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [*written, *(folder / name for name in files)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = sorted(plan.parent for plan in RESULTS.glob("*/plan.json"))
    parser.add_argument("folders", nargs="*", type=Path, default=every)
    for folder in parser.parse_args().folders:
        print(*rewrite(open_comparison(folder)), sep="\n")
