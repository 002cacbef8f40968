"""Mixing weights: how much each worker takes from each neighbour.

A rule turns the links of an undirected graph into a symmetric matrix of edge weights; what the
edges of a worker leave of 1 is its own weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import networkx as nx
import numpy as np

from gossamer._suggest import unknown_name
from gossamer.topology.check import is_integer
from gossamer.topology.fastest import fastest
from gossamer.topology.graph import TOLERANCE, Links, Matrix, Topology

Weights = str | Matrix | Sequence[Sequence[float]] | Mapping[tuple[int, int], float]


def metropolis(links: Links) -> Matrix:
    """1/(max(deg_i, deg_j) + 1): the Metropolis-Hastings chain, with only local knowledge.

    Xiao, Boyd, Lall 2005, "A scheme for robust distributed sensor fusion based on average consensus".
    """
    degrees = links.sum(axis=1)
    return np.asarray(links / (1.0 + np.maximum.outer(degrees, degrees)))


def max_degree(links: Links) -> Matrix:
    """1/(largest degree + 1) on every edge.

    Boyd, Diaconis, Xiao 2004, but for the + 1, which leaves every worker a positive own weight.
    """
    return np.asarray(links / (1.0 + links.sum(axis=1).max()))


def uniform(links: Links) -> Matrix:
    """1/(deg + 1), which is doubly stochastic only where all degrees are equal."""
    degrees = links.sum(axis=1)
    if degrees.min() != degrees.max():
        raise ValueError(
            f"uniform weights need equal degrees, and these run from {degrees.min()} to {degrees.max()}: "
            "use weights='metropolis'"
        )
    return max_degree(links)


RULES: dict[str, Callable[[Links], Matrix]] = {
    "metropolis": metropolis,
    "max_degree": max_degree,
    "uniform": uniform,
    "fastest": fastest,
}
RULE_NAMES = (*RULES, "given")


def rule_name(weights: str) -> str:
    """Spell a rule as in RULE_NAMES, or refuse it."""
    name = weights.replace("-", "_")
    if name not in RULE_NAMES:
        raise unknown_name("weights", weights, RULE_NAMES)
    return name


def weigh(name: str, graph: nx.Graph, weights: Weights, *, partial: bool = False) -> Topology:
    """Give a networkx graph on the nodes 0 to n-1 its weights; they show in the name, unless Metropolis."""
    rule = rule_name(weights) if isinstance(weights, str) else "given"
    suffix = "" if rule == "metropolis" else f"@{rule}"
    return Topology(name + suffix, mixing_matrix(graph, weights), partial=partial)


def mixing_matrix(graph: nx.Graph, weights: Weights) -> Matrix:
    """Return W for a networkx graph on the nodes 0 to n-1, by a rule or from explicit numbers."""
    links = nx.to_numpy_array(graph, nodelist=range(len(graph)), weight=None) > 0
    if isinstance(weights, str):
        rule = rule_name(weights)
        if rule == "given":
            raise ValueError("weights='given' needs the numbers: pass a matrix or a mapping {(i, j): weight}")
        return _with_own(RULES[rule](links))
    if isinstance(weights, Mapping):
        return _with_own(_from_mapping(links, weights))
    return _from_matrix(links, weights)


def _with_own(edge_weights: Matrix) -> Matrix:
    """Put on the diagonal what each worker's edges leave of 1."""
    own = 1.0 - edge_weights.sum(axis=1)
    short = np.flatnonzero(own < -TOLERANCE)
    if len(short):
        raise ValueError(
            f"the edges of worker {short[0]} weigh {1 - own[short[0]]:.6g} in all: "
            "lower them to 1 or less, the rest is its own weight"
        )
    return edge_weights + np.diag(np.maximum(own, 0.0))


def _from_matrix(links: Links, weights: Matrix | Sequence[Sequence[float]]) -> Matrix:
    W = np.array(weights, dtype=np.float64)
    if W.shape != links.shape:
        n = len(links)
        raise ValueError(f"the weights are {W.shape}, but {n} workers need a {n}x{n} matrix")
    _check_on_edges(links, W)
    return W


def _from_mapping(links: Links, weights: Mapping[tuple[int, int], float]) -> Matrix:
    n = len(links)
    W = np.full(links.shape, np.nan)  # nan: not given
    for (i, j), weight in weights.items():
        if not (is_integer(i) and is_integer(j) and 0 <= i < n and 0 <= j < n and i != j):
            raise ValueError(
                f"no weight can be given to ({i}, {j}): pairs join two of the workers 0 to {n - 1}"
            )
        W[i, j] = weight
    W = np.where(np.isnan(W), W.T, W)
    missing = np.argwhere(links & np.isnan(W))
    if len(missing):
        raise ValueError(f"edge ({missing[0][0]}, {missing[0][1]}) has no weight: give every edge one")
    W[np.isnan(W)] = 0.0
    _check_on_edges(links, W)
    return W


def _check_on_edges(links: Links, W: Matrix) -> None:
    stray = np.argwhere((W != 0) & ~links & ~np.eye(len(W), dtype=bool))
    if len(stray):
        i, j = stray[0]
        raise ValueError(
            f"({i}, {j}) has the weight {W[i, j]} but is no edge: add the edge or drop the weight"
        )
