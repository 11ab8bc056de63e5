"""A checkpoint that is taken apart: which ones a name stands for, what can read text for it, what it makes of that."""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from glue_bench.analysis.chance import LeftOut
from glue_bench.analysis.hooks import AT_ONCE, BlockTerms, InputSum, input_sum, watching
from glue_bench.analysis.word_order import HeldOut
from glue_bench.errors import UserError
from glue_bench.model.checkpoints import encoder, read_checkpoint, under_head, weights_digest
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.locate import locate
from glue_bench.model.plugins import plugin_digest
from glue_bench.model.variants import VARIANTS
from glue_bench.records.plugin_files import find_plugin
from glue_bench.records.store import Store
from glue_bench.records.values import Plan
from glue_bench.training.corpus import Corpus
from glue_bench.training.packing import PackedText
from glue_bench.training.tokenizers import check_vocabulary, encode, load_tokenizer

LENGTH = 128  # tokens of a sequence, at most
MOST_DEEP = 64  # sequences, at most, of measures that run every block or repeat
FEWEST_SEQUENCES = 8  # sequences that still give an interval
SENTENCES_AT_ONCE = 500


class Subject:
    """A checkpoint with all that it takes to measure it; `positions` are those that it was trained on.

    So many `sequences` of the corpus are read, with the tokenizer that is `named` or the checkpoint's own. Raises
    UserError for a checkpoint that cannot be read.
    """

    def __init__(
        self,
        name: str,
        corpus: Corpus,
        sequences: int,
        named: str | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        checkpoint = read_checkpoint(name)
        self.corpus, self.sequences, self.named = corpus, sequences, named or name
        self.head = (
            under_head(checkpoint, checkpoint.config).eval().to(device) if checkpoint.head else None
        )
        self.model: EncoderModel = (
            self.head.base if self.head else encoder(checkpoint).eval().to(device)
        )
        # Of a pretraining of ours the length of its sequences; of any other checkpoint all that it has rows for.
        self.positions = self.model.config.max_position_embeddings
        folder = locate(name)
        store = Store.of_checkpoint(folder)
        if store:
            lengths = {job.id: job.settings.length for job in store.plan().pretrainings}
            pretraining_id = folder.resolve().parent.name
            self.positions = min(self.positions, lengths.get(pretraining_id, self.positions))

    @property
    def facts(self) -> dict[str, Any]:
        """Its variant, origin and sizes, and the digest of its weights but the pooler, which no pretraining trains."""
        config = self.model.config
        weights = {
            name: each
            for name, each in self.model.state_dict().items()
            if not name.startswith("pooler.")
        }
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
        """Its input as a sum of tables. Raises LeftOut where it is none."""
        return input_sum(self.model, self.positions)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its own, or the one that was named. Raises LeftOut where there is none that fits."""
        try:
            tokenizer = load_tokenizer(self.named)
            check_vocabulary(tokenizer, self.named, self.model.config.vocab_size)
        except UserError as error:
            raise LeftOut(
                f"the measures of text need a tokenizer (--tokenizer NAME): {error}"
            ) from error
        return tokenizer

    @cached_property
    def ids(self) -> Int[np.ndarray, "s l"]:
        """The text in its tokens: [CLS], running text cut wherever a sequence is full, [SEP]; one segment.

        Raises LeftOut where its tokenizer has no [CLS] or [SEP], or the text has fewer than FEWEST_SEQUENCES sequences.
        """
        first, last = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        if first is None or last is None:
            raise LeftOut("its tokenizer has no [CLS] or no [SEP]; name another (--tokenizer NAME)")
        length = min(LENGTH, self.positions)
        sentences, room = iter(self.corpus), length - 2
        some = iter(lambda: list(islice(sentences, SENTENCES_AT_ONCE)), [])
        stream = (token for texts in some for ids in encode(self.tokenizer, texts) for token in ids)
        tokens = np.fromiter(islice(stream, room * self.sequences), dtype=np.int64)
        rows = tokens[: len(tokens) // room * room].reshape(-1, room)
        if len(rows) < FEWEST_SEQUENCES:
            raise LeftOut(
                f"the text has {len(rows)} sequences of {length} tokens, and {FEWEST_SEQUENCES} are the fewest that "
                "tell an interval; give more text (--corpus TEXT)"
            )
        return np.pad(rows, ((0, 0), (1, 1)), constant_values=((0, 0), (first, last)))

    @property
    def tokens(self) -> Tensor:
        """The `ids`, on the encoder's device."""
        return torch.from_numpy(self.ids).to(self.model.device)

    @cached_property
    @torch.inference_mode()
    def deep(self) -> tuple[list[Float[np.ndarray, "s l d"]], list[Float[np.ndarray, "h l l"]]]:
        """States by layer of the first sequences, and each block's attention, the mean over them.

        States are what enters the first block, then what each block leaves, in float32 on the CPU. Row i of attention
        says where token i looks. Raises LeftOut where there is no text.
        """
        ids = self.tokens[:MOST_DEEP]
        attention = [torch.zeros(())] * len(self.model.blocks)

        def look(block: int, scores: BlockTerms) -> None:
            attention[block - 1] = attention[block - 1] + scores.logits.softmax(-1).sum(
                0
            ).cpu().double() / len(ids)

        with watching(self.model, look):
            read = [
                [state.cpu() for state in self.model.hidden_states(some)]
                for some in ids.split(AT_ONCE)
            ]
        states = [torch.cat(of_layer).numpy() for of_layer in zip(*read, strict=True)]
        return states, [each.numpy() for each in attention]

    def head_and_text(self, sequences: int) -> tuple[EncoderForMaskedLM, HeldOut]:
        """The encoder with its masked-LM head, and the first sequences with masks. Raises LeftOut where one lacks."""
        if self.head is None:
            raise LeftOut(
                "it has no masked-LM head, or not all of it; give a checkpoint that was saved with its head"
            )
        if self.tokenizer.mask_token_id is None:
            raise LeftOut("its tokenizer has no [MASK]")
        ids = self.ids[:sequences]
        packed = PackedText(ids.flatten(), np.arange(len(ids) + 1) * ids.shape[1])
        return self.head, HeldOut(packed, self.tokenizer)


def _check_plugins(plan: Plan, name: str) -> None:
    """Raise UserError if a pretraining of the experiment called `name` used a plugin that is not loaded as it was."""
    for job in plan.pretrainings:
        if job.plugin is None or plugin_digest(job.variant) == job.plugin:
            continue
        kept = find_plugin(Path(name), job.plugin)
        files = [PurePath(place).name for place in plan.experiment.plugins]
        fault = f"arm '{job.arm}' of '{name}': the variant '{job.variant}' is of a plugin (SHA-256 {job.plugin})"
        advice = "give its file"
        if job.variant in VARIANTS:
            fault = f"{fault}, and the file that was loaded has other content"
            advice = "give the file as it was"
        if kept:
            files = [str(kept)]
        options = " ".join(f"--plugin {file}" for file in files) or "--plugin FILE"
        raise UserError(f"{fault}; {advice}: {options}")


def find_sources(names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """All checkpoints that the names stand for, by a short label of their own; and of each experiment what is gone."""
    checkpoints, gone = list[tuple[str, str]](), list[str]()
    for name in names:
        stored = Store(name)
        if (
            not stored.has_plan
        ):  # the last part of a path or hub id; of step-1000, the pretraining's folder too
            parts = (Path(name).resolve() if Path(name).name in ("", "..") else Path(name)).parts
            checkpoints.append(
                ("/".join(parts[-2:]) if parts[-1].startswith("step-") else parts[-1], name)
            )
            continue
        plan, missing = stored.plan(), list[str]()
        _check_plugins(plan, name)
        jobs, records = (
            [job for job in plan.pretrainings if not job.is_search],
            stored.finished(plan).pretrainings,
        )
        for job in jobs:
            weights = records[job.id].weights if job.id in records else None
            last = max((weights or {}).items(), default=None)
            if last and stored.checkpoints.has(job.id, *last):
                checkpoints.append((job.label, str(stored.checkpoints.at_step(job.id, last[0]))))
            else:
                missing.append(job.label)
        if missing:
            gone.append(
                f"{'; '.join(missing)}: no checkpoint of its record in '{name}'; `glue-bench run` makes it"
            )
        if not jobs:
            gone.append(
                f"'{name}' has no pretrained encoder. Give a checkpoint: glue-bench analyse CHECKPOINT"
            )
    counts = Counter(
        label for label, _ in checkpoints
    )  # equal labels get their checkpoint's whole name
    return {name if counts[label] > 1 else label: name for label, name in checkpoints}, gone
