"""The clauses of the contract: each says what is wrong with a configuration's variant, or None."""

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from glue_bench.model import grafts
from glue_bench.model.checks import dead_parts, permutation
from glue_bench.model.configuration import EncoderConfig
from glue_bench.model.encoder import EncoderModel
from glue_bench.model.fresh import build_unfilled, fixed_seed, fresh, on_meta
from glue_bench.model.heads import EncoderForMaskedLM, EncoderForSequenceClassification
from glue_bench.model.start import Start
from glue_bench.model.tiny import HEADS, POSITIONS, max_error, pad, random_model, segments, tokens
from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.base import EncoderInput, Variant

LOADERS: dict[type[Any], Any] = {
    EncoderForSequenceClassification: AutoModelForSequenceClassification,
    EncoderForMaskedLM: AutoModelForMaskedLM,
}
MAX_ERROR = 1e-5
MAX_BF16_ERROR = 0.03


def shapes(config: EncoderConfig) -> str | None:
    """What enters the first block has the shapes of `EncoderInput`, and outputs are finite."""
    model = random_model(EncoderModel, config)
    for length in (1, 2, 7, POSITIONS):
        ids = tokens(3, length)
        segment_ids = segments(ids, config.type_vocab_size)
        output = model.variant(ids, segment_ids)
        fault = wrong_shape(output, (3, length, config.embedding_size), model.variant)
        if fault:
            return fault
        if not model(ids, None, segment_ids).last_hidden_state.isfinite().all():
            return f"the encoder's output is not finite on sequences of {length}"
    return None


class Part(NamedTuple):
    """A tensor that a variant returns, and the shapes that it may have."""

    title: str
    tensor: Tensor
    shape: tuple[int, ...]
    may_be_shared: bool = False
    """Whether one tensor may serve all sequences of the batch."""

    def fault(self) -> str | None:
        """Say how the shape differs from the expected one."""
        actual = tuple(self.tensor.shape)
        batch, *sizes = self.shape
        if actual == self.shape or (self.may_be_shared and actual == (1, *sizes)):
            return None
        first = f"1 or {batch}" if self.may_be_shared else str(batch)
        expected = ", ".join([first, *map(str, sizes)])
        return f"EncoderInput.{self.title} shape {actual}, not ({expected})"


def wrong_shape(output: Any, expected: tuple[int, int, int], variant: Variant) -> str | None:
    """Say which part of an output has a wrong shape.

    Args:
        output: What the variant's forward returns.
        expected: The shape (b, l, d) of hidden states.
        variant: The variant.

    Returns:
        The fault of the first wrong part, or None.
    """
    if not isinstance(output, EncoderInput):
        return f"forward returns {type(output).__name__}, not EncoderInput"

    blocks = variant.dims.num_blocks
    biases = output.biases()
    if isinstance(output.bias, Sequence) and len(biases) != blocks:
        advice = "give one tensor, or one per block"
        return f"EncoderInput.bias has {len(biases)} tensors for {blocks} blocks; {advice}"

    batch, length, _ = expected
    head_shape = (batch, HEADS, length, variant.dims.head_size)
    score_shape = (batch, HEADS, length, length)

    parts = [Part("hidden has", output.hidden, expected)]
    if output.infused is not None:
        parts.append(Part("infused has", output.infused, expected, may_be_shared=True))
    for bias in biases:
        if bias is not None:
            parts.append(Part("bias has", bias, score_shape, may_be_shared=True))

    for block in range(blocks):
        queries, keys = torch.randn(2, *head_shape)
        if output.rotate is not None:
            title = f"rotate, block {block}"
            rotated_queries, rotated_keys = output.rotate(block, queries, keys)
            parts.append(Part(f"{title}: queries have", rotated_queries, head_shape))
            parts.append(Part(f"{title}: keys have", rotated_keys, head_shape))
        if output.scores is not None:
            scores = output.scores(block, queries, keys)
            title = f"scores, block {block}: they have"
            parts.append(Part(title, scores, score_shape, may_be_shared=True))

    faults = (part.fault() for part in parts)
    return next(filter(None, faults), None)


def gradients(config: EncoderConfig) -> str | None:
    """Every parameter receives a finite gradient under both heads.

    Only the pooler receives none under the masked-LM head.
    """
    ids = tokens(3, 9)
    segment_ids = segments(ids, config.type_vocab_size)
    labels_by_kind = {
        EncoderForSequenceClassification: torch.tensor([0, 1, 1]),
        EncoderForMaskedLM: ids,
    }
    for kind, labels in labels_by_kind.items():
        model = random_model(kind, config).train()
        model(ids, None, segment_ids, labels=labels).loss.backward()
        for name, weight in model.named_parameters():
            size = 0.0 if weight.grad is None else float(weight.grad.abs().sum())
            if not size < float("inf"):
                return f"the gradient of parameter {name} is not finite in {kind.__name__}"
            is_idle_pooler = kind is EncoderForMaskedLM and "pooler" in name
            if not size and not is_idle_pooler:
                fault = f"parameter {name} receives no gradient in {kind.__name__}"
                return f"{fault}; what never learns is no parameter"
    return None


