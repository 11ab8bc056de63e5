"""Every measure of a tiny encoder of each variant, and of a run whose arms are pretrained and fine-tuned."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import torch
from losses import bert, experiments, whole
from transformers import BertTokenizer
from variants import NAMES, OPTIONS, label

SIZES = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40,
    "max_position_embeddings": 24, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
}  # fmt: skip
SEQUENCES = 12
QUICK = ("add", "untied", "concat")


def values(adapter: ModuleType, quick: bool) -> dict[str, pd.DataFrame]:
    """`numbers`, a row each with its dotted name, and the tidy frames by name."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sources = _encoders(adapter, folder, QUICK if quick else NAMES)
        if not quick:
            adapter.run(whole("pairs", experiments(folder)["pairs"]), folder, "float32")
            sources.append(folder / "pairs")
        numbers, frames = adapter.analysis(sources, SEQUENCES)
    rows = [(source, name, value) for source, mine in numbers.items() for name, value in _flat(mine)]
    texts = [isinstance(value, str) or value is None for *_, value in rows]
    table = pd.DataFrame(rows, columns=["source", "name", "value"])
    said = table["value"].where(texts, "").fillna("none").astype(str)
    table = table.assign(said=said, value=pd.to_numeric(table["value"], errors="coerce"))
    return {"numbers": table} | {f"frame_{name}": _plain(frame) for name, frame in frames.items()}


def _encoders(adapter: ModuleType, folder: Path, names: tuple[str, ...]) -> list[Path]:
    tokenizer, places = BertTokenizer.from_pretrained(bert(folder)), []
    for variant, options in OPTIONS:
        if variant in names:
            settings = {"variant": variant, "variant_options": options, "vocab_size": len(tokenizer), **SIZES}
            model, draw = adapter.build_encoder("ForMaskedLM", 2, settings), torch.Generator().manual_seed(4)
            for parameter in model.parameters():
                parameter.data.add_(torch.randn(parameter.shape, generator=draw) * 0.1)
            places.append(folder / label(variant, options).translate(str.maketrans(" ='", "---", "[],")))
            model.save_pretrained(places[-1])
            tokenizer.save_pretrained(places[-1])
    return places


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in pairs:
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    others = {name: frame[name].astype("float64") for name in frame if name not in texts}
    return pd.DataFrame({name: frame[name].fillna("").astype(str) for name in texts} | others).reset_index(drop=True)
