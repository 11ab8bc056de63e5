"""Tokenizers, tokens of tasks, packed text and masked batches: of made-up data, and of real data where they are."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import sets
from losses import SCRATCH, bert, digest, text

STEPS = 4
ARM = {"variant": "untied", "checkpoint": "scratch"}
TASKS = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"]
FINETUNING = {
    "learning_rates": [1e-3],
    "max_length": 17,
    "held_out_share": 0.2,
    "predict": ["validation", "test"],
}
PRETRAINING = {"steps": 9, "batch_tokens": 700, "length": 30, "validation_share": 0.05, "seeds": [1, 8]}


def values(adapter: ModuleType, quick: bool) -> dict[str, pd.DataFrame]:
    """A hash for each array; real tokens only without `quick`."""
    with tempfile.TemporaryDirectory() as place:
        frames = {"demo": _frame(_demo(adapter, Path(place)))}
        if sets.shared() and not quick:
            frames["shared"] = _frame(_real(adapter, sets.shared()))
    return frames


def _frame(found: Iterator[tuple[str, dict[str, np.ndarray]]]) -> pd.DataFrame:
    rows = [(of, name, str(array.shape), digest(array)) for of, arrays in found for name, array in arrays.items()]
    return pd.DataFrame(rows, columns=["of", "array", "shape", "digest"])


def _experiment(**more: Any) -> dict[str, Any]:
    base = {"name": "tokens", "data": "demo", "tasks": TASKS, "seeds": [1], "scratch": SCRATCH | {"vocab_size": 300}}
    return base | {"arms": [{"name": "scratch", **ARM}], "finetuning": FINETUNING} | more


def _packed(adapter: ModuleType, name: str, **settings: Any) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    for of, arrays in adapter.packed(_experiment(pretraining=PRETRAINING | settings), STEPS):
        yield f"{name} {of}", arrays


def _demo(adapter: ModuleType, folder: Path) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    known = {"name": "bert", **ARM, "checkpoint": str(bert(folder))}
    yield from adapter.tokens(_experiment(arms=[{"name": "scratch", **ARM}, known]))
    written = str(text(folder))
    yield from _packed(adapter, "one demo", corpus=["demo"])
    yield from _packed(adapter, "pairs", corpus=[written], documents="blank_lines", segments="pairs")
    yield from _packed(adapter, "files", corpus=[written, "demo"], mask_probability=0.4, length=11)


def _real(adapter: ModuleType, shared: Path) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    tasks = ["cola", "mrpc", "stsb", "rte", "wnli"]
    sizes = SCRATCH | {"vocab_size": 2000, "max_position_embeddings": 64}
    finetuning = FINETUNING | {"max_length": 50}
    yield from adapter.tokens(_experiment(data=str(shared / "glue"), tasks=tasks, scratch=sizes, finetuning=finetuning))
    books = [str(shared / "text/gutenberg" / name) for name in ("carroll-alice.txt", "blake-poems.txt")]
    yield from _packed(adapter, "books", corpus=books, segments="pairs")
    wiki = str(shared / "text/wikitext-2/wiki.test.tokens")
    yield from _packed(adapter, "wiki", corpus=[wiki, books[1]], documents="blank_lines")
