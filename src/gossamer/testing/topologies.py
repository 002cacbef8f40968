"""The contract of a topology."""

from __future__ import annotations

import numpy as np

from gossamer.topology import Schedule, Topology


def check_topology(topology: Topology | Schedule, rounds: int = 64) -> None:
    """Raise an AssertionError if a graph breaks what algorithms rely on.

    In every round: each row and column of W sums to 1, nothing is negative, W is symmetric unless
    the graph says that it is directed, senders and receivers match, a worker's weights are its
    row of W, and asking twice gives the same answer. Over all rounds the graph is connected.

    Args:
        topology: The graph to check.
        rounds: How many rounds of a changing graph are checked.

    Raises:
        AssertionError: The first thing that is wrong.

    Example:
        >>> from gossamer import topology
        >>> from gossamer.testing import check_topology
        >>> check_topology(topology.from_edges([(0, 1), (1, 2), (2, 0), (2, 3)]))
    """
    n = topology.n
    assert topology.fingerprint() == topology.fingerprint(), "the fingerprint changes"
    reach = np.eye(n, dtype=bool)
    for t in range(rounds if topology.varying else 1):
        W = topology.at(t).W
        _check_matrix(W, n, directed=topology.directed)
        assert np.array_equal(W, topology.at(t).W), f"round {t} differs when asked again"
        for i in range(n):
            _check_row(topology, W, i, t)
        reach |= (W > 0) | (W > 0).T
    for _ in range(n.bit_length()):  # twice the path length each time
        reach = reach.astype(float) @ reach > 0
    assert reach.all(), "some workers never reach each other"


def _check_matrix(W: np.ndarray, n: int, *, directed: bool) -> None:
    assert W.shape == (n, n), f"W is {W.shape} for {n} workers"
    assert (W >= 0).all(), "W has a negative weight"
    assert np.allclose(W.sum(1), 1, rtol=0, atol=1e-9), "a row of W does not sum to 1"
    assert np.allclose(W.sum(0), 1, rtol=0, atol=1e-9), "a column of W does not sum to 1"
    assert directed or np.allclose(W, W.T, rtol=0, atol=1e-12), "W is not symmetric, and not called directed"


def _check_row(topology: Topology | Schedule, W: np.ndarray, i: int, t: int) -> None:
    weights = topology.weights(i, t)
    assert list(weights) == sorted(weights), f"weights of worker {i} are not in rank order"
    assert i in weights, f"worker {i}'s own weight is missing"
    senders = topology.senders(i, t)
    assert senders == tuple(j for j in weights if j != i), (
        f"worker {i} receives from {senders} but weighs {list(weights)}"
    )
    for j, w in weights.items():
        assert w == W[i, j], f"w_{i}{j} is {w}, W has {W[i, j]}"
    assert all(i in topology.receivers(j, t) for j in senders), (
        f"worker {i} receives from a worker that does not send to it"
    )
    expecting = tuple(j for j in range(topology.n) if j != i and i in topology.senders(j, t))
    assert topology.receivers(i, t) == expecting, f"worker {i} sends to a worker that does not expect it"
