"""Figures for papers: on white, PNG at 300 dpi, SVG with text as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gossamer.report.curves import AXES, Drawn, draw, losses, metrics
from gossamer.report.graph import draw_graph
from gossamer.report.partition import draw_partition
from gossamer.report.style import LIGHT, Palette, line, theme
from gossamer.report.table import groups, labels
from gossamer.runs.record import Run

DPI = 300
HANDLE, LETTER, LINE, LONGEST = 0.5, 0.077, 0.175, 36  # of a legend: three in inches, one in letters
NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # the same runs make the same files
OVER = {"step": "steps", "bytes": "bytes", "seconds": "time"}


def write_plots(
    runs: Sequence[Run], folder: str | Path, formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write the figures of these runs for a paper, each in every format; return the files.

    curves: all six panels; loss-over-bytes and so on: one panel, a column wide; graph-NAME and
    partition-NAME for every run. With several tasks or metrics the curves carry their names.
    """
    folder = Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []

    def save(figure: Figure | None, name: str) -> None:
        for kind in formats if figure is not None else ():
            path = folder / f"{name}.{kind}"
            assert figure is not None
            figure.savefig(path, dpi=DPI, metadata=NO_DATE.get(kind))
            figure.set_layout_engine("none")  # keep the layout of the first file
            written.append(path)

    with theme(LIGHT):
        _write_curves(runs, save)
        names = _file_names([run.name for run in runs])
        for run, name in zip(runs, names, strict=True):
            save(draw_graph(run, LIGHT), f"graph-{name}")
            save(draw_partition(run, LIGHT), f"partition-{name}")
    return written


def _write_curves(runs: Sequence[Run], save: Callable[[Figure | None, str], None]) -> None:
    found = groups(runs)
    tails = _file_names([f"{task}-{metric}" for task, metric in found])
    for ((_, metric), which), tail in zip(found.items(), tails, strict=True):
        end = f"-{tail}" if len(found) > 1 else ""
        both = ((metrics(runs, which), metric, "metric"), (losses(runs, which), "training loss", "loss"))
        rows = [row for row in both if row[0]]
        if not rows:
            continue
        save(overview([row[:2] for row in rows], labels(runs), LIGHT), f"curves{end}")
        for curves, name, what in rows:
            for over in AXES:
                save(panel(curves, name, over, labels(runs), LIGHT), f"{what}-over-{OVER[over]}{end}")


def overview(rows: Sequence[tuple[Sequence[Drawn], str]], names: Sequence[str], palette: Palette) -> Figure:
    """Draw every row of curves over steps, bytes and time, with one legend below."""
    indices = sorted({drawn.index for curves, _ in rows for drawn in curves})
    figure = _figure(7.2, 2.1 * len(rows), indices, names, palette)
    panels = [(curves, what, over) for curves, what in rows for over in AXES]
    for axes, (curves, what, over) in zip(
        figure.subplots(len(rows), len(AXES), squeeze=False).flat, panels, strict=True
    ):
        draw(axes, curves, what, over, palette)
    return figure


def panel(curves: Sequence[Drawn], what: str, over: str, names: Sequence[str], palette: Palette) -> Figure:
    """Draw one panel, a column of a paper wide, with its legend below."""
    figure = _figure(3.4, 2.1, [drawn.index for drawn in curves], names, palette)
    draw(figure.add_subplot(), curves, what, over, palette)
    return figure


def _figure(
    width: float, height: float, indices: Sequence[int], names: Sequence[str], palette: Palette
) -> Figure:
    """Return a figure with a legend below, which adds to its height."""
    # matplotlib leaves out labels that begin with an underscore
    shown = [shorten(f" {names[i]}" if names[i].startswith("_") else names[i]) for i in indices]
    handles = [Line2D([], [], label=text, **line(palette, i)) for text, i in zip(shown, indices, strict=True)]
    entry = HANDLE + LETTER * max(len(text) for text in shown)
    columns = min(len(indices), max(1, int(width / entry)))
    figure = Figure(figsize=(width, height + LINE * -(-len(indices) // columns) + 0.1))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.4)
    return figure


def shorten(text: str) -> str:
    """Return a label that fits under a figure, shortened in the middle."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 + 1 :]}"


def _file_names(names: Sequence[str]) -> list[str]:
    """Return names that are safe as files, and all different."""
    safe = [re.sub(r"[^\w.]+", "-", name).strip("-.")[:60] or "run" for name in names]
    return [name if safe.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(safe)]
