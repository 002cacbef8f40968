"""Who has which examples: a map of workers and classes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gossamer.report.series import Array
from gossamer.report.style import LIGHT, SIZE, Palette
from gossamer.runs.record import Run

NUMBERED = 16  # more workers or classes leave no room for numbers
DRAWN = 1500  # more cells become a bitmap
STRONGEST = 0.95


def draw_partition(run: Run, palette: Palette) -> Figure | None:
    """Draw the examples of every class (column) and worker (row); None if there are no classes."""
    partition = run.summary.partition
    counts = np.array(partition.counts if partition and partition.counts else [], dtype=float)
    if counts.ndim != 2 or not counts.size or counts.max() <= 0:
        return None
    workers, classes = counts.shape
    figure = Figure(figsize=(4.2, min(max(0.9 + 0.27 * workers, 1.9), 5.0)))
    axes = figure.add_subplot()
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    _cells(axes, counts / counts.max(), palette)
    if max(workers, classes) <= NUMBERED:
        _numbers(axes, counts, palette)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=16, integer=True))
    axes.set_xlim(-0.5, classes - 0.5)
    axes.set_ylim(workers - 0.5, -0.5)
    axes.set_xlabel("class")
    axes.set_ylabel("worker")
    return figure


def _cells(axes: Axes, strength: Array, palette: Palette) -> None:
    """Fill cells with one colour, stronger for more examples, which works on any background."""
    workers, classes = strength.shape
    picture = strength.size > DRAWN
    colour = to_rgba(LIGHT.heat if picture else palette.heat)[:3]  # pixels cannot follow the page's colours
    edge = {"edgecolors": "none"} if picture else {"edgecolors": palette.surface, "linewidth": 0.8}
    mesh = axes.pcolormesh(
        np.arange(classes + 1) - 0.5, np.arange(workers + 1) - 0.5, strength, rasterized=picture, **edge
    )
    mesh.set_array(None)
    mesh.set_facecolor([(*colour, STRONGEST * float(s)) for s in strength.flat])


def _numbers(axes: Axes, counts: Array, palette: Palette) -> None:
    size = SIZE - (1.0 if max(counts.shape) <= 10 and counts.max() < 1000 else 2.5)
    for (worker, label), count in np.ndenumerate(counts):
        if count:
            colour = palette.surface if count > 0.75 * counts.max() else palette.ink
            text = axes.text(label, worker, f"{count:.0f}", fontsize=size, color=colour)
            text.set(ha="center", va="center_baseline")
