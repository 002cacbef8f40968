"""How far workers are from their average, from a few numbers each.

A count sketch (Charikar, Chen, Farach-Colton 2002) adds up all entries with random signs in a few bins.
It keeps squared distances in expectation and is linear, so that it can be averaged in place of the vector.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gossamer._random import generator

BINS = 64  # the distance is right to about 10 %
BLOCK = 1 << 20  # entries at a time: bins and signs take more memory than the entries


def sketch(vectors: Sequence[Tensor], seed: int) -> Tensor:
    """Return the sums in the bins, in float64; the same seed gives all workers the same bins and signs."""
    rng = generator(seed, "sketch")
    bins = torch.zeros(BINS, dtype=torch.float64)
    for vector in vectors:
        for block in vector.detach().reshape(-1).split(BLOCK):
            where = torch.randint(BINS, block.shape, generator=rng)
            signs = torch.randint(2, block.shape, generator=rng) * 2.0 - 1.0
            bins.index_add_(0, where, block.cpu().double() * signs)
    return bins
