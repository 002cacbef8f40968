"""Two thin factors in place of a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from gossamer.compress.base import Compressor, require_few
from gossamer.compress.blocks import add_product
from gossamer.compress.layout import Layout
from gossamer.compress.wire import Reader


@dataclass(frozen=True)
class LowRank(Compressor):
    """M ~ P Q^T by power iteration from a random start. Vogels et al. 2019, arXiv:1905.13727.

    A tensor of two or more dimensions is the matrix M (first dimension x the rest). One iteration
    is P = orthonormal(M Q), Q = M^T P; more come nearer to the best approximation and cost no
    bytes. A tensor that two factors would not make smaller is sent as it is. Payload, tensor by
    tensor: P then Q row by row, or the entries (float32; float64 for float64 tensors).
    """

    rank: int = 1
    iterations: int = 1
    code: ClassVar[int] = 7
    format_name: ClassVar[str] = "low-rank"
    examples: ClassVar[dict[str, str]] = {"lowrank:1": "two thin factors"}
    size_matters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.rank < 1 or self.iterations < 1:
            raise ValueError(f"rank={self.rank}, iterations={self.iterations}: both are at least 1")

    @classmethod
    def from_spec(cls, name: str, options: Sequence[str]) -> Self:
        """Read the rank, or take 1."""
        require_few(options, 1)
        return cls(int(options[0])) if options else cls()

    @property
    def unbiased(self) -> bool:
        """A projection shrinks."""
        return False

    def delta(self, layout: Layout) -> float:
        """Return r / min(m, k), met by a matrix whose singular values are all equal."""
        return min((self.rank / min(m, k) for _, m, k in self._matrices(layout) if m), default=1.0)

    def payload_nbytes(self, layout: Layout) -> int:
        """Factors, and what is not worth factoring."""
        return sum(
            self.rank * (m + k) * layout.scalar_dtype.itemsize if m else size * layout.dtype.itemsize
            for size, m, k in self._matrices(layout)
        )

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Iterate."""
        sections: list[Tensor] = []
        for t, (_, m, k) in zip(layout.split(v.to(layout.scalar_dtype)), self._matrices(layout), strict=True):
            if not m:
                sections.append(t.to(layout.dtype))
                continue
            M = t.view(m, k)
            Q = torch.randn(k, self.rank, dtype=M.dtype, generator=rng).to(M.device)
            for _ in range(self.iterations):
                P = torch.linalg.qr(M @ Q).Q
                Q = M.T @ P
            sections += [P, Q]
        return sections

    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        """Multiply the factors."""
        for part, (size, m, k) in zip(layout.split(into), self._matrices(layout), strict=True):
            if not m:
                part.add_(payload.values(size, layout.dtype).to(into.device), alpha=weight)
                continue
            P = payload.values(m * self.rank, layout.scalar_dtype).view(m, self.rank)
            Q = payload.values(k * self.rank, layout.scalar_dtype).view(k, self.rank)
            add_product(part.view(m, k), P.to(into.device), Q.to(into.device), weight)

    def _matrices(self, layout: Layout) -> Iterator[tuple[int, int, int]]:
        """Yield size, m and k of every tensor; m = 0 where two factors would not be shorter."""
        for size, shape in zip(layout.sizes, layout.shapes, strict=True):
            m, k = (shape[0], size // shape[0]) if len(shape) >= 2 and size else (0, 0)
            worth_it = self.rank * (m + k) * layout.scalar_dtype.itemsize < size * layout.dtype.itemsize
            yield (size, m, k) if worth_it and m else (size, 0, 0)
