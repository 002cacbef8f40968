"""Vectors in blocks that fit a core's cache, and one scale for each of many runs of entries.

A fresh buffer as long as a large model costs more than the arithmetic on it, so compressors work
block by block. Inside a block, neighbouring runs of the same length form the rows of a piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from gossamer.compress.layout import Layout

BLOCK = 1 << 17  # entries: half a megabyte of float32, large enough that Python's overhead is small


@dataclass(frozen=True)
class Block:
    """Neighbouring pieces of a vector, and where they and their scales start."""

    start: int
    first_scale: int  # index of the block's first scale
    rows: tuple[int, ...]  # of every piece; every row has its own scale
    sizes: tuple[int, ...]  # entries of every piece

    @cached_property
    def stop(self) -> int:
        """Return where the next block starts."""
        return self.start + sum(self.sizes)

    def of(self, vector: Tensor) -> Tensor:
        """Return the block's entries of a vector, as a view."""
        return vector[self.start : self.stop]

    def pieces(self, values: Tensor, scales: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield every piece of the block's values and its scales, as views that broadcast."""
        cut_values = torch.split_with_sizes(values, list(self.sizes))
        own_scales = scales[self.first_scale : self.first_scale + sum(self.rows)]
        cut_scales = torch.split_with_sizes(own_scales, list(self.rows))
        for piece, column, rows in zip(cut_values, cut_scales, self.rows, strict=True):
            yield (piece, column) if rows == 1 else (piece.view(rows, -1), column.view(rows, 1))

    def multiply(self, values: Tensor, scales: Tensor) -> Tensor:
        """Multiply the block's values by their scales, in place."""
        for piece, column in self.pieces(values, scales):
            piece.mul_(column)
        return values

    def divide(self, values: Tensor, scales: Tensor) -> Tensor:
        """Divide the block's values by their scales, in place."""
        for piece, column in self.pieces(values, scales):
            piece.div_(column)
        return values


def add_product(into: Tensor, P: Tensor, Q: Tensor, weight: float) -> None:
    """Do into += weight * P Q^T for thin factors, the product with the same bits on every machine.

    How a matrix product is rounded depends on the processor; a single multiplication or addition does not.
    """
    rows = max(1, BLOCK // max(into.shape[1], 1))
    across = Q.T.contiguous()
    for part, down in zip(into.split(rows), P.split(rows), strict=True):
        product = down[:, :1] * across[0]
        for i in range(1, len(across)):
            product += down[:, i : i + 1] * across[i]
        part.add_(product, alpha=weight)


@lru_cache(maxsize=64)
def by_bucket(layout: Layout, bucket: int) -> tuple[Block, ...]:
    """Return the blocks of a layout with one scale for every bucket of entries of a tensor."""
    at_once = max(1, BLOCK // bucket)
    pieces: list[tuple[int, int, int]] = []
    first = 0
    for size in layout.sizes:
        full, rest = divmod(size, bucket)
        for done in range(0, full, at_once):
            rows = min(at_once, full - done)
            pieces.append((first + done, rows, rows * bucket))
        pieces += [(first + full, 1, rest)] if rest else []
        first += full + (rest > 0)
    return tuple(_blocks(pieces))


@lru_cache(maxsize=64)
def by_tensor(layout: Layout) -> tuple[Block, ...]:
    """Return the blocks of a layout with one scale per tensor, empty tensors included."""
    pieces = (
        (i, 1, min(BLOCK, size - done))
        for i, size in enumerate(layout.sizes)
        for done in range(0, max(size, 1), BLOCK)
    )
    return tuple(_blocks(pieces))


def _blocks(pieces: Iterable[tuple[int, int, int]]) -> Iterator[Block]:
    """Group pieces, given by first scale, rows and entries, into blocks."""
    start, taken = 0, list[tuple[int, int, int]]()
    for piece in pieces:
        entries = sum(size for _, _, size in taken)
        if taken and entries + piece[2] > BLOCK:
            yield _block(start, taken)
            start, taken = start + entries, []
        taken.append(piece)
    if taken:
        yield _block(start, taken)


def _block(start: int, pieces: list[tuple[int, int, int]]) -> Block:
    firsts, rows, sizes = zip(*pieces, strict=True)
    return Block(start, firsts[0], rows, sizes)
