"""Put what DDP's hyper-parameters give into README.md: with SGD and with AdamW.

    python -m benchmarks.adamw_page

SGD's curves are those of benchmarks.slow_networks at the same learning rates, AdamW's of benchmarks.adamw.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.pages import fill, number, table
from benchmarks.record import RESULTS, ROOT, Lines

README = ROOT / "README.md"
STEP = 100
CURVES = (("CNN", "0.03"), ("CNN", "0.1"), ("wide MLP", "0.03"))  # task and learning rate
METHODS = ("DDP", "D-PSGD", "CHOCO, sign", "PowerGossip, rank 2", "CHOCO, top 1 %")


def readme(text: str, adamw: Mapping[str, Any], curves: Mapping[str, Any]) -> str:
    """Return README with the tables of these results."""
    return fill(fill(text, "adamw", results_table(adamw["methods"])), "sgd", sgd_table(curves))


def sgd_table(curves: Mapping[str, Any]) -> str:
    """Return the accuracy of the average model after STEP steps, a row a method."""

    def accuracy(task: str, method: str, lr: str) -> float:
        points = curves[f"curve|{task}|{method}|{lr}"]["curve"]
        return next(float(point["metric"]) for point in points if point["step"] == STEP)

    lines = [[m, *(f"{accuracy(task, m, lr):.1%}" for task, lr in CURVES)] for m in METHODS]
    return table(["", *(f"{task}, lr {lr}" for task, lr in CURVES)], lines)


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
    README.write_text(readme(README.read_text(encoding="utf-8"), *results()), encoding="utf-8")


def results() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return what was measured with AdamW, and the lines of SGD's curves."""
    adamw = json.loads((RESULTS / "adamw.json").read_text())["results"]
    return adamw, Lines(RESULTS / "slow_networks_runs.jsonl").lines


if __name__ == "__main__":
    main()
