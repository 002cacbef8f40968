"""Which tensors of a message ride uncompressed.

A policy is one of
    "auto"       biases and norms (tensors of fewer than 2 dimensions), if that makes the message
                 at most 2 % longer
    "vectors"    all tensors of fewer than 2 dimensions, whatever it costs
    "never"      none
    1000         every tensor of at most so many entries
    ("*.bias",)  every tensor whose name matches one of the patterns
    function     every tensor for which function(name, shape) is true
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gossamer.compress.layout import Layout

RawPolicy = (
    Literal["auto", "vectors", "never"] | int | tuple[str, ...] | Callable[[str, tuple[int, ...]], bool]
)

AUTO_COST = 0.02  # "auto" accepts a message longer by this fraction


@dataclass(frozen=True)
class Part:
    """Some of the tensors of a vector, as runs of neighbouring entries."""

    layout: Layout
    cuts: tuple[int, ...]  # lengths of the runs of the whole vector: this part's and the other's by turns
    first: int  # 0 or 1: the first run of this part
    whole: bool  # the part is the whole vector

    def gather(self, v: Tensor) -> Tensor:
        """Return the part's entries in one piece, without a copy where they are."""
        pieces = self._runs(v)
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)).contiguous()

    def add(self, into: Tensor, values: Tensor, weight: float) -> None:
        """Add the values, given in one piece, to the part's places in the whole vector."""
        runs = torch.split_with_sizes(values.to(into.device), list(self.cuts[self.first :: 2]))
        for place, run in zip(self._runs(into), runs, strict=True):
            place.add_(run, alpha=weight)

    def _runs(self, v: Tensor) -> tuple[Tensor, ...]:
        return torch.split_with_sizes(v, list(self.cuts))[self.first :: 2]


class Parts(NamedTuple):
    """What rides raw, what is packed, and the bytes of both."""

    loose: Part
    packed: Part
    nbytes: int


def parts_of(layout: Layout, policy: RawPolicy, payload_nbytes: Callable[[Layout], int]) -> Parts:
    """Split a layout into the part that rides raw and the part that is packed."""
    known = policy in ("auto", "vectors", "never") if isinstance(policy, str) else None
    if known is False or not (isinstance(policy, str | int | tuple) or callable(policy)):
        raise ValueError(
            f"raw={policy!r}: use 'auto', 'vectors', 'never', a size, a tuple of name patterns "
            f"or a function of name and shape"
        )
    return _parts_of(layout, policy, payload_nbytes)


@lru_cache(maxsize=1024)
def _parts_of(layout: Layout, policy: RawPolicy, payload_nbytes: Callable[[Layout], int]) -> Parts:
    vectors = [len(shape) < 2 for shape in layout.shapes]
    none_raw = _split(layout, [False] * len(vectors), payload_nbytes)
    if policy == "never":
        return none_raw
    if policy in ("auto", "vectors"):
        vectors_raw = _split(layout, vectors, payload_nbytes)
        cheap = vectors_raw.nbytes <= (1 + AUTO_COST) * none_raw.nbytes
        return vectors_raw if cheap or policy == "vectors" else none_raw
    which = [_rides_raw(policy, n, s) for n, s in zip(layout.names, layout.shapes, strict=True)]
    return _split(layout, which, payload_nbytes)


def _rides_raw(policy: RawPolicy, name: str, shape: tuple[int, ...]) -> bool:
    if isinstance(policy, int):
        return Layout((name,), (shape,)).size <= policy
    if isinstance(policy, tuple):
        return any(fnmatchcase(name, pattern) for pattern in policy)
    assert callable(policy), "parts_of has checked"
    return bool(policy(name, shape))


def _split(layout: Layout, rides_raw: list[bool], payload_nbytes: Callable[[Layout], int]) -> Parts:
    loose, packed = (_part(layout, rides_raw, wanted=wanted) for wanted in (True, False))
    nbytes = loose.layout.size * layout.dtype.itemsize
    nbytes += payload_nbytes(packed.layout) if packed.layout.size else 0
    return Parts(loose, packed, nbytes)


def _part(layout: Layout, rides_raw: list[bool], *, wanted: bool) -> Part:
    which = [i for i, is_raw in enumerate(rides_raw) if is_raw == wanted]
    runs = groupby(zip(rides_raw, layout.sizes, strict=True), key=lambda pair: pair[0])
    cuts = tuple(sum(size for _, size in run) for _, run in runs)
    first = int(rides_raw[:1] == [not wanted])
    return Part(layout.pick(which), cuts, first, whole=len(which) == len(rides_raw))
