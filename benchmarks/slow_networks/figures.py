"""The figures of docs/slow_networks.md, from docs/results/slow_networks.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from benchmarks.pages import number
from benchmarks.peers.methods import ALONE, METHODS
from benchmarks.slow_networks.plan import BANDWIDTHS, LATENCIES, SLOW
from gossamer.network.units import bits_per_second, seconds, show_rate, show_time

SHOWN = (
    "DDP",
    "DDP, fp16 hook",
    "DDP, PowerSGD hook, rank 2",
    "averaging every 4 steps",
    "D-PSGD",
    "CHOCO, sign",
    "CHOCO, sign, overlap 1",
    "CHOCO, sign, every 4 steps",
    "PowerGossip, rank 2, overlap 1",
    "PowerGossip, rank 2, every 4 steps",
    "PowerGossip, rank 2, overlap 1, every 4 steps",
)
ONLY = {"D-PSGD": "D-PSGD", "8-bit all-reduce": "all-reduce, 8 bits"}  # decentralized, or quantized
OURS, THEIRS = "#0b6e4f", "#8a8f98"


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Draw all figures into a folder."""
    everything = [method for method in METHODS if method != ALONE]
    tasks = results["tasks"]
    draw_times(tasks, everything, folder / "slow_networks_all.png")
    draw_times({"wide MLP": tasks["wide MLP"]}, SHOWN, folder / "slow_networks.png")
    draw_heat(results["heat"], folder / "heat_map.png")
    draw_clock(results["clock"], folder / "clock_check.png")


def draw_times(results: Mapping[str, Any], methods: Sequence[str], path: Path) -> None:
    """Draw the time to the goal: a row of panels a task, a panel a network."""
    with mpl.rc_context({"font.size": 8}):
        height = len(results) * (0.7 + 0.16 * len(methods))
        figure = Figure(figsize=(9, height), layout="constrained")
        rows = figure.subplots(len(results), len(SLOW), sharey=True, squeeze=False)
        for panels, (problem, found) in zip(rows, results.items(), strict=True):
            for axes, network in zip(panels, SLOW, strict=True):
                _draw_bars(axes, found["networks"][network]["rows"], methods)
                axes.set_title(f"{problem}, {network}", fontsize=7)
            panels[0].set_yticks(range(len(methods)), methods)
            panels[0].margins(y=0.01)
        rows[0][0].invert_yaxis()
        figure.supxlabel("seconds until the average model of 8 workers is good enough", fontsize=8)
        figure.savefig(path, dpi=150)


def _draw_bars(axes: Axes, rows: Mapping[str, Any], methods: Sequence[str]) -> None:
    """Draw a bar a method, with its length in words; one that has not learned enough has none."""
    for y, method in enumerate(methods):
        time = rows[method]["time"]
        if time is not None:
            axes.barh(y, time, color=OURS if rows[method]["ours"] else THEIRS)
            axes.annotate(
                number(time, 2), (time, y), (2, 0), textcoords="offset points", va="center", fontsize=6
            )
    axes.set_xscale("log")
    axes.set_xlim(1, 3 * max(row["time"] or 1 for row in rows.values()))  # all bars begin at a second
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.spines[["top", "right"]].set_visible(False)


def draw_heat(cells: Mapping[str, Mapping[str, Mapping[str, float]]], path: Path) -> None:
    """Draw the best method's seconds a step over bandwidth and latency, and what others take of them."""
    best = [[min(cells[b][lat].items(), key=lambda item: item[1]) for lat in LATENCIES] for b in BANDWIDTHS]
    values = np.array([[step for _, step in row] for row in best])
    with mpl.rc_context({"font.size": 8}):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.imshow(1000 * values, cmap="YlGnBu", aspect="auto", norm=LogNorm())
        dark = np.log(values) > np.log(values).mean()
        for i, row in enumerate(best):
            for j, (method, step) in enumerate(row):
                cell = cells[BANDWIDTHS[i]][LATENCIES[j]]
                others = [f"{name} × {number(cell[m] / step, 2)}" for name, m in ONLY.items()]
                text = "\n".join([method, f"{1000 * step:.0f} ms", *others])
                color = "white" if dark[i, j] else "black"
                axes.text(j, i, text, ha="center", va="center", fontsize=7, color=color)
        axes.set_xticks(range(len(LATENCIES)), [show_time(seconds(latency)) for latency in LATENCIES])
        axes.set_yticks(range(len(BANDWIDTHS)), [show_rate(bits_per_second(b)) for b in BANDWIDTHS])
        axes.set(xlabel="latency, one way", ylabel="bandwidth of every worker")
        axes.set_title("The fastest method and its step, ring of 8, CNN of 105 866 parameters")
        figure.savefig(path, dpi=150)


def draw_clock(found: Mapping[str, Mapping[str, Mapping[str, float]]], path: Path) -> None:
    """Draw predicted over measured times of a step."""
    with mpl.rc_context({"font.size": 8}):
        figure = Figure(figsize=(4, 3.6), layout="constrained")
        axes = figure.subplots()
        for (network, row), marker in zip(found.items(), "os^", strict=True):
            measured, modelled = (
                [times[what] for times in row.values()] for what in ("measured", "modelled")
            )
            axes.plot(measured, modelled, marker, label=network)
        known = [times["measured"] for row in found.values() for times in row.values()]
        ends = np.array([0.8 * min(known), 1.25 * max(known)])
        axes.plot(ends, ends, color="black", lw=0.8)
        axes.fill_between(ends, 0.85 * ends, 1.15 * ends, color="black", alpha=0.1, label="within 15 %")
        axes.set(xscale="log", yscale="log", xlabel="measured, s a step", ylabel="modelled, s a step")
        axes.legend(frameon=False)
        figure.savefig(path, dpi=150)
