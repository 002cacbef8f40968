"""Stochastic rounding to a few levels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from torch import Tensor

from gossamer.compress.base import Compressor
from gossamer.compress.bits import pack_planes, planes_nbytes, unpack_planes
from gossamer.layout import Layout
from gossamer.wire import Reader


@dataclass(frozen=True)
class QSGD(Compressor):
    """Rounds v/norm at random to s = 2^(bits-1) - 1 levels a side. Alistarh et al. 2017, arXiv:1610.02132.

    `bits` counts the sign: 4 bits are the 15 values -7..7. One bit is the two values -1, +1.
    Every tensor is cut into buckets with a norm each: "max", which the paper uses in practice, or
    "l2", which it analyses. `scale="contraction"` divides the result by tau (see `tau`).
    Payload: one norm a bucket (float32; float64 for float64 tensors), then the levels + s
    (one bit: 1 for +1) as `bits` bit planes.
    """

    bits: int = 4
    bucket: int = 512
    norm: Literal["max", "l2"] = "max"
    scale: Literal["unbiased", "contraction"] = "unbiased"
    code: ClassVar[int] = 6

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8:
            raise ValueError(f"bits={self.bits}: QSGD takes 1 to 8 bits, the sign included")
        if self.bucket < 1:
            raise ValueError(f"bucket={self.bucket}: a bucket holds at least one entry")
        if self.norm not in ("max", "l2") or self.scale not in ("unbiased", "contraction"):
            raise ValueError("norm is 'max' or 'l2', scale is 'unbiased' or 'contraction'")

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
        norms = len(_bucket_lengths(layout, self.bucket)) * layout.scalar_dtype.itemsize
        return norms + planes_nbytes(layout.size, self.bits)

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Round at random."""
        lengths = _bucket_lengths(layout, self.bucket)
        v = v.to("cpu", layout.scalar_dtype)
        norms = self._norms(v, lengths)
        y = v / torch.where(norms > 0, norms, 1.0).repeat_interleave(lengths)  # in [-1, 1]
        noise = torch.rand(y.shape, dtype=y.dtype, generator=rng)
        if self.levels == 0:
            return [norms, pack_planes((noise < (1 + y) / 2).numpy(), 1)]
        s = self.levels
        levels = y.mul_(s).add_(noise).floor_().clamp_(-s, s)  # noise can round up to 1
        return [norms, pack_planes((levels + s).to(torch.uint8).numpy(), self.bits)]

    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        """Give the levels their norms."""
        lengths = _bucket_lengths(layout, self.bucket)
        norms = payload.values(len(lengths), layout.scalar_dtype)
        codes = unpack_planes(payload.bytes(planes_nbytes(layout.size, self.bits)), layout.size, self.bits)
        levels = torch.from_numpy(codes).to(layout.scalar_dtype)
        levels = levels.sub_(self.levels) if self.levels else levels.mul_(2.0).sub_(1.0)
        step = norms / (max(self.levels, 1) * (self.tau(layout) if self.scale == "contraction" else 1.0))
        into.add_(levels.mul_(step.repeat_interleave(lengths)).to(into.device), alpha=weight)

    def _norms(self, v: Tensor, lengths: Tensor) -> Tensor:
        if self.norm == "max" or self.levels == 0:  # a probability needs |v_i| <= norm, "l2" gives that too,
            return torch.segment_reduce(v.abs(), "max", lengths=lengths)  # but far too wide for one bit
        squares = torch.segment_reduce(v.double().square(), "sum", lengths=lengths)
        return squares.sqrt().to(v.dtype)


@lru_cache(maxsize=256)
def _bucket_lengths(layout: Layout, bucket: int) -> Tensor:
    lengths: list[int] = []
    for size in layout.sizes:
        lengths += [bucket] * (size // bucket)
        lengths += [size % bucket] if size % bucket else []
    return torch.tensor(lengths, dtype=torch.int64)
