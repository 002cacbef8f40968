"""Graphs that the user brings: as edges, as a networkx graph or as a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated

import networkx as nx

from gossamer._options import Option
from gossamer.topology.check import is_integer, worker_count
from gossamer.topology.graph import Topology
from gossamer.topology.weights import Weights, weigh

FilePath = Annotated[str, Option("PATH", str, rest=True)]
_Row = tuple[str, Sequence[float]]  # where an edge was read, for messages, and (i, j) or (i, j, weight)


def from_edges(
    edges: Iterable[Sequence[float]],
    n: int | None = None,
    weights: Weights | None = None,
    *,
    partial: bool = False,
) -> Topology:
    """Build a graph from pairs (i, j), or from triples (i, j, weight); own weights are what is left of 1.

    Without `weights`, triples keep their numbers and pairs get Metropolis weights; without `n`,
    the largest worker that occurs is the last one. `partial` allows it to be disconnected, as
    one graph of a cycle may be.
    """
    graph = _graph(((f"edge {k}", tuple(edge)) for k, edge in enumerate(edges)), n)
    return _weighed("edges", graph, weights, partial=partial)


def from_networkx(graph: nx.Graph, weights: Weights = "metropolis") -> Topology:
    """Take a networkx graph; its nodes become workers in sorted order.

    The edge attribute "weight" counts only with weights="given": in most graphs it means
    something other than a mixing weight.
    """
    if graph.is_directed() or graph.is_multigraph():
        raise ValueError(
            "the graph must be undirected and without parallel edges: pass networkx.Graph(graph)"
        )
    try:
        workers = {node: k for k, node in enumerate(sorted(graph.nodes))}
    except TypeError as error:
        raise ValueError("the nodes cannot be sorted: relabel them, for instance 0 to n-1") from error
    attributes = ["weight"] if isinstance(weights, str) and weights == "given" else []
    rows = (
        (f"edge {u!r}-{v!r}", (workers[u], workers[v], *(data[key] for key in attributes if key in data)))
        for u, v, data in graph.edges(data=True)
    )
    return _weighed("networkx", _graph(rows, len(workers)), weights)


def from_file(path: str | PathLike[str], n: int | None = None, weights: Weights | None = None) -> Topology:
    """Read a text file of one edge per line, `i j` or `i j weight`; `#` starts a comment.

    Without `weights`, the numbers in the file are used, or Metropolis weights if it has none.
    """
    try:
        return _weighed(f"file:{path}", _graph(_read(Path(path)), n), weights)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def file(n: int, path: FilePath = "", weights: Weights | None = None) -> Topology:
    """Read the edges from a file, one per line."""
    if not path:
        raise ValueError("file needs a path: write file:PATH")
    return from_file(path, n, weights)


def _read(path: Path) -> Iterator[_Row]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.partition("#")[0].split()
        try:
            row = (*map(int, fields[:2]), *map(float, fields[2:]))
        except ValueError:
            raise ValueError(
                f"line {number}: cannot read {line.strip()!r}, write `i j` or `i j weight`"
            ) from None
        if fields:
            yield f"line {number}", row


def _graph(rows: Iterable[_Row], n: int | None) -> nx.Graph:
    """Collect edges into a graph on 0 to n-1; it has the attribute "weight" if they carry one."""
    graph = nx.Graph()
    if n is not None:
        graph.add_nodes_from(range(worker_count(n)))
    length = None
    for where, row in rows:
        _check_row(where, row, n)
        if length not in {None, len(row)}:
            raise ValueError(
                f"{where}: some edges carry a weight and some do not; give one to all, or to none"
            )
        length = len(row)
        _add(graph, where, *row)
    if not graph:
        raise ValueError("there are no edges: pass n, the number of workers, or some edges")
    graph.add_nodes_from(range(max(graph)))
    return graph


def _add(graph: nx.Graph, where: str, i: float, j: float, *weight: float) -> None:
    attributes = dict(zip(["weight"], weight, strict=False))
    before = graph.get_edge_data(i, j, default=attributes)
    if before != attributes:  # an edge written twice is harmless, two weights for it are not
        raise ValueError(
            f"{where}: the edge ({i}, {j}) weighs {weight[0]} here and {before['weight']} before; "
            "both ends use one number, keep one of the two"
        )
    graph.add_edge(i, j, **attributes)


def _check_row(where: str, row: Sequence[float], n: int | None) -> None:
    if len(row) not in {2, 3}:
        raise ValueError(f"{where}: {row} is not an edge, write (i, j) or (i, j, weight)")
    i, j, *weight = row
    if not (is_integer(i) and is_integer(j) and min(i, j) >= 0):
        raise ValueError(f"{where}: ({i!r}, {j!r}) must be two whole numbers from 0 on")
    if n is not None and max(i, j) >= n:
        raise ValueError(f"{where}: ({i}, {j}) leaves the workers 0 to {n - 1}; raise n or renumber")
    if i == j:
        raise ValueError(
            f"{where}: ({i}, {j}) joins a worker to itself; drop it, own weights are what is left of 1"
        )
    if any(not math.isfinite(number) or number < 0 for number in weight):
        raise ValueError(f"{where}: the weight {weight[0]} must be finite and not negative")


def _weighed(name: str, graph: nx.Graph, weights: Weights | None, *, partial: bool = False) -> Topology:
    numbers: dict[tuple[int, int], float] = nx.get_edge_attributes(graph, "weight")
    if weights is None:
        weights = "given" if numbers else "metropolis"
    if isinstance(weights, str) and weights == "given":
        weights = numbers
    return weigh(name, graph, weights, partial=partial)
