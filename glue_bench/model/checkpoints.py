"""From a checkpoint of any known family to an encoder with any variant: translate, check, then graft."""

import argparse
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, set_seed
from transformers import __version__ as TRANSFORMERS
from transformers.activations import ACT2FN

from glue_bench.errors import UserError, first_line, quoted
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.families import FAMILIES, TUPE
from glue_bench.model.fresh import SEED, drawing, fresh, on_meta, on_threads, unfilled
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification
from glue_bench.model.locate import (
    checked_weights,
    fingerprint,
    locate,
    read_json,
    read_weights,
    unpickle,
)
from glue_bench.model.variants.additive import Add
from glue_bench.model.variants.base import Additive, Grafted
from glue_bench.model.variants.options import build_variant, canonical_options, segments_enter

DECODER = "decoder.lm_head.weight"
# Settings of TUPE that this encoder supports at this value only; a file without them has it.
ONLY_VALUES = {"encoder_normalize_before": False, "rel_pos_bins": 32, "max_rel_pos": 128}
# What stands in for fairseq's meters, which its trainer stores with the weights: attributes and no behaviour.
METERS = [
    (type(name, (), {}), f"fairseq.meters.{name}")
    for name in ("AverageMeter", "TimeMeter", "StopwatchMeter")
]
DAMAGE = (
    SafetensorError,
    UnpicklingError,
    EOFError,
)  # what a file of weights raises that is not whole
READER = "PytorchStreamReader"  # by which torch names the same
TOLERANCE = (
    1e-4  # of the largest value; rounding alone makes 2e-6 of it in 24 random blocks of width 256
)
LENGTH = 32


@dataclass(frozen=True)
class Start:
    """A configuration, and weights of EncoderModel (none: all fresh; without a pooler where a checkpoint has none).

    `head` is that of EncoderForMaskedLM, where the checkpoint has a whole one that fits. `exact` and `variance_kept`
    are those of `Grafted`. `name` is what the user called the checkpoint. `leaves_head`: the checkpoint has a trained
    classification head, which is not used.
    """

    config: EncoderConfig
    weights: dict[str, Tensor]
    origin: str
    exact: bool = True
    variance_kept: Mapping[str, float] = field(default_factory=dict)
    head: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = ""
    leaves_head: bool = False

    @cached_property
    def digest(self) -> str | None:
        """The `weights_digest` of the weights, None if all are fresh."""
        return weights_digest(self.weights) if self.weights else None

    @property
    def positions(self) -> int | None:
        """The longest text in tokens that the encoder takes; None where nothing bounds it."""
        return self.config.max_position_embeddings

    @property
    def segment_types(self) -> int:
        """How many segments the encoder tells apart; 0 where it is given none."""
        return self.config.type_vocab_size

    @property
    def hidden_size(self) -> int:
        """The width of the encoder."""
        return self.config.hidden_size

    @property
    def reads_padding(self) -> bool:
        """Whether padding changes the outputs, so that every text is padded to the same length."""
        return False

    def classifier(self, labels: Sequence[str], seed: int) -> nn.Module:
        """The encoder under a fresh head with an output a label. Equal seeds give equal heads, whatever the variant."""
        set_seed(seed)
        config = EncoderConfig.from_dict(self.config.to_dict() | label_settings(labels))
        kind = EncoderForSequenceClassification
        model = unfilled(kind, config) if self.weights else kind(config)
        absent = model.base.load_state_dict(self.weights, strict=False).missing_keys
        lacking = [name for name in absent if not name.startswith("pooler.")]
        if self.weights and lacking:  # they would be whatever lay in memory
            count = len(lacking)
            raise UserError(
                f"checkpoint '{self.name}' lacks {count} weights of its encoder, such as {lacking[0]}"
            )
        has_pooler = "pooler.dense.weight" in self.weights
        # A variant's own parameters draw random numbers too; from here on all arms draw the same ones.
        set_seed(seed)
        for module in (
            [model.classifier] if has_pooler else [model.base.pooler.dense, model.classifier]
        ):
            model._init_weights(module)
        return model


def label_settings(labels: Sequence[str]) -> dict[str, Any]:
    """How transformers' configurations have the labels of a classifier."""
    names = dict(enumerate(labels))
    return {
        "num_labels": len(names),
        "id2label": names,
        "label2id": {name: index for index, name in names.items()},
    }


def encoder(start: Start) -> EncoderModel:
    """The encoder of a start; what it has no weights for, such as a pooler, is fresh."""
    model = fresh(EncoderModel, start.config)
    model.load_state_dict(start.weights, strict=False)
    return model


