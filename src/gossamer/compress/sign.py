"""One bit per entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gossamer.compress.base import Compressor
from gossamer.compress.bits import Ints, pack_planes, planes_nbytes
from gossamer.compress.blocks import by_tensor
from gossamer.compress.layout import Layout
from gossamer.compress.wire import Reader

_BYTES = np.arange(256, dtype=np.uint8)[:, None]
EIGHT_SIGNS = (1 - 2.0 * np.unpackbits(_BYTES, axis=1, bitorder="little")).astype(np.float32)  # of every byte


@dataclass(frozen=True)
class Sign(Compressor):
    """The sign of every entry times the tensor's mean magnitude; sign(0) = +1.

    Payload: one scale |v|_1 / d per tensor (float32; float64 for float64 tensors), then one bit per
    entry, set where it is negative. delta = |v|_1^2 / (d |v|_2^2), at least 1/d.
    """

    code: ClassVar[int] = 5
    even: ClassVar[bool] = True
    examples: ClassVar[dict[str, str]] = {"sign": "1 bit, a scale per tensor"}

    @property
    def unbiased(self) -> bool:
        """All magnitudes become the same."""
        return False

    def delta(self, layout: Layout) -> float:
        """Return the worst case, a tensor with a single entry that is not 0."""
        return 1.0 / (max(layout.sizes, default=1) or 1)

    def payload_nbytes(self, layout: Layout) -> int:
        """Scales and bits."""
        return len(layout.sizes) * layout.scalar_dtype.itemsize + planes_nbytes(layout.size, 1)

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Write mean magnitudes and signs."""
        means = [t.abs().to(layout.scalar_dtype).sum() / max(t.numel(), 1) for t in layout.split(v)]
        return [torch.stack(means), pack_planes((v < 0).cpu().numpy(), 1)]

    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        """Multiply the signs by their scales."""
        scales = payload.values(len(layout.sizes), layout.scalar_dtype)
        packed = payload.bytes(planes_nbytes(layout.size, 1)).numpy()
        for block in by_tensor(layout):
            signs = _signs(packed, block.start, block.stop).to(layout.scalar_dtype)
            block.of(into).add_(block.multiply(signs, scales).to(into.device), alpha=weight)


def _signs(packed: Ints, start: int, stop: int) -> Tensor:
    """Return a range of entries as +1 and -1, eight at a time: a table is faster than arithmetic."""
    signs = torch.from_numpy(EIGHT_SIGNS.take(packed[start // 8 : -(-stop // 8)], axis=0)).view(-1)
    return signs[start % 8 :][: stop - start]
