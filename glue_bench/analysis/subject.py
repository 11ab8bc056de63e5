"""An encoder that is measured: its checkpoint, its text, and its states and attention."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from glue_bench.analysis.chance import LeftOut
from glue_bench.analysis.experiment_plugins import load_plugins_of
from glue_bench.analysis.held_out import HeldOut
from glue_bench.analysis.hooks import (
    BATCH_SEQUENCES,
    BlockTerms,
    InputSum,
    input_sum,
    watch_scores,
)
from glue_bench.errors import UserError
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.locate import locate
from glue_bench.model.start import encoder, under_head, weights_digest
from glue_bench.records.store import Store
from glue_bench.training.corpus import Corpus
from glue_bench.training.packing import PackedText
from glue_bench.training.tokenizers import check_vocabulary, encode, load_tokenizer

SEQUENCE_LENGTH = 128  # tokens of a sequence, at most
MAX_DEEP_SEQUENCES = 64  # for measures that run every block, or that repeat
MIN_SEQUENCES = 8  # fewer would give no useful interval
ENCODED_AT_ONCE = 500


class Subject:
    """A checkpoint that is measured. Raises UserError if it cannot be read.

    `positions` is the number of positions that the encoder was trained on.

    Args:
        name: A folder or an id of the hub.
        corpus: The text to read.
        sequences: How many sequences of the text are read.
        tokenizer: The name of a tokenizer to use instead of the checkpoint's own.
        device: Where the encoder runs.
    """

    def __init__(
        self,
        name: str,
        corpus: Corpus,
        sequences: int,
        tokenizer: str | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        checkpoint = read_checkpoint(name)
        self.corpus = corpus
        self.sequences = sequences
        self.tokenizer_name = tokenizer or name
        self.head: EncoderForMaskedLM | None = None
        self.model: EncoderModel
        if checkpoint.head:
            self.head = under_head(checkpoint, checkpoint.config).eval().to(device)
            self.model = self.head.base
        else:
            self.model = encoder(checkpoint).eval().to(device)
        self.positions = trained_positions(name, self.model.config.max_position_embeddings)

    @property
    def facts(self) -> dict[str, Any]:
        """The variant, origin and sizes of the encoder, and the digest of its weights.

        The digest leaves out the pooler, which no pretraining trains.
        """
        config = self.model.config
        weights = dict(self.model.state_dict())
        for name in list(weights):
            if name.startswith("pooler."):
                del weights[name]
        return {
            "variant": config.variant,
            "origin": config.origin,
            "blocks": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "width": config.hidden_size,
            "positions": self.positions,
            "words": config.vocab_size,
            "weights": weights_digest(weights),
        }

    @cached_property
    def sum(self) -> InputSum:
        """The encoder's input as a sum of tables. Raises LeftOut if the input is no sum."""
        return input_sum(self.model, self.positions)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The encoder's tokenizer. Raises LeftOut if no tokenizer fits the encoder."""
        try:
            tokenizer = load_tokenizer(self.tokenizer_name)
            check_vocabulary(tokenizer, self.tokenizer_name, self.model.config.vocab_size)
        except UserError as error:
            raise LeftOut(
                f"the measures of text need a tokenizer (--tokenizer NAME): {error}"
            ) from error
        return tokenizer

    @cached_property
    def ids(self) -> Int[np.ndarray, "s l"]:
        """The text as tokens: [CLS], running text cut where a sequence is full, [SEP].

        All tokens are of one segment. Raises LeftOut if the tokenizer has no [CLS] or [SEP], or the
        text has fewer than MIN_SEQUENCES sequences.
        """
        first = self.tokenizer.cls_token_id
        last = self.tokenizer.sep_token_id
        if first is None or last is None:
            raise LeftOut("its tokenizer has no [CLS] or no [SEP]; name another (--tokenizer NAME)")
        length = min(SEQUENCE_LENGTH, self.positions)
        room = length - 2
        tokens = np.fromiter(islice(self._tokens_of_text(), room * self.sequences), dtype=np.int64)
        rows = tokens[: len(tokens) // room * room].reshape(-1, room)
        if len(rows) < MIN_SEQUENCES:
            raise LeftOut(
                f"the text has {len(rows)} sequences of {length} tokens, and {MIN_SEQUENCES} are "
                "the fewest that tell an interval; give more text (--corpus TEXT)"
            )
        return np.pad(rows, ((0, 0), (1, 1)), constant_values=((0, 0), (first, last)))

    def _tokens_of_text(self) -> Iterator[int]:
        sentences = iter(self.corpus)
        while texts := list(islice(sentences, ENCODED_AT_ONCE)):
            for ids in encode(self.tokenizer, texts):
                yield from ids

    @property
    def tokens(self) -> Tensor:
        """The `ids`, on the encoder's device."""
        return torch.from_numpy(self.ids).to(self.model.device)

    @cached_property
    @torch.inference_mode()
    def deep(self) -> tuple[list[Float[np.ndarray, "s l d"]], list[Float[np.ndarray, "h l l"]]]:
        """The states of the first sequences by layer, and the mean attention over them by block.

        The states are the input of the first block and then the output of each block, in float32 on
        the CPU. Row i of the attention has the weights of token i. Raises LeftOut if there is no
        text.
        """
        ids = self.tokens[:MAX_DEEP_SEQUENCES]
        attention = [torch.zeros(())] * len(self.model.blocks)

        def add_attention(block: int, scores: BlockTerms) -> None:
            total = scores.logits.softmax(-1).sum(0).cpu().double()
            attention[block - 1] = attention[block - 1] + total / len(ids)

        batches = []
        with watch_scores(self.model, add_attention):
            for batch in ids.split(BATCH_SEQUENCES):
                batches.append([state.cpu() for state in self.model.hidden_states(batch)])
        states = [torch.cat(layer).numpy() for layer in zip(*batches, strict=True)]
        return states, [mean.numpy() for mean in attention]

    def head_and_text(self, sequences: int) -> tuple[EncoderForMaskedLM, HeldOut]:
        """Return the encoder with its masked-LM head, and the first sequences with masks.

        Raises LeftOut if the encoder has no head or its tokenizer has no [MASK].
        """
        if self.head is None:
            raise LeftOut(
                "it has no masked-LM head, or not all of it; "
                "give a checkpoint that was saved with its head"
            )
        if self.tokenizer.mask_token_id is None:
            raise LeftOut("its tokenizer has no [MASK]")
        ids = self.ids[:sequences]
        packed = PackedText(ids.flatten(), np.arange(len(ids) + 1) * ids.shape[1])
        return self.head, HeldOut(packed, self.tokenizer)


def trained_positions(name: str, rows: int) -> int:
    """Return how many positions a checkpoint was trained on.

    For a checkpoint of our own pretrainings it is the length of the sequences, for any other
    checkpoint the number of position `rows`.
    """
    folder = locate(name)
    store = Store.of_checkpoint(folder)
    if store:
        pretraining_id = folder.resolve().parent.name
        for job in store.plan().pretrainings:
            if job.id == pretraining_id:
                return min(rows, job.settings.length)
    return rows


def find_sources(names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Find the checkpoints that the user's names stand for.

    Returns the checkpoints by short labels, and a line about each experiment that lacks some.
    """
    checkpoints = []
    gone = []
    for name in names:
        store = Store(name)
        if store.has_plan:
            in_experiment, lines = _find_in_experiment(store, name)
            checkpoints += in_experiment
            gone += lines
        else:
            checkpoints.append((_short_label(name), name))
    counts = Counter(label for label, _ in checkpoints)
    sources = {}
    for label, checkpoint in checkpoints:
        unique = label if counts[label] == 1 else checkpoint
        sources[unique] = checkpoint
    return sources, gone


def _short_label(name: str) -> str:
    """Return the last part of a path or hub id; for step-1000, the pretraining's folder too."""
    path = Path(name)
    if path.name in ("", ".."):
        path = path.resolve()
    if path.parts[-1].startswith("step-"):
        return "/".join(path.parts[-2:])
    return path.parts[-1]


def _find_in_experiment(store: Store, name: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Find the last checkpoint of each pretraining of an experiment.

    Returns labels with checkpoints, and lines about what is missing.
    """
    plan = store.plan()
    load_plugins_of(plan, store, name)
    jobs = [job for job in plan.pretrainings if not job.is_search]
    records = store.finished(plan).pretrainings

    checkpoints = []
    missing = []
    for job in jobs:
        weights = records[job.id].weights if job.id in records else None
        step, digest = max(weights.items()) if weights else (0, None)
        if weights and store.checkpoints.has(job.id, step, digest):
            checkpoints.append((job.label, str(store.checkpoints.at_step(job.id, step))))
        else:
            missing.append(job.label)

    lines = []
    if missing:
        lines.append(
            f"{'; '.join(missing)}: no checkpoint of its record in '{name}'; "
            "`glue-bench run` makes it"
        )
    if not jobs:
        lines.append(
            f"'{name}' has no pretrained encoder. Give a checkpoint: glue-bench analyse CHECKPOINT"
        )

    return checkpoints, lines
