"""Which edges the living want: the same at both ends, connected, and never more weight than there is."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer._mesh.wiring import Wiring
from gossamer.topology import from_networkx, make
from tests.support.graphs import BUILDERS

ANY_SIZE = sorted(BUILDERS.keys() - {"hypercube", "small_world", "social"})


@st.composite
def graphs(draw):
    """Return a connected graph: one of those that have names, or a random one."""
    n = draw(st.integers(2, 14))
    if draw(st.booleans()):
        return BUILDERS[draw(st.sampled_from(ANY_SIZE))](n, draw(st.integers(0, 99)), "metropolis")
    tree = [(i, draw(st.integers(0, i - 1))) for i in range(1, n)]
    more = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=2 * n))
    graph = nx.Graph([*tree, *((i, j) for i, j in more if i != j)])
    graph.add_nodes_from(range(n))
    return from_networkx(graph)


def wanted(graph, ids, alive):
    """Return what each living member wants."""
    wiring = Wiring(lambda n: graph)
    return {me: wiring.edges(me, ids, frozenset(alive)) for me in alive}


@given(graphs(), st.data())
def test_whoever_is_gone_the_living_agree_on_a_connected_graph(graph, draws):
    ids = sorted(draws.draw(st.sets(st.integers(0, 1 << 33), min_size=graph.n, max_size=graph.n)))
    alive = draws.draw(st.sets(st.sampled_from(ids), min_size=1))
    edges = wanted(graph, draws.draw(st.permutations(ids)), alive)
    for me, row in edges.items():
        assert me not in row
        assert row.keys() <= alive
        assert all(me in edges[peer] for peer in row), "an edge is wanted by both ends or by none"
        assert all(weight > 0 for weight in row.values())
        assert sum(row.values()) <= 1 + 1e-12, "what is left for a worker itself is not negative"
    found = nx.Graph((me, peer) for me, row in edges.items() for peer in row)
    found.add_nodes_from(alive)
    assert nx.is_connected(found)


@given(graphs())
def test_with_all_alive_it_is_the_graph_itself_to_the_bit(graph):
    for me, row in wanted(graph, range(graph.n), range(graph.n)).items():
        whole = graph.weights(me)
        del whole[me]
        assert row == whole


@given(st.integers(4, 12), st.data())
def test_a_ring_without_some_is_a_ring(n, draws):
    """In the order that it had, and with the weights that a ring has."""
    alive = sorted(draws.draw(st.sets(st.integers(0, n - 1), min_size=3)))
    for at, me in enumerate(alive):
        both = {alive[at - 1], alive[(at + 1) % len(alive)]}
        row = wanted(make("ring", n, 0), range(n), alive)[me]
        assert row.keys() == both
        assert all(weight == pytest.approx(1 / 3) for weight in row.values())


def test_two_of_a_ring_share_what_both_had():
    assert wanted(make("ring", 6, 0), range(6), [1, 4]) == {
        1: {4: pytest.approx(2 / 3)},
        4: {1: pytest.approx(2 / 3)},
    }


def test_without_its_centre_a_star_is_a_ring_of_its_leaves():
    row = wanted(make("star", 5, 0), range(5), range(1, 5))
    assert {me: set(peers) for me, peers in row.items()} == {1: {2, 4}, 2: {1, 3}, 3: {2, 4}, 4: {1, 3}}


def test_who_is_alone_wants_nothing():
    assert wanted(make("complete", 4, 0), range(4), [2]) == {2: {}}
