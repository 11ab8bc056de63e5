"""Word, position and segment meet at the input, in the same dimensions: added, multiplied, gated.

Shapes: b batch, l length, d width of the tables.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import PositiveFloat
from torch import Tensor, nn

from glue_bench.model.variants.base import Additive, Dimensions, EncoderInput, Grafted, Variant


class NoPosition(Variant):
    """x_i = w_i + s_i: an encoder that sees a bag of words (Sinha et al. 2021, `nopos`)."""

    summary = "token + segment, no position: the floor"
    source = "Sinha et al. 2021"
    uses_position = False
    position_tables: Mapping[str, int] | None = {}

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        return EncoderInput(self.words_and_segments(token_ids, segment_ids))


class PositionTable(nn.Embedding):
    """A learned table of positions. `start` says what its rows are before training.

    A number multiplies the normal draw that every table starts with, whose deviation is
    `initializer_range`. With `sinusoids` the rows start at the sinusoids of Vaswani et al. 2017,
    with `initializer_range` as their root mean square.
    """

    def __init__(self, dims: Dimensions, start: float | Literal["sinusoids"]) -> None:
        super().__init__(dims.max_positions, dims.embedding_size)
        if start == "sinusoids":
            check_pairs(dims.embedding_size, "its embeddings")
        self.start = start
        self.initializer_range = dims.initializer_range

    def fresh_weight(self) -> Float[Tensor, "n d"]:
        """Return the rows to start with; the normal draw is in the table when this is called."""
        drawn = self.weight.detach()
        if self.start == "sinusoids":
            rows = sinusoids(self.num_embeddings, self.embedding_dim, drawn)
            # The root mean square of a row is 1 / sqrt(2).
            return self.initializer_range * 2**0.5 * rows
        return self.start * drawn


class SmallNorm(nn.LayerNorm):
    """A LayerNorm whose weight starts at `initializer_range`, and not at 1.

    Its rows are then as large as the rows of a fresh table.
    """

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims.embedding_size, eps=dims.layer_norm_eps)
        self.initializer_range = dims.initializer_range

    def fresh_weight(self) -> Float[Tensor, " d"]:
        """Return the weight to start with."""
        return torch.full_like(self.weight, self.initializer_range)


class Add(Variant):
    """x_i = w_i + p_i + s_i (BERT, Devlin et al. 2019, section 3).

    With `position_norm` LayerNorm is applied to p_i before the sum, as TUPE does before its own
    projections (Ke, He & Liu 2021, appendix B). A normalised row has a root mean square of 1
    whatever the table's start is, so that positions are larger than words at first. With
    `position_norm: words` the LayerNorm's weight starts at the deviation that the word table starts
    with, so that both are as large; a graft starts it at the size of the checkpoint's positions.
    `position_start` is the start of a fresh table: see `PositionTable`. A checkpoint has a table
    already, so an arm that starts from a checkpoint is refused this option.
    """

    summary = "token + position + segment, as BERT"
    source = "Devlin et al. 2019"
    position_tables: Mapping[str, int] | None = {"positions": 1}
    fresh_options = frozenset({"position_start"})

    def __init__(
        self,
        dims: Dimensions,
        *,
        position_start: PositiveFloat | Literal["sinusoids"] = 1.0,
        position_norm: bool | Literal["words"] = False,
    ) -> None:
        super().__init__(dims)
        self.positions = PositionTable(dims, position_start)
        self.position_norm: nn.LayerNorm | None = None
        if position_norm == "words":
            self.position_norm = SmallNorm(dims)
        elif position_norm:
            self.position_norm = nn.LayerNorm(dims.embedding_size, eps=dims.layer_norm_eps)

    def position_rows(self, length: int) -> Float[Tensor, "l d"]:
        """Return the p_i of `length` tokens, normalised with `position_norm`."""
        # This is a slice. The gradient of a lookup would be a scatter, which is slower.
        rows = self.positions.weight[:length]
        return rows if self.position_norm is None else self.position_norm(rows)

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        positions = self.position_rows(token_ids.shape[1])
        content = self.words_and_segments(token_ids, segment_ids)
        return EncoderInput(content + positions)

    def graft(self, base: Additive) -> Grafted:
        """Take over words, segments and positions.

        With `position_norm` every row has the same size, which rows of a checkpoint do not have:
        the LayerNorm starts at their mean deviation, and the graft is not exact.
        """
        super().graft(base)
        self.positions.weight.copy_(base.positions)
        if self.position_norm is None:
            return Grafted(exact=True)
        mean_deviation = base.positions.std(dim=1).mean()
        self.position_norm.weight.fill_(mean_deviation)
        return Grafted(exact=False)


class Infused(Add):
    """Positions in the queries and keys of every block (Press, Smith & Lewis 2021):

        q_i = (x_i + p_i) W^Q, k_i = (x_i + p_i) W^K, v_i = x_i W^V

    Position-infused attention of Shortformer. There p is sinusoidal and the model is a decoder.
    Here p is BERT's learned table, and passes through the encoder's input LayerNorm (and
    projection), as the sum does. So p is as large as the input of the first block. The variant adds
    no parameters.

    The input of the first block is w_i + s_i. With `add_positions` it is w_i + p_i + s_i: the arm
    is `add`, with positions added to queries and keys again. No paper has this option. Without the
    LayerNorm and with a table of zeros both are `none`.
    """

    summary = "position added to what makes queries and keys in every block, not values"
    source = "Press, Smith & Lewis 2021"

    def __init__(self, dims: Dimensions, *, add_positions: bool = False) -> None:
        super().__init__(dims)
        self.add_positions = add_positions

    @classmethod
    def described(cls, options: Mapping[str, Any], origin: str) -> str:  # noqa: ARG003
        """Say whether positions are also added at the input."""
        added = "; positions are also added at the input" if options.get("add_positions") else ""
        return f"{cls.summary}{added}"

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        positions = self.position_rows(token_ids.shape[1])
        if self.add_positions:
            hidden = hidden + positions
        return EncoderInput(hidden, infused=positions[None])

    def graft(self, base: Additive) -> Grafted:
        super().graft(base)
        return Grafted(exact=False)


class AddSinusoidal(Variant):
    """x_i = w_i + c PE_i + s_i with PE of Vaswani et al. 2017, section 3.5; nothing is learned.

    `scale` c is the root mean square of the added positions. Vaswani et al. scale the words up
    instead, by sqrt(d); BERT's words start at 0.02, and so do these positions (as Wang & Chen
    2020's code rescales them). With `scale: words` it is the deviation of the word table at the
    start: the encoder's `initializer_range` if weights are fresh, and in a graft the deviation of
    the checkpoint's word table. It does not change in training.
    """

    summary = "token + fixed sinusoid + segment, as the original Transformer"
    source = "Vaswani et al. 2017"
    position_tables: Mapping[str, int] | None = {}  # a formula, moved by `starting_at`
    first_position: int = 0

    def __init__(self, dims: Dimensions, *, scale: float | Literal["words"] = 0.02) -> None:
        super().__init__(dims)
        check_pairs(dims.embedding_size, "its embeddings")
        self.scale: float | Tensor
        if scale == "words":
            # The scale is a buffer, so that it is saved with the weights.
            self.register_buffer("scale", torch.tensor(dims.initializer_range))
        else:
            self.scale = scale

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        hidden = self.words_and_segments(token_ids, segment_ids)
        length = token_ids.shape[1]
        table = sinusoids(self.first_position + length, self.dims.embedding_size, hidden)
        if self.first_position:
            table = torch.cat([table[:1], table[self.first_position + 1 :]])
        # The root mean square of a row is 1 / sqrt(2).
        return EncoderInput(hidden + self.scale * 2**0.5 * table)

    @contextmanager
    def starting_at(self, start: int) -> Iterator[None]:
        self.first_position = start
        try:
            yield
        finally:
            self.first_position = 0

    def graft(self, base: Additive) -> Grafted:
        if isinstance(self.scale, Tensor):
            self.scale.copy_(base.words.std())
        return super().graft(base)


class Multiply(Add):
    """x_i = w_i * (1 + p_i) + s_i, element by element.

    Positions scale words and do not shift them.
    """

    summary = "token * (1 + position) + segment"
    source = "this project"

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        words = self.words(token_ids)
        hidden = words * (1 + self.position_rows(words.shape[1]))
        if self.segments is not None:
            hidden = hidden + self.segments(segment_ids)
        return EncoderInput(hidden)

    def graft(self, base: Additive) -> Grafted:
        super().graft(base)
        return Grafted(exact=False)


class Gate(Add):
    """x_i = 2 g_i w_i + 2 (1 - g_i) p_i + s_i with a scalar g_i = sigmoid(v . [w_i ; p_i] + b).

    At g = 1/2 it is addition, where a graft starts. It is the scalar gate of Hallam & Tseng 2026.
    They leave the factor 2 out, because a LayerNorm follows; here it is needed, because segments
    are added.
    """

    summary = (
        "a learned scalar of each token divides the weight between token and position; + segment"
    )
    source = "Hallam & Tseng 2026"

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.gate = nn.Linear(2 * dims.embedding_size, 1)

    def forward(
        self, token_ids: Int[Tensor, "b l"], segment_ids: Int[Tensor, "b l"]
    ) -> EncoderInput:
        words = self.words(token_ids)
        positions = self.position_rows(words.shape[1]).expand_as(words)
        pairs = torch.cat([words, positions], dim=-1)
        gate = torch.sigmoid(self.gate(pairs))
        hidden = 2 * (gate * words + (1 - gate) * positions)
        if self.segments is not None:
            hidden = hidden + self.segments(segment_ids)
        return EncoderInput(hidden)

    def graft(self, base: Additive) -> Grafted:
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)
        return super().graft(base)


def check_pairs(size: int, owner: str) -> None:
    """Raise ValueError where dimensions do not come in pairs; each pair has one angle."""
    if size % 2:
        fault = f"{owner} of {size} dimensions cannot be split into pairs"
        raise ValueError(f"{fault}; give an even number")


def angles(
    length: int, width: int, like: Tensor, base: float = 10_000
) -> tuple[Float[Tensor, "l w2"], Float[Tensor, "l w2"]]:
    """Compute the angles of sinusoids and rotations.

    They are computed anew each time. A buffer for them would get lost when weights are loaded.

    Args:
        length: The number of positions.
        width: The number of dimensions, which come in pairs.
        like: A tensor with the device and the type of the result.
        base: The base of the frequencies.

    Returns:
        Sine and cosine of position * base^(-2m / width), m below width / 2.
    """
    arange = partial(torch.arange, device=like.device, dtype=torch.float32)
    places = arange(length)
    rates = base ** (-arange(0, width, 2) / width)
    turns = places[:, None] * rates
    return turns.sin().to(like.dtype), turns.cos().to(like.dtype)


def sinusoids(length: int, width: int, like: Tensor) -> Float[Tensor, "l w"]:
    """Return PE of Vaswani et al. 2017, section 3.5.

    As sin^2 + cos^2 = 1, a row's root mean square is 1 / sqrt(2).
    """
    sine, cosine = angles(length, width, like)
    return torch.stack([sine, cosine], dim=-1).flatten(1)
