"""gossamer compressors and algorithms: what there is, in numbers."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import gossamer

if TYPE_CHECKING:
    from gossamer.compress.layout import Layout

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
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
    found, console = [_algorithm(name) for name in gossamer.algorithms.NAMES], Console(highlight=False)
    if as_json:
        return console.print_json(data=found, ensure_ascii=True)
    papers = _table("name", "what it is")
    table = _table("name", "compressor", "gamma", "varying graph", "directed", "overlap", ">phases, n=8")
    for row in found:
        papers.add_row(row["name"], "\n".join([row["what"], *row["papers"]]))
        able = ["yes" if row[key] else "no" for key in ("varying_graphs", "directed_graphs", "overlap")]
        table.add_row(row["name"], row["compressor"], str(row["gamma"] or "-"), *able, str(row["phases"]))
    return console.print(papers, "", table, sep="\n")


def _compressor(text: str, layout: Layout) -> dict[str, Any]:
    compressor = gossamer.compress.make(text)
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
    import torch

    from gossamer.algorithms import NAMES, make, needs_compressor

    kind, needed = NAMES[name], needs_compressor(name)
    options: dict[str, Any] = {f.name: f.default for f in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    given: dict[str, Any] = {"gamma": 1.0, "order": "combine-then-adapt"}  # the one that can overlap
    algorithm = make(name, "identity" if needed else None, **{k: given[k] for k in given if k in options})
    phases: list[object] = []
    gossamer.Simulation({"x": torch.zeros(8)}, "ring", algorithm, workers=8).step(phases.append)
    return {
        "name": name,
        "what": (sys.modules[kind.__module__].__doc__ or "").partition("\n")[0],
        "papers": [f"https://arxiv.org/abs/{p}" for p in re.findall(r"arXiv:(\d+\.\d+)", kind.__doc__ or "")],
        "compressor": "needed" if needed else "possible" if "compressor" in options else "none",
        "gamma": options.get("gamma"),
        "varying_graphs": kind.varying_graphs,
        "directed_graphs": kind.directed_graphs,
        "overlap": algorithm.sends_before_gradient,
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
