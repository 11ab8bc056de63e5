"""A tokenised split that lives on the device: batches are gathered there, and nothing waits for the host.

Shapes: b rows of a batch, l length, n rows and t tokens of a split.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from glue_bench.training.tokens import TokenisedSplit

ABSENT = -1
"""Stands where a batch has no row because it is a short one."""
KEPT = 256  # splits; all of GLUE is some 200 MB


@dataclass(frozen=True)
class DeviceBatch:
    """A batch of a fixed shape. `counted` (b,) is 1 where there is a row and 0 where it is absent."""

    ids: Int[Tensor, "b l"]
    segments: Int[Tensor, "b l"]
    mask: Bool[Tensor, "b l"]
    labels: Tensor
    counted: Float[Tensor, " b"]

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it is made of, in the order of the constructor."""
        return [self.ids, self.segments, self.mask, self.labels, self.counted]

    def parts(self, rows: int) -> Iterator["DeviceBatch"]:
        """The batch in parts of at most `rows` rows."""
        yield from (DeviceBatch(*tensors) for tensors in zip(*(t.split(rows) for t in self.tensors), strict=True))


@dataclass(frozen=True)
class DeviceSplit:
    """What a TokenisedSplit has, as tensors. Example i has `lengths`[i] of the tokens, from `starts`[i] on."""

    ids: Int[Tensor, " t"]
    segments: Int[Tensor, " t"]
    starts: Int[Tensor, " n"]
    lengths: Int[Tensor, " n"]
    labels: Tensor
    padding_id: int

    def gather(self, rows: Int[Tensor, " b"], length: int) -> DeviceBatch:
        """The examples `rows` (ABSENT where there is none), none of them longer than `length`, padded to it."""
        there = rows != ABSENT
        chosen = rows.clamp(min=0)
        columns = torch.arange(length, device=rows.device)
        real = columns < self.lengths[chosen, None]
        places = torch.where(real, self.starts[chosen, None] + columns, 0)
        return DeviceBatch(
            ids=torch.where(real, self.ids[places], self.padding_id).long(),
            segments=torch.where(real, self.segments[places], 0).long(),
            mask=real,
            labels=self.labels[chosen],
            counted=there.float(),
        )


@lru_cache(maxsize=KEPT)
def on_device(split: TokenisedSplit, padding_id: int, device: torch.device) -> DeviceSplit:
    """The split on a device, moved once for all cells of the process."""

    def moved(values: object) -> Tensor:
        return torch.as_tensor(values).to(device)

    return DeviceSplit(
        ids=moved(split.ids.copy()),  # a memory-mapped file cannot be written, which torch would warn of
        segments=moved(split.segments.copy()),
        starts=moved(split.offsets[:-1].copy()),
        lengths=moved(split.lengths),
        labels=moved(split.labels.copy()),
        padding_id=padding_id,
    )
