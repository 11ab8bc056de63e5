"""The contract: what every variant promises, as clauses that are tried on tiny encoders."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from glue_bench.errors import line_of
from glue_bench.model import checkpoints
from glue_bench.model.checkpoints import Start
from glue_bench.model.checks import dead_parts, permutation
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import drawing, fresh, on_meta
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification
from glue_bench.model.tiny import (
    HEADS,
    NARROW,
    POSITIONS,
    encoder_config,
    max_error,
    pad,
    random_model,
    segments,
    tokens,
)
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import EncoderInput, Variant
from glue_bench.model.variants.options import check_variant

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
ENCODERS: dict[str, dict[str, Any]] = {
    "like BERT": {},
    "without segments": {"type_vocab_size": 0},
    "with tables narrower than its blocks": {"embedding_size": NARROW},
    "without LayerNorm at its input": {"embedding_norm": False},
    "with blocks of recent encoders": {"norm_first": True, "gated": True},
}
LOADERS: dict[type[Any], Any] = {EncoderForSequenceClassification: AutoModelForSequenceClassification,
                                 EncoderForMaskedLM: AutoModelForMaskedLM}  # fmt: skip
IN_ONE = {
    "save and load",
    "draws",
}  # which the first of ENCODERS is enough for, and which take the longest


class ContractError(Exception):
    """A variant breaks a clause: the message says which, what is wrong, and where."""


def check_contract(
    variant: str, options: Mapping[str, Any] | None = None, clauses: Iterable[str] | None = None
) -> None:
    """Hold a variant to every clause, or to these, in every kind of encoder that its options permit.

    Raises ContractError with the first clause that it breaks, and where.
    """
    if variant not in VARIANTS:
        check_variant(variant, {})
    for clause, (encoder, sizes) in product(clauses or CLAUSES, ENCODERS.items()):
        needs_segments = (options or {}).get("segments") == "scores" and "type_vocab_size" in sizes
        if needs_segments or (sizes and clause in IN_ONE):
            continue
        config = encoder_config(variant, variant_options=dict(options or {}), **NO_DROPOUT, **sizes)
        try:
            with drawing():
                wrong, cause = CLAUSES[clause](config), None
        except Exception as error:
            file = getattr(
                sys.modules.get(VARIANTS[variant].__module__), "__file__", None
            )  # none of a notebook's
            wrong, cause = (
                f"{type(error).__name__}: {' '.join(str(error).split())}{line_of(error, file)}",
                error,
            )
        if wrong:
            raise ContractError(f"clause '{clause}', encoder {encoder}: {wrong}") from cause


# The clauses: each says what is wrong with the variant of a configuration, or None.


def shapes(config: EncoderConfig) -> str | None:
    """What enters the first block has the shapes of `EncoderInput`, and the output is finite, at every length."""
    model = random_model(EncoderModel, config)
    for length in (1, 2, 7, POSITIONS):
        ids = tokens(3, length)
        kinds = segments(ids, config.type_vocab_size)
        if wrong := wrong_shape(
            model.variant(ids, kinds), (3, length, config.embedding_size), model.variant
        ):
            return wrong
        if not model(ids, None, kinds).last_hidden_state.isfinite().all():
            return f"the encoder's output is not finite on sequences of {length}"
    return None


def wrong_shape(output: Any, expected: tuple[int, int, int], variant: Variant) -> str | None:
    """Which part of what a variant returns has another shape than hidden states of the shape `expected` ask for."""
    if not isinstance(output, EncoderInput):
        return f"forward returns {type(output).__name__}, not EncoderInput"
    (batch, length, _), blocks, biases = expected, variant.dims.num_blocks, output.biases()
    if isinstance(output.bias, Sequence) and len(biases) != blocks:
        return f"EncoderInput.bias has {len(biases)} tensors for {blocks} blocks; give one tensor, or one per block"
    heads, scores = (
        (batch, HEADS, length, variant.dims.head_size),
        (f"1 or {batch}", HEADS, length, length),
    )
    parts: list[tuple[str, Tensor, tuple[Any, ...]]] = [("hidden has", output.hidden, expected)]
    parts += [("bias has", bias, scores) for bias in biases if bias is not None]
    for block in range(blocks):
        queries, keys = torch.randn(2, *heads)
        if output.rotate is not None:
            turned = zip(("queries", "keys"), output.rotate(block, queries, keys), strict=True)
            parts += [(f"rotate, block {block}: {what} have", part, heads) for what, part in turned]
        if output.scores is not None:
            parts.append(
                (f"scores, block {block}: they have", output.scores(block, queries, keys), scores)
            )
    for what, part, wanted in parts:
        permitted = [(1, *wanted[1:]), (batch, *wanted[1:])] if wanted is scores else [wanted]
        if tuple(part.shape) not in permitted:
            return f"EncoderInput.{what} shape {tuple(part.shape)}, not ({', '.join(map(str, wanted))})"
    return None


def gradients(config: EncoderConfig) -> str | None:
    """Every parameter receives a finite gradient under both heads; only the pooler none under the masked-LM head."""
    ids = tokens(3, 9)
    for kind, labels in zip(LOADERS, (torch.tensor([0, 1, 1]), ids), strict=True):
        model = random_model(kind, config).train()
        model(ids, None, segments(ids, config.type_vocab_size), labels=labels).loss.backward()
        for name, weight in model.named_parameters():
            size = 0.0 if weight.grad is None else float(weight.grad.abs().sum())
            if not size < float("inf"):
                return f"the gradient of parameter {name} is not finite in {kind.__name__}"
            if not size and not (kind is EncoderForMaskedLM and "pooler" in name):
                return f"parameter {name} receives no gradient in {kind.__name__}; what never learns is no parameter"
    return None


@torch.no_grad()
def padding(config: EncoderConfig) -> str | None:
    """The states of real tokens do not change with padding, nor with the other examples of the batch."""
    model, lengths = (
        random_model(EncoderModel, config).double(),
        [7, 5, 2],
    )  # float32 rounds by more without LayerNorm
    ids, mask = pad(tokens(3, 12), lengths)
    kinds = segments(ids, config.type_vocab_size)
    together = model.hidden_states(ids, mask, kinds)
    for row, length in enumerate(lengths):
        alone = model.hidden_states(
            ids[row : row + 1, :length], None, kinds[row : row + 1, :length]
        )
        for block, (in_batch, by_itself) in enumerate(zip(together, alone, strict=True)):
            error = max_error([in_batch[row, :length]], [by_itself[0]])
            if not error < 1e-5:
                where = f"after block {block}" if block else "before the first block"
                return f"padding or the rest of the batch changes real tokens by {error:.1e} {where}; 1e-5 is permitted"
    return None


@torch.no_grad()
def save_and_load(config: EncoderConfig) -> str | None:
    """Saved and loaded through the Auto classes, with each head and without, weights and outputs stay the same."""
    ids, mask = pad(tokens(), [11, 5, 2])
    for kind, loader in LOADERS.items():
        model = random_model(kind, config)
        with TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again, inside = (auto.from_pretrained(folder).eval() for auto in (loader, AutoModel))
        for before, after in ((model, again), (model.base, inside)):
            ours, theirs = before.state_dict(), after.state_dict()
            for name in ours.keys() | theirs.keys():
                if (
                    name not in ours
                    or name not in theirs
                    or not torch.equal(ours[name], theirs[name])
                ):
                    return f"{kind.__name__}: {name} is not the same after loading"
            error = max_error(before(ids, mask).to_tuple(), after(ids, mask).to_tuple())
            if not error < 1e-5:  # as far as other addresses round the same
                lost = "a tensor of __init__ that is no parameter or persistent buffer is lost: make it in forward"
                return f"weights are the same after loading, outputs differ by {error:.1e}; {lost}"
    return None


def autocast(config: EncoderConfig) -> str | None:
    """Under autocast to bf16 a step runs, every block takes and gives float32, and states stay close to float32's."""
    model, (ids, mask) = (
        random_model(EncoderForSequenceClassification, config),
        pad(tokens(), [11, 7, 2]),
    )
    kinds, dtypes = segments(ids, config.type_vocab_size), set[torch.dtype]()
    for block in model.base.blocks:
        block.register_forward_hook(
            lambda _, inputs, output: dtypes.update([inputs[0].dtype, output.dtype])
        )
    exact = model.base.hidden_states(ids, mask, kinds)[-1][mask.bool()].detach()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model.base.hidden_states(ids, mask, kinds)[-1][mask.bool()].detach()
        model.train()(ids, mask, kinds, labels=torch.tensor([0, 1, 1])).loss.backward()
    if wrong := dtypes - {torch.float32}:
        return f"under autocast to bf16, blocks take or give {wrong.pop()}, not float32"
    error, size = float((rounded - exact).abs().mean()), float(exact.abs().mean())
    fault = f"under autocast to bf16 the last states, {size:.2f} in size, are {error:.2f} off; 0.03 is permitted"
    return None if error < 0.03 and size > 0.3 else fault


