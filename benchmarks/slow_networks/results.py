"""What the measurements amount to: what the pages show, and no more."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import median
from typing import Any

from benchmarks.peers.methods import ALONE, METHODS
from benchmarks.peers.model import predicted
from benchmarks.record import ROOT, Lines, found_gamma
from benchmarks.slow_networks.plan import (
    BANDWIDTHS,
    CLOCKED,
    CLOCKED_ON,
    CORES,
    CORNERS,
    EARLY,
    EARLY_AT,
    EARLY_OF,
    FREE,
    HEAT,
    LATENCIES,
    LOOPBACK,
    NETWORKS,
    PAUSE,
    PROBLEMS,
    REPETITIONS,
    Goal,
    N,
)
from gossamer.network.links import Network
from gossamer.network.units import bits_per_second, seconds
from gossamer.runs import Config

Known = Mapping[str, Mapping[str, Any]]  # the lines of the cache, by key


class Findings:
    """What is known so far."""

    def __init__(self, cache: Lines) -> None:
        self.cache = cache

    def everything(
        self, problems: Sequence[str], networks: Sequence[str], methods: Sequence[str]
    ) -> dict[str, Any]:
        """Return all results, put together."""
        return {
            "tasks": {problem: self.task(problem, networks, methods) for problem in problems},
            "clock": self.clock("CNN"),
            "heat": self.heat("CNN"),
            "corners": self.corners("CNN"),
            "whole": {
                key.split("|", 1)[1]: line["curve"][-1]
                for key, line in self.cache.lines.items()
                if key.startswith("whole|")
            },
            "early": early(self.cache.lines),
        }

    def task(self, problem: str, networks: Sequence[str], methods: Sequence[str]) -> dict[str, Any]:
        """Return what is known of a task."""
        goal, grid = PROBLEMS[problem].goal, PROBLEMS[problem].grid
        return {
            "settings": _settings(self.config(problem, "DDP")),
            "goal": [goal.target, goal.better],
            "learning rates": grid,
            "learned": {m: self.learned(problem, m) for m in methods if m != ALONE},
            "networks": {network: self.network(problem, network, methods) for network in networks},
        }

    def network(self, problem: str, network: str, methods: Sequence[str]) -> dict[str, Any]:
        """Return the rows of a network and what they amount to; where nothing is limited, two rows."""
        if network == FREE:
            return {"rows": self.rows(problem, network, (ALONE, "DDP"))}
        rows = self.rows(problem, network, methods)
        return {"rows": rows, "ratios": ratios(rows)}

    def learned(self, problem: str, method: str) -> dict[str, Any]:
        """Return the best learning rate and the steps to the goal."""
        return learned(self.cache.lines, problem, method, PROBLEMS[problem].goal, PROBLEMS[problem].grid)

    def rows(self, problem: str, network: str, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return what every method takes on a network."""
        compute = self.seconds(problem, network, ALONE)
        found = {}
        for method in methods:
            measures = measured(self.cache.lines, f"speed|{problem}|{network}|{method}")
            middle = {what: median(values) for what, values in measures.items()}
            steps = None if method == ALONE else self.learned(problem, method)["steps"]
            times = [steps * s for s in measures["seconds"]] if steps else []
            limit = beyond_the_limit(middle["seconds"], compute, middle["bytes"], *NETWORKS[network])
            found[method] = {
                "ours": METHODS[method].ours,
                **middle,
                "all seconds": measures["seconds"],
                "time": median(times) if times else None,
                "beyond the limit": limit,
            }
            if METHODS[method].ours:
                free = self.seconds(problem, FREE, method)
                modelled, pushed = (
                    self.modelled(problem, method, *NETWORKS[network], free, rendezvous=rendezvous)
                    for rendezvous in (True, False)
                )
                found[method]["rendezvous"] = modelled - pushed
        return found

    def clock(self, problem: str) -> dict[str, dict[str, dict[str, float]]]:
        """Return modelled and measured seconds of a step whose gradient is a pause.

        A worker's own are the pause and its processor time. No step is shorter than the pause and what
        all workers' processor time takes on the cores that they share.
        """
        found: dict[str, dict[str, dict[str, float]]] = {network: {} for network in CLOCKED_ON}
        for method in CLOCKED:
            work = median(measured(self.cache.lines, f"clock|{problem}|{LOOPBACK}|{method}")["cpu seconds"])
            for network, row in found.items():
                alone = self.modelled(problem, method, *NETWORKS[network], PAUSE + work)
                row[method] = {
                    "modelled": max(alone, PAUSE + N * work / CORES),
                    "measured": self.seconds(problem, network, method, "clock"),
                }
        return found

    def corners(self, problem: str) -> dict[str, dict[str, dict[str, float]]]:
        """Return modelled and measured seconds of a step at the corners of the map."""
        return {
            network: {
                method: {
                    "modelled": self.modelled(problem, method, *limits, self.seconds(problem, FREE, method)),
                    "measured": self.seconds(problem, network, method),
                }
                for method in HEAT
            }
            for network, limits in CORNERS.items()
        }

    def heat(self, problem: str) -> dict[str, dict[str, dict[str, float]]]:
        """Return the modelled seconds of a step: by bandwidth, latency and method."""
        free = {method: self.seconds(problem, FREE, method) for method in HEAT}
        return {
            bandwidth: {
                latency: {m: self.modelled(problem, m, bandwidth, latency, free[m]) for m in HEAT}
                for latency in LATENCIES
            }
            for bandwidth in BANDWIDTHS
        }

    def seconds(self, problem: str, network: str, method: str, part: str = "speed") -> float:
        """Return what a step takes."""
        return median(measured(self.cache.lines, f"{part}|{problem}|{network}|{method}")["seconds"])

    def modelled(
        self,
        problem: str,
        method: str,
        bandwidth: str,
        latency: str,
        own: float,
        *,
        rendezvous: bool = True,
    ) -> float:
        """Return what the clock predicts if `own` seconds of a step are a worker's own."""
        links = Network.uniform(N, bandwidth, latency, rendezvous=rendezvous)
        return predicted(self.config(problem, method), self.gamma(problem, method), links, own)

    def gamma(self, problem: str, method: str) -> float | None:
        """Return the consensus step size that `gamma="auto"` would find."""
        if not METHODS[method].ours:
            return None
        config = self.config(problem, method)
        key = f"gamma|{problem}|{config.algorithm} {config.compressor}"
        if key not in self.cache.lines:
            self.cache.add({"key": key, "gamma": found_gamma(config)})
        gamma: float | None = self.cache.lines[key]["gamma"]
        return gamma

    @staticmethod
    def config(problem: str, method: str, lr: float | None = None) -> Config:
        """Return a method's settings for a task, with any learning rate if none is given."""
        lr = PROBLEMS[problem].grid[0] if lr is None else lr
        return replace(PROBLEMS[problem].config, lr=lr, **METHODS[method].settings)


