"""Every verb and function that reads results: a call of each gives all that it prints, writes and returns as text."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from folder import TESTS
from typer.testing import CliRunner

import glue_bench
from glue_bench import api
from glue_bench.cli import app
from glue_bench.errors import UserError

Reader = Callable[[Path, Path], str]
"""Of an experiment's folder and an empty one, to which it may write."""


def verb(*words: object) -> str:
    """What `glue-bench` says with these words after it."""
    said = CliRunner().invoke(app, [str(word) for word in words])
    if said.exception and not isinstance(said.exception, UserError | SystemExit):
        raise said.exception
    return f"{said.output}{said.exception or ''}"


def told(value: Any) -> str:
    """A value as text, frames in full precision."""
    return str(value.to_csv() if hasattr(value, "to_csv") else value)


def written(out: Path, *patterns: str) -> str:
    """The files of a folder, or all below it, without the second at which a log was made; of an archive its SHA-256."""
    found = {path for pattern in patterns or ["**/*"] for path in out.glob(pattern) if path.is_file()}
    files = {path.relative_to(out): path.read_bytes() for path in sorted(found)}
    texts = {
        name: hashlib.sha256(content).hexdigest() if name.suffix == ".zip" else content.decode()
        for name, content in files.items()
    }
    return re.sub(r'"retrieved_timestamp": "\d+"', "", "\n".join(f"{name}:\n{text}" for name, text in texts.items()))


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """The CSV files that a run writes into its folder."""
    api.write_results(folder)
    return {path.name: pd.read_csv(path) for path in folder.glob("*.csv")}


def labelled_ax(out: Path) -> Path:
    """As many labelled pairs as runs have predicted, outside of `out`."""
    kinds = ["Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge"]
    labels = ("entailment", "neutral", "contradiction")
    rows = [["", "", "Negation", "", f"premise {row}", f"hypothesis {row}", labels[row % 3]] for row in range(TESTS)]
    lines = ["\t".join(row) for row in [[*kinds, "Premise", "Hypothesis", "Label"], *rows]]
    path = out.with_name("diagnostic-full.tsv")
    path.write_text("\n".join(lines) + "\n")
    return path


def _of_verb(*words: object) -> Reader:
    """A verb that only prints."""
    return lambda folder, _: verb(words[0], folder, *words[1:])


def _submit(folder: Path, out: Path) -> str:
    said = verb("submit", folder, "--arm", "add", "--fill", "-o", out / "add.zip")
    return said + written(out)


def _card(folder: Path, out: Path) -> str:
    return verb("card", folder, "--arm", "add", "-o", out / "card") + written(out)


def _logs(folder: Path, out: Path) -> str:
    return verb("export", folder, "--format", "eee", "--organization", "us", "-o", out) + written(out)


VERBS: dict[str, Reader] = {
    "status": _of_verb("status"),
    "leaderboard": lambda folder, _: "".join(
        verb("leaderboard", folder, *more) for more in ((), ("--format", "csv"), ("--format", "json"))
    ),
    "report": lambda folder, out: verb("report", folder, "-o", out / "report.html") + written(out),
    "statistics": _of_verb("statistics", "--pairs", "--equivalent", "20", "--format", "json"),
    "power": _of_verb("statistics", "--difference", "20", "--format", "json"),
    "table": lambda folder, _: verb("table", "tupe-1", folder),
    "submit": _submit,
    "diagnostics": lambda folder, out: verb(
        *("leaderboard", folder, "--diagnostic", labelled_ax(out), "--format", "json")
    ),
    "card": _card,
    "export": _logs,
}
FUNCTIONS: dict[str, Callable[[Path], Any]] = {
    "status": glue_bench.status,
    "predictions": glue_bench.predictions,
    "leaderboard": glue_bench.leaderboard,
    "statistics": glue_bench.statistics,
    "power": lambda folder: glue_bench.statistics(folder, difference=20.0),
    "table": lambda folder: glue_bench.table("tupe-1", folder),
    "card": lambda folder: glue_bench.card(folder, "add").text,
}
READERS: dict[str, Reader] = VERBS | {
    f"{name}()": lambda folder, _, call=call: told(call(folder)) for name, call in FUNCTIONS.items()
}


def read(name: str, folder: Path, out: Path) -> str:
    """What a reader says of a folder, without the paths. A refusal is an answer, too."""
    out.mkdir()
    try:
        said = READERS[name](folder, out)
    except UserError as error:
        said = f"refused: {error}"
    return said.replace(str(out), "OUT").replace(str(folder), "FOLDER")
