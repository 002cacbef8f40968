"""Stochastic rounding to a few levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from gossamer.compress.base import Compressor
from gossamer.compress.bits import pack_planes, planes_nbytes, unpack_planes
from gossamer.compress.blocks import Block, by_bucket
from gossamer.compress.layout import Layout
from gossamer.compress.specs import first
from gossamer.compress.wire import Reader


@dataclass(frozen=True)
class QSGD(Compressor):
    """Rounds v/norm at random to s = 2^(bits-1) - 1 levels per sign. Alistarh et al. 2017, arXiv:1610.02132.

    `bits` counts the sign: 4 bits are the 15 values -7..7. One bit is the two values -1, +1.
    Every tensor is cut into buckets with one norm each: "max", which the paper uses in practice, or
    "l2", which it analyses. `scale="contraction"` divides the result by tau (see `tau`).
    Payload: one norm per bucket (float32; float64 for float64 tensors), then the levels + s
    (one bit: 1 for +1) as `bits` bit planes.
    """

    bits: int = 4
    bucket: int = 512
    norm: Literal["max", "l2"] = "max"
    scale: Literal["unbiased", "contraction"] = "unbiased"
    code: ClassVar[int] = 6
    examples: ClassVar[dict[str, str]] = {
        "qsgd:8": "8 bits per entry",
        "qsgd:4": "4 bits; 1 to 8 can be had",
        "qsgd:4:contraction": "the same, scaled down",
    }
    contraction_option: ClassVar[str] = "scale='contraction'"

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8:
            raise ValueError(f"bits={self.bits}: QSGD takes 1 to 8 bits, the sign included")
        if self.bucket < 1:
            raise ValueError(f"bucket={self.bucket}: a bucket holds at least one entry")
        if self.norm not in ("max", "l2") or self.scale not in ("unbiased", "contraction"):
            raise ValueError("norm is 'max' or 'l2', scale is 'unbiased' or 'contraction'")

    @classmethod
    def from_spec(cls, name: str, options: Sequence[str]) -> Self:
        """Read the bits, then perhaps contraction."""
        bits = int(first(options, "the number of bits, as in qsgd:4"))
        if not options[1:]:
            return cls(bits)
        if list(options[1:]) != ["contraction"]:
            raise ValueError(f"'{':'.join(options[1:])}' is unknown after the bits; 'contraction' is known")
        return cls(bits, scale="contraction")

    @property
    def levels(self) -> int:
        """Return s, the levels on either side of 0."""
        return (1 << (self.bits - 1)) - 1

    @property
    def unbiased(self) -> bool:
        """Stochastic rounding is, unless the result is shrunk."""
        return self.scale == "unbiased"

    def tau(self, layout: Layout) -> float:
        """Return tau with E|C(v)|^2 <= tau |v|^2 for the unbiased form, from the longest bucket d.

        A level is norm/s wide, so an entry's variance is at most (norm/s)^2 / 4 and at most
        |v_i| norm/s; the paper's bound for "l2" is d/s^2, which holds with the factor 1/4 too.
        """
        d = min(self.bucket, max(layout.sizes, default=1) or 1)
        if self.levels == 0:
            return float(d)  # every entry becomes +-norm
        return 1.0 + min(d / (4 * self.levels**2), math.sqrt(d) / self.levels)

    def delta(self, layout: Layout) -> float:
        """Return 1/tau when scaled, else what is left of 1 after the variance."""
        tau = self.tau(layout)
        return 1.0 / tau if self.scale == "contraction" else max(0.0, 2.0 - tau)

    def payload_nbytes(self, layout: Layout) -> int:
        """Norms and levels."""
        return self._buckets(layout) * layout.scalar_dtype.itemsize + planes_nbytes(layout.size, self.bits)

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Round at random."""
        v = v.to("cpu", layout.scalar_dtype)
        norms = self._norms(v, layout)
        divisors = torch.where(norms > 0, norms, 1.0)
        noise = torch.rand(v.shape, dtype=v.dtype, generator=rng)
        codes = torch.empty(v.shape, dtype=torch.uint8)
        for block in by_bucket(layout, self.bucket):
            y = block.divide(block.of(v).clone(), divisors)  # in [-1, 1]
            block.of(codes).copy_(self._round(y, block.of(noise)))
        return [norms, pack_planes(codes.numpy(), self.bits)]

    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        """Multiply the levels by their norms."""
        norms = payload.values(self._buckets(layout), layout.scalar_dtype)
        section = payload.bytes(planes_nbytes(layout.size, self.bits))
        levels = torch.from_numpy(unpack_planes(section, layout.size, self.bits)).view(torch.int8)
        levels = levels.sub_(self.levels) if self.levels else levels.mul_(2).sub_(1)  # wraps into -s ... s
        step = norms / (max(self.levels, 1) * (self.tau(layout) if self.scale == "contraction" else 1.0))
        for block in by_bucket(layout, self.bucket):
            values = block.multiply(block.of(levels).to(layout.scalar_dtype), step)
            block.of(into).add_(values.to(into.device), alpha=weight)

    def _buckets(self, layout: Layout) -> int:
        return sum(-(-size // self.bucket) for size in layout.sizes)

    def _norms(self, v: Tensor, layout: Layout) -> Tensor:
        norms = torch.empty(self._buckets(layout), dtype=v.dtype)
        for block in by_bucket(layout, self.bucket):
            self._reduce(block, block.of(v), norms)
        return norms

    def _reduce(self, block: Block, v: Tensor, norms: Tensor) -> None:
        # One bit needs |v_i| <= norm. The l2 norm satisfies that but is far too loose, so max is used.
        if self.norm == "max" or self.levels == 0:
            for piece, norm in block.pieces(v.abs(), norms):
                torch.amax(piece, -1, keepdim=True, out=norm)
            return
        for piece, norm in block.pieces(v.double().square(), norms):
            lengths = torch.full((norm.numel(),), piece.shape[-1])
            squares = torch.segment_reduce(piece.view(-1), "sum", lengths=lengths)
            norm.copy_(squares.sqrt_().view(norm.shape))

    def _round(self, y: Tensor, noise: Tensor) -> Tensor:
        if self.levels == 0:
            return noise < (1 + y) / 2
        s = self.levels
        return y.mul_(s).add_(noise).floor_().clamp_(-s, s).add_(s)  # noise can round up to 1
