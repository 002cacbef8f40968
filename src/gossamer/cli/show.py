"""gossamer topology, compressors and algorithms: what there is, in numbers and in a drawing."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gossamer import compress
from gossamer.algorithms import NAMES, make, needs_compressor
from gossamer.layout import Layout
from gossamer.report import human
from gossamer.simulation import Simulation
from gossamer.topology import Schedule, Topology
from gossamer.topology import make as make_topology
from gossamer.topology.weights import RULE_NAMES

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
WATCHED, SHOWN = 64, 4  # rounds of a schedule without a period that are measured; of any, drawn
DRAWN, NAMED = 24, 40  # more workers have no room for their links in a terminal, their numbers in an image
BRAILLE = np.array([[1, 8], [2, 16], [4, 32], [64, 128]])  # the bits of the dots of U+2800
COMPRESSORS = {  # what people type, and what is sent
    "identity": "everything",
    "fp16": "half precision",
    "bf16": "half, float32's range",
    "fp8": "8-bit floats",
    "int8": "8-bit integers",
    "qsgd:8": "8 bits an entry",
    "qsgd:4": "4 bits; 1 to 8 can be had",
    "qsgd:4:contraction": "the same, scaled down",
    "sign": "1 bit, a scale a tensor",
    "topk:0.01": "the largest 1 %",
    "topk:0.01:fp16": "the same, values in fp16",
    "randomk:0.01": "a random 1 %, no indices",
    "randomk:0.01:scaled": "the same, scaled up",
    "lowrank:1": "two thin factors",
}


def topology(
    spec: Annotated[str, typer.Argument(help="ring, torus:2x4, ring@fastest, file:EDGES ...")] = "ring",
    n: Annotated[int, typer.Option("--n", "--workers", help="How many workers.")] = 8,
    seed: Annotated[int, typer.Option(help="Decides what is drawn at random.")] = 0,
    image: Annotated[Path | None, typer.Option(help="Also draw it to a PNG or SVG file.")] = None,
    as_json: Json = False,
) -> None:
    """Show who talks to whom: a drawing, how fast the workers agree, and what a round costs.

    [bold]Examples[/bold]

    gossamer topology one-peer-exponential

    gossamer topology random-regular:4@fastest --n 32 --seed 1 --image graph.svg
    """
    graph, console = make_topology(spec, n, seed), Console(highlight=False)
    if image is not None:
        _write_image(graph, image)
    if as_json:
        return console.print_json(data=describe(graph), ensure_ascii=True)
    return console.print(_facts(describe(graph)), "", _drawing(graph, console), sep="\n")


def compressors(
    size: Annotated[int, typer.Option(min=1, help="Entries of the tensor to send.")] = 1_000_000,
    as_json: Json = False,
) -> None:
    """Show how messages can be made smaller: what to type, what is sent, and what is promised.

    dcd, ecd and allreduce are made for unbiased ones, choco and deepsqueeze for contractions.

    [bold]Example:[/bold] gossamer compressors --size 272474
    """
    rows = next(side for side in range(math.isqrt(size), 0, -1) if size % side == 0)
    layout = Layout(("matrix",), ((rows, size // rows),))
    found, console = [_compressor(text, layout) for text in COMPRESSORS], Console(highlight=False)
    if as_json:
        return console.print_json(data=found, ensure_ascii=True)
    table = _table("type", "what is sent", ">bytes", ">smaller", "promise")
    for row in found:
        smaller = f"{row['times_smaller']:.3g}x"
        table.add_row(row["text"], row["sent"], f"{row['bytes']:,}", smaller, row["promise"])
    table.caption = "delta: a contraction, whose squared error is at most 1 - delta of the vector's"
    return console.print(f"One message for a tensor of {rows} x {size // rows} entries:\n", table, sep="\n")


def algorithms(as_json: Json = False) -> None:
    """Show the algorithms: what they are, their papers, and what they need.

    [bold]Example:[/bold] gossamer algorithms
    """
    found, console = [_algorithm(name) for name in NAMES], Console(highlight=False)
    if as_json:
        return console.print_json(data=found, ensure_ascii=True)
    papers = _table("name", "what it is")
    table = _table("name", "compressor", "gamma", "varying graph", "directed", "overlap", ">phases, n=8")
    for row in found:
        papers.add_row(row["name"], "\n".join([row["what"], *row["papers"]]))
        able = ["yes" if row[key] else "no" for key in ("varying_graphs", "directed_graphs", "overlap")]
        table.add_row(row["name"], row["compressor"], str(row["gamma"] or "-"), *able, str(row["phases"]))
    return console.print(papers, "", table, sep="\n")


def describe(graph: Topology | Schedule) -> dict[str, Any]:
    """Return a graph's numbers, for JSON; the gap of a schedule is an average over its rounds."""
    period: int | None = getattr(graph, "period", 1)
    rounds = [graph.at(k) for k in range(period or WATCHED)]
    degrees = [degree for one in rounds for degree in one.degrees]
    out = max(len(one.receivers(i)) for one in rounds for i in range(graph.n))
    mixed, power = reduce(lambda P, one: one.W @ P, rounds, np.eye(graph.n)), 1 / len(rounds)
    if period is None:  # rounds that chance draws have a rate on average only: that of E[W^T W]
        mixed, power = np.mean([one.W.T @ one.W for one in rounds], axis=0), 0.5
    left = float(np.linalg.norm(mixed - 1 / graph.n, 2))  # the largest part of a disagreement that stays
    left = 0.0 if left < 1e-9 else 1.0 if left > 1 - 1e-9 else left**power
    rule, million = graph.name.rpartition("@")[2], Layout(("matrix",), ((1000, 1000),))
    return {
        "name": graph.name,
        "workers": graph.n,
        "directed": graph.directed,
        "varying": graph.varying,
        "period": period,
        "edges": [[list(edge) for edge in one.edges] for one in rounds[:SHOWN]],
        "degree": {"min": min(degrees), "mean": sum(degrees) / len(degrees), "max": max(degrees)},
        "diameter": graph.diameter if isinstance(graph, Topology) else None,
        "gap": 1 - left,
        "rounds_measured": len(rounds),
        "rounds_to_halve": None if left == 1 else math.log(0.5) / math.log(left) if left else 0.0,
        "weights": "own" if graph.varying else rule if rule in RULE_NAMES else "metropolis",
        "messages_a_round": sum(degrees) / len(rounds),
        "most_messages_a_worker": out,
        "most_bytes_a_worker": {c: out * compress.make(c).nbytes(million) for c in ("identity", "topk:0.01")},
    }


