"""Graphs drawn once, from a seed."""

from __future__ import annotations

import random

import networkx as nx

from gossamer.topology.check import is_integer, worker_count
from gossamer.topology.graph import Topology
from gossamer.topology.weights import Weights, weigh


def random_regular(
    n: int, degree: int | None = None, seed: int = 0, weights: Weights = "metropolis"
) -> Topology:
    """Draw a connected graph in which every worker has `degree` neighbours: 3, or what n allows.

    Such graphs are expanders: their gap hardly shrinks with n (Friedman 2008).
    """
    n = worker_count(n)
    if degree is None:
        degree = min(3, n - 1) if n % 2 == 0 else min(4, n - 1)  # an odd n has no graph of odd degree
    _check_degree(n, degree)
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    graph = nx.random_regular_graph(degree, n, seed=rng)
    while not nx.is_connected(graph):  # a connected draw comes with a fair chance from degree 2 on
        graph = nx.random_regular_graph(degree, n, seed=rng)
    return weigh(f"random-regular:{degree}", graph, weights)


def small_world(
    n: int, neighbours: int | None = None, rewire: float = 0.1, seed: int = 0, weights: Weights = "metropolis"
) -> Topology:
    """Draw a ring with `neighbours` nearest neighbours (4), each edge rewired with probability `rewire`.

    Watts, Strogatz 1998, "Collective dynamics of small-world networks", redrawn until connected.
    """
    n = worker_count(n)
    if neighbours is None and n < 3:
        return weigh("small-world", nx.path_graph(n), weights)
    if neighbours is None:
        neighbours = min(4, (n - 1) // 2 * 2)
    if not is_integer(neighbours) or neighbours % 2 or neighbours < 2:
        raise ValueError(f"neighbours must be 2, 4, 6, ..., half of them on each side, not {neighbours!r}")
    if neighbours >= n:
        raise ValueError(
            f"{neighbours} neighbours need more than {neighbours} workers, not {n}: "
            "lower neighbours, or use the complete graph"
        )
    if not 0 <= rewire <= 1:
        raise ValueError(f"rewire is a probability between 0 and 1, not {rewire!r}")
    # The least likely case, 2 neighbours, still has a chance of about 5/sqrt(n) to be connected.
    graph = nx.connected_watts_strogatz_graph(n, neighbours, rewire, tries=10_000, seed=seed)
    return weigh(f"small-world:{neighbours}:{rewire}", graph, weights)


def _check_degree(n: int, degree: int) -> None:
    if not is_integer(degree) or not 0 <= degree < n:
        raise ValueError(
            f"the degree must be a whole number below the number of workers, {n}, not {degree!r}"
        )
    if n * degree % 2:
        fitting = " or ".join(str(even) for even in (degree - 1, degree + 1) if 2 <= even < n)
        raise ValueError(
            f"{n} workers of degree {degree} would have {n * degree}/2 edges: "
            f"use an even number of workers, or degree {fitting}"
        )
    least = min(2, n - 1)
    if degree < least:
        raise ValueError(
            f"{n} workers of degree {degree} cannot be connected: use a degree of at least {least}"
        )
