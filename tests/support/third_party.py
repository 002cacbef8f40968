"""What somebody else's package might hold: an algorithm, a compressor and a topology, each in its own way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from gossamer.algorithms import Algorithm
from gossamer.algorithms.base import take_compressor
from gossamer.compress import Compressor
from gossamer.topology import Topology, from_edges


@dataclass(frozen=True)
class Gentle(Algorithm):
    """Goes a part of the way to what the neighbours say of their models."""

    compressor: Compressor
    parts: int = 1
    examples: ClassVar[dict[str, str]] = {"gentle:2": "half of the way to the neighbours"}
    spec_options: ClassVar[tuple[str, ...]] = ("parts",)
    reaches_consensus: ClassVar[bool] = False

    def __post_init__(self) -> None:
        take_compressor(self, self.compressor)

    def start(self, worker) -> None:
        pass

    def round(self, worker, state):
        yield worker.step()
        own = worker.encode(self.compressor, worker.x)
        inbox = yield worker.exchange(own)
        pull = worker.zeros()
        worker.add_disagreement(self.compressor, pull, own, inbox)
        worker.x.add_(pull, alpha=1 / self.parts)


@dataclass(frozen=True)
class Stride(Compressor):
    """Every so many entries. Payload: those, in the layout's dtype."""

    step: int = 2
    code: ClassVar[int] = 201
    examples: ClassVar[dict[str, str]] = {"stride:3": "every third entry"}

    @classmethod
    def from_spec(cls, name: str, options: Sequence[str]) -> Self:
        return cls(*map(int, options))

    @property
    def unbiased(self) -> bool:
        return self.step == 1

    def delta(self, layout) -> float:
        return float(self.step == 1)

    def payload_nbytes(self, layout) -> int:
        return len(range(0, layout.size, self.step)) * layout.dtype.itemsize

    def pack(self, v: Tensor, layout, rng: torch.Generator) -> list[Tensor]:
        return [v[:: self.step]]

    def accumulate(self, into: Tensor, payload, layout, weight: float) -> None:
        count = len(range(0, layout.size, self.step))
        into[:: self.step].add_(payload.values(count, layout.dtype), alpha=weight)


def wagon_wheel(n: int, spacing: int = 1, weights: str = "metropolis") -> Topology:
    """Workers on a circle, some of them joined to worker 0 in the middle."""
    rim = range(1, n)
    circle = [(i, i + 1 if i + 1 < n else 1) for i in rim if n > 3]
    return from_edges([*circle, *((0, i) for i in rim[::spacing])], n, weights)
