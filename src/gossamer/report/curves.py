"""Curves of runs on common axes: loss and metric, over steps, bytes and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from gossamer.report import format as human
from gossamer.report import series
from gossamer.report.series import Array, Curve
from gossamer.report.style import Palette, line
from gossamer.runs.record import Run

AXES = ("step", "bytes", "seconds")
MARKS = 0.17  # distance between marks, as a fraction of the figure's diagonal
FEW = 4  # up to so many runs can show more than one line each
WIDE = 10.0  # runs that end this many times further than others share a logarithmic axis
TALL = 20.0


@dataclass(frozen=True)
class Drawn:
    """A run's curve, and how it is drawn wherever it appears."""

    index: int
    run: Run
    curve: Curve
    faint: Curve | None = None

    @property
    def diverged(self) -> bool:
        """Return whether the run diverged."""
        return self.run.summary.status == "diverged"


def losses(runs: Sequence[Run], which: Sequence[int]) -> list[Drawn]:
    """Return the training losses of the runs that have some."""
    found = [Drawn(i, runs[i], series.loss(runs[i])) for i in which]
    return [drawn for drawn in found if np.isfinite(drawn.curve.value).any()]


def metrics(runs: Sequence[Run], which: Sequence[int]) -> list[Drawn]:
    """Return the metrics of the averaged models of evaluated runs; those of local models are faint lines."""
    found = [Drawn(i, runs[i], series.metric(runs[i]), series.metric(runs[i], "local_mean")) for i in which]
    return [drawn for drawn in found if np.isfinite(drawn.curve.value).any()]


def draw(axes: Axes, curves: Sequence[Drawn], what: str, over: str, palette: Palette) -> None:
    """Draw curves over one of AXES; `what` is the metric's name, or "training loss"."""
    factor = 100.0 if human.is_share(what) else 1.0
    scale, label = _horizontal(axes, curves, over)
    few = len(curves) <= FEW
    for drawn in curves:
        style = line(palette, drawn.index)
        x, y = drawn.curve.over(over) / scale, drawn.curve.value * factor
        zorder = 3 + 1 / (1 + drawn.index)
        # at equal distances in the figure, not along x: that may be logarithmic
        marks = (MARKS * (drawn.index % 5) / 5, MARKS) if len(x) > 2 else None
        axes.plot(x, y, markevery=marks, zorder=zorder, **style)
        if few and drawn.faint is not None:
            plain = {"color": style["color"], "linestyle": style["linestyle"]}
            axes.plot(x, drawn.faint.value * factor, linewidth=0.8, alpha=0.6, zorder=2, **plain)
        elif few:
            low, high = drawn.curve.low * factor, drawn.curve.high * factor
            axes.fill_between(x, low, high, color=style["color"], alpha=0.13, linewidth=0, zorder=1)
    _vertical(axes, curves, factor)
    for drawn in curves:
        if drawn.diverged:
            colour = line(palette, drawn.index)["color"]
            _cross(axes, drawn.curve.over(over) / scale, drawn.curve.value * factor, colour)
    axes.set_xlabel(label)
    axes.set_title(f"{what}, %" if factor == 100 else what)


def _horizontal(axes: Axes, curves: Sequence[Drawn], over: str) -> tuple[float, str]:
    """Choose the scale of x; return its unit and its label."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10], integer=over == "step"))
    if over == "step":
        axes.xaxis.set_major_formatter(lambda x, _: human.whole(x))
        return 1.0, "step"
    clocks = {drawn.run.summary.clock for drawn in curves}
    clock = next(iter(clocks)) if len(clocks) == 1 else None
    name = "sent by a worker" if over == "bytes" else f"{clock} time" if clock else "time"
    if over == "seconds" and len(clocks - {None}) > 1:
        name = "time, measured or modelled"
    ends = [x[-1] for x in (drawn.curve.over(over) for drawn in curves) if len(x) and x[-1] > 0]
    if ends and max(ends) > WIDE * min(ends):
        axes.set_xscale("log")
        shown = human.size if over == "bytes" else human.number
        axes.xaxis.set_major_formatter(lambda x, _: shown(x))
        axes.xaxis.set_minor_formatter(lambda _x, _: "")
        return 1.0, name if over == "bytes" else f"{name}, s"
    unit, text = _unit(max(ends, default=1.0), over)
    return unit, f"{name}, {text}"


def _unit(largest: float, over: str) -> tuple[float, str]:
    if over == "seconds":
        return next(((u, t) for u, t in ((3600.0, "h"), (60.0, "min")) if largest >= 2 * u), (1.0, "s"))
    power = min(int(np.log10(max(largest, 1.0)) // 3), len(human.UNITS) - 1)
    return 1000.0**power, human.UNITS[power]


def _vertical(axes: Axes, curves: Sequence[Drawn], factor: float) -> None:
    """Choose the scale of y by the runs that converge; a diverged one would flatten all others."""
    tame = [drawn for drawn in curves if not drawn.diverged] or list(curves)
    low, high = _extent(tame, factor)
    lowest, highest = _extent(curves, factor)
    if low > 0 and high > TALL * low:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda y, _: human.number(y))
        axes.yaxis.set_minor_formatter(lambda _y, _: "")
        low, high = max(low / 3, min(low, lowest)), min(3 * high, max(high, highest))
        margin = (high / low) ** 0.05
        axes.set_ylim(low / margin, high * margin)
        return
    axes.yaxis.set_major_formatter(lambda y, _: human.number(y))
    span = high - low or abs(high) or 1.0
    low, high = max(low - span / 3, lowest), min(high + span / 3, highest)
    axes.set_ylim(low - 0.06 * (high - low or span), high + 0.06 * (high - low or span))


def _extent(curves: Sequence[Drawn], factor: float) -> tuple[float, float]:
    values = np.concatenate([drawn.curve.value * factor for drawn in curves])
    values = values[np.isfinite(values)]
    return float(values.min()), float(values.max())


def _cross(axes: Axes, x: Array, y: Array, colour: str) -> None:
    """Mark where a run ended, or where it left the figure."""
    seen = np.isfinite(x) & np.isfinite(y)
    points = axes.transData.transform(np.column_stack([x[seen], y[seen]]))
    bottom, top = axes.transAxes.transform([(0, 0), (0, 1)])[:, 1]
    outside = np.flatnonzero((points[:, 1] < bottom) | (points[:, 1] > top))
    at = int(outside[0]) if len(outside) else len(points) - 1
    end = points[at]
    if len(outside):
        before = points[max(at - 1, 0)]
        edge = top if end[1] > top else bottom
        part = (edge - before[1]) / (end[1] - before[1]) if at else 1.0
        end = (before[0] + part * (end[0] - before[0]), edge)
    where = axes.transData.inverted().transform(end)
    (mark,) = axes.plot(*where[:, None], "x", color=colour)
    mark.set(markersize=7, markeredgewidth=1.8, clip_on=False, zorder=5)
