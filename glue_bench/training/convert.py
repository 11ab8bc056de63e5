"""A checkpoint of one variant into a folder of another, and a measure of what was lost on the way."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerBase

from glue_bench.errors import UserError
from glue_bench.files import results_written_to, whole_folder
from glue_bench.model.checkpoints import Start, encoder, graft, masked_lm, read_checkpoint
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.heads import EncoderForMaskedLM
from glue_bench.model.locate import fingerprint, locate
from glue_bench.model.variants.options import check_variant
from glue_bench.testing import check_plugin
from glue_bench.training.compute import quiet_transformers
from glue_bench.training.masking import MaskedBatch, Vocabulary, masked
from glue_bench.training.packing import PackedText
from glue_bench.training.tokenizers import load_tokenizer, save_tokenizer, vocabulary_size

RECORD = "conversion.json"
SEED = 1
MASKED_SHARE = 0.15  # as in BERT's pretraining
MAX_LENGTH = 128
RANDOM_SHAPE = (8, 32)
DROPPED = "dropped: its words are narrower"
# Two sentences make a pair, so that segments count too.
SENTENCES = (
    "The baker opens her shop at six, long before the first bus leaves the square.",
    "By noon most of the bread is gone, and she begins to clean the oven.",
    "My brother never learned to swim, although we grew up beside the lake.",
    "He says that the water was always too cold, even in the middle of August.",
    "Heavy rain closed the mountain road for three days last spring.",
    "The village could only be reached on foot, or by a small boat across the reservoir.",
    "Scientists measured the height of every tree in the forest with a laser.",
    "The oldest ones were not the tallest, which surprised nobody who worked there.",
    "Did you remember to send the letter that I left on the kitchen table?",
    "It has to arrive before Friday, otherwise we will lose our place on the list.",
    "The orchestra played the second movement so slowly that the audience grew restless.",
    "Afterwards the conductor explained that the composer had asked for exactly that.",
)
PACKAGES = ("glue-bench", "torch", "transformers", "tokenizers", "safetensors")
Model = EncoderForMaskedLM | EncoderModel


def convert(
    source: str,
    out: str | Path,
    variant: str,
    options: Mapping[str, Any] | None = None,
    *,
    revision: str | None = None,
    tokenizer: str | None = None,
) -> dict[str, Any]:
    """Write `source` as a checkpoint of `variant` to the folder `out`, which `AutoModel.from_pretrained` reads.

    Beside the weights lie the tokenizer, where there is one, and `conversion.json`, whose content is returned.
    `out` appears only when it is whole.

    Example:
        >>> glue_bench.convert("google-bert/bert-base-uncased", "bert-untied", "untied")  # doctest: +SKIP

    Raises:
        UserError: an unknown variant or option; `out` is in use or cannot be written; a source that cannot be
            read or does not become `variant`; a tokenizer that does not fit. Nothing is then left behind.
    """
    options = dict(options or {})
    check_variant(variant, options)
    check_plugin(variant, options)
    target = Path(out).expanduser().resolve()
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        wrong = "is a file" if target.is_file() else "is not empty"
        raise UserError(f"'{out}' {wrong}; give a folder that does not exist yet, nothing is overwritten")
    quiet_transformers()
    digest = fingerprint(locate(source, revision))
    checkpoint = read_checkpoint(source, revision, digest)
    loaded = fitting_tokenizer(checkpoint, revision, tokenizer)
    start = graft(checkpoint, variant, options)
    with results_written_to(target, "choose another OUT"), whole_folder(target, replaces=True) as folder:
        # The head that the graft kept, if any, on both sides: else hidden states alone are compared.
        before, after = ((masked_lm if start.head else encoder)(each).eval() for each in (checkpoint, start))
        record = {
            "source": source,
            "source_variant": checkpoint.config.variant,
            "fingerprint": digest,
            "revision": revision,
            "variant": start.config.variant,
            "options": start.config.variant_options or {},
            "origin": start.origin,
            "exact": start.exact,
            "variance_kept": dict(start.variance_kept) or None,
            "masked_lm_head": "none in the source" if not checkpoint.head else "kept" if start.head else DROPPED,
            "tokenizer": None if loaded is None else tokenizer or source,
            **measure(before, after, sample_of(checkpoint.config, loaded)),
            "versions": {name: version(name) for name in PACKAGES} | {"python": platform.python_version()},
        }
        save(after, folder, pooler="pooler.dense.weight" in checkpoint.weights)
        if loaded is not None:
            save_tokenizer(loaded, folder)
        (folder / RECORD).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return record


def save(model: Model, folder: Path, *, pooler: bool) -> None:
    """Write the model, without its pooler where that is fresh: in a file it would pass for a trained one."""
    state = {name: tensor for name, tensor in model.state_dict().items() if pooler or "pooler." not in name}
    model.save_pretrained(folder, state_dict=state)
    for path in folder.iterdir():
        path.chmod(0o644)  # those of safetensors are private


def fitting_tokenizer(checkpoint: Start, revision: str | None, name: str | None) -> PreTrainedTokenizerBase | None:
    """The one named, else the checkpoint's own, else none; raises UserError where it does not fit the checkpoint."""
    try:
        tokenizer = load_tokenizer(name or checkpoint.name, None if name else revision)
    except UserError:
        if name:
            raise
        return None
    tokens, rows = vocabulary_size(tokenizer), checkpoint.config.vocab_size
    if tokens > rows:
        has = f"the tokenizer of '{name or checkpoint.name}' has {tokens} tokens but '{checkpoint.name}' embeds {rows}"
        raise UserError(f"{has}; give the tokenizer it was trained with as --tokenizer")
    return tokenizer


