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
from typing import Literal

import torch
from torch import Tensor

from gossamer.layout import Layout

RawPolicy = (
    Literal["auto", "vectors", "never"] | int | tuple[str, ...] | Callable[[str, tuple[int, ...]], bool]
)

AUTO_COST = 0.02  # "auto" accepts a message longer by this fraction


@dataclass(frozen=True)
class Part:
    """Some of the tensors of a vector, as runs of neighbouring entries."""

    layout: Layout
    runs: tuple[tuple[int, int], ...]  # start and length of each run in the whole vector
    whole: bool  # the part is the whole vector

    def gather(self, v: Tensor) -> Tensor:
        """Return the part's entries in one piece, without a copy where they are."""
        pieces = [v.narrow(0, start, length) for start, length in self.runs]
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)).contiguous()

    def add(self, into: Tensor, values: Tensor, weight: float) -> None:
        """Add the values, given in one piece, to the part's places in the whole vector."""
        at = 0
        for start, length in self.runs:
            into.narrow(0, start, length).add_(values.narrow(0, at, length).to(into.device), alpha=weight)
            at += length


def parts_of(layout: Layout, policy: RawPolicy, payload_nbytes: Callable[[Layout], int]) -> tuple[Part, Part]:
    """Split a layout into the part that rides raw and the part that is packed."""
    known = policy in ("auto", "vectors", "never") if isinstance(policy, str) else None
    if known is False or not (isinstance(policy, str | int | tuple) or callable(policy)):
        raise ValueError(
            f"raw={policy!r}: use 'auto', 'vectors', 'never', a size, a tuple of name patterns "
            f"or a function of name and shape"
        )
    return _parts_of(layout, policy, payload_nbytes)


@lru_cache(maxsize=1024)
def _parts_of(
    layout: Layout, policy: RawPolicy, payload_nbytes: Callable[[Layout], int]
) -> tuple[Part, Part]:
    vectors = [len(shape) < 2 for shape in layout.shapes]
    if policy == "auto":
        packed_only = payload_nbytes(layout) if layout.size else 0
        loose, packed = _split(layout, vectors)
        cost = loose.layout.size * layout.dtype.itemsize
        cost += payload_nbytes(packed.layout) if packed.layout.size else 0
        if cost <= (1 + AUTO_COST) * packed_only:
            return loose, packed
        return _split(layout, [False] * len(vectors))
    if policy in ("vectors", "never"):
        return _split(layout, vectors if policy == "vectors" else [False] * len(vectors))
    return _split(
        layout, [_rides_raw(policy, n, s) for n, s in zip(layout.names, layout.shapes, strict=True)]
    )


def _rides_raw(policy: RawPolicy, name: str, shape: tuple[int, ...]) -> bool:
    if isinstance(policy, int):
        return Layout((name,), (shape,)).size <= policy
    if isinstance(policy, tuple):
        return any(fnmatchcase(name, pattern) for pattern in policy)
    assert callable(policy), "parts_of has checked"
    return bool(policy(name, shape))


def _split(layout: Layout, rides_raw: list[bool]) -> tuple[Part, Part]:
    return _part(layout, rides_raw, wanted=True), _part(layout, rides_raw, wanted=False)


def _part(layout: Layout, rides_raw: list[bool], *, wanted: bool) -> Part:
    which = [i for i, is_raw in enumerate(rides_raw) if is_raw == wanted]
    runs, at = [], 0
    for is_raw, group in groupby(zip(rides_raw, layout.sizes, strict=True), key=lambda pair: pair[0]):
        length = sum(size for _, size in group)
        if is_raw == wanted:
            runs.append((at, length))
        at += length
    return Part(layout.pick(which), tuple(runs), whole=len(which) == len(rides_raw))
