"""Text with a pattern that a tiny encoder learns in seconds, and what it takes to pretrain on
it.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, get_linear_schedule_with_warmup

from glue_bench.config import load_experiment
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import EncoderInput
from glue_bench.records.values import Pretraining
from glue_bench.sweep.plan import settle_jobs
from glue_bench.training.arm_inputs import ArmInputs
from glue_bench.training.corpus import Corpus, corpus_digest, part_digest
from glue_bench.training.device import Compute
from glue_bench.training.inputs import Inputs
from glue_bench.training.packing import PackedText
from glue_bench.training.pretrain import Pretrained, pretrain
from glue_bench.training.pretraining_folder import PretrainingFolder
from glue_bench.training.tokenizers import BERT_TOKENS

CPU = Compute(torch.device("cpu"), bf16=False, threads=1)
BF16 = replace(CPU, bf16=True)
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
WORDS = 60
LENGTH = 16
SIZES: dict[str, Any] = {
    "vocab_size": WORDS + 5,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": LENGTH,
}


def word_tokenizer(words: int = WORDS, without: str = "") -> PreTrainedTokenizerFast:
    """Word `Wn` has the id n + 5: ids say which word stood where."""
    names = [*BERT_TOKENS.values(), *(f"W{number}" for number in range(words))]
    tokenizer = Tokenizer(
        models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {key: token for key, token in BERT_TOKENS.items() if key != without}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def corpus_of(documents: Iterable[Iterable[str]], name: str = "made") -> Corpus:
    """Return a corpus in memory: documents as lines of words, a line a sentence."""
    texts = ["\n".join(sentences) for sentences in documents]
    return Corpus(name, (texts,), corpus_digest([part_digest(texts)]))


def counting(sentences: int = 120) -> list[str]:
    """Return sentences that count around a circle of twelve words, so that each word follows
    from its neighbours.
    """
    generator = np.random.default_rng(0)
    starts = generator.integers(12, size=sentences)
    lengths = generator.integers(4, 12, size=sentences)
    return [
        " ".join(f"W{(first + i) % 12}" for i in range(length))
        for first, length in zip(starts, lengths, strict=True)
    ]


def packed_of(lengths: Iterable[int], first: int = 5, words: int = WORDS) -> PackedText:
    """Return sequences of these lengths: [CLS], then words counted on from one to the next, then
    [SEP].
    """
    sequences, number = [], 0
    for length in lengths:
        inner = [first + (number + i) % words for i in range(length - 2)]
        number += length - 2
        sequences.append(np.array([2, *inner, 3], dtype=np.int32))
    offsets = np.concatenate([[0], np.cumsum([len(sequence) for sequence in sequences])])
    return PackedText(np.concatenate(sequences), offsets)


def sequences_of(text: PackedText) -> list[list[int]]:
    """Return the tokens of each sequence."""
    return [text.ids[start:stop].tolist() for start, stop in pairwise(text.offsets)]


def config(
    variant: str = "add", options: Mapping[str, Any] | None = None, **changes: Any
) -> EncoderConfig:
    """Return the configuration of a tiny encoder of the counting words."""
    return EncoderConfig(**SIZES | changes, variant=variant, variant_options=dict(options or {}))


def plainly_trained(
    model: torch.nn.Module, chosen: Any, steps: int, batches: Iterable[Iterable[Any]]
) -> list[float]:
    """Return the losses of a loop in plain torch.

    It has torch's AdamW with parameters grouped by name, transformers' schedule, and gradients that
    are clipped at each step. `batches` are lists of functions, each of which gives the loss of a
    part of the batch.
    """
    decayed: list[torch.nn.Parameter] = []
    undecayed: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        if name.endswith("bias") or "norm" in name.lower():
            undecayed.append(weight)
        else:
            decayed.append(weight)

    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": chosen.weight_decay},
            {"params": undecayed, "weight_decay": 0.0},
        ],
        lr=chosen.learning_rate,
        betas=(0.9, 0.999),
        eps=chosen.adam_epsilon,
    )
    schedule = get_linear_schedule_with_warmup(
        optimizer, math.ceil(chosen.warmup_ratio * steps), steps
    )

    losses = []
    for parts in islice(batches, steps):
        model.train().zero_grad()
        total = 0.0
        for part in parts:
            loss = part()
            loss.backward()
            total += loss.item()
        assert (
            torch.nn.utils.clip_grad_norm_(model.parameters(), chosen.clip_norm) > chosen.clip_norm
        )
        optimizer.step()
        schedule.step()
        losses.append(total)

    return losses


@dataclass(frozen=True)
class Tiny:
    """A pretraining of an experiment of its own: twenty steps of eight sequences, unless told
    otherwise.
    """

    run: Pretraining
    inputs: Inputs

    @classmethod
    def of(
        cls,
        path: Path,
        variant: str = "add",
        options: Any = None,
        scratch: Any = None,
        **settings: Any,
    ) -> "Tiny":
        """Make one whose text, tokenizer and checkpoints lie in a folder."""
        path.mkdir(exist_ok=True)
        (path / "text.txt").write_text("\n".join(counting()))
        word_tokenizer().save_pretrained(path / "words")

        usual = {
            "corpus": [str(path / "text.txt")],
            "tokenizer": str(path / "words"),
            "steps": 20,
            "length": LENGTH,
        }
        usual |= {"batch_tokens": 8 * LENGTH, "learning_rates": [3e-3], "warmup_ratio": 0.1}
        usual |= {"validation_share": 0.1, "validations": 2}

        experiment = load_experiment(
            {
                "name": "tiny",
                "data": "demo",
                "tasks": ["cola"],
                "seeds": [1],
                "checkpoint": "scratch",
                "scratch": SIZES
                | {"vocab_size": 100}
                | (scratch or {}),  # of the tokenizer in the end
                "arms": [{"variant": variant, "options": options or {}}],
                "pretraining": usual | settings,
                "finetuning": {"learning_rates": [1e-3], "max_length": LENGTH},
            }
        )

        inputs = Inputs(experiment, path / "results")
        ((run,), _) = settle_jobs(inputs)
        return cls(run, inputs)

    @property
    def arm(self) -> ArmInputs:
        return self.inputs.arms[self.run.arm]

    @property
    def packed_text(self) -> dict[str, PackedText]:
        return self.inputs.text.packed_text(self.arm.tokenizer)

    @property
    def folder(self) -> PretrainingFolder:
        return PretrainingFolder(self.inputs.store, self.run.id)

    def checkpoint(self, step: int = 20) -> Path:
        return self.inputs.store.checkpoints.at_step(self.run.id, step)

    def finish(self, compute: Compute = CPU, **options: Any) -> Pretrained:
        return pretrain(self.run, self.inputs, compute, **options)

    def stop_at(self, last: int, compute: Compute = CPU) -> None:
        """Run it until it is ended from outside as it tells of this step."""

        def progress(step: int, *_: Any) -> None:
            if step == last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.finish(compute, progress=progress)

    def weights(self, step: int = 20) -> dict[str, torch.Tensor]:
        return load_file(self.checkpoint(step) / "model.safetensors")

    def files(self) -> dict[str, bytes]:
        return {
            str(path): path.read_bytes() for path in self.folder.folder.rglob("*") if path.is_file()
        }


class Greedy(VARIANTS["add"]):
    """A variant that has no memory for more than `room` rows in training."""

    room, error = 4, RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    def forward(self, token_ids: torch.Tensor, segment_ids: torch.Tensor) -> EncoderInput:
        if self.training and len(token_ids) > self.room:
            raise self.error
        return super().forward(token_ids, segment_ids)


class Diverging(VARIANTS["add"]):
    """A variant that gives NaN in training, or in evaluation."""

    in_training = True

    def forward(self, token_ids: torch.Tensor, segment_ids: torch.Tensor) -> EncoderInput:
        entering = super().forward(token_ids, segment_ids)
        return (
            replace(entering, hidden=entering.hidden * math.nan)
            if self.training == self.in_training
            else entering
        )


class Signalled(VARIANTS["add"]):
    """A variant that calls `sends` in each pass, with whether it is one of training."""

    sends = staticmethod(lambda _: None)

    def forward(self, token_ids: torch.Tensor, segment_ids: torch.Tensor) -> EncoderInput:
        if token_ids.device.type != "meta":  # on which operations are only counted
            self.sends(self.training)
        return super().forward(token_ids, segment_ids)


def timeless(outcome: Pretrained) -> dict[str, Any]:
    """Return what must not differ between two runs: the record without its times."""
    times = {"seconds", "tokens_per_second", "peak_memory_bytes"}
    values = outcome.record.model_dump(exclude={"pretraining", *times})
    for point in values["losses"]:
        del point["seconds"]
    return values