@torch.no_grad()
def padding(config: EncoderConfig) -> str | None:
    """The states of real tokens do not change with padding, nor with the rest of the batch."""
    model = random_model(EncoderModel, config).double()  # float32 rounds by more without LayerNorm
    lengths = [7, 5, 2]
    ids, mask = pad(tokens(3, 12), lengths)
    segment_ids = segments(ids, config.type_vocab_size)
    batch_states = model.hidden_states(ids, mask, segment_ids)
    for row, length in enumerate(lengths):
        row_ids = ids[row : row + 1, :length]
        row_segments = segment_ids[row : row + 1, :length]
        row_states = model.hidden_states(row_ids, None, row_segments)
        for block, (in_batch, alone) in enumerate(zip(batch_states, row_states, strict=True)):
            error = max_error([in_batch[row, :length]], [alone[0]])
            if not error < MAX_ERROR:
                place = f"after block {block}" if block else "before the first block"
                fault = "padding or the rest of the batch changes real tokens"
                return f"{fault} by {error:.1e} {place}; 1e-5 is permitted"
    return None


@torch.no_grad()
def save_and_load(config: EncoderConfig) -> str | None:
    """Weights and outputs stay the same when a model is saved and loaded.

    The Auto classes load it, with each head and without.
    """
    for kind, loader in LOADERS.items():
        model = random_model(kind, config)
        with TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            loaded_model = loader.from_pretrained(folder).eval()
            loaded_base = AutoModel.from_pretrained(folder).eval()
        fault = _differs(model, loaded_model, kind) or _differs(model.base, loaded_base, kind)
        if fault:
            return fault
    return None


def _differs(before: nn.Module, after: nn.Module, kind: type[Any]) -> str | None:
    """Say which outputs of a model differ after loading."""
    weights = before.state_dict()
    loaded_weights = after.state_dict()
    for name in weights.keys() | loaded_weights.keys():
        is_in_both = name in weights and name in loaded_weights
        if not is_in_both or not torch.equal(weights[name], loaded_weights[name]):
            return f"{kind.__name__}: {name} is not the same after loading"
    ids, mask = pad(tokens(), [11, 5, 2])
    error = max_error(before(ids, mask).to_tuple(), after(ids, mask).to_tuple())
    if error < MAX_ERROR:  # other addresses in memory may round differently
        return None
    fault = f"weights are the same after loading, outputs differ by {error:.1e}"
    cause = "a tensor of __init__ that is no parameter or persistent buffer is lost"
    return f"{fault}; {cause}: make it in forward"