def _settings(config: Config) -> dict[str, Any]:
    """Return the settings of a task, with its file as it is found from the top of the repository."""
    settings: dict[str, Any] = json.loads(config.to_json())
    return settings | {"task": config.task.removeprefix(f"{ROOT}/")}


def learned(lines: Known, problem: str, method: str, goal: Goal, grid: tuple[float, ...]) -> dict[str, Any]:
    """Return the learning rate that reaches the goal first, and the steps it takes."""
    curves = {lr: lines[f"curve|{problem}|{method}|{lr}"] for lr in grid}
    steps = {lr: goal.steps(line["curve"]) for lr, line in curves.items() if not line.get("failed")}
    reached = {lr: count for lr, count in steps.items() if count is not None}
    best = min(reached, key=lambda lr: reached[lr]) if reached else None
    return {"lr": best, "steps": None if best is None else reached[best], "steps by lr": dict(steps)}


def early(lines: Known) -> dict[str, dict[str, float]]:
    """Return the average model's metric after some steps, by the key of the line that says so."""
    keys = [f"curve|{problem}|{method}|{lr}" for problem, lr in EARLY_AT for method in EARLY_OF]
    points = {key: {at["step"]: at["metric"] for at in lines[key]["curve"]} for key in keys}
    return {key: {"step": EARLY, "metric": metrics[EARLY]} for key, metrics in points.items()}


def measured(lines: Known, name: str) -> dict[str, list[float]]:
    """Return what a step took in every repetition."""
    keys = [f"{name}|{k}" for k in range(REPETITIONS)]
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
    """Return how many times sooner Gossamer's best is there than DDP, its best hook and so on.

    It is also compared with what is only decentralized, and with what is only quantized. How many times
    sooner DDP itself would be there if its network cost no time says how much there is to win.
    """

    def best(among: Callable[[str], bool]) -> str:
        return min((m for m, row in rows.items() if among(m) and row["time"]), key=lambda m: rows[m]["time"])

    ours = best(lambda m: METHODS[m].ours)
    rivals = {
        "DDP": "DDP",
        "best hook": best(lambda m: METHODS[m].hook is not None),
        "best of all else": best(lambda m: not METHODS[m].ours),
        "D-PSGD": best(lambda m: METHODS[m].settings.get("algorithm") == "dpsgd"),
        "quantized": "all-reduce, 8 bits",
    }
    return {
        "Gossamer's best": ours,
        "DDP without a network": rows["DDP"]["seconds"] / rows[ALONE]["seconds"],
        "sooner than": {
            name: {"method": rival, "times": rows[rival]["time"] / rows[ours]["time"]}
            for name, rival in rivals.items()
        },
    }
