"""Where the workers of a graph are drawn, and which lines join them: for the terminal, images and pages."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

Edge = tuple[int, int]
Point = tuple[float, float]
Line = tuple[Point, Point]
SPRING = 200  # more workers are put on a circle
TINY = 1e-9  # what rounding may leave of two places that are one above the other


@dataclass(frozen=True)
class Drawing:
    """The places of workers, and the lines of every link; y grows upwards."""

    places: dict[int, Point]
    lines: dict[Edge, tuple[Line, ...]]

    def in_square(self, margin: float) -> Drawing:
        """Return the drawing stretched over the unit square, for screens: y grows downwards."""
        ends = [point for lines in self.lines.values() for line in lines for point in line]
        xs, ys = zip(*self.places.values(), *ends, strict=True)

        def moved(point: Point) -> Point:
            x, y = _stretched(point[0], xs, margin), _stretched(point[1], ys, margin)
            return x, 1 - y

        return Drawing(
            {i: moved(place) for i, place in self.places.items()},
            {edge: tuple((moved(a), moved(b)) for a, b in lines) for edge, lines in self.lines.items()},
        )


def _stretched(x: float, among: Sequence[float], margin: float) -> float:
    """Return where x lies between the least and the largest; in the middle if they are the same."""
    low, high = min(among), max(among)
    return 0.5 if high - low < TINY else margin + (1 - 2 * margin) * (x - low) / (high - low)


def lay_out(topology: str, n: int, edges: Sequence[Edge]) -> Drawing:
    """Draw a graph as it usually is drawn: on a circle, a lattice, around a hub, or by springs.

    `topology` is its text, such as "torus:2x4"; the rest follows from the edges.
    """
    shape = _shape(topology, n)
    places = _lattice(n, shape[1]) if shape else _around(topology, n, edges)
    return Drawing(places, {edge: _lines(places, edge, lattice=shape is not None) for edge in edges})


def _shape(topology: str, n: int) -> tuple[int, int] | None:
    """Return the rows and columns of a lattice; as square as n allows unless they are given."""
    match = re.match(r"(?:torus|grid)(?::(\d+)x(\d+))?", topology)
    if not match:
        return None
    rows = int(match[1]) if match[1] else next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
    return (rows, n // rows) if rows and n % rows == 0 and 1 < rows < n else None


def _lattice(n: int, columns: int) -> dict[int, Point]:
    side = max(columns, n // columns, 2) - 1
    return {i: (2 * (i % columns) / side, -2 * (i // columns) / side) for i in range(n)}


def _around(topology: str, n: int, edges: Sequence[Edge]) -> dict[int, Point]:
    """Put workers on a circle, around a hub if there is one; by springs where a circle would show nothing."""
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(n))
    hub = max(range(n), key=graph.degree)
    if n > 3 and graph.degree(hub) == n - 1 == graph.number_of_edges():
        return {hub: (0.0, 0.0)} | _circle([i for i in range(n) if i != hub])
    circle = _circle(range(n))
    if re.match(r"social|random.regular|file|$", topology) and 10 < n <= SPRING:
        found = nx.arf_layout(graph, pos=circle)  # starts on the circle: always the same result
        return {i: (float(x), float(y)) for i, (x, y) in found.items()}
    return circle


def _circle(workers: Sequence[int]) -> dict[int, Point]:
    angles = {i: 2 * math.pi * k / len(workers) for k, i in enumerate(workers)}
    return {i: (math.sin(angle), math.cos(angle)) for i, angle in angles.items()}


def _lines(places: dict[int, Point], edge: Edge, *, lattice: bool) -> tuple[Line, ...]:
    """Return a link's line. A link around a torus is two short ends, or it would cover its row."""
    a, b = places[edge[0]], places[edge[1]]
    step, length = math.dist(places[0], places[1]), math.dist(a, b)
    if not lattice or length < 1.5 * step:
        return ((a, b),)
    x, y = (0.55 * step * (p - q) / length for p, q in zip(a, b, strict=True))
    return (a, (a[0] + x, a[1] + y)), (b, (b[0] - x, b[1] - y))
