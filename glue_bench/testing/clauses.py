"""What every variant promises, whatever it is, as clauses: each says what is wrong with a variant, or None."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, PreTrainedModel

from glue_bench.model.checkpoints import graft
from glue_bench.model.checks import permutation
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import drawing, fresh, on_meta
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification
from glue_bench.model.start import Start
from glue_bench.model.variants.base import EncoderInput, Variant
from glue_bench.testing.tiny import (
    HEADS,
    POSITIONS,
    encoder_config,
    errors,
    max_error,
    pad,
    random_model,
    segments,
    states,
    tokens,
)

LOADERS: list[tuple[type[PreTrainedModel], Any]] = [
    (EncoderModel, AutoModel),
    (EncoderForSequenceClassification, AutoModelForSequenceClassification),
    (EncoderForMaskedLM, AutoModelForMaskedLM),
]


@dataclass(frozen=True)
class Subject:
    """A variant in one tiny encoder, on which a clause is checked."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Any] = field(default_factory=dict)

    def config(self, **changes: Any) -> EncoderConfig:
        """The encoder's configuration, without dropout."""
        quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": 3}
        return encoder_config(self.name, variant_options=dict(self.options), **{**self.sizes, **quiet, **changes})

    def model(self, kind: type[PreTrainedModel] = EncoderModel, **changes: Any) -> Any:
        """A model of this kind in evaluation mode, with random weights far from their initialisation."""
        return random_model(kind, self.config(**changes))

    def additive(self) -> EncoderModel:
        """A random additive encoder of the same sizes, to graft the variant onto."""
        return random_model(EncoderModel, encoder_config("add", **self.sizes))

    def segments(self, token_ids: Tensor) -> Tensor:
        """Segment ids for these tokens."""
        return segments(token_ids, self.config().type_vocab_size)


Clause = Callable[[Subject], str | None]


def shapes(subject: Subject) -> str | None:
    """What enters the first block has the shapes of `EncoderInput`, and the output is finite, at every length."""
    model = subject.model()
    for length in (1, 2, 7, POSITIONS):
        ids = tokens(3, length)
        given = model.variant(ids, subject.segments(ids))
        wrong = _wrong_start(given, (3, length, subject.config().embedding_size), model.variant)
        if wrong:
            return wrong
        output = model(ids, None, subject.segments(ids)).last_hidden_state
        if not output.isfinite().all():
            return f"the encoder's output is not finite on sequences of {length}"
    return None


def gradients(subject: Subject) -> str | None:
    """Every parameter receives a finite gradient under both heads; only the pooler none under the masked-LM head."""
    for kind in (EncoderForSequenceClassification, EncoderForMaskedLM):
        model = subject.model(kind).train()
        ids = tokens(3, 9)
        labels = ids if kind is EncoderForMaskedLM else torch.tensor([0, 1, 2])
        model(ids, None, subject.segments(ids), labels=labels).loss.backward()
        for name, weight in model.named_parameters():
            if weight.grad is not None and not weight.grad.isfinite().all():
                return f"the gradient of parameter {name} is not finite in {kind.__name__}"
            idle = weight.grad is None or not weight.grad.any()
            if idle and not (kind is EncoderForMaskedLM and "pooler" in name):
                return f"parameter {name} receives no gradient in {kind.__name__}; what never learns is no parameter"
    return None


def padding(subject: Subject) -> str | None:
    """The states of real tokens do not change when padding is added, nor with the other examples of the batch."""
    model, lengths = subject.model().double(), [7, 5, 2]  # in float32 blocks without LayerNorm round by more
    ids, mask = pad(tokens(3, 12), lengths, padding_id=0)
    kinds = subject.segments(ids)
    together = states(model, ids, mask, kinds)
    for row, length in enumerate(lengths):
        one, real = slice(row, row + 1), (slice(row, row + 1), slice(length))
        padded = states(model, ids[one], mask[one], kinds[one])
        compared = {
            "padding": (padded, states(model, ids[real], None, kinds[real])),
            "the rest of the batch": ([state[one] for state in together], padded),
        }
        for what, pair in compared.items():
            first, second = ([state[:, :length] for state in each] for each in pair)
            for block, error in enumerate(errors(first, second)):
                if not error < 1e-5:
                    place = f"after block {block}" if block else "before the first block"
                    return f"{what} changes real tokens by {error:.1e} {place}; 1e-5 is permitted"
    return None


def save_and_load(subject: Subject) -> str | None:
    """Saved and loaded through the Auto classes, with each head and without, weights and outputs stay the same."""
    for kind, loader in LOADERS:
        model = subject.model(kind, origin="adapted")
        with TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again, inside = (auto.from_pretrained(folder).eval() for auto in (loader, AutoModel))
        found = (type(again), again.config.variant, again.config.origin)
        if found != (kind, subject.name, "adapted"):
            return f"{kind.__name__} of '{subject.name}', adapted, is loaded as {found}"
        wrong = _differs(model, again) or _differs(model if kind is EncoderModel else model.base, inside)
        if wrong:
            return f"{kind.__name__}: {wrong}"
    return None


