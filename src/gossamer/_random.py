"""Randomness that every worker can repeat.

No draw ever comes from the global generator. A generator is seeded by what it is for,
such as (run seed, "noise", round, worker), so that a run is the same simulated or
distributed, resumed or not, and two ends of an edge can draw the same numbers.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import Tensor


def seed_of(*key: int | str) -> int:
    """Return a 63-bit seed that depends on every part of the key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(*key: int | str) -> torch.Generator:
    """Return a fresh CPU generator for this key."""
    return torch.Generator().manual_seed(seed_of(*key))


def bell_shaped(count: int, *key: int | str) -> Tensor:
    """Return random numbers with the same bits on every machine; those of torch.randn depend on the machine.

    Each is the sum of four 16-bit integers, minus its mean, times a power of two (Irwin-Hall: bell-shaped,
    of variance 4/3). Nothing is rounded, and numpy promises never to change the raw numbers of PCG64.
    """
    sixteen_bits = np.random.PCG64(seed_of(*key)).random_raw(count).view(np.uint16)
    total = sixteen_bits[0::4].astype(np.float32)
    for k in (1, 2, 3):
        total += sixteen_bits[k::4]
    total -= 2 * 65535
    total *= 2.0**-15
    return torch.from_numpy(total)
