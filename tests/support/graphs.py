"""Graphs of every kind, to test what all of them have in common."""

from __future__ import annotations

from collections.abc import Callable

from gossamer import topology as tp
from gossamer.topology import Topology

# Every builder of a constant graph, with arguments that suit any n.
BUILDERS: dict[str, Callable[[int, int, str], Topology]] = {
    "ring": lambda n, seed, weights: tp.ring(n, weights),
    "chain": lambda n, seed, weights: tp.chain(n, weights),
    "torus": lambda n, seed, weights: tp.torus(n, weights=weights),
    "grid": lambda n, seed, weights: tp.grid(n, weights=weights),
    "star": lambda n, seed, weights: tp.star(n, weights),
    "complete": lambda n, seed, weights: tp.complete(n, weights),
    "exponential": lambda n, seed, weights: tp.exponential(n, weights),
    "hypercube": lambda n, seed, weights: tp.hypercube(2 ** (n % 6), weights),
    "random_regular": lambda n, seed, weights: tp.random_regular(n, min(n - 1, 4), seed, weights),
    "small_world": lambda n, seed, weights: tp.small_world(n + 4, 4, 0.3, seed, weights),
    "social": lambda n, seed, weights: tp.social(weights=weights),
    "from_edges": lambda n, seed, weights: tp.from_edges([(i, i // 2) for i in range(1, n)], n, weights),
}
