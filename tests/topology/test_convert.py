import math

import networkx as nx
import numpy as np
import pytest

from gossamer import topology as tp

PATH3 = [[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]]


def test_edges_get_metropolis_weights():
    graph = tp.from_edges([(0, 1), (1, 2), (2, 1)])
    assert graph.n == 3
    assert graph.name == "edges"
    assert np.array_equal(graph.W, tp.chain(3).W)


def test_triples_keep_their_weights_unless_a_rule_is_asked_for():
    edges = [(0, 1, 0.5), (1, 2, 0.25), (2, 1, 0.25)]
    assert np.array_equal(tp.from_edges(edges).W, PATH3)
    assert np.array_equal(tp.from_edges(edges, weights="given").W, PATH3)
    assert np.array_equal(tp.from_edges(edges, weights="metropolis").W, tp.chain(3).W)


def test_one_worker_needs_no_edges():
    assert tp.from_edges([], n=1).n == 1


def test_numpy_edges():
    assert tp.from_edges(np.array([[0, 1], [1, 2]])).edges == ((0, 1), (1, 2))


@pytest.mark.parametrize(
    ("edges", "n", "message"),
    [
        ([], None, r"there are no edges: pass n"),
        ([(0, 1)], 0, r"number of workers"),
        ([(0, 1), (0, 1, 2, 3)], None, r"edge 1: \(0, 1, 2, 3\) is not an edge, write \(i, j\)"),
        ([(0, "a")], None, r"edge 0: \(0, 'a'\) must be two whole numbers from 0 on"),
        ([(0, -1)], None, r"whole numbers from 0 on"),
        ([(0, 1.0)], None, r"whole numbers from 0 on"),
        ([(0, 1), (1, 2)], 2, r"edge 1: \(1, 2\) leaves the workers 0 to 1; raise n or renumber"),
        ([(1, 1)], None, r"\(1, 1\) joins a worker to itself; drop it"),
        ([(0, 1, math.nan)], None, r"edge 0: the weight nan must be finite and not negative"),
        ([(0, 1, -0.5)], None, r"the weight -0.5 must be finite and not negative"),
        ([(0, 1, 0.5), (1, 2)], None, r"edge 1: some edges carry a weight and some do not"),
        ([(0, 1, 0.5), (1, 0, 0.4)], None, r"edge 1: the edge \(1, 0\) weighs 0.4 here and 0.5 before"),
        ([(0, 1, 0.6), (1, 2, 0.6)], None, r"the edges of worker 1 weigh 1.2 in all"),
        ([(0, 1), (2, 3)], None, r"disconnected, in 2 components: \{0, 1\}, \{2, 3\};"),
        ([(0, 1)], 3, r"components: \{0, 1\}, \{2\};"),
        ([(0, 2)], None, r"components: \{0, 2\}, \{1\};"),
    ],
)
def test_edges_that_make_no_graph_are_refused(edges, n, message):
    with pytest.raises(ValueError, match=message):
        tp.from_edges(edges, n)


def test_pairs_have_no_weights_to_give():
    with pytest.raises(ValueError, match=r"edge \(0, 1\) has no weight"):
        tp.from_edges([(0, 1)], weights="given")


def test_networkx_nodes_become_workers_in_sorted_order():
    graph = tp.from_networkx(nx.Graph([("c", "a"), ("b", "c")]))
    assert graph.edges == ((0, 2), (1, 2))
    assert graph.name == "networkx"


def test_networkx_weights_count_only_when_asked_for():
    source = nx.Graph()
    source.add_weighted_edges_from([(0, 1, 0.5), (1, 2, 0.25)])
    assert np.array_equal(tp.from_networkx(source).W, tp.chain(3).W)
    assert np.array_equal(tp.from_networkx(source, "given").W, PATH3)
    assert np.array_equal(tp.from_networkx(source, {(0, 1): 0.5, (1, 2): 0.25}).W, PATH3)


@pytest.mark.parametrize(
    ("graph", "weights", "message"),
    [
        (nx.DiGraph([(0, 1)]), "metropolis", r"must be undirected.*pass networkx.Graph\(graph\)"),
        (nx.MultiGraph([(0, 1)]), "metropolis", r"without parallel edges"),
        (nx.Graph([(0, "a")]), "metropolis", r"nodes cannot be sorted: relabel them"),
        (
            nx.Graph([("a", "a"), ("a", "b")]),
            "metropolis",
            r"edge 'a'-'a': \(0, 0\) joins a worker to itself",
        ),
        (nx.Graph(), "metropolis", r"number of workers"),
        (nx.Graph([(0, 1)]), "given", r"edge \(0, 1\) has no weight"),
        (nx.Graph([(0, 1, {"weight": 0.5}), (1, 2)]), "given", r"some edges carry a weight and some do not"),
        (nx.empty_graph(2), "metropolis", r"disconnected"),
    ],
)
def test_networkx_graphs_that_do_not_fit_are_refused(graph, weights, message):
    with pytest.raises(ValueError, match=message):
        tp.from_networkx(graph, weights)


def written(tmp_path, text):
    path = tmp_path / "graph.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_of_edges(tmp_path):
    path = written(tmp_path, "# a path\n\n0 1\n  1\t2  # the last edge\n")
    graph = tp.from_file(path)
    assert np.array_equal(graph.W, tp.chain(3).W)
    assert graph.name == f"file:{path}"
    assert tp.from_file(str(path), 3, "fastest").name == f"file:{path}@fastest"


def test_a_file_with_weights(tmp_path):
    path = written(tmp_path, "0 1 .5\n1 2 0.25\n")
    assert np.array_equal(tp.from_file(path).W, PATH3)
    assert np.array_equal(tp.from_file(path, weights="metropolis").W, tp.chain(3).W)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n0\n", r"line 2: \(0,\) is not an edge"),
        ("# no\n0 1 0.5 7\n", r"line 2: \(0, 1, 0.5, 7.0\) is not an edge"),
        ("0 1\n\n1 b\n", r"line 3: cannot read '1 b', write `i j` or `i j weight`"),
        ("0 1 x\n", r"line 1: cannot read '0 1 x'"),
        ("0 1.5\n", r"line 1: cannot read '0 1.5'"),
        ("0 -1\n", r"line 1: \(0, -1\) must be two whole numbers from 0 on"),
        ("0 1 .5\n1 2\n", r"line 2: some edges carry a weight and some do not"),
        ("0 1\n1 2 .5\n", r"line 2: some edges carry a weight and some do not"),
        ("0 1 inf\n", r"line 1: the weight inf must be finite"),
        ("0 1\n1 1\n", r"line 2: \(1, 1\) joins a worker to itself"),
        ("0 1\n1 9\n", r"line 2: \(1, 9\) leaves the workers 0 to 3"),
        ("0 1 .5\n1 2 .2\n1 0 .4\n", r"line 3: the edge \(1, 0\) weighs 0.4 here and 0.5 before"),
        ("0 1\n2 3\n", r"the graph is disconnected"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=rf"graph\.txt: {message}"):
        tp.from_file(path, n=4)


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"graph\.txt: there are no edges"):
        tp.from_file(written(tmp_path, "# nothing\n"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tp.from_file(tmp_path / "nowhere")