def sample_of(config: EncoderConfig, tokenizer: PreTrainedTokenizerBase | None) -> MaskedBatch:
    """The few tokens on which a conversion is measured: pairs of sentences, masked, or random ids without a tokenizer
    that has [MASK]. It is the same one every time.
    """
    generator = np.random.default_rng(SEED)
    if tokenizer is None or tokenizer.mask_token_id is None:
        length = min(RANDOM_SHAPE[1], config.max_position_embeddings)
        ids = generator.integers(config.vocab_size - 1, size=(RANDOM_SHAPE[0], length))
        ids += 0 if config.pad_token_id is None else ids >= config.pad_token_id  # padding embeds as zero
        segments, nothing = torch.zeros(ids.shape, dtype=torch.long), torch.zeros(0, dtype=torch.long)
        segments[:, length // 2 :] = max(config.type_vocab_size - 1, 0)
        return MaskedBatch(torch.from_numpy(ids), None, nothing, nothing, segments)
    limit = min(config.max_position_embeddings, MAX_LENGTH)
    rows = tokenizer(
        list(SENTENCES[::2]), list(SENTENCES[1::2]), truncation=True, max_length=limit, return_token_type_ids=True
    )
    cuts = np.array([np.argmax(row) if config.type_vocab_size > 1 else 0 for row in rows["token_type_ids"]])
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows["input_ids"]])])
    text = PackedText(np.concatenate(rows["input_ids"]), offsets, cuts=cuts)
    return masked(text, np.arange(len(text)), Vocabulary.of(tokenizer), MASKED_SHARE, generator)


@torch.no_grad()
def measure(before: Model, after: Model, sample: MaskedBatch) -> dict[str, Any]:
    """How far apart two encoders of equal sizes are on a sample, and their masked-LM losses where both have heads."""
    encoders = [model.base if isinstance(model, EncoderForMaskedLM) else model for model in (before, after)]
    whole = sample.ids.clone()
    whole.view(-1)[sample.places] = sample.targets
    states = [each.hidden_states(whole, sample.mask, sample.segments) for each in encoders]
    if not all(state.isfinite().all() for layers in states for state in layers):
        raise UserError("hidden states are not finite: the source's weights are damaged")
    real = torch.ones_like(whole, dtype=torch.bool) if sample.mask is None else sample.mask
    pairs = [(theirs[real], ours[real]) for theirs, ours in zip(*states, strict=True)]
    losses = None
    if isinstance(after, EncoderForMaskedLM) and len(sample.places):
        given = {"attention_mask": sample.mask, "token_type_ids": sample.segments, "places": sample.places}
        logits = {name: model(sample.ids, **given).logits for name, model in (("before", before), ("after", after))}
        losses = {name: float(F.cross_entropy(each, sample.targets)) for name, each in logits.items()}
    kind = "text" if len(sample.places) else "random ids"
    sizes = {"sequences": len(whole), "tokens": int(real.sum()), "masked": len(sample.places)}
    errors = [float((ours - theirs).norm() / theirs.norm()) for theirs, ours in pairs]
    return {
        "sample": {"kind": kind, "seed": SEED, **sizes},
        "distance": {
            "relative_error": errors,
            "cosine": float(F.cosine_similarity(*pairs[-1], dim=-1).mean()),
        },
        "masked_lm_loss": losses,
    }
