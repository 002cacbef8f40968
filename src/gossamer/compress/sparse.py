"""Top-k and random-k: a few entries of every tensor, with values in any format.

The values go through a second compressor, by default in full precision:
TopK(0.01, values=Cast("fp16")) or RandomK(0.1, values=QSGD(4)).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self, final

import numpy as np
import torch
from torch import Tensor

from gossamer.compress.base import Compressor
from gossamer.compress.bits import pack_positions, positions_nbytes, unpack_positions
from gossamer.compress.identity import Identity
from gossamer.compress.layout import Layout
from gossamer.compress.specs import first, make
from gossamer.compress.wire import Reader

PREFILTER_FROM = 1 << 15  # smaller tensors: plain top-k is as fast
SAMPLE = 1 << 12
PROBE = Layout(("few", "many"), ((1_000,), (20_000,)))  # numpy has another method from 10 000 on
FULL_PRECISION = Identity()
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


@dataclass(frozen=True)
class _Sparse(Compressor):
    """What top-k and random-k share: k = ceil(ratio * size) entries of every tensor."""

    ratio: float = 0.01
    values: Compressor = FULL_PRECISION

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            percent = f"; for {self.ratio:g} % write {self.ratio / 100:g}" if 1 < self.ratio <= 100 else ""
            raise ValueError(
                f"ratio={self.ratio:g}: the part of the entries to send, above 0 and at most 1{percent}"
            )

    @classmethod
    def from_spec(cls, name: str, options: Sequence[str]) -> Self:
        """Read the ratio, then the compressor of the values."""
        ratio = _ratio(first(options, "the ratio of entries to send, as in topk:0.01"))
        return cls(ratio, make(":".join(options[1:])) if options[1:] else FULL_PRECISION)

    def counts(self, layout: Layout) -> tuple[int, ...]:
        """Return k for every tensor."""
        return _value_layout(self.ratio, layout).sizes

    def value_layout(self, layout: Layout) -> Layout:
        """Return the layout of the values that are sent."""
        return _value_layout(self.ratio, layout)

    def delta(self, layout: Layout) -> float:
        """Return k/d, times what the values' format keeps."""
        kept = (k / size for k, size in zip(self.counts(layout), layout.sizes, strict=True) if size)
        return min(kept, default=1.0) * self.values.delta(self.value_layout(layout))

    @abstractmethod
    def read_positions(self, payload: Reader, layout: Layout) -> Tensor:
        """Return the positions, in increasing order, of the values that follow."""

    @final
    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        """Add the values at their positions."""
        positions = self.read_positions(payload, layout)
        value_layout = self.value_layout(layout)
        values = torch.zeros(value_layout.size, dtype=into.dtype)
        self.values.accumulate(values, payload, value_layout, 1.0)
        into.index_add_(0, positions.to(into.device), values.to(into.device), alpha=weight)


@dataclass(frozen=True)
class TopK(_Sparse):
    """The k entries of largest magnitude of every tensor.

    Payload: the positions in the packed part (gossamer.compress.bits), all tensors in one list;
    then the values in the order of their positions.
    """

    code: ClassVar[int] = 3
    format_name: ClassVar[str] = "top-k"
    examples: ClassVar[dict[str, str]] = {
        "topk:0.01": "the largest 1 %",
        "topk:0.01:fp16": "the same, values in fp16",
    }

    @property
    def unbiased(self) -> bool:
        """Small entries are always dropped."""
        return False

    def payload_nbytes(self, layout: Layout) -> int:
        """Positions and values."""
        value_layout = self.value_layout(layout)
        return positions_nbytes(value_layout.size, layout.size) + self.values.payload_nbytes(value_layout)

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Select, then write positions and values."""
        chosen, start = [], 0
        for t, k in zip(layout.split(v), self.counts(layout), strict=True):
            chosen.append(largest(t, k) + start)
            start += t.numel()
        positions = torch.cat(chosen)
        packed = pack_positions(positions.numpy(), layout.size)
        values = v.index_select(0, positions.to(v.device))
        return [packed, *self.values.pack(values, self.value_layout(layout), rng)]

    def read_positions(self, payload: Reader, layout: Layout) -> Tensor:
        """Unpack the list."""
        k = self.value_layout(layout).size
        section = payload.bytes(positions_nbytes(k, layout.size))
        return torch.from_numpy(unpack_positions(section, k, layout.size))


@dataclass(frozen=True)
class RandomK(_Sparse):
    """k entries of every tensor, chosen uniformly from a seed that both ends know.

    `scaled` multiplies them by d/k: unbiased, but no contraction. Payload: the seed of the choice
    (8 bytes) and the values in the order of their positions; no positions.
    """

    scaled: bool = False
    code: ClassVar[int] = 4
    format_name: ClassVar[str] = "random-k"
    examples: ClassVar[dict[str, str]] = {
        "randomk:0.01": "a random 1 %, no indices",
        "randomk:0.01:scaled": "the same, scaled up",
    }

    @classmethod
    def from_spec(cls, name: str, options: Sequence[str]) -> Self:
        """Find the word scaled anywhere after the ratio."""
        rest = [option for option in options[1:] if option != "scaled"]
        plain = super().from_spec(name, [*options[:1], *rest])
        return replace(plain, scaled="scaled" in options[1:])

    @property
    def unbiased(self) -> bool:
        """Only when scaled, and when the values' format is."""
        return self.scaled and self.values.unbiased

    def delta(self, layout: Layout) -> float:
        """Return k/d unscaled. Scaled, the error is (d/k - 1)|x|^2: a contraction only near k = d."""
        unscaled = _Sparse.delta(self, layout)
        if not self.scaled:
            return unscaled
        return max(0.0, 2.0 - 1.0 / unscaled) if unscaled and self.values.unbiased else 0.0

    def payload_nbytes(self, layout: Layout) -> int:
        """Seed and values."""
        return 8 + self.values.payload_nbytes(self.value_layout(layout))

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Draw a seed, choose with it, write both."""
        seed = torch.randint(1 << 62, (1,), generator=rng)
        values = v[self._choose(int(seed), layout).to(v.device)]
        value_layout = self.value_layout(layout)
        if self.scaled:
            for chosen, k, size in zip(
                value_layout.split(values), self.counts(layout), layout.sizes, strict=True
            ):
                chosen.mul_(size / max(k, 1))
        return [seed, *self.values.pack(values, value_layout, rng)]

    def read_positions(self, payload: Reader, layout: Layout) -> Tensor:
        """Choose again with the sender's seed."""
        return self._choose(int(payload.values(1, torch.int64)) & ((1 << 62) - 1), layout)

    def shared_draws(self) -> list[Tensor]:
        """Choose among few and among many entries, which numpy does in different ways."""
        return [self._choose(0, PROBE), *super().shared_draws()]

    def _choose(self, seed: int, layout: Layout) -> Tensor:
        draw = np.random.Generator(np.random.PCG64(seed))
        chosen, start = [], 0
        for k, size in zip(self.counts(layout), layout.sizes, strict=True):
            chosen.append(np.sort(draw.choice(size, k, replace=False, shuffle=False)) + start)
            start += size
        return torch.from_numpy(np.concatenate(chosen))


