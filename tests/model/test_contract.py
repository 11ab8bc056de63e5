"""Each clause of the contract can be broken, and then says what is wrong and where."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glue_bench.model.variants import VARIANTS
from glue_bench.model.variants.additive import Add, NoPosition
from glue_bench.model.variants.base import Dimensions, EncoderInput, Variant
from glue_bench.testing import CLAUSES, ContractError, check_contract


class MovesCls(Add):
    position_tables: Mapping[str, int] | None = {"positions": 0}  # no row stays with [CLS]


class AsksForValues(Add):
    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        hidden = super().forward(token_ids, segment_ids).hidden
        return EncoderInput(hidden * 2 if segment_ids.any() else hidden)


class BufferLost(Add):
    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.register_buffer("ramp", torch.linspace(-1, 1, dims.embedding_size), persistent=False)

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        output = super().forward(token_ids, segment_ids)
        return EncoderInput(output.hidden + self.ramp)


class Rounded(Add):
    """A variant whose output depends on digits that bf16 rounds away."""

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        hidden = super().forward(token_ids, segment_ids).hidden
        return EncoderInput(torch.frac(100 * (hidden @ torch.eye(hidden.shape[-1])).float()))


class TakesTheCheckpointItself(Add):
    def graft(self, base: Any) -> Any:
        base.positions.zero_()
        return super().graft(base)


class DrawsAnewEachTime(Add):
    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        generator = torch.Generator()
        generator.seed()
        self.scale = nn.Parameter(torch.randn(1, generator=generator))

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        output = super().forward(token_ids, segment_ids)
        return EncoderInput(output.hidden * self.scale)


class Deaf(NoPosition):
    uses_position = True


class ProductOfZeros(Add):
    """A variant that learns from any weights but its own fresh ones."""

    def __init__(self, dims: Dimensions) -> None:
        super().__init__(dims)
        self.one, self.other = (nn.Parameter(torch.zeros(())) for _ in range(2))

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        hidden = super().forward(token_ids, segment_ids).hidden
        return EncoderInput(hidden + self.one * self.other * hidden.cumsum(1))


class ScoresTooWide(Add):
    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        hidden = super().forward(token_ids, segment_ids).hidden
        return EncoderInput(
            hidden, scores=lambda _, query, key: (query @ key.mT).repeat(1, 1, 1, 2)
        )


class RootOfZero(Add):
    """A variant with a finite output and gradients of NaN."""

    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        positions = self.positions.weight[: token_ids.shape[1]]
        hidden = self.words_and_segments(token_ids, segment_ids) + positions
        return EncoderInput(hidden + (positions - positions).sqrt())


class ScoresOfTheMeanKey(Add):
    def forward(self, token_ids: Tensor, segment_ids: Tensor) -> EncoderInput:
        def rotate(_: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            return query, key - key.mean(dim=2, keepdim=True) * key[..., :1]

        output = super().forward(token_ids, segment_ids)
        return EncoderInput(output.hidden, rotate=rotate)


BROKEN: dict[str, tuple[type[Variant], str]] = {
    "shapes": (
        ScoresTooWide,
        r"scores, block 0: they have shape \(3, 3, 1, 2\), not \(1 or 3, 3, 1, 1\)",
    ),
    "gradients": (
        RootOfZero,
        r"the gradient of parameter base\.variant\.positions\.weight is not finite in Enc",
    ),
    "padding": (
        ScoresOfTheMeanKey,
        r"changes real tokens by \d.* after block 1; 1e-5 is permitted",
    ),
    "save and load": (BufferLost, "outputs differ by .*a tensor of __init__"),
    "autocast": (Rounded, r"are 0\.\d+ off; 0\.03 is permitted"),
    "graft": (
        TakesTheCheckpointItself,
        r"the graft changes the checkpoint's own variant\.positions\.weight",
    ),
    "draws": (DrawsAnewEachTime, r"fresh weights: variant\.scale differs each time"),
    "meta device": (AsksForValues, r"RuntimeError: .*meta tensors.* \(test_contract\.py:\d+\)"),
    "position": (Deaf, r"permuting tokens changes \[CLS\] by only \d\.\de-1\d"),
    "start": (
        MovesCls,
        r"a start of 7 changes what forward returns for \[CLS\] by \d.*; it stays at position 0",
    ),
}


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_broken_variant_gets_an_error_with_the_clause_and_the_place(clause, monkeypatch):
    variant, message = BROKEN[clause]
    monkeypatch.setitem(VARIANTS, "broken", variant)
    with pytest.raises(ContractError, match=f"^clause '{clause}', encoder like BERT: .*{message}"):
        check_contract("broken", clauses=[clause])


@pytest.mark.parametrize(
    ("variant", "clause"), [(ProductOfZeros, "position"), (MovesCls, list(CLAUSES)[-1])]
)
def test_the_contract_is_every_clause(variant, clause, monkeypatch):
    monkeypatch.setitem(VARIANTS, "broken", variant)
    with pytest.raises(ContractError, match=f"^clause '{clause}', "):
        check_contract("broken")