def additive_start(config: EncoderConfig) -> Start:
    """A random additive encoder of the same sizes, to graft the variant onto."""
    base = EncoderConfig.from_dict(config.to_dict() | {"variant": "add", "variant_options": {}})
    return Start(base, random_model(EncoderModel, base).state_dict(), "pretrained", name="additive")


def graft(config: EncoderConfig) -> str | None:
    """A graft from an additive encoder leaves it as it was and gives finite states; an exact one the same states."""
    additive, ids = additive_start(config), tokens()
    grafted = checkpoints.graft(additive, config.variant, config.variant_options or {})
    for name, weight in additive_start(config).weights.items():
        if not torch.equal(weight, additive.weights[name]):
            return f"the graft changes the checkpoint's own {name}"
    states = []
    for start in (grafted, additive):
        model = EncoderModel(start.config).eval()
        model.load_state_dict(start.weights)
        states.append(model.hidden_states(ids, None, segments(ids, config.type_vocab_size)))
    if not all(state.isfinite().all() for state in states[0]):
        return "the grafted encoder's states are not finite"
    error = max_error(*states)
    return (
        f"the graft says it is exact, but states differ by {error:.1e}"
        if grafted.exact and error >= 1e-5
        else None
    )


def draws(config: EncoderConfig) -> str | None:
    """Fresh weights and a graft have the same bits each time, whatever random numbers were drawn before."""
    first: dict[str, Tensor] = {}
    for earlier in (1, 2):
        with drawing(earlier):
            drawn = fresh(EncoderModel, config).state_dict()
            grafted = checkpoints.graft(
                additive_start(config), config.variant, config.variant_options or {}
            ).weights
        for what, weights in (("fresh weights", drawn), ("a graft", grafted)):
            for name, weight in weights.items():
                if not torch.equal(weight, first.setdefault(f"{what}: {name}", weight)):
                    return f"{what}: {name} is another each time; draw it by torch's, numpy's or Python's generator"
    return None


