"""Text with a pattern that a tiny encoder learns in seconds, and what it takes to pretrain on it."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from glue_bench.config import Pretraining
from glue_bench.model.checkpoints import Start
from glue_bench.model.configuration import EncoderConfig
from glue_bench.records.record import LossPoint
from glue_bench.training import pretrain as module
from glue_bench.training.corpus import Corpus
from glue_bench.training.packing import PackedText, pack
from glue_bench.training.pretrain import PretrainingTask, Report
from glue_bench.training.pretrained import PretrainingFolder
from glue_bench.training.tokenizers import SPECIAL

TIMES = {"seconds", "tokens_per_second", "peak_memory_bytes"}
WORDS = 60
LENGTH = 16


def word_tokenizer(words: int = WORDS, without: str = "") -> PreTrainedTokenizerFast:
    """Word `Wn` has the id n + 5: ids say which word stood where."""
    names = [*SPECIAL.values(), *(f"W{number}" for number in range(words))]
    tokenizer = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {key: token for key, token in SPECIAL.items() if key != without}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def corpus_of(documents: Iterable[Iterable[str]], name: str = "made") -> Corpus:
    """A corpus in memory: documents as lines of words, a line a sentence."""
    texts = ["\n".join(sentences) for sentences in documents]
    return Corpus(name, (texts,), hashlib.sha256("\0".join(texts).encode()).hexdigest())


def counting(sentences: int = 120) -> list[str]:
    """Sentences that count around a circle of twelve words: each word follows from its neighbours."""
    generator = np.random.default_rng(0)
    starts, lengths = generator.integers(12, size=sentences), generator.integers(4, 12, size=sentences)
    return [
        " ".join(f"W{(first + i) % 12}" for i in range(length)) for first, length in zip(starts, lengths, strict=True)
    ]


def packed_of(lengths: Iterable[int], first: int = 5, words: int = WORDS) -> PackedText:
    """Sequences of these lengths: [CLS], then words counted on from one to the next, then [SEP]."""
    sequences, number = [], 0
    for length in lengths:
        inner = [first + (number + i) % words for i in range(length - 2)]
        number += length - 2
        sequences.append(np.array([2, *inner, 3], dtype=np.int32))
    offsets = np.concatenate([[0], np.cumsum([len(sequence) for sequence in sequences])])
    return PackedText(np.concatenate(sequences), offsets)


def settings(**changes: Any) -> Pretraining:
    """Twenty steps of eight sequences."""
    values = {
        "corpus": ["made"],
        "steps": 20,
        "batch_tokens": 8 * LENGTH,
        "length": LENGTH,
        "learning_rate": 3e-3,
        "warmup_ratio": 0.1,
        "validation_share": 0.1,
        "validations": 2,
    }
    return Pretraining(**values | changes)


def task(**changes: Any) -> PretrainingTask:
    """The counting text under these settings."""
    chosen, tokenizer = settings(**changes), word_tokenizer()
    pairs = chosen.segments == "pairs"
    text = pack(corpus_of([counting()]), tokenizer, chosen.length, chosen.validation_share, pairs=pairs)
    return PretrainingTask(text=text, tokenizer=tokenizer, settings=chosen)


def config(variant: str = "add", options: Mapping[str, Any] | None = None, **changes: Any) -> EncoderConfig:
    """A tiny encoder of the counting words."""
    sizes: dict[str, Any] = {
        "vocab_size": WORDS + 5,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": LENGTH,
    }
    return EncoderConfig(**sizes | changes, variant=variant, variant_options=dict(options or {}))


def fresh(variant: str = "add", options: Mapping[str, Any] | None = None, **changes: Any) -> Start:
    """An arm from scratch."""
    return Start(config(variant, options, **changes), {}, "scratch")


def folder(path: Path, **identity: Any) -> PretrainingFolder:
    """A prepared folder of this identity."""
    made = PretrainingFolder(path, identity)
    made.prepare()
    return made


def pretrain(*given: Any, **options: Any) -> dict[str, Any]:
    """What a pretraining leaves for its record."""
    return module.pretrain(*given, **options).facts


class Stopped(Exception):
    """What ends a run from outside."""


def stop_at(step: int) -> Report:
    """Ends a run when it reports this step."""

    def report(point: LossPoint) -> None:
        if point.step == step:
            raise Stopped

    return report


def weights(place: PretrainingFolder, step: int = 20) -> dict[str, torch.Tensor]:
    """The checkpoint after `step` steps."""
    return load_file(place.checkpoint(step) / "model.safetensors")


def contents(place: PretrainingFolder) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path): path.read_bytes() for path in place.folder.rglob("*") if path.is_file()}


def timeless(outcome: dict[str, Any]) -> dict[str, Any]:
    """What must not differ between two runs: all but the times."""
    losses = [{key: value for key, value in point.items() if key != "seconds"} for point in outcome["losses"]]
    return {key: value for key, value in outcome.items() if key not in TIMES} | {"losses": losses}
