"""Put what the classes say of themselves into docs/algorithms.md, compressors.md and topologies.md.

    make tables

Run it after adding an algorithm, a compressor or a topology; a test compares the pages with the classes.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from benchmarks.pages import fill
from benchmarks.record import ROOT
from gossamer import algorithms, compress, topology
from gossamer.algorithms.base import COSTS

NAME = r"[A-Z][a-z]\w*"
PAPER = re.compile(rf"(?:({NAME})(?:, {NAME})*(?: et al\.)? )?(\d{{4}}), arXiv:(\d+\.\d+)")
WORKERS = 16


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


def algorithms_table() -> str:
    """Return what a round of each algorithm costs."""
    rows = []
    for name in algorithms.NAMES.ours:
        kind = algorithms.NAMES[name]
        text = " ".join((kind.__doc__ or "").split())
        papers = [
            f"[{' '.join(filter(None, (author, year)))}](https://arxiv.org/abs/{number})"
            for author, year, number in PAPER.findall(text)
        ]
        file = Path(inspect.getfile(kind))
        costs = COSTS | kind.costs
        example = next(text for text in kind.examples if text.partition(":")[0] == name)
        source = f"[{file.name}](../{file.relative_to(ROOT).as_posix()})"
        own = [costs["phases"], costs["memory"], costs["bytes"]]
        rows.append([f"`{example}`", ", ".join(papers), source, *own])
    header = ["name", "paper", "file", "phases per round", "memory beside x", "bytes per worker and round"]
    return table(header, rows)


def compressors_table() -> str:
    """Return everything that can be typed."""
    kinds = dict.fromkeys(compress.NAMES[name] for name in compress.NAMES.ours)
    return table(
        ["text", "what is sent", "class"],
        [[f"`{t}`", what, f"`{kind.__name__}`"] for kind in kinds for t, what in kind.examples.items()],
    )


def graphs_table() -> str:
    """Return all graphs; of those drawn at random the numbers depend on networkx's version."""
    rows = []
    for name in topology.NAMES.ours:
        builder = topology.NAMES[name]
        row = [f"`{builder.usage}`", builder.examples[name].removesuffix(".")]
        n = 32 if name == "social" else WORKERS
        if builder.takes_rest or (builder.seeded and not topology.make(name, n).varying):
            rows.append([*row, "", ""])
            continue
        graph = topology.make(name, n)
        gap = f"{graph.spectrum.gap:.2g}" if isinstance(graph, topology.Topology) else "changes"
        rows.append([*row, str(max(graph.at(0).degrees)), gap + " (of 32)" * (n == 32)])
    return table(["what to type", "who talks to whom", "most neighbours", "spectral gap"], rows)


TABLES = {"algorithms": algorithms_table, "compressors": compressors_table, "topologies": graphs_table}


def filled(page: str) -> str:
    """Return the text of a page with its table as the classes say."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return fill(text, page, TABLES[page]())


def main() -> None:
    for page in TABLES:
        (ROOT / "docs" / f"{page}.md").write_text(filled(page), encoding="utf-8")


if __name__ == "__main__":
    main()
