"""Put the tables of docs/results/choco_table.json into docs/choco_table.md.

    python -m benchmarks.choco_table_page

The page's text is written by hand; what stands between its markers is written here.
"""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.choco_table import LOSSY
from benchmarks.record import RESULTS, ROOT

PAGE = ROOT / "docs" / "choco_table.md"
UNSCALED = re.compile(r":(contraction|scaled)$")
NAMES = {"dcd": "DCD", "ecd": "ECD", "choco": "CHOCO", "deepsqueeze": "DeepSqueeze"}


def page(text: str, record: dict[str, Any]) -> str:
    """Return the page with the tables of a record."""
    for number, table in enumerate(record["results"]["tables"]):
        begin, end = f"<!-- table {number} -->", "<!-- end -->"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        assert pattern.search(text), f"the page has no place for table {number}: {table['setting']}"
        body = _whole(table) if _is_whole(table) else _listed(table["rows"], table)
        text = pattern.sub(f"{begin}\n\n{body}\n\n{end}".replace("\\", r"\\"), text)
    return text


def _is_whole(table: dict[str, Any]) -> bool:
    return len(table["rows"]) > 20


def _whole(table: dict[str, Any]) -> str:
    """Return compressors as rows and algorithms as columns."""
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for row in table["rows"]:
        if row["algorithm"] in LOSSY:
            cells.setdefault(UNSCALED.sub("", row["compressor"]), {})[row["algorithm"]] = row
    lines = ["| compressor | kB a worker and step | " + " | ".join(NAMES[a] for a in LOSSY) + " |"]
    lines.append("|---|---:|" + "---:|" * len(LOSSY))
    for compressor, by_algorithm in cells.items():
        sizes = {_kilobytes(row) for row in by_algorithm.values()} - {"–"}
        results = " | ".join(_score(by_algorithm[a], table) for a in LOSSY)
        lines.append(f"| `{compressor}` | {'–' if not sizes else sizes.pop()} | {results} |")
    exact = [row for row in table["rows"] if row["algorithm"] not in LOSSY]
    return "\n".join(lines) + "\n\n" + _listed(exact, table)


def _listed(rows: list[dict[str, Any]], table: dict[str, Any]) -> str:
    """Return one row a method."""
    metric = "perplexity" if table["config"]["task"] == "text" else "accuracy, %"
    lines = [f"| method | {metric} | lr | kB a worker and step |", "|---|---:|---:|---:|"]
    for row in rows:
        name = f"`{row['algorithm']}`" + (f" `{row['compressor']}`" if row["compressor"] else "")
        lr = "–" if row["lr"] is None else f"{row['lr']:g}"
        lines.append(f"| {name} | {_score(row, table)} | {lr} | {_kilobytes(row)} |")
    return "\n".join(lines)


def _score(row: dict[str, Any], table: dict[str, Any]) -> str:
    if row["mean"] is None:
        return "diverges"
    scale, digits = (1, 2) if table["config"]["task"] == "text" else (100, 1)
    text = f"{scale * row['mean']:.{digits}f} ± {scale * row['spread']:.{digits}f}"
    lost = row["scores"].count(None)
    return f"{text} ({lost} of {len(row['scores'])} diverge)" if lost else text


def _kilobytes(row: dict[str, Any]) -> str:
    sent = row["bytes a worker and step"]
    return "–" if not sent else f"{sent / 1000:.1f}"


def main() -> None:
    record = json.loads((RESULTS / "choco_table.json").read_text())
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main()
