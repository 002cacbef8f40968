"""The places of workers and the lines between them, the same in a terminal, an image and a page."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import gossamer
from gossamer.cli import topology as command
from gossamer.report import graph as page
from gossamer.report.layout import lay_out
from gossamer.topology import Topology


def edges(graph):
    return [(i, j) for i, j in nx.convert_node_labels_to_integers(graph).edges]


def ring(n):
    return [(i, (i + 1) % n) for i in range(n)]


@pytest.mark.parametrize(
    ("topology", "n", "graph"),
    [
        ("ring", 7, ring(7)),
        ("torus:2x4", 8, edges(nx.grid_2d_graph(2, 4, periodic=True))),
        ("grid", 7, edges(nx.path_graph(7))),
        ("star", 9, edges(nx.star_graph(8))),
        ("social", 32, edges(nx.davis_southern_women_graph())),
        ("random-regular:4", 24, edges(nx.random_regular_graph(4, 24, seed=0))),
        ("file:graph.txt", 300, ring(300)),
    ],
)
def test_no_two_workers_are_drawn_on_each_other(topology, n, graph):
    places = np.array([lay_out(topology, n, graph).places[i] for i in range(n)])
    size = np.ptp(places, axis=0).max()
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1) + 9 * np.eye(n)
    assert gaps.min() / size > (0.08 if n < 40 else 0.01)


def test_a_star_has_its_hub_in_the_middle():
    assert lay_out("star", 5, [(0, i) for i in range(1, 5)]).places[0] == (0.0, 0.0)
    assert lay_out("file:mine", 5, [(i, 3) for i in (0, 1, 2, 4)]).places[3] == (0.0, 0.0)


def test_what_goes_around_a_torus_is_two_short_ends():
    torus = gossamer.topology.make("torus:3x4", 12)
    assert isinstance(torus, Topology)
    drawing = lay_out(torus.name, 12, torus.edges)
    around = {edge for edge, lines in drawing.lines.items() if len(lines) == 2}
    assert around == {(0, 3), (4, 7), (8, 11), (0, 8), (1, 9), (2, 10), (3, 11)}
    (a, out), (b, back) = drawing.lines[0, 3]
    assert (a, b) == (drawing.places[0], drawing.places[3])
    assert out[0] < a[0] < b[0] < back[0]
    assert out[1] == a[1] == b[1] == back[1]


@pytest.mark.parametrize("spec", ["ring", "torus", "star", "chain", "random-regular:4", "complete"])
def test_a_screen_has_the_whole_drawing(spec):
    graph = gossamer.topology.make(spec, 12)
    assert isinstance(graph, Topology)
    drawing = lay_out(graph.name, 12, graph.edges).in_square(0.05)
    ends = [point for lines in drawing.lines.values() for line in lines for point in line]
    points = np.array([*drawing.places.values(), *ends])
    assert np.allclose(points.min(0), 0.05)
    assert np.allclose(points.max(0), 0.95)
    top = min(drawing.places.values(), key=lambda place: place[1])
    assert top == pytest.approx(drawing.places[0]) or spec in ("star", "torus", "random-regular:4")


def test_workers_on_one_line_stand_in_the_middle():
    assert lay_out("ring", 1, []).in_square(0.1).places == {0: (0.5, 0.5)}
    places = lay_out("ring", 2, [(0, 1)]).in_square(0.1).places
    assert places[0] == pytest.approx((0.5, 0.1))
    assert places[1] == pytest.approx((0.5, 0.9))


def test_terminal_and_page_have_one_layout():
    assert vars(command)["lay_out"] is vars(page)["lay_out"] is lay_out
