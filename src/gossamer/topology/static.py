"""Regular graphs, each a function of the number of workers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

import networkx as nx

from gossamer._options import Option
from gossamer.topology.check import is_integer, worker_count
from gossamer.topology.graph import Topology
from gossamer.topology.weights import Weights, weigh


def _sides(text: str) -> tuple[int, int]:
    rows, columns = text.split("x")
    return int(rows), int(columns)


Rows = Annotated[int | tuple[int, int] | None, Option("ROWSxCOLUMNS", _sides)]  # or both, to be checked


def ring(n: int, weights: Weights = "metropolis") -> Topology:
    """Each worker has two neighbours, on a circle."""
    return weigh("ring", _circulant(worker_count(n), [1]), weights)


def chain(n: int, weights: Weights = "metropolis") -> Topology:
    """Cut one edge of a ring."""
    return weigh("chain", nx.path_graph(worker_count(n)), weights)


def torus(n: int, rows: Rows = None, weights: Weights = "metropolis") -> Topology:
    """Join the opposite sides of a grid; as square as n allows unless `rows` is given."""
    return _lattice("torus", worker_count(n), rows, weights)


def grid(n: int, rows: Rows = None, weights: Weights = "metropolis") -> Topology:
    """Rows and columns; as square as n allows unless `rows` is given."""
    return _lattice("grid", worker_count(n), rows, weights)


def star(n: int, weights: Weights = "metropolis") -> Topology:
    """Worker 0 talks to all others, and they only to it."""
    return weigh("star", nx.star_graph(worker_count(n) - 1), weights)


def complete(n: int, weights: Weights = "metropolis") -> Topology:
    """Everyone talks to everyone: one round averages exactly."""
    return weigh("complete", nx.complete_graph(worker_count(n)), weights)


def exponential(n: int, weights: Weights = "metropolis") -> Topology:
    """Worker i talks to i ± 2^k: a logarithmic degree, and a gap that shrinks only as 1/log n.

    The undirected version of the graph in Assran, Loizou, Ballas, Rabbat 2019, arXiv:1811.10792,
    and Ying et al. 2021, arXiv:2110.13363.
    """
    n = worker_count(n)
    return weigh("exponential", _circulant(n, [2**k for k in range((n - 1).bit_length())]), weights)


def hypercube(n: int, weights: Weights = "metropolis") -> Topology:
    """Neighbours differ in one bit of their rank; n is a power of two."""
    n = worker_count(n)
    dimensions = n.bit_length() - 1
    if n != 2**dimensions:
        raise ValueError(
            f"a hypercube has 1, 2, 4, 8, ... workers, not {n}: "
            f"use {2**dimensions} or {2 ** (dimensions + 1)}, or the exponential graph"
        )
    graph = nx.empty_graph(n)
    graph.add_edges_from((i, i ^ 2**k) for i in range(n) for k in range(dimensions))
    return weigh("hypercube", graph, weights)


def social(n: int = 32, weights: Weights = "metropolis") -> Topology:
    """Who met whom at which event: 18 women and then 14 events of Davis, Gardner, Gardner 1941.

    The irregular graph of CHOCO-SGD's experiments (Koloskova et al. 2020, arXiv:1907.09356).
    """
    if worker_count(n) != 32:
        raise ValueError(
            f"the social graph has 32 workers, not {n}: start 32, or use small-world, which takes any number"
        )
    return weigh("social", nx.convert_node_labels_to_integers(nx.davis_southern_women_graph()), weights)


def check_shape(kind: str, rows: int, columns: int, n: int) -> None:
    """Refuse a lattice whose sides do not multiply to n."""
    if rows * columns != n:
        fitting = ", ".join(str(side) for side in range(1, n + 1) if n % side == 0)
        raise ValueError(
            f"a {rows}x{columns} {kind} has {rows * columns} workers, not {n}: "
            f"the number of rows can be {fitting}"
        )


def _lattice(kind: str, n: int, rows: Rows, weights: Weights) -> Topology:
    if isinstance(rows, tuple):
        check_shape(kind, *rows, n)
        rows = rows[0]
    if rows is None:
        rows = next(side for side in range(math.isqrt(n), 0, -1) if n % side == 0)
    if not is_integer(rows) or rows < 1:
        raise ValueError(f"the rows of a {kind} must be a whole number of at least 1, not {rows!r}")
    columns = -(-n // rows)
    check_shape(kind, rows, columns, n)
    graph = nx.grid_2d_graph(rows, columns, periodic=kind == "torus")
    return weigh(f"{kind}:{rows}x{columns}", nx.convert_node_labels_to_integers(graph), weights)


def remark(topology: Topology) -> str | None:
    """Return what people may not expect of a graph: a torus of a prime number of workers has one row."""
    if not topology.name.startswith("torus:1x") or topology.n < 3:
        return None
    return (
        f"a torus of {topology.n} workers has one row and is a ring: {topology.n} has no two factors. "
        f"Take another number of workers, or the exponential graph"
    )


def _circulant(n: int, offsets: Iterable[int]) -> nx.Graph:
    """Join i to i ± offset; an offset that leads back to i joins nothing."""
    return nx.circulant_graph(n, [offset for offset in offsets if offset % n])
