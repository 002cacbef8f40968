"""Put the table of docs/results/adamw.json into README.md.

python -m benchmarks.adamw_page
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.pages import fill, number, table
from benchmarks.record import RESULTS, ROOT

README = ROOT / "README.md"


def readme(text: str, results: Mapping[str, Any]) -> str:
    """Return README with the table of these results."""
    return fill(text, "adamw", results_table(results["methods"]))


def results_table(methods: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return a row a method, with a loss a seed; the first method is what the others are compared with."""
    losses = {method: [run["validation loss"] for run in runs] for method, runs in methods.items()}
    first = mean(next(iter(losses.values())))
    lines = [
        [
            method,
            " / ".join(f"{loss:.3f}" for loss in losses[method]),
            f"{mean(losses[method]) - first:+.3f}",
            number(mean(run["bytes a worker"] for run in runs) / 1e6),
        ]
        for method, runs in methods.items()
    ]
    return table(["", "validation loss", "beside DDP", "MB a worker sent"], lines)


def main() -> None:
    results = json.loads((RESULTS / "adamw.json").read_text())["results"]
    README.write_text(readme(README.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
