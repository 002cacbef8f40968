"""gossamer algorithms, compressors and topologies: what is available, in numbers."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import gossamer
from gossamer._registry import Registry
from gossamer.topology.builder import Builder

if TYPE_CHECKING:
    from gossamer.algorithms import Algorithm
    from gossamer.compress import Compressor
    from gossamer.compress.layout import Layout

T = TypeVar("T")
Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


def compressors(
    size: Annotated[int, typer.Option(min=1, help="Entries of the tensor to send.")] = 1_000_000,
    as_json: Json = False,
) -> None:
    """Show how messages can be made smaller: what to type, what is sent, and what is promised.

    dcd, ecd and allreduce are made for unbiased ones, choco and deepsqueeze for contractions.

    [bold]Example:[/bold] gossamer compressors --size 272474
    """
    from gossamer.compress.layout import Layout

    rows = next(side for side in range(math.isqrt(size), 0, -1) if size % side == 0)
    layout = Layout(("matrix",), ((rows, size // rows),))
    kinds = dict.fromkeys(_listed(gossamer.compress.NAMES).values())  # some have several names
    found = [_compressor(kind, text, layout) for kind in kinds for text in kind.examples]
    console = Console(highlight=False)
    if as_json:
        return console.print_json(data=found, ensure_ascii=True)
    table = _table("type", "what is sent", ">bytes", ">smaller", "promise")
    for row in found:
        smaller = f"{row['times_smaller']:.3g}x"
        table.add_row(row["text"], _text(console, row["sent"]), f"{row['bytes']:,}", smaller, row["promise"])
    table.caption = "delta: a contraction, whose squared error is at most 1 - delta of the vector's"
    return console.print(f"One message for a tensor of {rows} x {size // rows} entries:\n", table, sep="\n")


def algorithms(as_json: Json = False) -> None:
    """Show the algorithms: what they are, their papers, and what they need.

    [bold]Example:[/bold] gossamer algorithms
    """
    kinds, console = _listed(gossamer.algorithms.NAMES), Console(highlight=False)
    found = [_algorithm(name, kind) for name, kind in kinds.items()]
    if as_json:
        return console.print_json(data=found, ensure_ascii=True)
    papers = _table("name", "what it is")
    table = _table("name", "compressor", "gamma", "varying graph", "directed", "overlap", ">phases, n=8")
    for row in found:
        papers.add_row(row["name"], _text(console, row["what"], *row["papers"]))
        able = ["yes" if row[key] else "no" for key in ("varying_graphs", "directed_graphs", "overlap")]
        table.add_row(row["name"], row["compressor"], str(row["gamma"] or "-"), *able, str(row["phases"]))
    return console.print(papers, "", table, sep="\n")


def topologies(
    n: Annotated[int, typer.Option("--n", "--workers", min=1, help="How many workers.")] = 16,
    as_json: Json = False,
) -> None:
    """Show the graphs: what to type, who talks to whom, and how fast workers agree.

    [bold]Example:[/bold] gossamer topologies --n 32
    """
    builders, console = _listed(gossamer.topology.NAMES), Console(highlight=False)
    found = [_topology(name, builder, n) for name, builder in builders.items()]
    if as_json:
        return console.print_json(data=found, ensure_ascii=True)
    table = _table("name", "what it is", ">neighbours", ">gap")
    for row in found:
        gap = "changes" if row["varying"] else "-" if row["gap"] is None else f"{row['gap']:.3g}"
        lines = [row["what"], *[row["usage"]] * (row["usage"] != row["name"])]
        table.add_row(row["name"], _text(console, *lines), str(row["neighbours"] or "-"), gap)
    table.columns[1].no_wrap = False
    table.caption = "gap: a round leaves 1 - gap of a disagreement; -: not for so many workers"
    return console.print(f"With {n} workers:\n", table, sep="\n")


def _listed(names: Registry[T]) -> dict[str, T]:
    """Return all that is available; a problem with an installed package is only a warning."""
    found, problems = names.catalogue()
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return found


def _topology(name: str, builder: Builder, n: int) -> dict[str, Any]:
    try:
        graph = gossamer.topology.make(name, n)
    except ValueError:  # a hypercube of 6, or a file without a path
        graph = None
    varying = graph is not None and graph.varying
    return {
        "name": name,
        "usage": builder.usage,
        "what": builder.examples[name],
        "seeded": builder.seeded,
        "varying": varying,
        "neighbours": None if graph is None else max(graph.at(0).degrees),
        "gap": graph.spectrum.gap if isinstance(graph, gossamer.topology.Topology) else None,
    }


def _compressor(kind: type[Compressor], text: str, layout: Layout) -> dict[str, Any]:
    compressor = gossamer.compress.make(text)
    nbytes, delta, unbiased = compressor.nbytes(layout), compressor.delta(layout), compressor.unbiased
    promises = ["unbiased"] * unbiased + [f"delta {min(delta, 0.99):.2g}"] * (delta > 0)
    return {
        "text": text,
        "sent": kind.examples[text],
        "bytes": nbytes,
        "times_smaller": 4 * layout.size / nbytes,
        "unbiased": unbiased,
        "delta": delta,
        "promise": "exact" if delta == 1 and unbiased else ", ".join(promises) or "none",
    }


def _algorithm(name: str, kind: type[Algorithm]) -> dict[str, Any]:
    import torch

    from gossamer.algorithms import make, needs_compressor
    from gossamer.algorithms.base import COSTS

    needed = needs_compressor(name)
    options: dict[str, Any] = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    given: dict[str, Any] = {"gamma": 1.0, "order": "combine-then-adapt"}  # the one that can overlap
    algorithm = make(name, "identity" if needed else None, **{k: given[k] for k in given if k in options})
    phases: list[object] = []
    gossamer.Simulation({"x": torch.zeros(8)}, "ring", algorithm, workers=8).step(phases.append)
    return {
        "name": name,
        "what": next(what for text, what in kind.examples.items() if text.partition(":")[0] == name),
        "papers": [f"https://arxiv.org/abs/{p}" for p in re.findall(r"arXiv:(\d+\.\d+)", kind.__doc__ or "")],
        "compressor": "needed" if needed else "possible" if "compressor" in options else "none",
        "gamma": options.get("gamma"),
        "varying_graphs": kind.varying_graphs,
        "directed_graphs": kind.directed_graphs,
        "overlap": algorithm.sends_before_gradient,
        "phases": len(phases),
        "memory": (COSTS | kind.costs)["memory"],
        "bytes": (COSTS | kind.costs)["bytes"],
    }


def _text(console: Console, *lines: str) -> str:
    """Return a class's own description as this terminal can show it."""
    return escape("\n".join(lines).encode(console.encoding, "replace").decode(console.encoding))


def _table(*columns: str) -> Table:
    """Return a table; a column marked by > is of numbers."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), caption_justify="left")
    for name in columns:
        table.add_column(name.strip(">"), justify="right" if ">" in name else "left", overflow="fold")
    for column in table.columns[:-1]:
        column.no_wrap = True
    return table
