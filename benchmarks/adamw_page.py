"""Put what DDP's hyper-parameters give into docs/from_ddp.md: with SGD and with AdamW.

    python -m benchmarks.adamw_page

SGD's curves are those of benchmarks.slow_networks at the same learning rates, AdamW's of benchmarks.adamw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.pages import fill, number, table
from benchmarks.record import ROOT, read
from benchmarks.slow_networks.plan import EARLY_AT, EARLY_OF

PAGE = ROOT / "docs" / "from_ddp.md"


def page(text: str, adamw: Mapping[str, Any], slow_networks: Mapping[str, Any]) -> str:
    """Return the page with the tables of these records."""
    text = fill(text, "adamw", results_table(adamw["results"]["methods"]))
    return fill(text, "sgd", sgd_table(slow_networks["results"]["early"]))


def sgd_table(early: Mapping[str, Mapping[str, float]]) -> str:
    """Return the accuracy of the average model after some steps, a row a method."""
    lines = [
        [method, *(f"{early[f'curve|{task}|{method}|{lr}']['metric']:.1%}" for task, lr in EARLY_AT)]
        for method in EARLY_OF
    ]
    return table(["", *(f"{task}, lr {lr}" for task, lr in EARLY_AT)], lines)


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
    return table(["", "validation loss", "beside DDP", "MB sent per worker"], lines)


def main() -> None:
    filled = page(PAGE.read_text(encoding="utf-8"), read("adamw"), read("slow_networks"))
    PAGE.write_text(filled, encoding="utf-8")


if __name__ == "__main__":
    main()