def autocast(config: EncoderConfig) -> str | None:
    """Under autocast to bf16 a step runs, and states stay close to float32's.

    Every block takes and gives float32.
    """
    model = random_model(EncoderForSequenceClassification, config)
    ids, mask = pad(tokens(), [11, 7, 2])
    segment_ids = segments(ids, config.type_vocab_size)
    is_real = mask.bool()
    dtypes: set[torch.dtype] = set()

    def note(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        dtypes.update([inputs[0].dtype, output.dtype])

    for block in model.base.blocks:
        block.register_forward_hook(note)
    exact = model.base.hidden_states(ids, mask, segment_ids)[-1][is_real].detach()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model.base.hidden_states(ids, mask, segment_ids)[-1][is_real].detach()
        labels = torch.tensor([0, 1, 1])
        model.train()(ids, mask, segment_ids, labels=labels).loss.backward()
    narrow_dtypes = dtypes - {torch.float32}
    if narrow_dtypes:
        return f"under autocast to bf16, blocks take or give {narrow_dtypes.pop()}, not float32"
    error = float((rounded - exact).abs().mean())
    size = float(exact.abs().mean())
    if error < MAX_BF16_ERROR and size > 0.3:
        return None
    fault = f"under autocast to bf16 the last states, {size:.2f} in size, are {error:.2f} off"
    return f"{fault}; {MAX_BF16_ERROR} is permitted"


def additive_start(config: EncoderConfig) -> Start:
    """Return a random additive encoder of the same sizes, to graft the variant onto."""
    changes = {"variant": "add", "variant_options": {}}
    base = EncoderConfig.from_dict(config.to_dict() | changes)
    weights = random_model(EncoderModel, base).state_dict()
    return Start(base, weights, "pretrained", name="additive")


def _graft_of(additive: Start, config: EncoderConfig) -> Start:
    """Graft the variant of a configuration, without the options that only fresh weights have."""
    options = dict(config.variant_options or {})
    for option in VARIANTS[config.variant].fresh_options:
        options.pop(option, None)
    return grafts.graft(additive, config.variant, options)


def graft_leaves_source(config: EncoderConfig) -> str | None:
    """A graft from an additive encoder leaves it as it was and gives finite states.

    An exact graft gives the same states.
    """
    additive = additive_start(config)
    grafted = _graft_of(additive, config)
    for name, weight in additive_start(config).weights.items():
        if not torch.equal(weight, additive.weights[name]):
            return f"the graft changes the checkpoint's own {name}"
    grafted_states = _states(grafted)
    additive_states = _states(additive)
    if not all(state.isfinite().all() for state in grafted_states):
        return "the grafted encoder's states are not finite"
    error = max_error(grafted_states, additive_states)
    if grafted.exact and error >= MAX_ERROR:
        return f"the graft says it is exact, but states differ by {error:.1e}"
    return None


def _states(start: Start) -> list[Tensor]:
    """Return the hidden states that a start gives some tokens."""
    model = build_unfilled(EncoderModel, start.config).eval()
    model.load_state_dict(start.weights)
    ids = tokens()
    return model.hidden_states(ids, None, segments(ids, start.config.type_vocab_size))


def draws(config: EncoderConfig) -> str | None:
    """Fresh weights and a graft have the same bits each time, whatever was drawn before."""
    first_weights: dict[str, Tensor] = {}
    for earlier_seed in (1, 2):
        with fixed_seed(earlier_seed):
            fresh_weights = fresh(EncoderModel, config).state_dict()
            additive = additive_start(config)
            grafted = _graft_of(additive, config)
        weights_by_title = {"fresh weights": fresh_weights, "a graft": grafted.weights}
        for title, weights in weights_by_title.items():
            for name, weight in weights.items():
                key = f"{title}: {name}"
                if not torch.equal(weight, first_weights.setdefault(key, weight)):
                    advice = "draw it by torch's, numpy's or Python's generator"
                    return f"{key} differs each time; {advice}"
    return None


def meta_device(config: EncoderConfig) -> str | None:
    """A step runs on the meta device, where tensors have no values and costs are counted."""
    ids = torch.zeros(3, 9, dtype=torch.long, device="meta")
    model = on_meta(EncoderModel, config)
    model(ids, None, segments(ids)).last_hidden_state.sum().backward()
    return None


def position(config: EncoderConfig) -> str | None:
    """The order of tokens reaches [CLS], and each part of fresh weights learns from it.

    If the variant uses no position, neither may happen.
    """
    model = random_model(EncoderModel, config).double()
    ids = tokens()
    with torch.no_grad():
        usual = model(ids).pooler_output
        permuted = model(ids[:, permutation(ids.shape[1])]).pooler_output
    change = float((usual - permuted).abs().max())

    if not model.variant.uses_position:
        if change < 1e-12:
            return None
        return f"permuting tokens changes [CLS] by {change:.1e}: uses_position is False"

    # Words that no norm has scaled may be larger, so that positions change less.
    min_change = 1e-2 if config.embedding_norm else 1e-3
    if not change > min_change:
        fault = f"permuting tokens changes [CLS] by only {change:.1e}"
        return f"{fault}; {min_change:g} is expected where uses_position is True"

    dead, _ = dead_parts(fresh(EncoderModel, config).double(), ids[:1])
    if not dead:
        return None
    fault = f"no gradient reaches {', '.join(dead)} from its fresh weights"
    return f"{fault}; two factors of one product may both be 0"


@torch.no_grad()
def start(config: EncoderConfig) -> str | None:
    """A start of 0 changes nothing, and another one leaves [CLS] at 0.

    The clause holds if the tables of positions are declared.
    """
    variant = random_model(EncoderModel, config).variant
    if variant.position_tables is None:
        return None
    length = 9
    ids = tokens(3, length)
    segment_ids = segments(ids, config.type_vocab_size)

    def tensors(first: int) -> list[Tensor]:
        with variant.starting_at(first):
            output = variant(ids, segment_ids)
        return _tensors_of(output)

    unmoved = _tensors_of(variant(ids, segment_ids))
    error = max_error(tensors(0), unmoved)
    if error:
        return f"a start of 0 changes what forward returns by {error:.1e}"
    last = POSITIONS - length
    error = max_error(_of_cls(tensors(last)), _of_cls(unmoved))
    if error < MAX_ERROR:
        return None
    fault = f"a start of {last} changes what forward returns for [CLS] by {error:.1e}"
    return f"{fault}; it stays at position 0"


def _tensors_of(output: EncoderInput) -> list[Tensor]:
    """Return the hidden states, the infused rows and the biases that a variant returns."""
    tensors = [output.hidden, output.infused, *output.biases()]
    return [tensor for tensor in tensors if tensor is not None]


def _of_cls(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts of hidden states (b, l, d) and biases (b, h, l, l) that belong to [CLS]."""
    parts: list[Tensor] = []
    for tensor in tensors:
        is_bias = tensor.ndim == 4
        parts.append(tensor[:, :, 0, 0] if is_bias else tensor[:, 0])
    return parts
