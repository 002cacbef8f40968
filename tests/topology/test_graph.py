import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import topology as tp
from gossamer.topology import Topology
from tests.support.graphs import BUILDERS

HALF = np.full((2, 2), 0.5)
CIRCLE = np.roll(np.eye(4), 1, axis=0)  # worker i sends to i + 1


@settings(deadline=None)
@given(st.sampled_from(sorted(BUILDERS)), st.integers(1, 20))
def test_weights_senders_and_receivers_are_rows_and_columns(name, n):
    graph = BUILDERS[name](n, 0, "metropolis")
    for rank in range(graph.n):
        weights = graph.weights(rank)
        row = np.zeros(graph.n)
        row[list(weights)] = list(weights.values())
        assert np.array_equal(row, graph.W[rank])
        assert list(weights) == sorted({rank, *graph.senders(rank)})
        assert graph.senders(rank) == graph.receivers(rank)
        assert len(graph.senders(rank)) == graph.degrees[rank]
        assert rank not in graph.senders(rank)


def test_numbers_are_plain_python():
    graph = tp.ring(4)
    assert {type(j) for edge in graph.edges for j in edge} == {int}
    assert {type(j) for j in (*graph.senders(0), *graph.receivers(0), *graph.degrees, *graph.weights(0))} == {
        int
    }
    assert {type(weight) for weight in graph.weights(0).values()} == {float}


def test_directed_graphs_tell_senders_from_receivers():
    graph = Topology("circle", (np.eye(4) + CIRCLE) / 2, directed=True)
    assert graph.senders(0) == (3,)
    assert graph.receivers(0) == (1,)
    assert graph.weights(0) == {0: 0.5, 3: 0.5}
    assert graph.edges == ((0, 1), (1, 2), (2, 3), (3, 0))
    assert graph.diameter == 3


def test_the_own_weight_is_there_even_when_it_is_zero():
    graph = Topology("circle", CIRCLE, directed=True)
    assert graph.weights(1) == {0: 1.0, 1: 0.0}
    assert graph.senders(1) == (0,)


def test_a_constant_graph_is_the_same_in_every_round():
    graph = tp.star(4)
    assert not graph.varying
    assert graph.at(17) is graph
    assert graph.weights(2, 17) == graph.weights(2)
    assert graph.senders(2, round=3) == graph.senders(2)


def test_diameters_and_degrees():
    assert [tp.ring(n).diameter for n in (1, 2, 5, 8)] == [0, 1, 2, 4]
    assert tp.hypercube(16).diameter == 4
    assert tp.star(5).degrees == (4, 1, 1, 1, 1)


def test_a_round_in_pieces_has_no_diameter():
    with pytest.raises(ValueError, match=r"no diameter.*disconnected"):
        _ = tp.from_edges([(0, 1)], n=3, partial=True).diameter


def test_nothing_can_be_changed():
    given_matrix = HALF.copy()
    graph = Topology("pair", given_matrix)
    given_matrix[0, 0] = 7
    assert np.array_equal(graph.W, HALF)
    with pytest.raises(ValueError, match="read-only"):
        graph.W[0, 0] = 1
    with pytest.raises(FrozenInstanceError):
        graph.name = "other"  # type: ignore[misc]


def test_rounding_is_removed_from_mirrored_weights():
    W = HALF + np.array([[0, 1e-12], [0, 0]])
    graph = Topology("pair", W)
    assert graph.W[0, 1] == graph.W[1, 0]


@pytest.mark.parametrize("method", [Topology.weights, Topology.senders, Topology.receivers])
@pytest.mark.parametrize("rank", [-1, 4, 1.0, True])
def test_workers_that_do_not_exist_are_refused(rank, method):
    with pytest.raises(ValueError, match=r"ring has the workers 0 to 3"):
        method(tp.ring(4), rank)


@pytest.mark.parametrize(
    ("W", "directed", "message"),
    [
        (np.ones((2, 3)), False, r"W is 2x3: a mixing matrix needs one row and one column per worker"),
        (np.ones(3), False, r"W is 3: a mixing matrix"),
        (1.0, False, r"W is a single number"),
        (np.ones((0, 0)), False, r"W is 0x0"),
        ([[0.5, np.nan], [0.5, 0.5]], False, r"W\[0, 1\] is nan: weights must be finite and not negative"),
        ([[1.2, -0.2], [-0.2, 1.2]], False, r"W\[0, 1\] is -0.2"),
        ([[0.5, 0.5], [0.4, 0.6]], False, r"W\[0, 1\] is 0.5 but W\[1, 0\] is 0.4: make the two equal"),
        ([[0.5, 0.4], [0.4, 0.6]], False, r"row 0 of W sums to 0.9, not 1"),
        ([[0.5, 0.5], [0.4, 0.6]], True, r"column 0 of W sums to 0.9, not 1"),
        (np.eye(3), False, r"the graph is disconnected, in 3 components: \{0\}, \{1\}, \{2\}; add edges"),
        (np.eye(2), True, r"disconnected"),
    ],
)
def test_matrices_that_do_not_mix_are_refused(W, directed, message):
    with pytest.raises(ValueError, match=message):
        Topology("bad", W, directed=directed)


def test_long_lists_of_components_are_cut_short():
    edges = [(i, i + 1) for i in range(19)]
    with pytest.raises(
        ValueError, match=r"\{0, 1, 2, 3, 4, 5, 6, 7 and 12 more\}, \{20\}, \{21\}, \{22\} and 7 more;"
    ):
        tp.from_edges(edges, n=30)


def test_fingerprints_tell_matrices_apart_and_ignore_names():
    ring = tp.ring(6)
    assert ring.fingerprint() == Topology("other", ring.W).fingerprint()
    assert ring.fingerprint() == pickle.loads(pickle.dumps(ring)).fingerprint()  # noqa: S301
    others = [
        ring,
        tp.ring(7),
        tp.chain(6),
        tp.ring(6, "fastest"),
        Topology("ring", ring.W, directed=True),
    ]
    assert len({graph.fingerprint() for graph in others}) == len(others)
    assert len(ring.fingerprint()) == 16
    int(ring.fingerprint(), 16)


def test_fingerprints_are_the_same_on_every_machine():
    assert tp.complete(2).fingerprint() == "5dc5609965d8d3ee"


def test_a_graph_prints_on_one_line():
    assert repr(tp.torus(6)) == "Topology('torus:2x3', n=6, directed=False)"
