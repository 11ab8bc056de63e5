"""The conversion of a checkpoint to another variant, and how much it changes hidden states."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from glue_bench.errors import UserError
from glue_bench.files import results_written_to, whole_folder
from glue_bench.model.checkpoints import read_checkpoint
from glue_bench.model.grafts import graft
from glue_bench.model.locate import fingerprint, locate
from glue_bench.model.parity import random_tokens
from glue_bench.model.plugins import check_plugin
from glue_bench.model.start import Start, encoder, under_head
from glue_bench.model.variants.options import check_variant
from glue_bench.records.environment import versions
from glue_bench.training.quiet import quiet_transformers
from glue_bench.training.tokenizers import check_vocabulary, load_tokenizer, save_tokenizer

CONVERSION_FILE = "conversion.json"
HEAD_DROPPED = "dropped: its words are narrower"
TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model")
"""Patterns of files. A folder without any of them has no tokenizer."""


def convert_checkpoint(
    source: str,
    out: str | Path,
    variant: str,
    options: dict[str, Any],
    revision: str | None = None,
    tokenizer: str | None = None,
) -> dict[str, Any]:
    """Convert a checkpoint to another variant, and write it.

    Args:
        source: a folder or a hub id.
        out: the new folder.
        variant: the variant of the new checkpoint.
        options: the options of the variant.
        revision: the revision, if the source is a hub id.
        tokenizer: a folder or a hub id, if the source has no tokenizer of its own.

    Returns:
        The record of the conversion, as `glue_bench.convert` describes it.

    Raises:
        UserError: the source, the tokenizer or the variant cannot be used, or `out` is there.
    """
    check_variant(variant, options)
    check_plugin(variant, options)
    target = new_folder(out)
    quiet_transformers()

    digest = fingerprint(locate(source, revision))
    checkpoint = read_checkpoint(source, revision, digest)
    loaded_tokenizer = fitting_tokenizer(checkpoint, revision, tokenizer)
    start = graft(checkpoint, variant, options)

    with results_written_to(target, "choose another OUT"), whole_folder(target) as folder:
        record = {
            "source": source,
            "source_variant": checkpoint.config.variant,
            "fingerprint": digest,
            "revision": revision,
            "variant": variant,
            **describe_graft(checkpoint, start),
            "tokenizer": None if loaded_tokenizer is None else tokenizer or source,
            "environment": versions().document(),
        }
        write_model(start, folder, with_pooler="pooler.dense.weight" in checkpoint.weights)
        if loaded_tokenizer is not None:
            save_tokenizer(loaded_tokenizer, folder)
        text = json.dumps(record, indent=1, ensure_ascii=False)
        (folder / CONVERSION_FILE).write_text(f"{text}\n", encoding="utf-8")
    return record


def new_folder(out: str | Path) -> Path:
    """Return the folder of a name. Raises UserError if it is there already."""
    folder = Path(out).expanduser().resolve()
    if folder.exists():
        advice = "give a folder that does not exist yet, nothing is overwritten"
        raise UserError(f"'{out}' is there already; {advice}")
    return folder


def describe_graft(checkpoint: Start, start: Start) -> dict[str, Any]:
    """Describe what a conversion has made of a checkpoint, for its record.

    Args:
        checkpoint: the checkpoint.
        start: the start that it was converted to.

    Raises:
        UserError: a hidden state is NaN or infinite.
    """
    return {
        "options": start.config.variant_options or {},
        "origin": start.origin,
        "exact": start.exact,
        "relative_error": relative_error(checkpoint, start),
        "variance_kept": dict(start.variance_kept) or None,
        "masked_lm_head": describe_head(checkpoint, start),
    }


def write_model(start: Start, folder: Path, *, with_pooler: bool) -> None:
    """Write the encoder of a start, under its masked-LM head if it has one.

    Args:
        start: the start.
        folder: the folder to write to, which is empty.
        with_pooler: whether the pooler is written. A fresh one would pass for a trained one.
    """
    model = under_head(start, start.config) if start.head else encoder(start)
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if with_pooler or "pooler." not in name:
            state[name] = tensor
    model.save_pretrained(folder, state_dict=state)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors makes its files private


def describe_head(checkpoint: Start, start: Start) -> str:
    """Say whether the masked-LM head of a checkpoint is still there after its conversion."""
    if start.head:
        return "kept"
    return HEAD_DROPPED if checkpoint.head else "none in the source"


def fitting_tokenizer(
    checkpoint: Start, revision: str | None, name: str | None
) -> PreTrainedTokenizerBase | None:
    """Load the tokenizer of a checkpoint.

    Args:
        checkpoint: the checkpoint.
        revision: the revision of the checkpoint, if it is from the hub.
        name: another tokenizer, which replaces the checkpoint's own tokenizer.

    Returns:
        The tokenizer, or None if none is named and the checkpoint has none.

    Raises:
        UserError: the tokenizer is damaged, or does not fit the checkpoint.
    """
    if name is None:
        if not has_tokenizer(locate(checkpoint.name, revision)):
            return None
        tokenizer = load_tokenizer(checkpoint.name, revision)
    else:
        tokenizer = load_tokenizer(name)
    check_vocabulary(tokenizer, name or checkpoint.name, checkpoint.config.vocab_size)
    return tokenizer


def has_tokenizer(place: Path) -> bool:
    """Return whether a checkpoint is a folder with a file of a tokenizer."""
    if not place.is_dir():
        return False
    return any(path.match(pattern) for path in place.iterdir() for pattern in TOKENIZER_FILES)


@torch.no_grad()
def relative_error(before: Start, after: Start) -> list[float]:
    """Return |after - before| / |before| of the hidden states of random tokens.

    The first number is for the input of the first block, the others are for the blocks' outputs.
    Raises UserError if a hidden state is NaN or infinite.
    """
    ids, segments, mask = random_tokens(before.config)
    states_before = encoder(before).eval().hidden_states(ids, mask, segments)
    states_after = encoder(after).eval().hidden_states(ids, mask, segments)
    is_real = mask.bool()
    errors: list[float] = []
    for state_before, state_after in zip(states_before, states_after, strict=True):
        real_before = state_before[is_real]
        real_after = state_after[is_real]
        errors.append(float((real_after - real_before).norm() / real_before.norm()))
    if not all(map(math.isfinite, errors)):
        raise UserError("hidden states are not finite: the source's weights are damaged")
    return errors
