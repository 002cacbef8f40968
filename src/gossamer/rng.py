"""Randomness that every worker can repeat.

No draw ever comes from the global generator. A generator is seeded by what it is for,
such as (run seed, "noise", round, worker), so that a run is the same simulated or
distributed, resumed or not, and two ends of an edge can draw the same numbers.
"""

from __future__ import annotations

import hashlib

import torch


def seed_of(*key: int | str) -> int:
    """Return a 63-bit seed that depends on every part of the key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(*key: int | str) -> torch.Generator:
    """Return a fresh CPU generator for this key."""
    return torch.Generator().manual_seed(seed_of(*key))
