"""A vector in parts, each written by its own packer; a message holds them one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate as accumulate_sums
from typing import Protocol

import torch
from torch import Tensor

from gossamer.compress.layout import Layout
from gossamer.compress.wire import Reader


class Packer(Protocol):
    """Writes some of the tensors. Compressors do."""

    def payload_nbytes(self, layout: Layout) -> int:
        """Return the bytes that `pack` writes for this layout."""

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Return the payload of a finite, contiguous vector, in sections of any dtype."""

    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        """Do into += weight * C(v), reading the payload that `pack` wrote."""


class Exact:
    """Writes entries as they are, in the layout's dtype, little-endian."""

    def payload_nbytes(self, layout: Layout) -> int:
        """Full precision."""
        return layout.size * layout.dtype.itemsize

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Return the vector."""
        return [v]

    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        """Read the vector."""
        into.add_(payload.values(layout.size, layout.dtype).to(into.device), alpha=weight)


RAW = Exact()


@dataclass(frozen=True)
class Part:
    """Some of a vector's tensors, and what writes them."""

    packer: Packer
    which: tuple[int, ...]  # of the whole layout's tensors
    layout: Layout  # of these tensors alone
    runs: tuple[tuple[int, int], ...]  # where their entries are in the whole vector: start and stop
    whole: bool  # all of the vector

    @classmethod
    def of(cls, layout: Layout, which: Sequence[int], packer: Packer) -> Part:
        """Return the part with these tensors, given in order."""
        stops = list(accumulate_sums(layout.sizes))
        runs: list[tuple[int, int]] = []
        for i in which:
            start, stop = stops[i] - layout.sizes[i], stops[i]
            if runs and runs[-1][1] == start:
                start = runs.pop()[0]
            runs.append((start, stop))
        return cls(packer, tuple(which), layout.pick(which), tuple(runs), len(which) == len(layout.sizes))

    def gather(self, v: Tensor) -> Tensor:
        """Return the part's entries in one piece, without a copy where they already are."""
        pieces = [v[start:stop] for start, stop in self.runs]
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)).contiguous()

    def add(self, into: Tensor, values: Tensor, weight: float) -> None:
        """Add the values, given in one piece, to the part's places in the whole vector."""
        pieces = torch.split_with_sizes(values.to(into.device), [stop - start for start, stop in self.runs])
        for (start, stop), piece in zip(self.runs, pieces, strict=True):
            into[start:stop].add_(piece, alpha=weight)


def nbytes(parts: Sequence[Part]) -> int:
    """Return the bytes that `pack` writes."""
    return sum(part.packer.payload_nbytes(part.layout) for part in parts)


def pack(parts: Sequence[Part], v: Tensor, rng: torch.Generator) -> list[Tensor]:
    """Return the parts' payloads, in sections."""
    return [s for part in parts for s in part.packer.pack(part.gather(v), part.layout, rng)]


def accumulate(parts: Sequence[Part], into: Tensor, payload: Reader, weight: float) -> None:
    """Do into += weight * C(v). A payload that makes no sense leaves `into` as it was."""
    found: list[tuple[Part, Tensor, float]] = []
    for part in parts:
        if part.whole:
            part.packer.accumulate(into, payload, part.layout, weight)
        elif part.packer is RAW:  # as below, but without a copy
            found.append((part, payload.values(part.layout.size, part.layout.dtype), weight))
        else:
            dense = torch.zeros(part.layout.size, dtype=into.dtype, device=into.device)
            part.packer.accumulate(dense, payload, part.layout, weight)
            found.append((part, dense, 1.0))
    for part, values, times in found:
        part.add(into, values, times)
