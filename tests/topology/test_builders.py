import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import topology as tp
from gossamer.testing import check_topology
from tests.support.graphs import BUILDERS

workers = st.integers(1, 40)
seeds = st.integers(0, 1000)
builders = st.sampled_from(sorted(BUILDERS))
rules = st.sampled_from(["metropolis", "max_degree"])

# Who is joined to whom, written down a second time.
JOINED = {
    "ring": lambda n, i, j: (i - j) % n in {1, n - 1},
    "chain": lambda n, i, j: abs(i - j) == 1,
    "star": lambda n, i, j: 0 in {i, j},
    "complete": lambda n, i, j: True,
    "exponential": lambda n, i, j: any((i - j) % n == 2**k or (j - i) % n == 2**k for k in range(n)),
    "hypercube": lambda n, i, j: (i ^ j).bit_count() == 1,
}


@settings(deadline=None)
@given(builders, workers, seeds, rules)
def test_every_graph_is_symmetric_doubly_stochastic_and_connected(name, n, seed, rule):
    graph = BUILDERS[name](n, seed, rule)
    W = graph.W
    assert np.array_equal(W, W.T)
    assert np.allclose(W.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert W.min() >= 0
    assert W.diagonal().min() > 0
    assert nx.is_connected(nx.from_numpy_array(W))
    assert 0 < graph.spectrum.gap <= 1


@settings(deadline=None)
@given(builders, workers, seeds, rules)
def test_every_graph_is_a_pure_function_of_its_arguments(name, n, seed, rule):
    first, second = (BUILDERS[name](n, seed, rule) for _ in range(2))
    assert np.array_equal(first.W, second.W)
    assert first.name == second.name
    assert first.fingerprint() == second.fingerprint()


@settings(deadline=None)
@given(st.sampled_from(sorted(JOINED)), workers)
def test_edges_are_where_the_definition_puts_them(name, n):
    graph = BUILDERS[name](n, 0, "metropolis")
    n = graph.n
    expected = tuple((i, j) for i in range(n) for j in range(i + 1, n) if JOINED[name](n, i, j))
    assert graph.edges == expected


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 6))
def test_lattices_have_their_rows_and_columns(rows, columns):
    n = rows * columns
    flat, wrapped = tp.grid(n, rows), tp.torus(n, rows)
    for a in range(n):
        for b in range(a + 1, n):
            down, right = b // columns - a // columns, b % columns - a % columns
            assert ((a, b) in flat.edges) == (abs(down) + abs(right) == 1)
            around = min(down % rows, -down % rows) + min(right % columns, -right % columns)
            assert ((a, b) in wrapped.edges) == (around == 1)


@pytest.mark.parametrize(
    ("n", "shape"), [(1, "1x1"), (2, "1x2"), (4, "2x2"), (7, "1x7"), (8, "2x4"), (36, "6x6")]
)
def test_lattices_are_as_square_as_they_can_be(n, shape):
    assert tp.torus(n).name == f"torus:{shape}"
    assert tp.grid(n).name == f"grid:{shape}"


def test_a_torus_of_a_prime_number_is_a_ring():
    assert np.array_equal(tp.torus(7).W, tp.ring(7).W)


@pytest.mark.parametrize("name", ["ring", "chain", "torus", "grid", "star", "complete", "exponential"])
def test_one_worker_is_alone_and_two_share_an_edge(name):
    build = getattr(tp, name)
    assert build(1).edges == ()
    assert np.array_equal(build(1).W, [[1.0]])
    assert build(2).edges == ((0, 1),)
    assert np.array_equal(build(2).W, [[0.5, 0.5], [0.5, 0.5]])


def test_tiny_hypercubes_and_random_graphs():
    assert tp.hypercube(1).n == 1
    assert tp.hypercube(2).edges == ((0, 1),)
    assert tp.random_regular(1, degree=0).n == 1
    assert tp.random_regular(2, degree=1).edges == ((0, 1),)
    assert tp.small_world(3, neighbours=2).edges == ((0, 1), (0, 2), (1, 2))


@settings(deadline=None)
@given(st.integers(3, 40), st.integers(2, 6), seeds)
def test_random_regular_graphs_are_regular(n, degree, seed):
    degree = min(degree, n - 1)
    degree -= n * degree % 2
    assert set(tp.random_regular(n, degree, seed).degrees) == {degree}


def test_random_graphs_change_with_their_seed():
    assert tp.random_regular(20, seed=0).edges != tp.random_regular(20, seed=1).edges
    assert tp.small_world(20, seed=0).edges != tp.small_world(20, seed=1).edges


def test_random_regular_graphs_are_redrawn_until_connected():
    # Most 2-regular graphs of 12 workers fall into several rings.
    assert all(tp.random_regular(12, 2, seed).diameter == 6 for seed in range(20))


def test_a_small_world_without_rewiring_is_a_ring_of_nearest_neighbours():
    assert tp.small_world(9, 4, rewire=0).edges == tuple(sorted(nx.circulant_graph(9, [1, 2]).edges))


def test_the_social_graph_has_women_first():
    graph = tp.social()
    assert graph.n == 32
    assert len(graph.edges) == 89
    assert all(i < 18 <= j for i, j in graph.edges)


@pytest.mark.parametrize("n", [0, -1, 2.0, "4", None, True])
@pytest.mark.parametrize("name", [name for name in BUILDERS if name not in {"social", "from_edges"}])
def test_impossible_numbers_of_workers_are_refused(name, n):
    with pytest.raises(ValueError, match="number of workers must be a whole number of at least 1"):
        getattr(tp, name)(n)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tp.torus(7, rows=3), r"a 3x3 torus has 9 workers, not 7: the number of rows can be 1, 7"),
        (lambda: tp.grid(8, rows=9), r"a 9x1 grid has 9 workers, not 8"),
        (lambda: tp.grid(8, rows=0), r"rows of a grid must be a whole number of at least 1, not 0"),
        (lambda: tp.hypercube(6), r"not 6: use 4 or 8"),
        (lambda: tp.social(8), r"has 32 workers, not 8: start 32, or use small-world"),
        (lambda: tp.random_regular(5, 3), r"15/2 edges: use an even number of workers, or degree 2 or 4"),
        (lambda: tp.random_regular(5, 1), r"or degree 2$"),
        (lambda: tp.random_regular(4, 4), r"whole number below the number of workers, 4"),
        (lambda: tp.random_regular(4, 2.0), r"whole number below the number of workers, 4"),  # type: ignore[arg-type]
        (lambda: tp.random_regular(4, 1), r"cannot be connected: use a degree of at least 2"),
        (lambda: tp.random_regular(2, 0), r"cannot be connected: use a degree of at least 1"),
        (lambda: tp.small_world(8, 3), r"neighbours must be 2, 4, 6, .* not 3"),
        (lambda: tp.small_world(4, 4), r"4 neighbours need more than 4 workers, not 4: lower neighbours"),
        (lambda: tp.small_world(8, 4, 1.5), r"rewire is a probability between 0 and 1, not 1.5"),
        (lambda: tp.small_world(8, 4, math.nan), r"rewire is a probability"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_a_remedy(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_large_graph_keeps_the_contract():
    check_topology(tp.ring(300))


@pytest.mark.parametrize("name", ["random-regular", "Small_World"])
@pytest.mark.parametrize("n", range(1, 8))
def test_small_random_graphs_keep_the_contract(name, n):
    check_topology(tp.make(name, n))
