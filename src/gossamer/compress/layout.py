"""How the tensors of a model lie in one flat vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors behind a flat vector, in order, and their dtype."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtype: torch.dtype = torch.float32

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Layout:
        """Return the layout of named tensors, which must share one dtype."""
        dtypes = {t.dtype for t in tensors.values()} or {torch.float32}
        if len(dtypes) > 1:
            raise ValueError(f"one flat vector has one dtype, not {sorted(map(str, dtypes))}")
        return cls(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()), dtypes.pop())

    @classmethod
    def flat(cls, size: int, dtype: torch.dtype = torch.float32, name: str = "x") -> Layout:
        """Return the layout of a single vector."""
        return cls((name,), ((size,),), dtype)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Entries of each tensor."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """Entries of the whole vector."""
        return sum(self.sizes)

    @cached_property
    def scalar_dtype(self) -> torch.dtype:
        """The dtype of scales and norms, at least float32, whatever the tensors are."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @cached_property
    def _hash(self) -> int:
        return hash((self.names, self.shapes, self.dtype))

    def __hash__(self) -> int:
        return self._hash  # layouts are cache keys in every encode: hash the long tuples once

    def __reduce__(self) -> tuple[type[Layout], tuple[object, ...]]:
        # without the cached hash: a string's hash differs from process to process
        return Layout, (self.names, self.shapes, self.dtype)

    def split(self, vector: Tensor) -> tuple[Tensor, ...]:
        """Return one flat view per tensor."""
        return torch.split_with_sizes(vector, list(self.sizes))

    def views(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the tensors by name, in their shapes, as views of the vector."""
        parts = self.split(vector)
        return {name: p.view(s) for name, p, s in zip(self.names, parts, self.shapes, strict=True)}

    def pick(self, which: Sequence[int]) -> Layout:
        """Return the layout of some of the tensors."""
        return Layout(tuple(self.names[i] for i in which), tuple(self.shapes[i] for i in which), self.dtype)

    def tensor_at(self, position: int) -> str:
        """Return the name of the tensor that holds an entry of the vector."""
        for name, size in zip(self.names, self.sizes, strict=True):
            if position < size:
                return name
            position -= size
        raise IndexError(position)