def bfloat16(subject: Subject) -> str | None:
    """In bfloat16 the last states stay close to those in float32."""
    model = subject.model()
    ids, mask = pad(tokens(), [11, 7, 2], padding_id=0)
    exact = states(model, ids, mask)[-1][mask.bool()]
    rounded = states(model.to(torch.bfloat16), ids, mask)[-1][mask.bool()]
    if rounded.dtype != torch.bfloat16:
        return f"the encoder in bfloat16 puts out {rounded.dtype}"
    error, size = float((rounded.float() - exact).abs().mean()), float(exact.abs().mean())
    if not (error < 0.03 and size > 0.3):
        return f"the last states, {size:.2f} in size, are {error:.2f} off on average; 0.03 is permitted"
    return None


def autocast(subject: Subject) -> str | None:
    """Under autocast to bf16 a step runs, and every block takes and gives float32: all arms keep their stream alike."""
    model = subject.model(EncoderForSequenceClassification, hidden_dropout_prob=0.1).train()
    ids, mask = pad(tokens(), [11, 7, 2], padding_id=0)
    found: list[torch.dtype] = []
    for block in model.base.blocks:
        block.register_forward_hook(lambda _, given, output: found.extend([given[0].dtype, output.dtype]))
    with torch.autocast("cpu", torch.bfloat16):
        model(ids, mask, subject.segments(ids), labels=torch.tensor([0, 1, 2])).loss.backward()
        model.eval()(ids, mask, subject.segments(ids))
    wrong = set(found) - {torch.float32}
    return f"under autocast to bf16, blocks take or give {wrong.pop()}, not float32" if wrong else None


def wrong_shapes(subject: Subject) -> str | None:
    """Token and segment ids of a wrong shape or type are refused by the variant itself."""
    model, ids = subject.model(), tokens()
    short = subject.segments(ids)[:, :-1]
    if not _raises(Exception, model.variant, ids.float(), subject.segments(ids)):
        return "the variant's forward takes token ids that are no integers"
    if model.variant.segments is not None and not _raises(Exception, model.variant, ids, short):
        return "the variant's forward takes segment ids of another length"
    return None


def grafts(subject: Subject) -> str | None:
    """A graft from an additive encoder leaves it as it was and gives finite states; an exact one the same states."""
    additive = subject.additive()
    before = {name: weight.clone() for name, weight in additive.state_dict().items()}
    start = _grafted(additive, subject)
    for name, weight in additive.state_dict().items():
        if not torch.equal(weight, before[name]):
            return f"the graft changes the checkpoint's own {name}"
    model = EncoderModel(start.config).eval()
    model.load_state_dict(start.weights)
    ids = tokens()
    ours, theirs = (states(encoder, ids, None, subject.segments(ids)) for encoder in (model, additive))
    if not all(state.isfinite().all() for state in ours):
        return "the grafted encoder's states are not finite"
    error = max_error(ours, theirs)
    return f"the graft says it is exact, but states differ by {error:.1e}" if start.exact and error >= 1e-5 else None


def draws(subject: Subject) -> str | None:
    """Fresh weights and a graft have the same bits each time, whatever random numbers were drawn before."""
    additive, starts = subject.additive(), []
    for earlier in (1, 2):
        with drawing(earlier):
            starts.append((fresh(EncoderModel, subject.config()).state_dict(), _grafted(additive, subject).weights))
    for what, first, again in zip(("fresh weights", "a graft"), *starts, strict=True):
        for name, weight in first.items():
            if not torch.equal(weight, again[name]):
                return f"{what}: {name} is another each time; draw it by torch's, numpy's or Python's own generator"
    return None


def meta_device(subject: Subject) -> str | None:
    """A step runs on the meta device, where tensors have no values: there the cost of an arm is counted."""
    model = on_meta(EncoderModel, subject.config())
    ids = torch.zeros(3, 9, dtype=torch.long, device="meta")
    model(ids, None, subject.segments(ids)).last_hidden_state.sum().backward()
    return None


@torch.no_grad()
def position(subject: Subject) -> str | None:
    """The order of tokens reaches [CLS]; for a variant that does not use position, it does not."""
    model, ids = subject.model().double(), tokens()
    change = float((model(ids).pooler_output - model(ids[:, permutation(ids.shape[1])]).pooler_output).abs().max())
    if model.variant.uses_position:
        least = 1e-2 if subject.config().embedding_norm else 1e-3  # words that no norm has scaled may be louder
        return None if change > least else f"permuting tokens changes [CLS] by only {change:.1e}; {least:g} is expected"
    if change < 1e-12:
        return None
    return f"permuting tokens changes [CLS] by {change:.1e}, although uses_position is False"


