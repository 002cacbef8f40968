"""A run's graph, its links coloured by the bytes that went over them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch

from gossamer.report import format as human
from gossamer.report.layout import Drawing, Edge, Point, lay_out
from gossamer.report.style import SIZE, Palette
from gossamer.runs.record import Run
from gossamer.runs.summary import Graph
from gossamer.topology import Topology

Look = dict[str, Any]  # what matplotlib calls a line's colour, width and style
EQUAL = 1.03  # links whose bytes differ by less look alike
NAMED = 40  # more workers have no room for their numbers


def links(run: Run) -> dict[Edge, float]:
    """Return the bytes over every link; both ways together unless the graph is directed."""
    graph = run.summary.graph or Graph()
    directed = graph.directed
    found: dict[Edge, float] = {}
    for i, j in graph.edges:
        found[(i, j) if directed else (min(i, j), max(i, j))] = 0.0
    for sender, receiver, sent in run.summary.links or ():
        key = (sender, receiver) if directed else (min(sender, receiver), max(sender, receiver))
        found[key] = found.get(key, 0.0) + sent
    return {(i, j): sent for (i, j), sent in found.items() if i != j}


def draw_graph(run: Run, palette: Palette) -> Figure | None:
    """Draw the graph; None if the run does not say what it is."""
    edges = links(run)
    if not edges:
        return None
    n = max(run.summary.workers or 0, 1 + max(max(edge) for edge in edges))
    bounds = _bounds([sent for sent in edges.values() if sent > 0])
    figure = Figure(figsize=(3.7, 3.6))
    by_bytes = sorted(edges, key=lambda edge: edges[edge])  # the busiest are drawn last, over the others
    drawing = lay_out(run.summary.topology or "", n, by_bytes)
    looks = {edge: _look(edges[edge], bounds, palette, n) for edge in by_bytes}
    directed = run.summary.graph is not None and run.summary.graph.directed
    draw(figure.add_subplot(), drawing, looks, palette, directed=directed)
    _legend(figure, bounds, any(sent == 0 for sent in edges.values()), palette, n)
    return figure


def draw_topology(axes: Axes, topology: Topology, palette: Palette) -> None:
    """Draw a graph that nothing has been sent over."""
    look = {"color": palette.heat, "linewidth": 1.6, "linestyle": "-"}
    drawing = lay_out(topology.name, topology.n, topology.edges)
    draw(axes, drawing, dict.fromkeys(topology.edges, look), palette, directed=topology.directed)


def draw(
    axes: Axes, drawing: Drawing, looks: Mapping[Edge, Look], palette: Palette, *, directed: bool
) -> None:
    """Draw workers and the links between them, each with its look."""
    axes.set_axis_off()
    axes.set_aspect("equal")
    for edge, lines in drawing.lines.items():
        for a, b in lines:
            axes.add_patch(_link(a, b, looks[edge], directed))
    _workers(axes, drawing.places, palette)


def _bounds(sent: list[float]) -> list[float]:
    """Return the limits of the classes of bytes: one class if all links carried about the same."""
    if not sent:
        return []
    low, high = min(sent), max(sent)
    if high <= EQUAL * low:
        return [low, high]
    classes = min(5, len(set(sent)))
    return [float(x) for x in np.geomspace(low, high, classes + 1)]


def _look(sent: float, bounds: list[float], palette: Palette, n: int) -> Look:
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


def _link(a: Point, b: Point, look: Look, directed: bool) -> FancyArrowPatch:
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


def _workers(axes: Axes, places: dict[int, Point], palette: Palette) -> None:
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
