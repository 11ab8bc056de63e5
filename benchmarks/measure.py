"""Rounds of contenders in turns, their ratios, and a Markdown table that says on which machine."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tabulate import tabulate

from glue_bench.records.environment import versions
from glue_bench.training.compute import choose_compute

Rounds = list[dict[str, dict[str, Any]]]
OURS = "glue-bench"
LOAD = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # before anything of ours runs


def in_turns(runs: Mapping[str, Callable[[], dict[str, Any]]], rounds: int) -> Rounds:
    """Every run once a round, always in the same order, never two at once: round -> run -> what it returned."""
    return [{name: run() for name, run in runs.items()} for _ in range(rounds)]


def column(rounds: Rounds, key: str) -> pd.DataFrame:
    """One figure of every run: a row a round, a column a run."""
    return pd.DataFrame([{name: result[key] for name, result in turn.items()} for turn in rounds]).astype(float)


def over_peers(values: pd.DataFrame, *, inverse: bool = False) -> pd.DataFrame:
    """ours / peer within each round, or with `inverse` peer / ours, where less is better."""
    ratios = values.rdiv(values[OURS], axis=0)
    return 1 / ratios if inverse else ratios


def with_quartiles(values: pd.DataFrame, decimals: int) -> dict[str, str]:
    """`median (lower quartile to upper quartile)` of each column."""
    low, middle, high = (values.quantile(q) for q in (0.25, 0.5, 0.75))
    return {
        name: f"{middle[name]:,.{decimals}f} ({low[name]:,.{decimals}f} to {high[name]:,.{decimals}f})"
        for name in values
    }


def table(columns: Mapping[str, Mapping[str, str]], first: str = "contender") -> str:
    """Columns of texts by row name as a Markdown table."""
    rows = dict.fromkeys(name for values in columns.values() for name in values)
    return row_table({row: {title: values.get(row, "") for title, values in columns.items()} for row in rows}, first)


def row_table(rows: Mapping[str, Mapping[str, str]], first: str) -> str:
    """The same from rows, which all have the same columns; the first column is headed `first`."""
    titles = list(next(iter(rows.values())))
    lines = [[name, *row.values()] for name, row in rows.items()]
    sides = ["left", *["right"] * len(titles)]
    return tabulate(lines, [first, *titles], tablefmt="pipe", disable_numparse=True, colalign=sides)


def machine(*, device: str, precision: str, threads: int | None = None) -> str:
    """Processor, device, cores, threads, versions and load: what figures are worth nothing without."""
    made = versions()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "accelerate"))
    load = "" if LOAD is None else f", load {LOAD:.1f} when it began"
    where = made.processor if device == "cpu" else f"{choose_compute(device).name} with {made.processor}"
    return (
        f"{where}, {os.cpu_count()} cores, {threads or torch.get_num_threads()} threads, {precision}{load}; "
        f"{packages}, Python {made.python}, {made.platform}, glue-bench {(made.git_commit or 'unknown')[:10]}"
    )


def command() -> str:
    """How this run was started, as a code block."""
    return f"```console\npython {shlex.join(sys.argv)}\n```"


def report(parts: Sequence[str], rounds: Any, to: Path | None) -> None:
    """Print the parts; keep them and every single measurement in a JSON file."""
    print("\n\n".join(parts))
    if to is not None:
        to.write_text(
            json.dumps({"report": parts, "rounds": rounds, "environment": versions().document()}, indent=1) + "\n"
        )