def _facts(d: dict[str, Any]) -> Table:
    degree, ways = d["degree"], "one way" if d["directed"] else "both ways"
    full, small = (human.size(n).replace(human.SPACE, " ") for n in d["most_bytes_a_worker"].values())
    irregular = f" to {degree['max']}, {degree['mean']:.3g} on average" * (degree["min"] < degree["max"])
    cycle = f"{d['period']} rounds that repeat" if d["period"] else "rounds that never repeat"
    rows = {
        d["name"]: f"{d['workers']} workers" + f"; the graph changes, in {cycle}" * d["varying"],
        "links": f"{len(d['edges'][0])}{' a round' * d['varying']}, {ways}; weights: {d['weights']}",
        "neighbours": f"{degree['min']}{irregular}",
        "diameter": f"{d['diameter']}" if d["diameter"] is not None else "changes with the graph",
        "spectral gap": f"{d['gap']:.4g}: {_meaning(d)}",
        "messages": f"{d['messages_a_round']:.4g} a round, at most {d['most_messages_a_worker']} a worker",
        "bytes": f"at most {full} a worker and round for a million parameters; {small} with topk:0.01",
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    for what, text in rows.items():
        table.add_row(escape(what), text)
    return table


def _meaning(d: dict[str, Any]) -> str:
    K, halve, part = d["rounds_measured"], d["rounds_to_halve"], 1 - d["gap"]
    if halve is None:
        return "these weights do not bring the workers together; try @metropolis"
    if halve == 0:
        return f"{K} round{'s average' if K > 1 else ' averages'} exactly, without compression"
    left = f"a round{f', on average over {K},' * d['varying']} leaves at most {part:.4g} of the disagreement"
    return f"{left}, so {halve:.1f} rounds halve it; compression adds to that"


def _drawing(graph: Topology | Schedule, console: Console) -> RenderableType:
    most, plain, rows = min(console.width, 80), console.options.ascii_only, 9 if graph.n <= 12 else 17
    if isinstance(graph, Topology):
        return _picture(graph, 20 if graph.n > 8 else 14, most, plain)
    fit = max(1, (most + 2) // (2 * rows + 2 if graph.n <= DRAWN else graph.n + 6))
    shown = [graph.at(k) for k in range(min(graph.period or SHOWN, SHOWN, fit))]
    table = Table.grid(padding=(0, 2))
    table.add_row(*(f"round {k}" for k in range(len(shown))))
    table.add_row(*(_picture(one, rows, most, plain) for one in shown))
    return table


def _picture(graph: Topology, rows: int, most: int, plain: bool) -> RenderableType:
    """Draw workers and links in so many lines; of more than 24 workers, the matrix of who hears whom."""
    if graph.n > most - 4:
        return "(too many workers to draw here; --image FILE draws them)"
    if graph.n > DRAWN:
        links = np.pad(graph.W * (1 - np.eye(graph.n)) > 0, ((0, graph.n % 2), (0, 0))).astype(int)
        marks = " '.:" if plain else " ▀▄█"
        lines = ["".join(marks[k] for k in row) for row in links[::2] + 2 * links[1::2]]
        return Panel.fit("\n".join(lines), title="row hears column", padding=(0, 1))
    places, segments = _layout(graph)
    dots, t = np.zeros((4 * rows, 4 * rows), dtype=bool), np.linspace(0, 1, 8 * rows)
    for a, b in segments:
        x, y = ((np.outer(1 - t, a) + np.outer(t, b)) * (4 * rows - 1)).round().astype(int).T
        dots[y, x] = True
    codes = (dots.reshape(rows, 4, 2 * rows, 2) * BRAILLE[:, None]).sum((1, 3))
    cells = [[" " if not k else "." if plain else chr(0x2800 + k) for k in row] for row in codes]
    for i, (x, y) in enumerate(places):
        row, at = int(y * (4 * rows - 1) + 0.5) // 4, int(x * (4 * rows - 1) + 0.5) // 2
        cells[row][at : at + len(str(i))] = str(i)
    text = Text("\n".join("".join(row).rstrip() for row in cells).strip("\n"), no_wrap=True)
    text.highlight_regex(r"\d+", "bold cyan")
    return text


def _layout(graph: Topology) -> tuple[Any, list[tuple[Any, Any]]]:
    """Place workers in the unit square, on a lattice, around a hub or on a circle; return lines, too."""
    n, lattice = graph.n, re.match(r"(?:torus|grid):(\d+)x(\d+)", graph.name)
    hub = n > 3 and max(graph.degrees) == n - 1 == len(graph.edges)
    angles = 2 * np.pi * np.arange(-hub, n - hub) / max(n - hub, 1)
    places = 0.5 + 0.46 * np.stack((np.sin(angles), -np.cos(angles)), 1)
    places[: hub or n == 1] = 0.5
    sides = np.array([int(lattice[2]), int(lattice[1])] if lattice else [0, 0])
    if lattice:
        places = (np.stack((np.arange(n) % sides[0], np.arange(n) // sides[0]), 1) + 0.5) / sides
    segments = []
    for a, b in ((places[i], places[j]) for i, j in graph.edges):
        # a link around a torus would hide the row that it closes: of those only the ends are drawn
        around = (np.abs(b - a) * sides > 1.5).any()
        end = np.sign(b - a) / 2 / np.maximum(sides, 1)
        segments += [(a, a - end), (b, b + end)] if around else [(a, b)]
    return places, segments


def _write_image(graph: Topology | Schedule, path: Path) -> None:
    """Draw the graph, or the first rounds of a schedule, to a file."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ValueError("--image needs matplotlib: pip install 'gossamer[report]'") from error
    if path.suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"--image {path}: name a file that ends in .png or .svg")
    shown = min(graph.period or SHOWN, SHOWN) if isinstance(graph, Schedule) else 1
    figure = Figure(figsize=(5.0 * shown, 5.4), layout="constrained")
    head = {"arrowstyle": "->", "shrinkA": 9, "shrinkB": 9} if graph.directed else {"arrowstyle": "-"}
    for k, axes in enumerate(figure.subplots(1, shown, squeeze=False)[0]):
        places, segments = _layout(graph.at(k))
        axes.set(title=graph.at(k).name, aspect="equal", xlim=(-0.06, 1.06), ylim=(1.06, -0.06))
        axes.set_axis_off()
        for a, b in segments:
            axes.annotate("", b, a, arrowprops={"color": "#0072b2", **head})
        axes.scatter(*places.T, s=300 if graph.n <= NAMED else 12, color="white", edgecolors="k", zorder=3)
        for i, place in enumerate(places if graph.n <= NAMED else []):
            axes.annotate(str(i), place, ha="center", va="center_baseline", zorder=4)
    figure.savefig(path, dpi=150)


def _compressor(text: str, layout: Layout) -> dict[str, Any]:
    compressor = compress.make(text)
    nbytes, delta, unbiased = compressor.nbytes(layout), compressor.delta(layout), compressor.unbiased
    promises = ["unbiased"] * unbiased + [f"delta {min(delta, 0.99):.2g}"] * (delta > 0)
    return {
        "text": text,
        "sent": COMPRESSORS[text],
        "bytes": nbytes,
        "times_smaller": 4 * layout.size / nbytes,
        "unbiased": unbiased,
        "delta": delta,
        "promise": "exact" if delta == 1 and unbiased else ", ".join(promises) or "none",
    }


def _algorithm(name: str) -> dict[str, Any]:
    kind, needed = NAMES[name], needs_compressor(name)
    options: dict[str, Any] = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    given: dict[str, Any] = {"gamma": 1.0, "order": "combine-then-adapt"}  # the one that can overlap
    algorithm = make(name, "identity" if needed else None, **{k: given[k] for k in given if k in options})
    phases: list[object] = []
    Simulation({"x": torch.zeros(8)}, "ring", algorithm, workers=8).step(phases.append)
    return {
        "name": name,
        "what": (sys.modules[kind.__module__].__doc__ or "").partition("\n")[0],
        "papers": [f"https://arxiv.org/abs/{p}" for p in re.findall(r"arXiv:(\d+\.\d+)", kind.__doc__ or "")],
        "compressor": "needed" if needed else "possible" if "compressor" in options else "none",
        "gamma": options.get("gamma"),
        "varying_graphs": kind.varying_graphs,
        "directed_graphs": kind.directed_graphs,
        "overlap": algorithm.early,
        "phases": len(phases),
    }


def _table(*columns: str) -> Table:
    """Return a table; a column marked by > is of numbers."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), caption_justify="left")
    for name in columns:
        table.add_column(name.strip(">"), justify="right" if ">" in name else "left", overflow="fold")
    for column in table.columns[:-1]:
        column.no_wrap = True
    return table