def _ratio(text: str) -> float:
    """Read a part of the entries, "0.01" or "1%"; a bare 1 could be meant as either."""
    try:
        ratio = float(text.removesuffix("%"))
    except ValueError:
        raise ValueError(f"'{text}' is no ratio; write 0.01 or 1% for one entry in a hundred") from None
    if text == "1":
        raise ValueError("1 would send all entries; write 0.01 or 1% for one in a hundred, 1.0 for all")
    return ratio / 100 if text.endswith("%") else ratio


@lru_cache(maxsize=256)
def _value_layout(ratio: float, layout: Layout) -> Layout:
    slack = 1e-9  # 0.1 * 30 is a little more than 3
    counts = (math.ceil(ratio * size - slack) for size in layout.sizes)
    return Layout(layout.names, tuple((k,) for k in counts), layout.dtype)


def largest(t: Tensor, k: int) -> Tensor:
    """Return where the k entries of largest magnitude are, in increasing order.

    A full top-k of a large tensor takes longer than the network it is meant to relieve. Where k is
    small, a strided sample gives a threshold that a few more than k entries pass, and the exact
    choice is made among those alone.
    """
    magnitude = t.abs().cpu()
    if t.numel() < PREFILTER_FROM or 4 * k > t.numel():
        chosen = _above_the_rest(magnitude, k)
        if chosen is not None:
            return chosen
    candidates = _candidates(magnitude, k) if t.numel() >= PREFILTER_FROM else None
    if candidates is None:
        return _exactly(magnitude, k)
    return candidates[_exactly(magnitude[candidates], k)]


def _candidates(magnitude: Tensor, k: int) -> Tensor | None:
    """Return where probably the k largest and a few more are; None if the sample misled."""
    sample = magnitude[:: magnitude.numel() // SAMPLE].contiguous()
    expected = k / magnitude.numel() * sample.numel()
    generous = min(sample.numel(), int(expected + 4 * expected**0.5) + 4)
    candidates = _where(magnitude >= _kth_largest(sample, generous))
    return candidates if candidates.numel() >= k else None


def _exactly(magnitude: Tensor, k: int) -> Tensor:
    chosen = _above_the_rest(magnitude, k)
    if chosen is None:  # ties: torch chooses
        chosen = magnitude.topk(k, sorted=False).indices.sort().values
    return chosen


def _above_the_rest(magnitude: Tensor, k: int) -> Tensor | None:
    """Return where the k largest are, in increasing order; None if a tie would have to be broken."""
    if k == 0:
        return torch.empty(0, dtype=torch.int64)
    chosen = _where(magnitude >= _kth_largest(magnitude, k))
    return chosen if chosen.numel() == k else None


def _where(condition: Tensor) -> Tensor:
    return torch.from_numpy(np.flatnonzero(condition.numpy()))  # several times as fast as torch's nonzero


def _kth_largest(magnitude: Tensor, k: int) -> Tensor:
    """Return the k-th largest magnitude; read as integers they keep their order, and numpy is faster."""
    keys = magnitude.view(_INTEGERS[magnitude.dtype.itemsize]).numpy()
    at = len(keys) - k
    return torch.from_numpy(np.partition(keys, at)[at : at + 1]).view(magnitude.dtype)
