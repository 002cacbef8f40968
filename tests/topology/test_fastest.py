"""Boyd, Diaconis, Xiao 2004: known optima, and an independent optimiser."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from gossamer import topology as tp
from tests.support.trees import random_tree


def edge_weights(graph):
    return np.array([graph.W[i, j] for i, j in graph.edges])


def by_slsqp(graph):
    """The best gap that a general-purpose optimiser finds, from several starts."""
    n, edges = len(graph), sorted(map(sorted, graph.edges))
    ends = np.zeros((n, len(edges)))
    for k, (i, j) in enumerate(edges):
        ends[[i, j], k] = 1

    def norm(w):
        W = np.diag(1 - ends @ w)
        for k, (i, j) in enumerate(edges):
            W[i, j] = W[j, i] = w[k]
        return np.abs(np.linalg.eigvalsh(W - 1 / n)).max()

    def left(w):
        return 1 - ends @ w

    rng = np.random.default_rng(0)
    results = [
        minimize(
            norm,
            rng.uniform(0.5, 1, len(edges)) / ends.sum(axis=1).max(),
            method="SLSQP",
            bounds=[(0, 1)] * len(edges),
            constraints=[{"type": "ineq", "fun": left}],
            options={"maxiter": 500, "ftol": 1e-12},
        )
        for _ in range(6)
    ]
    return 1 - min(result.fun for result in results if left(result.x).min() > -1e-9)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 12])
def test_a_path_takes_one_half_on_every_edge(n):
    graph = tp.chain(n, "fastest")
    assert edge_weights(graph) == pytest.approx(0.5, abs=1e-4)
    assert graph.spectrum.gap == pytest.approx(1 - np.cos(np.pi / n), abs=1e-5)


def test_a_long_path():
    assert tp.chain(64, "fastest").spectrum.gap == pytest.approx(1 - np.cos(np.pi / 64), rel=1e-3)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 15, 32])
def test_a_ring_takes_the_best_constant(n):
    laplacian = np.sort(np.linalg.eigvalsh(nx.laplacian_matrix(nx.cycle_graph(n)).toarray().astype(float)))
    best = 2 / (laplacian[-1] + laplacian[1])
    assert best <= 0.5
    assert edge_weights(tp.ring(n, "fastest")) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_a_complete_graph_averages_at_once(n):
    assert np.allclose(tp.complete(n, "fastest").W, 1 / n)


def test_a_star_gives_its_centre_nothing():
    graph = tp.star(9, "fastest")
    assert edge_weights(graph) == pytest.approx(1 / 8, abs=1e-5)


CLIQUES = nx.barbell_graph(8, 0)


@pytest.mark.parametrize(
    ("graph", "better"),
    [
        (CLIQUES, 1.5),
        (nx.davis_southern_women_graph(), 1.5),
        (nx.lollipop_graph(6, 5), 1.2),
        (nx.wheel_graph(12), 1.2),
    ],
)
def test_the_fastest_weights_are_clearly_faster_on_irregular_graphs(graph, better):
    fastest, *others = (
        tp.from_networkx(graph, rule).spectrum.gap for rule in ("fastest", "metropolis", "max_degree")
    )
    assert fastest > better * max(others)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 20), st.integers(0, 1000), st.floats(0.1, 0.6))
def test_no_simple_rule_is_faster(n, seed, density):
    graph = nx.compose(random_tree(n, seed=seed), nx.gnp_random_graph(n, density, seed=seed))
    fastest, *others = (
        tp.from_networkx(graph, rule).spectrum.gap for rule in ("fastest", "metropolis", "max_degree")
    )
    assert fastest >= max(others) - 1e-5


@pytest.mark.parametrize(
    "graph",
    [
        nx.barbell_graph(3, 0),
        nx.lollipop_graph(4, 2),
        nx.house_x_graph(),
        nx.bull_graph(),
        random_tree(7, seed=3),
        nx.gnp_random_graph(7, 0.5, seed=2),
    ],
)
def test_an_independent_optimiser_finds_the_same_gap(graph):
    assert tp.from_networkx(graph, "fastest").spectrum.gap == pytest.approx(by_slsqp(graph), abs=1e-4)


def test_rows_sum_to_exactly_one_and_no_message_is_sent_for_nothing():
    graph = tp.social(weights="fastest")
    assert (graph.W.sum(axis=1) == 1).all()
    assert edge_weights(graph).min() > 1e-5
    assert len(graph.edges) < len(tp.social().edges)


def test_edges_that_look_alike_get_equal_weights():
    """All edges inside a clique that touch neither end of the bridge are the same to the graph."""
    W = tp.from_networkx(CLIQUES, "fastest").W
    inner = W[np.ix_(range(7), range(7))][~np.eye(7, dtype=bool)]
    assert np.ptp(inner) < 1e-7
    assert np.allclose(W, W[::-1, ::-1], rtol=0, atol=1e-7)


def test_sixty_four_workers():
    graph = tp.random_regular(64, 4, weights="fastest")
    assert graph.spectrum.gap > 1.3 * tp.random_regular(64, 4).spectrum.gap
