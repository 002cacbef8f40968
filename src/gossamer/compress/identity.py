"""No compression, and fewer bits per value without randomness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self, cast

import torch
from torch import Tensor

from gossamer.compress.base import Compressor, require_few
from gossamer.compress.blocks import by_tensor
from gossamer.compress.layout import Layout
from gossamer.compress.parts import Exact
from gossamer.compress.wire import Reader

Format = Literal["fp16", "bf16", "fp8", "int8"]


@dataclass(frozen=True)
class Identity(Exact, Compressor):
    """Sends the vector as it is. Payload: the entries in the layout's dtype, little-endian."""

    code: ClassVar[int] = 1
    examples: ClassVar[dict[str, str]] = {"identity": "everything"}

    @property
    def unbiased(self) -> bool:
        """Nothing is changed."""
        return True

    def delta(self, layout: Layout) -> float:
        """Nothing is lost."""
        return 1.0


# dtype, the exponent its largest entry is scaled to, the largest relative rounding error
_FORMATS = {
    "fp16": (torch.float16, 15, 2.0**-11),
    "bf16": (torch.bfloat16, 0, 2.0**-8),
    "fp8": (torch.float8_e4m3fn, 8, 2.0**-4),
    "int8": (torch.int8, 0, None),
}
_FLOOR = {"fp16": 2.0**-39, "bf16": 0.0, "fp8": 2.0**-17, "int8": 0.5 / 127}  # absolute error / largest entry


@dataclass(frozen=True)
class Cast(Compressor):
    """Rounds every entry to fp16, bf16, fp8 (e4m3) or int8, to nearest.

    Each tensor is divided by a scale first, so that no format overflows and small differences
    do not vanish: a power of two that brings the largest entry near the format's top, for int8
    the largest entry / 127. Payload: one scale per tensor (float32; float64 for float64 tensors),
    then the entries in the format, little-endian.
    """

    format: Format = "fp16"
    code: ClassVar[int] = 2
    examples: ClassVar[dict[str, str]] = {
        "fp16": "half precision",
        "bf16": "half, float32's range",
        "fp8": "8-bit floats",
        "int8": "8-bit integers",
    }

    def __post_init__(self) -> None:
        if self.format not in _FORMATS:
            raise ValueError(f"cast to {self.format!r}: choose one of {', '.join(_FORMATS)}")

    @classmethod
    def from_spec(cls, name: str, options: Sequence[str]) -> Self:
        """Use the name as the format."""
        require_few(options, 0)
        return cls(cast("Format", name))

    @property
    def unbiased(self) -> bool:
        """Rounding to nearest is not."""
        return False

    def delta(self, layout: Layout) -> float:
        """Relative error of the rounding, and its absolute floor on every entry."""
        relative = _FORMATS[self.format][2] or 0.0
        return max(0.0, 1.0 - (relative + _FLOOR[self.format] * math.sqrt(max(layout.sizes, default=0))) ** 2)

    def payload_nbytes(self, layout: Layout) -> int:
        """Scales and entries."""
        itemsize = _FORMATS[self.format][0].itemsize
        return len(layout.sizes) * layout.scalar_dtype.itemsize + layout.size * itemsize

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Scale and round."""
        v = v.to(layout.scalar_dtype)
        largest = _largest(v, layout)
        dtype, top, _ = _FORMATS[self.format]
        if dtype == torch.int8:
            scales = largest / 127
            divisors = torch.where(scales > 0, scales, 1.0)  # zeros may be divided by anything but zero
            scaled = (block.divide(block.of(v).clone(), divisors) for block in by_tensor(layout))
            return [scales, *(part.round_().clamp_(-127, 127).to(dtype) for part in scaled)]
        smallest = torch.finfo(layout.scalar_dtype).tiny  # a scale below would be 0 or lose bits
        scales = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - top).clamp_(
            min=smallest
        )
        scaled = (block.divide(block.of(v).clone(), scales) for block in by_tensor(layout))
        return [scales, *(part.to(dtype) for part in scaled)]

    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        """Undo the scale."""
        scales = payload.values(len(layout.sizes), layout.scalar_dtype)
        rounded = payload.values(layout.size, _FORMATS[self.format][0])
        for block in by_tensor(layout):
            values = block.multiply(block.of(rounded).to(layout.scalar_dtype), scales)
            block.of(into).add_(values.to(into.device), alpha=weight)


def _largest(v: Tensor, layout: Layout) -> Tensor:
    """Return the largest magnitude of every tensor, without a copy of the vector."""
    ends = [torch.stack(torch.aminmax(t)) if t.numel() else t.new_zeros(2) for t in layout.split(v)]
    return torch.stack(ends).abs().amax(1)
