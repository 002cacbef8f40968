import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import topology as tp
from tests.support.trees import random_tree

RING4 = [[0.4, 0.3, 0, 0.3], [0.3, 0.4, 0.3, 0], [0, 0.3, 0.4, 0.3], [0.3, 0, 0.3, 0.4]]


@settings(deadline=None)
@given(st.integers(2, 25), st.integers(0, 100))
def test_metropolis_and_max_degree_follow_their_formulas(n, seed):
    tree = random_tree(n, seed=seed)
    metropolis, max_degree = tp.from_networkx(tree), tp.from_networkx(tree, "max_degree")
    degree = dict(tree.degree)
    for i, j in tree.edges:
        assert metropolis.W[i, j] == pytest.approx(1 / (max(degree[i], degree[j]) + 1))
        assert max_degree.W[i, j] == pytest.approx(1 / (max(degree.values()) + 1))
    assert metropolis.edges == max_degree.edges == tuple(sorted(map(tuple, map(sorted, tree.edges))))


def test_all_simple_rules_agree_on_regular_graphs():
    for graph in (tp.ring(9), tp.torus(12), tp.hypercube(8), tp.complete(5), tp.ring(1)):
        for rule in ("max_degree", "max-degree", "uniform"):
            made = tp.make(f"{graph.name}@{rule}", graph.n)
            assert isinstance(made, tp.Topology)
            assert np.array_equal(made.W, graph.W)


def test_the_rule_is_part_of_the_name():
    names = [tp.ring(4, weights).name for weights in ("metropolis", "max-degree", "fastest", RING4)]
    assert names == ["ring", "ring@max_degree", "ring@fastest", "ring@given"]


def test_numbers_may_be_given_as_a_matrix_or_for_each_edge():
    pairs = {(0, 1): 0.3, (2, 1): 0.3, (2, 3): 0.3, (0, 3): 0.3, (3, 0): 0.3}
    for weights in (RING4, np.array(RING4), pairs):
        assert np.allclose(tp.ring(4, weights).W, RING4, rtol=0, atol=1e-15)


def test_an_edge_of_weight_zero_is_no_edge():
    graph = tp.ring(3, {(0, 1): 0.5, (1, 2): 0.5, (0, 2): 0.0})
    assert graph.edges == ((0, 1), (1, 2))
    assert graph.weights(1) == {0: 0.5, 1: 0.0, 2: 0.5}


def test_rounding_does_not_make_an_own_weight_negative():
    weights = {(0, j): 0.1 + 1e-12 for j in range(1, 11)}
    assert tp.star(11, weights).W[0, 0] == 0.0


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("fastes", r"unknown weights 'fastes': did you mean 'fastest'\? There are also metropolis"),
        ("given", r"weights='given' needs the numbers: pass a matrix or a mapping"),
        (np.eye(3), r"the weights are \(3, 3\), but 4 workers need a 4x4 matrix"),
        (
            np.full((4, 4), 0.25),
            r"\(0, 2\) has the weight 0.25 but is no edge: add the edge or drop the weight",
        ),
        (np.array(RING4) + np.diag([0.1, 0, 0], 1), r"W\[0, 1\] is 0.4 but W\[1, 0\] is 0.3"),
        ({(0, 2): 0.1}, r"edge \(0, 1\) has no weight: give every edge one"),
        (
            {(0, 1): 0.2, (1, 2): 0.2, (2, 3): 0.2, (3, 0): 0.2, (1, 3): 0.2},
            r"\(1, 3\) has the weight 0.2 but is no edge",
        ),
        (
            {(0, 1): 0.2, (1, 0): 0.3, (1, 2): 0.2, (2, 3): 0.2, (3, 0): 0.2},
            r"W\[0, 1\] is 0.2 but W\[1, 0\] is 0.3",
        ),
        ({(0, 1): 0.2, (1, 2): -0.2, (2, 3): 0.2, (3, 0): 0.2}, r"W\[1, 2\] is -0.2"),
        (
            {(0, 1): 0.7, (1, 2): 0.7, (2, 3): 0.2, (3, 0): 0.2},
            r"edges of worker 1 weigh 1.4 in all: lower them",
        ),
        ({(0, 1): math.inf, (1, 2): 0.2, (2, 3): 0.2, (3, 0): 0.2}, r"edges of worker 0 weigh inf"),
        ({(0, 0): 0.5}, r"no weight can be given to \(0, 0\): pairs join two of the workers 0 to 3"),
        ({(0, 4): 0.5}, r"no weight can be given to \(0, 4\)"),
        ({(0, 1.0): 0.5}, r"no weight can be given to \(0, 1.0\)"),
    ],
)
def test_weights_that_do_not_fit_a_ring_of_four_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        tp.ring(4, weights)


def test_uniform_weights_need_equal_degrees():
    with pytest.raises(ValueError, match=r"run from 1 to 3: use weights='metropolis'"):
        tp.star(4, "uniform")
