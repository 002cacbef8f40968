"""What the measurements of `slow_networks` amount to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from benchmarks.peers.methods import METHODS
from gossamer.network import bits_per_second, seconds

Lines = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Goal:
    """The metric to reach."""

    target: float
    better: str  # higher or lower

    def reached(self, metric: float) -> bool:
        """Return whether this is good enough."""
        return metric >= self.target if self.better == "higher" else metric <= self.target

    def steps(self, curve: list[dict[str, float]]) -> int | None:
        """Return the first step at which the average model was good enough."""
        reached = [at["step"] for at in curve if self.reached(at["metric"])]
        return int(reached[0]) if reached else None


def learned(lines: Lines, problem: str, method: str, goal: Goal, grid: tuple[float, ...]) -> dict[str, Any]:
    """Return the learning rate that reaches the goal first, and the steps it takes."""
    curves = {lr: lines[f"curve|{problem}|{method}|{lr}"] for lr in grid}
    steps = {lr: goal.steps(line["curve"]) for lr, line in curves.items() if not line.get("failed")}
    reached = {lr: count for lr, count in steps.items() if count is not None}
    best = min(reached, key=lambda lr: reached[lr]) if reached else None
    return {"lr": best, "steps": None if best is None else reached[best], "steps by lr": dict(steps)}


def measured(
    lines: Lines, problem: str, network: str, method: str, repetitions: int
) -> dict[str, list[float]]:
    """Return what a step took in every repetition."""
    keys = [f"speed|{problem}|{network}|{method}|{k}" for k in range(repetitions)]
    sound = [lines[key] for key in keys if not lines[key].get("failed")]
    return {what: [line[what] for line in sound] for what in ("seconds", "bytes", "cpu seconds")}


def beyond_the_limit(
    seconds_a_step: float, compute: float, sent: float, bandwidth: str, latency: str
) -> float:
    """Return by how much a step is slower than max(compute, latency + bytes / bandwidth)."""
    rate = bits_per_second(bandwidth)
    wire = seconds(latency) + (0 if rate == inf else 8 * sent / rate)
    return seconds_a_step - max(compute, wire)


def ratios(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many times sooner Gossamer's best is there than DDP, the best hook, the best of all else."""

    def best(among: Callable[[str], bool]) -> str:
        return min((m for m, row in rows.items() if among(m) and row["time"]), key=lambda m: rows[m]["time"])

    ours = best(lambda m: METHODS[m].ours)
    rivals = {
        "DDP": "DDP",
        "best hook": best(lambda m: METHODS[m].hook is not None),
        "best of all else": best(lambda m: not METHODS[m].ours),
    }
    return {
        "Gossamer's best": ours,
        "sooner than": {
            name: {"method": rival, "times": rows[rival]["time"] / rows[ours]["time"]}
            for name, rival in rivals.items()
        },
    }
