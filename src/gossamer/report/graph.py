"""A run's graph, its links coloured by the bytes that went over them."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from gossamer.report import format as human
from gossamer.report.style import SIZE, Palette
from gossamer.runs.record import Run

Edge = tuple[int, int]
Point = tuple[float, float]
Place = dict[int, Point]
EQUAL = 1.03  # links whose bytes differ by less look alike
NAMED = 40  # more workers have no room for their numbers
SPRING = 200  # more workers are put on a circle


def links(run: Run) -> dict[Edge, float]:
    """Return the bytes over every link; both ways together unless the graph is directed."""
    graph = run.summary["graph"] or {}
    directed = bool(graph.get("directed"))
    found: dict[Edge, float] = {}
    for i, j in graph.get("edges") or []:
        found[(i, j) if directed else (min(i, j), max(i, j))] = 0.0
    for sender, receiver, sent in run.summary["links"] or []:
        key = (sender, receiver) if directed else (min(sender, receiver), max(sender, receiver))
        found[key] = found.get(key, 0.0) + (human.finite(sent) or 0.0)
    return {(i, j): sent for (i, j), sent in found.items() if i != j}


def draw_graph(run: Run, palette: Palette) -> Figure | None:
    """Draw the graph; None if the run does not say what it is."""
    edges = links(run)
    if not edges:
        return None
    n = max(int(run.summary["workers"] or 0), 1 + max(max(edge) for edge in edges))
    places = layout(str(run.summary["topology"] or ""), n, list(edges))
    bounds = _bounds([sent for sent in edges.values() if sent > 0])
    figure = Figure(figsize=(3.7, 3.6))
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    directed = bool((run.summary["graph"] or {}).get("directed"))
    lattice = _shape(str(run.summary["topology"] or ""), n) is not None
    for edge, sent in sorted(edges.items(), key=lambda item: item[1]):
        for a, b in _lines(places, edge, lattice):
            axes.add_patch(_link(a, b, _look(sent, bounds, palette, n), directed))
    _workers(axes, places, palette)
    _legend(figure, bounds, any(sent == 0 for sent in edges.values()), palette, n)
    return figure


def layout(topology: str, n: int, edges: list[Edge]) -> Place:
    """Place workers as their graph is usually drawn: on a circle, a lattice, around a hub, or by springs."""
    circle = {i: (math.sin(2 * math.pi * i / n), math.cos(2 * math.pi * i / n)) for i in range(n)}
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(n))
    degrees = dict(graph.degree)
    shape = _shape(topology, n)
    if shape:
        side = max(max(shape) - 1, 1) / 2
        return {i: (i % shape[1] / side, -(i // shape[1]) / side) for i in range(n)}
    hub = max(degrees, key=lambda i: degrees[i])
    if n > 3 and degrees[hub] == n - 1 == graph.number_of_edges():
        around = [i for i in range(n) if i != hub]
        angles = {i: 2 * math.pi * k / len(around) for k, i in enumerate(around)}
        return {hub: (0.0, 0.0)} | {i: (math.sin(a), math.cos(a)) for i, a in angles.items()}
    if re.match(r"social|random.regular|file|$", topology) and 10 < n <= SPRING:
        found = nx.arf_layout(graph, pos=circle)  # starts on the circle: always the same result
        return {i: (float(x), float(y)) for i, (x, y) in found.items()}
    return circle


def _shape(topology: str, n: int) -> tuple[int, int] | None:
    """Return the rows and columns of a lattice; as square as n allows unless they are given."""
    match = re.match(r"(?:torus|grid)(?::(\d+)x(\d+))?", topology)
    if not match:
        return None
    rows = int(match[1]) if match[1] else next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
    return (rows, n // rows) if rows and n % rows == 0 and 1 < rows < n else None


def _bounds(sent: list[float]) -> list[float]:
    """Return the limits of the classes of bytes: one class if all links carried about the same."""
    if not sent:
        return []
    low, high = min(sent), max(sent)
    if high <= EQUAL * low:
        return [low, high]
    classes = min(5, len(set(sent)))
    return [float(x) for x in np.geomspace(low, high, classes + 1)]


def _look(sent: float, bounds: list[float], palette: Palette, n: int) -> dict[str, Any]:
    """Return a link's colour and width; one that carried nothing is a thin dotted line."""
    width = 1.0 if n <= 16 else 0.6
    if sent <= 0:
        return {"color": palette.muted, "linewidth": 0.8 * width, "linestyle": (0, (1, 2.5))}
    if len(bounds) == 2:
        return {"color": palette.levels[2], "linewidth": 2.6 * width, "linestyle": "-"}
    k = min(int(np.searchsorted(bounds[1:-1], sent, side="right")), len(bounds) - 2)
    level = round(k * (len(palette.levels) - 1) / (len(bounds) - 2))
    thick = max(1.0, 4.4 * sent / bounds[-1])
    return {"color": palette.levels[level], "linewidth": thick * width, "linestyle": "-"}


def _lines(places: Place, edge: Edge, lattice: bool) -> list[tuple[Point, Point]]:
    """Return a link's line. What goes around a torus is two short ends, or it would cover its row."""
    a, b = places[edge[0]], places[edge[1]]
    step = math.dist(places[0], places[1])
    length = math.dist(a, b)
    if not lattice or length < 1.5 * step:
        return [(a, b)]
    x, y = (0.55 * step * (p - q) / length for p, q in zip(a, b, strict=True))
    return [(a, (a[0] + x, a[1] + y)), (b, (b[0] - x, b[1] - y))]


def _link(a: Point, b: Point, look: dict[str, Any], directed: bool) -> FancyArrowPatch:
    return FancyArrowPatch(
        a,
        b,
        arrowstyle="-|>,head_width=2,head_length=4" if directed else "-",
        connectionstyle=f"arc3,rad={0.08 if directed else 0}",
        shrinkA=9 if directed else 0,
        shrinkB=9 if directed else 0,
        mutation_scale=1,
        zorder=2,
        capstyle="butt",
        **look,
    )


def _workers(axes: Axes, places: Place, palette: Palette) -> None:
    x, y = np.array(list(places.values())).T
    named = len(places) <= NAMED
    size = 230 if len(places) <= 16 else 130 if named else 16
    face = palette.surface if named else palette.ink
    axes.scatter(x, y, s=size, color=face, edgecolors=palette.ink, linewidths=0.9, zorder=3)
    margin = 0.24 * max(float(np.ptp(x)), float(np.ptp(y)), 1.0) / 2
    axes.set_xlim(x.min() - margin, x.max() + margin)
    axes.set_ylim(y.min() - margin, y.max() + margin)
    if named:
        for i, place in places.items():
            small = SIZE - (0.5 if len(places) <= 16 else 2)
            axes.annotate(str(i), place, ha="center", va="center_baseline", fontsize=small, zorder=4)


def _legend(figure: Figure, bounds: list[float], silent: bool, palette: Palette, n: int) -> None:
    pairs = list(itertools.pairwise(bounds))
    handles = []
    for low, high in pairs:
        texts = human.size(low), human.size(high)
        text = f"{texts[0]} – {texts[1]}"
        if len(pairs) == 1:
            text = f"{texts[1]} on every link" if texts[0] == texts[1] else f"{text} on every link"
        handles.append(Line2D([], [], label=text, **_look(math.sqrt(low * high), bounds, palette, n)))
    if silent:
        handles.append(Line2D([], [], label="nothing", **_look(0, bounds, palette, n)))
    columns = 1 if len(handles) == 1 else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.6)