@torch.no_grad()
def moved_start(subject: Subject) -> str | None:
    """A start of 0 changes nothing, another one leaves [CLS] at 0, and positions that do not exist are refused.

    A variant that does not take `start` meets this clause, as does one that depends on distances alone.
    """
    model, ids = subject.model(), tokens(3, 9)
    kinds, variant = subject.segments(ids), model.variant
    if not variant.takes_start():
        return None
    last = POSITIONS - ids.shape[1]
    without, at_zero, at_last = (variant(ids, kinds, *start) for start in ((), (0,), (last,)))
    error = max_error(_tensors(at_zero), _tensors(without))
    if error != 0:
        return f"start=0 changes what forward returns by {error:.1e}"
    error = max_error(_of_cls(at_last), _of_cls(without))
    if not error < 1e-5:
        return f"start={last} changes what forward returns for [CLS] by {error:.1e}; it stays at position 0"
    still, moved = (model.hidden_states(ids, None, kinds, start=start) for start in (0, last))
    if not all(state.isfinite().all() for state in moved):
        return f"the encoder's states are not finite with start={last}"
    refused = _raises(ValueError, variant, ids, kinds, last + 1)
    if max_error(moved, still) and not refused:
        given = f"start={last + 1} for {ids.shape[1]} tokens"
        return f"forward takes {given}, but has {POSITIONS} positions: raise ValueError"
    return None


CLAUSES: dict[str, Clause] = {
    "shapes": shapes,
    "gradients": gradients,
    "padding": padding,
    "save and load": save_and_load,
    "bfloat16": bfloat16,
    "autocast": autocast,
    "wrong shapes": wrong_shapes,
    "graft": grafts,
    "draws": draws,
    "meta device": meta_device,
    "position": position,
    "start": moved_start,
}


def _wrong_start(given: Any, expected: tuple[int, int, int], variant: Variant) -> str | None:
    if not isinstance(given, EncoderInput):
        return f"forward returns {type(given).__name__}, not EncoderInput"
    if tuple(given.hidden.shape) != expected:
        return f"EncoderInput.hidden has shape {tuple(given.hidden.shape)}, not {expected}"
    (batch, length, _), blocks = expected, variant.dims.num_blocks
    biases = given.biases()
    if isinstance(given.bias, Sequence) and len(biases) != blocks:
        return f"EncoderInput.bias has {len(biases)} tensors for {blocks} blocks; give one tensor, or one per block"
    wanted = (f"1 or {batch}", HEADS, length, length)
    for bias in biases:
        if bias is not None and not _is_bias(bias, batch, length):
            return f"EncoderInput.bias has shape {tuple(bias.shape)}, not {wanted}"
    heads = (batch, HEADS, length, variant.dims.head_size)
    for block in range(blocks):
        if given.rotate is not None:
            turned = given.rotate(block, torch.randn(heads), torch.randn(heads))
            for what, part in zip(("queries", "keys"), turned, strict=True):
                if part.shape != heads:
                    return f"EncoderInput.rotate, block {block}: {what} have shape {tuple(part.shape)}, not {heads}"
        if given.scores is not None:
            extra = given.scores(block, torch.randn(heads), torch.randn(heads))
            if not _is_bias(extra, batch, length):
                return f"EncoderInput.scores, block {block}: they have shape {tuple(extra.shape)}, not {wanted}"
    return None


def _tensors(given: EncoderInput) -> list[Tensor]:
    return [given.hidden, *(bias for bias in given.biases() if bias is not None)]


def _of_cls(given: EncoderInput) -> list[Tensor]:
    """What [CLS] is, and what is added to its score of itself."""
    hidden, *biases = _tensors(given)
    return [hidden[:, 0], *(bias[:, :, 0, 0] for bias in biases)]


def _is_bias(scores: Tensor, batch: int, length: int) -> bool:
    return tuple(scores.shape) in {(1, HEADS, length, length), (batch, HEADS, length, length)}


def _grafted(additive: EncoderModel, subject: Subject) -> Start:
    start = Start(encoder_config("add", **subject.sizes), additive.state_dict(), "pretrained", name="additive")
    return graft(start, subject.name, subject.options)


def _differs(model: nn.Module, again: nn.Module) -> str | None:
    """What is not the same after loading: weights exactly, outputs as far as other addresses round the same."""
    ours, theirs = model.state_dict(), again.state_dict()
    for name in ours.keys() | theirs.keys():
        if name not in ours or name not in theirs or not torch.equal(ours[name], theirs[name]):
            return f"{name} is not the same after loading"
    ids, mask = pad(tokens(), [11, 5, 2], padding_id=0)
    with torch.no_grad():
        error = max_error(model(ids, mask).to_tuple(), again(ids, mask).to_tuple())
    if not error < 1e-5:
        return (
            f"weights are the same after loading, outputs differ by {error:.1e}; a tensor made in __init__ that is "
            "no parameter or persistent buffer is lost when transformers loads a model: make it in forward"
        )
    return None


def _raises(kind: type[Exception], call: Callable[..., object], *arguments: Tensor | int) -> bool:
    try:
        call(*arguments)
    except kind:
        return True
    return False
