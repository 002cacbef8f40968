"""gossamer topology: who talks to whom, drawn and in numbers."""

from __future__ import annotations

import math
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import gossamer
from gossamer.report import format as human
from gossamer.report.layout import lay_out
from gossamer.topology import Schedule, Topology, remark
from gossamer.topology import make as make_topology
from gossamer.topology.weights import RULE_NAMES

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
WATCHED, SHOWN = 64, 4  # rounds that are measured of a schedule without a period; that are drawn of any
DRAWN = 24  # more workers have no room for their links in a terminal
MARGIN = 0.04  # of a drawing: workers' numbers have up to two digits
BRAILLE = np.array([[1, 8], [2, 16], [4, 32], [64, 128]])  # the bits of the dots of U+2800


def topology(
    spec: Annotated[str, typer.Argument(help="ring, torus:2x4, ring@fastest, file:EDGES ...")] = "ring",
    n: Annotated[int, typer.Option("--n", "--workers", help="How many workers.")] = 8,
    seed: Annotated[int, typer.Option(help="Seeds random graphs.")] = 0,
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
    note = remark(graph) if isinstance(graph, Topology) else None
    return console.print(_facts(describe(graph)), note or "", _drawing(graph, console), sep="\n")


def describe(graph: Topology | Schedule) -> dict[str, Any]:
    """Return a graph's numbers, for JSON; the gap of a schedule is an average over its rounds."""
    from gossamer.compress.layout import Layout

    period: int | None = getattr(graph, "period", 1)
    rounds = [graph.at(k) for k in range(period or WATCHED)]
    degrees = [degree for one in rounds for degree in one.degrees]
    out = max(len(one.receivers(i)) for one in rounds for i in range(graph.n))
    mixed, power = reduce(lambda P, one: one.W @ P, rounds, np.eye(graph.n)), 1 / len(rounds)
    if period is None:  # random rounds have a rate on average only: that of E[W^T W]
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
        "messages_per_round": sum(degrees) / len(rounds),
        "most_messages_per_worker": out,
        "most_bytes_per_worker": {
            c: out * gossamer.compress.make(c).nbytes(million) for c in ("identity", "topk:0.01")
        },
    }


def _facts(d: dict[str, Any]) -> Table:
    degree, ways = d["degree"], "one way" if d["directed"] else "both ways"
    full, small = (human.size(n).replace(human.SPACE, " ") for n in d["most_bytes_per_worker"].values())
    irregular = f" to {degree['max']}, {degree['mean']:.3g} on average" * (degree["min"] < degree["max"])
    cycle = f"{d['period']} rounds that repeat" if d["period"] else "rounds that never repeat"
    rows = {
        d["name"]: f"{d['workers']} workers" + f"; the graph changes, in {cycle}" * d["varying"],
        "links": f"{len(d['edges'][0])}{' per round' * d['varying']}, {ways}; weights: {d['weights']}",
        "neighbours": f"{degree['min']}{irregular}",
        "diameter": f"{d['diameter']}" if d["diameter"] is not None else "changes with the graph",
        "spectral gap": f"{d['gap']:.4g}: {_meaning(d)}",
        "messages": f"{d['messages_per_round']:.4g} per round, "
        f"at most {d['most_messages_per_worker']} per worker",
        "bytes": f"at most {full} per worker and round for a million parameters; {small} with topk:0.01",
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
    """Draw workers and links in so many lines; of more than 24 workers, the matrix of who sends to whom."""
    if graph.n > most - 4:
        return "(too many workers to draw here; --image FILE draws them)"
    if graph.n > DRAWN:
        links = np.pad(graph.W * (1 - np.eye(graph.n)) > 0, ((0, graph.n % 2), (0, 0))).astype(int)
        marks = " '.:" if plain else " ▀▄█"
        lines = ["".join(marks[k] for k in row) for row in links[::2] + 2 * links[1::2]]
        return Panel.fit("\n".join(lines), title="row receives from column", padding=(0, 1))
    drawing, last = lay_out(graph.name, graph.n, graph.edges).in_square(MARGIN), 4 * rows - 1
    dots, t = np.zeros((4 * rows, 4 * rows), dtype=bool), np.linspace(0, 1, 8 * rows)
    for a, b in (line for lines in drawing.lines.values() for line in lines):
        x, y = ((np.outer(1 - t, a) + np.outer(t, b)) * last).round().astype(int).T
        dots[y, x] = True
    codes = (dots.reshape(rows, 4, 2 * rows, 2) * BRAILLE[:, None]).sum((1, 3))
    cells = [[" " if not k else "." if plain else chr(0x2800 + k) for k in row] for row in codes]
    for i, (x, y) in drawing.places.items():
        row, at = int(y * last + 0.5) // 4, int(x * last + 0.5) // 2
        cells[row][at : at + len(str(i))] = str(i)
    text = Text("\n".join("".join(row).rstrip() for row in cells).strip("\n"), no_wrap=True)
    text.highlight_regex(r"\d+", "bold cyan")
    return text


def _write_image(graph: Topology | Schedule, path: Path) -> None:
    """Draw the graph, or the first rounds of a schedule, to a file."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("--image needs matplotlib: pip install 'gossamer[report]'") from error
    if path.suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"--image {path}: name a file that ends in .png or .svg")
    from gossamer.report.graph import draw_topology
    from gossamer.report.style import LIGHT, theme

    shown = min(graph.period or SHOWN, SHOWN) if isinstance(graph, Schedule) else 1
    with theme(LIGHT):
        figure = Figure(figsize=(5.0 * shown, 5.4), layout="constrained")
        for k, axes in enumerate(figure.subplots(1, shown, squeeze=False)[0]):
            axes.set_title(graph.at(k).name)
            draw_topology(axes, graph.at(k), LIGHT)
        figure.savefig(path, dpi=150)
