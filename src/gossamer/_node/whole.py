"""All values of a model as bytes, for a worker that comes into a run later."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gossamer._node.buckets import by_kind, joined, spread
from gossamer.compress.wire import as_bytes, from_bytes


class WholeModel:
    """Parameters and buffers, trained or not."""

    def __init__(self, trained: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> None:
        self._groups = [*by_kind(trained), *by_kind(others)]

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return sum(t.numel() * t.dtype.itemsize for group in self._groups for t in group.values())

    @torch.no_grad()
    def read(self) -> Tensor:
        """Return a copy of all values."""
        return torch.cat([as_bytes(v) for v in joined(self._groups)])

    @torch.no_grad()
    def write(self, data: Tensor) -> None:
        """Replace all values by those that `read` returned elsewhere."""
        vectors, at = [], 0
        for like in joined(self._groups):
            nbytes = like.numel() * like.dtype.itemsize
            vectors.append(from_bytes(data[at : at + nbytes], like.dtype).to(like.device))
            at += nbytes
        spread(self._groups, vectors)