def meta_device(config: EncoderConfig) -> str | None:
    """A step runs on the meta device, where tensors have no values: there the cost of an arm is counted."""
    ids = torch.zeros(3, 9, dtype=torch.long, device="meta")
    on_meta(EncoderModel, config)(ids, None, segments(ids)).last_hidden_state.sum().backward()
    return None


def position(config: EncoderConfig) -> str | None:
    """The order of tokens reaches [CLS], and each part of fresh weights learns from it; without position, neither."""
    model, ids = random_model(EncoderModel, config).double(), tokens()
    with torch.no_grad():
        change = float(
            (model(ids).pooler_output - model(ids[:, permutation(ids.shape[1])]).pooler_output)
            .abs()
            .max()
        )
    if not model.variant.uses_position:
        return (
            f"permuting tokens changes [CLS] by {change:.1e}: uses_position is False"
            if change >= 1e-12
            else None
        )
    least = 1e-2 if config.embedding_norm else 1e-3  # words that no norm has scaled may be louder
    few = f"permuting tokens changes [CLS] by only {change:.1e}; {least:g} is expected where uses_position is True"
    if not change > least:
        return few
    dead, _ = dead_parts(fresh(EncoderModel, config).double(), ids[:1])
    fault = f"no gradient reaches {', '.join(dead)} from its fresh weights; two factors of one product may both be 0"
    return fault if dead else None


@torch.no_grad()
def start(config: EncoderConfig) -> str | None:
    """A start of 0 changes nothing, and another one leaves [CLS] at 0, if the tables of positions are declared."""
    variant = random_model(EncoderModel, config).variant
    if variant.position_tables is None:
        return None
    length = 9
    ids = tokens(3, length)
    segment_ids = segments(ids, config.type_vocab_size)

    def tensors(first: int) -> list[Tensor]:
        with variant.starting_at(first):
            output = variant(ids, segment_ids)
        return [output.hidden, *(bias for bias in output.biases() if bias is not None)]

    def of_cls(parts: list[Tensor]) -> list[Tensor]:
        hidden, *biases = parts
        return [hidden[:, 0], *(bias[:, :, 0, 0] for bias in biases)]

    usual = variant(ids, segment_ids)
    unmoved = [usual.hidden, *(bias for bias in usual.biases() if bias is not None)]
    error = max_error(tensors(0), unmoved)
    if error:
        return f"a start of 0 changes what forward returns by {error:.1e}"
    last = POSITIONS - length
    error = max_error(of_cls(tensors(last)), of_cls(unmoved))
    if error < 1e-5:
        return None
    return f"a start of {last} changes what forward returns for [CLS] by {error:.1e}; it stays at position 0"


CLAUSES: dict[str, Callable[[EncoderConfig], str | None]] = {
    clause.__name__.replace("_", " "): clause
    for clause in (
        shapes,
        gradients,
        padding,
        save_and_load,
        autocast,
        graft,
        draws,
        meta_device,
        position,
        start,
    )
}
