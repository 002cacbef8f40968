"""Put the tables of docs/results/choco_table.json into docs/choco_table.md.

    python -m benchmarks.choco_table_page

The page's text is written by hand; what stands between its markers is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from benchmarks.choco_table import LOSSY
from benchmarks.pages import fill, raw_lines, table
from benchmarks.record import ROOT, read

PAGE = ROOT / "docs" / "choco_table.md"
UNSCALED = re.compile(r":(contraction|scaled)$")
NAMES = {"dcd": "DCD", "ecd": "ECD", "choco": "CHOCO", "deepsqueeze": "DeepSqueeze"}


def page(text: str, record: dict[str, Any]) -> str:
    """Return the page with the tables of a record."""
    for place, found in enumerate(record["results"]["tables"]):
        body = _whole(found) if _is_whole(found) else _listed(found["rows"], found)
        text = fill(text, f"table {place}", body)
    return fill(text, "raw lines", raw_lines(record))


def _is_whole(found: dict[str, Any]) -> bool:
    return len(found["rows"]) > 20


def _whole(found: dict[str, Any]) -> str:
    """Return compressors as rows and algorithms as columns."""
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for row in found["rows"]:
        if row["algorithm"] in LOSSY:
            cells.setdefault(UNSCALED.sub("", row["compressor"]), {})[row["algorithm"]] = row
    lines = [
        [f"`{compressor}`", _sizes(rows.values()), *(_score(rows[a], found) for a in LOSSY)]
        for compressor, rows in cells.items()
    ]
    exact = [row for row in found["rows"] if row["algorithm"] not in LOSSY]
    header = ["compressor", "kB a worker and step", *(NAMES[a] for a in LOSSY)]
    return table(header, lines) + "\n\n" + _listed(exact, found)


def _listed(rows: list[dict[str, Any]], found: dict[str, Any]) -> str:
    """Return one row a method."""
    metric = "perplexity" if found["config"]["task"] == "text" else "accuracy, %"
    lines = [
        [
            f"`{row['algorithm']}`" + (f" `{row['compressor']}`" if row["compressor"] else ""),
            _score(row, found),
            "–" if row["lr"] is None else f"{row['lr']:g}",
            _sizes([row]),
        ]
        for row in rows
    ]
    return table(["method", metric, "lr", "kB a worker and step"], lines)


def _score(row: dict[str, Any], found: dict[str, Any]) -> str:
    if row["mean"] is None:
        return "diverges"
    scale, digits = (1, 2) if found["config"]["task"] == "text" else (100, 1)
    text = f"{scale * row['mean']:.{digits}f} ± {scale * row['spread']:.{digits}f}"
    lost = row["scores"].count(None)
    return f"{text} ({lost} of {len(row['scores'])} diverge)" if lost else text


def _sizes(rows: Iterable[dict[str, Any]]) -> str:
    """Return what all of these send, which is the same where it is known."""
    sizes = {row["bytes a worker and step"] for row in rows} - {None, 0}
    return "–" if not sizes else f"{max(sizes) / 1000:.1f}"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), read("choco_table")), encoding="utf-8")


if __name__ == "__main__":
    main()