def under_head(start: Start, config: EncoderConfig, seed: int = SEED) -> EncoderForMaskedLM:
    """The encoder under a masked-LM head; what the start has no weights for is fresh and decided by `seed`."""
    model = fresh(EncoderForMaskedLM, config, seed)
    weights = {f"base.{name}": tensor for name, tensor in start.weights.items()} | dict(start.head)
    model.load_state_dict(weights, strict=False)
    return model


def fitting_head(config: EncoderConfig, head: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a masked-LM head if it is whole and of this encoder's shapes, else none."""
    if not head:
        return {}
    expected = on_meta(EncoderForMaskedLM, config).state_dict()
    own = {
        name: each.shape
        for name, each in expected.items()
        if not name.startswith(("base.", "decoder.weight"))
    }
    weights = {name: head[name] for name in own if name in head}
    return weights if {name: each.shape for name, each in weights.items()} == own else {}


def read_checkpoint(name: str, revision: str | None = None, digest: str | None = None) -> Start:
    """A checkpoint from the hub, a folder or an official TUPE file, in our names and as it is.

    Raises UserError where there is none; for a family that is not known; for settings that this encoder does not
    compute; for weights that are absent, unreadable, incomplete, or not read as transformers reads them
    (`check_parity`); and for files that are no longer of `digest`, their `fingerprint` when they were chosen.
    """
    place = locate(name, revision)
    start = _read_tupe(place, name) if place.is_file() else _read_folder(place, name)
    if digest is not None and fingerprint(place) != digest:
        raise UserError(f"checkpoint '{name}' has changed while it was in use; start again")
    return start


def _read_folder(folder: Path, name: str) -> Start:
    settings = read_json(folder / "config.json")
    kind, positions = (
        settings.get("model_type"),
        settings.get("position_embedding_type", "absolute"),
    )
    if kind not in (known := [*FAMILIES, EncoderConfig.model_type]):
        only = f"only {', '.join(known)} can become a variant"
        raise UserError(
            f"checkpoint '{name}' is of model_type {quoted(kind)}; {only}, others run as they are: native"
        )
    if positions != "absolute":  # transformers 5 reads them as absolute ones, without a word
        raise UserError(
            f"checkpoint '{name}' has {quoted(positions)} positions; only absolute are read"
        )
    family = FAMILIES.get(kind)
    try:
        if family is None:
            config = EncoderConfig(
                **{key: settings[key] for key in EncoderConfig.__annotations__ if key in settings}
            )
        else:
            theirs = AutoConfig.for_model(**settings)
            config = family.configure(
                {name: getattr(theirs, name) for name in family.settings.values()}
            )
    except (
        Exception
    ) as error:  # what transformers raises for a value that it did not expect is anything
        raise UserError(
            f"checkpoint '{name}': config.json does not fit: {' '.join(str(error).split())}"
        ) from error
    raw = read_weights(folder)
    leaves_head = any(key.startswith("classifier.") for key in raw)
    if family is not None:
        start = _complete(name, config, *family.translate(raw, config.pad_token_id))
        check_parity(folder, start)
        return replace(start, leaves_head=leaves_head)
    raw = {key: tensor.float() for key, tensor in raw.items()}
    inside = {
        key.removeprefix("base."): tensor for key, tensor in raw.items() if key.startswith("base.")
    }
    start = _complete(name, config, inside or raw, raw if inside else {})
    return replace(start, leaves_head=leaves_head)


def _complete(
    name: str, config: EncoderConfig, weights: dict[str, Tensor], head: Mapping[str, Tensor]
) -> Start:
    """The start that these weights make; a head that is not whole, or not of this encoder's shapes, is left out."""
    for act in (config.hidden_act, config.head_act or config.hidden_act):
        if act not in ACT2FN or ACT2FN[act].state_dict():
            wrong = (
                "has weights of its own, which are not read"
                if act in ACT2FN
                else "is not known to transformers"
            )
            raise UserError(f"checkpoint '{name}': its activation '{act}' {wrong}")
    expected = on_meta(EncoderModel, config).state_dict()
    has_pooler = any(
        key.startswith("pooler.") for key in weights
    )  # without one it is fresh, half of one is damaged
    missing = [
        key
        for key in expected
        if key not in weights and (has_pooler or not key.startswith("pooler."))
    ]
    if missing:
        raise UserError(
            f"checkpoint '{name}' lacks {len(missing)} weights of its encoder, such as {missing[0]}"
        )
    for key, tensor in weights.items():
        if key in expected and tensor.shape != expected[key].shape:
            shapes = f"{tuple(tensor.shape)}, its settings say {tuple(expected[key].shape)}"
            raise UserError(f"checkpoint '{name}': {key} has shape {shapes}")
    return Start(config, weights, config.origin, head=fitting_head(config, head), name=name)


def _read_tupe(path: Path, name: str) -> Start:
    """An official TUPE checkpoint: a `torch.save`d dictionary of `args`, the training's settings, and `model`."""
    try:
        saved = unpickle(path, [argparse.Namespace, *METERS])
        args, raw = dict(vars(saved["args"])), checked_weights(saved["model"])
    except Exception as error:
        # torch's own message is long, and advises to load the file in a way that runs its code.
        unsafe = re.search(r"Unsupported global: GLOBAL (\S+)", str(error))
        reason = f"it pickles {unsafe[1]}, which might run code" if unsafe else first_line(error)
        official = "an official TUPE checkpoint, which is a file of torch.save with args and model"
        raise UserError(f"cannot read '{path}' as {official}: {reason}") from error
    about, args = (
        f"TUPE checkpoint '{name}'",
        {"dropout": 0.1, "attention_dropout": 0.1} | args,
    )  # as its code fills in
    wrong = [f"no {key}" for key in (*TUPE.settings.values(), "rel_pos") if key not in args]
    wrong += [
        f"{key}={quoted(args[key])}"
        for key, only in ONLY_VALUES.items()
        if args.get(key, only) != only
    ]
    try:
        if wrong:
            raise ValueError(", ".join(wrong))
        config = TUPE.configure(args)
    except Exception as error:  # as for transformers' settings
        raise UserError(f"{about}: its args do not fit: {' '.join(str(error).split())}") from error
    words = raw.get(
        f"{TUPE.prefix}embed_tokens.weight"
    )  # without them any number will do: they are then missing
    config.vocab_size = len(words) if words is not None and words.ndim else config.vocab_size
    config.variant = "untied-relative" if args["rel_pos"] else "untied"
    start = _complete(name, config, *TUPE.translate(raw, config.pad_token_id))
    read = {*TUPE.rename(raw).values(), DECODER}
    unknown = [
        key for key in raw if key not in read and not key.startswith("classification_heads.")
    ]  # of fine-tuning
    unknown += [
        key for key in start.weights if key not in on_meta(EncoderModel, config).state_dict()
    ]
    if unknown:
        raise UserError(f"{about} has {len(unknown)} unknown weights, such as {unknown[0]}")
    if DECODER in raw and not torch.equal(
        raw[DECODER].float(), start.weights["variant.words.weight"]
    ):
        raise UserError(f"{about}: {DECODER} differs from the words, to which it should be tied")
    return start


def graft(start: Start, variant: str, options: Mapping[str, Any]) -> Start:
    """Start `variant` from a checkpoint: as it is where it is of that variant, else by a graft from `add`.

    Blocks are kept. Where the variant scales scores by 1 / sqrt(terms * k), queries grow by sqrt(terms), so
    that the word-word scores stay those of the checkpoint. What a graft leaves fresh is as `fresh` draws it.
    Raises UserError for a checkpoint of another variant that is not `add`, or of this one with other options.
    """
    wanted = variant, canonical_options(variant, options)
    own = (
        start.config.variant,
        canonical_options(start.config.variant, start.config.variant_options),
    )
    if own == wanted:
        return start
    if own[0] != "add":
        other, has = (
            f"'{name}'" + (f" with {chosen}" if chosen else "") for name, chosen in (wanted, own)
        )
        refusal = f"cannot start variant {other} from '{start.name}', which is {has}"
        raise UserError(f"{refusal}; only additive checkpoints can be grafted")
    config = with_variant(start.config, *wanted, origin="grafted")
    model = fresh(EncoderModel, config)
    positions = added_positions(start)
    with drawing(), on_threads(1), torch.no_grad():
        query, key, _ = start.weights["blocks.0.attention.qkv.weight"].chunk(3)
        words = start.weights["variant.words.weight"]
        norm = start.weights.get("norm.weight", torch.ones(words.shape[1]))
        segments = start.weights.get("variant.segments.weight")
        additive = Additive(
            words=words, positions=positions, segments=segments, norm=norm, query=query, key=key
        )
        grafted = model.variant.graft(additive)
    if not isinstance(grafted, Grafted):  # a plugin's, which no type check has seen
        raise TypeError(f"graft returns {type(grafted).__name__}, not Grafted")
    if model.segment_scores is not None:
        torch.nn.init.zeros_(model.segment_scores.table.weight)
    enter = segments_enter(start.config), segments_enter(config)
    replaced = ("variant.",) if enter == ("scores", "scores") else ("variant.", "segment_scores.")
    weights = {
        name: tensor for name, tensor in start.weights.items() if not name.startswith(replaced)
    }
    for name, tensor in weights.items():
        if ".attention.qkv." in name:
            query, key_value = tensor.split([len(tensor) // 3, 2 * len(tensor) // 3])
            weights[name] = torch.cat([query * model.variant.score_terms**0.5, key_value])
    weights |= {
        name: tensor for name, tensor in model.state_dict().items() if name.startswith(replaced)
    }
    exact = grafted.exact and (
        enter[0] == enter[1] or enter == ("none", "scores")
    )  # a table of zeros adds nothing
    return replace(
        start,
        config=config,
        weights=weights,
        origin="grafted",
        exact=exact,
        variance_kept=grafted.variance_kept,
        head=fitting_head(config, start.head),
    )


def added_positions(start: Start) -> Float[Tensor, "n d"]:
    """Return the p_i that an encoder of variant `add` adds; with `position_norm` they are not the rows of its table."""
    with drawing():
        variant = build_variant(start.config)
    assert isinstance(variant, Add)
    prefix = "variant."
    own_weights = {
        name.removeprefix(prefix): tensor
        for name, tensor in start.weights.items()
        if name.startswith(prefix)
    }
    variant.load_state_dict(own_weights)
    return variant.position_rows(start.config.max_position_embeddings).detach()


def with_variant(
    config: EncoderConfig, variant: str, options: Mapping[str, Any], origin: str
) -> EncoderConfig:
    """A copy of a configuration for another variant."""
    changes = {"variant": variant, "variant_options": dict(options), "origin": origin}
    return EncoderConfig.from_dict(config.to_dict() | changes)


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors, on whatever device they are, by their names: names, types, shapes and bits."""
    total = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


@torch.no_grad()
def check_parity(folder: Path, start: Start) -> None:
    """Compare hidden states, and the logits where there is a head, of random tokens with transformers' own model's.

    Raises UserError where they differ by more than TOLERANCE, are not finite, or transformers cannot compute them.
    """
    ids, segments, mask = random_tokens(start.config)
    about = f"checkpoint '{start.name}'"
    with drawing():
        ours = (under_head(start, start.config) if start.head else encoder(start)).eval()
        # To feed forward in chunks is another order of the same work, which not every length permits.
        options = {
            "dtype": torch.float32,
            "attn_implementation": "eager",
            "chunk_size_feed_forward": 0,
        }
        try:
            kind = AutoModelForMaskedLM if start.head else AutoModel
            theirs = kind.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, **options
            )
            extra = {"token_type_ids": segments} if start.config.type_vocab_size else {}
            expected = theirs.eval()(
                ids, mask, **extra, output_hidden_states=True, return_dict=True
            )
        except Exception as error:
            raise cannot_compute(start.name, error) from error
    actual = ours(ids, mask, segments, output_hidden_states=True)
    pairs = list(zip(expected.hidden_states, actual.hidden_states, strict=True))
    for place, pair in enumerate(
        [*pairs, (expected.logits, actual.logits)] if start.head else pairs
    ):
        their, our = (each[mask.bool()] for each in pair)
        largest, apart = float(their.abs().max()), float((our - their).abs().max())
        if not largest < float("inf"):
            raise UserError(f"{about}: hidden states are not finite; its weights are damaged")
        if not apart <= TOLERANCE * largest:
            is_head = place == len(pairs)
            part = "the masked-LM head" if is_head else f"block {place}" if place else "the input"
            fault = (
                f"does not compute what transformers {TRANSFORMERS} computes (off by {apart:.2g})"
            )
            advice = "Save its encoder alone, or use it" if is_head else "Use it"
            raise UserError(f"{about}: {part} {fault}. {advice} as a `native` arm.")


def random_tokens(
    config: EncoderConfig,
) -> tuple[Int[Tensor, "2 l"], Int[Tensor, "2 l"], Int[Tensor, "2 l"]]:
    """Any tokens but padding, in two segments, and a mask that leaves out half of the last sequence."""
    length = min(LENGTH, config.max_position_embeddings)
    ids = torch.randint(config.vocab_size, (2, length), generator=torch.Generator().manual_seed(1))
    if config.pad_token_id is not None:
        ids[ids == config.pad_token_id] = (config.pad_token_id + 1) % config.vocab_size
    segments, mask = torch.zeros_like(ids), torch.ones_like(ids)
    segments[:, length // 3 :] = max(config.type_vocab_size - 1, 0)
    mask[-1, (length + 1) // 2 :] = 0
    return ids, segments, mask


def cannot_compute(name: str, error: Exception) -> UserError:
    """Whatever transformers, safetensors or torch raise, which have no common base, in one line."""
    cause = f"{type(error).__name__}: {first_line(error)}"
    is_from_disk = (
        isinstance(error, OSError) and error.errno is not None
    )  # transformers raises others without a number
    if is_from_disk or isinstance(error, DAMAGE) or READER in str(error):
        advice = "a file may be cut short, copy it again"
    else:
        advice = f"its files may not fit together, or not transformers {TRANSFORMERS}; give another checkpoint"
    return UserError(f"checkpoint '{name}': transformers cannot compute it ({cause}); {advice}")
