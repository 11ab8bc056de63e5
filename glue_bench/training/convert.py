"""A checkpoint of one variant into a folder of another, and how far its hidden states are from those it had."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from glue_bench.errors import UserError
from glue_bench.files import results_written_to, whole_folder
from glue_bench.model.checkpoints import (
    Start,
    encoder,
    graft,
    random_tokens,
    read_checkpoint,
    under_head,
)
from glue_bench.model.locate import fingerprint, locate
from glue_bench.model.plugins import check_plugin
from glue_bench.model.variants.options import check_variant
from glue_bench.records.environment import versions
from glue_bench.training.quiet import quiet_transformers
from glue_bench.training.tokenizers import check_vocabulary, load_tokenizer, save_tokenizer

RECORD = "conversion.json"
DROPPED = "dropped: its words are narrower"
TOKENIZER_FILES = (
    "tokenizer*",
    "vocab*",
    "*.model",
)  # a folder without any of them has no tokenizer


def convert_checkpoint(
    source: str,
    out: str | Path,
    variant: str,
    options: dict[str, Any],
    revision: str | None = None,
    tokenizer: str | None = None,
) -> dict[str, Any]:
    """Write `source` as a checkpoint of `variant`, as `glue_bench.convert` describes it; the record is returned."""
    check_variant(variant, options)
    check_plugin(variant, options)
    target = Path(out).expanduser().resolve()
    if target.exists():
        raise UserError(
            f"'{out}' is there already; give a folder that does not exist yet, nothing is overwritten"
        )
    quiet_transformers()
    digest = fingerprint(locate(source, revision))
    checkpoint = read_checkpoint(source, revision, digest)
    loaded = fitting_tokenizer(checkpoint, revision, tokenizer)
    start = graft(checkpoint, variant, options)
    with results_written_to(target, "choose another OUT"), whole_folder(target) as folder:
        record = {
            "source": source,
            "source_variant": checkpoint.config.variant,
            "fingerprint": digest,
            "revision": revision,
            "variant": variant,
            "options": start.config.variant_options or {},
            "origin": start.origin,
            "exact": start.exact,
            "relative_error": relative_error(checkpoint, start),
            "variance_kept": dict(start.variance_kept) or None,
            "masked_lm_head": "kept"
            if start.head
            else DROPPED
            if checkpoint.head
            else "none in the source",
            "tokenizer": None if loaded is None else tokenizer or source,
            "environment": versions().document(),
        }
        model = under_head(start, start.config) if start.head else encoder(start)
        # A pooler that is fresh would pass for a trained one.
        pooler = "pooler.dense.weight" in checkpoint.weights
        state = {
            name: tensor
            for name, tensor in model.state_dict().items()
            if pooler or "pooler." not in name
        }
        model.save_pretrained(folder, state_dict=state)
        for path in folder.iterdir():
            path.chmod(0o644)  # those of safetensors are private
        if loaded is not None:
            save_tokenizer(loaded, folder)
        (folder / RECORD).write_text(
            json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return record


def fitting_tokenizer(
    checkpoint: Start, revision: str | None, name: str | None
) -> PreTrainedTokenizerBase | None:
    """The one named, else the checkpoint's own, else none; raises UserError where it is damaged, or does not fit."""
    place = locate(checkpoint.name, revision)
    files = place.iterdir() if place.is_dir() else ()
    if name is None and not any(path.match(each) for path in files for each in TOKENIZER_FILES):
        return None
    tokenizer = load_tokenizer(name or checkpoint.name, None if name else revision)
    check_vocabulary(tokenizer, name or checkpoint.name, checkpoint.config.vocab_size)
    return tokenizer


@torch.no_grad()
def relative_error(before: Start, after: Start) -> list[float]:
    """|after - before| / |before| of the hidden states of random tokens: of the input, then after each block."""
    ids, segments, mask = random_tokens(before.config)
    states = [encoder(each).eval().hidden_states(ids, mask, segments) for each in (before, after)]
    real = [[state[mask.bool()] for state in of_one] for of_one in states]
    errors = [
        float((ours - theirs).norm() / theirs.norm()) for theirs, ours in zip(*real, strict=True)
    ]
    if not all(map(math.isfinite, errors)):
        raise UserError("hidden states are not finite: the source's weights are damaged")
    return errors
