"""Gossamer beside what people would use instead, on slow networks for real. Needs root, takes hours.

    python -m benchmarks.slow_networks             what is missing; goes on where it was stopped
    python -m benchmarks.slow_networks --parts     only put together what has been measured

Eight workers train the same model on the same batches, in four parts:

curves   on this machine as it is: how good the average model is after how many steps, for each learning
         rate of the grid. A network changes no bit of it: every method here waits for what it needs.
speeds   in the lab: seconds, bytes by the kernel's counters and processor time of a step, for every
         network; all methods one after the other, three times over.
corners  the same where bandwidth and latency are both extreme, for what the map of both shows.
whole    in the lab, until the accuracy is reached: that steps times seconds a step is what it takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.peers.crowd import Job, Loopback, Outcome, job, work_through
from benchmarks.peers.methods import ALONE, METHODS
from benchmarks.peers.model import predicted
from benchmarks.record import RESULTS, ROOT, Lines, found_gamma, write
from benchmarks.slow_networks_results import Goal, beyond_the_limit, learned, measured, ratios
from gossamer.lab import Lab, Scenario
from gossamer.network import Network
from gossamer.runs import Config

N = 8
PARTS = ("curves", "speeds", "corners", "whole")
REPETITIONS = 3
LR_GRID = (0.03, 0.1, 0.3)
BUDGET = 3.0  # seconds of one measurement
FREE = "no limit"
NETWORKS = {
    FREE: ("unlimited", "0ms"),
    "1 Gbit/s, 1 ms": ("1gbit", "1ms"),
    "100 Mbit/s, 5 ms": ("100mbit", "5ms"),
    "10 Mbit/s, 20 ms": ("10mbit", "20ms"),
    "5 Mbit/s, 50 ms": ("5mbit", "50ms"),
}
CORNERS = {
    "5 Mbit/s, 1 ms": ("5mbit", "1ms"),
    "5 Mbit/s, 50 ms": ("5mbit", "50ms"),
    "1 Gbit/s, 1 ms": ("1gbit", "1ms"),
    "1 Gbit/s, 50 ms": ("1gbit", "50ms"),
}

BANDWIDTHS, LATENCIES = ("5mbit", "10mbit", "100mbit", "1gbit"), ("1ms", "5ms", "20ms", "50ms")
HEAT = (
    "all-reduce",
    "all-reduce, 8 bits",
    "D-PSGD",
    "DCD, 8 bits",
    "CHOCO, sign",
    "CHOCO, top 1 %",
    "PowerGossip, rank 1",
)


@dataclass(frozen=True)
class Problem:
    """A task with its settings and what is to be reached."""

    config: Config
    goal: Goal
    snapshots: int  # steps between two looks at the average model


FASHION = Config(task="fashion", workers=N, batch_size=32, steps=250, momentum=0.9)
WIDE = replace(FASHION, task=str(ROOT / "benchmarks/peers/wide_mlp.py"), steps=160)
TEXT = Config(task="text", model="gpt-tiny", workers=N, batch_size=8, steps=120)
PROBLEMS = {
    "CNN": Problem(replace(FASHION, model="cnn"), Goal(0.80, "higher"), 10),
    "wide MLP": Problem(WIDE, Goal(0.80, "higher"), 10),
    "GPT": Problem(TEXT, Goal(15.0, "lower"), 10),
}
WHOLE = ("DDP", "DDP, fp16 hook", "CHOCO, sign, late", "PowerGossip, rank 1, late")


Read = Callable[[Job, Outcome], dict[str, Any]]


class Study:
    """The measurements, and what is missing of them."""

    def __init__(self, cache: Lines, problems: Sequence[str], methods: Sequence[str]) -> None:
        self.cache, self.problems, self.methods = cache, problems, methods

    def curves(self) -> None:
        """Train on the loopback interface, with every learning rate of the grid."""
        for problem in self.problems:
            jobs = [
                (f"curve|{problem}|{method}|{lr}", self._job(problem, method, lr, snapshots=True))
                for method in self.methods
                for lr in LR_GRID
                if method != ALONE
            ]
            self._run(None, jobs, partial(_curve, problem))

    def speeds(self, networks: Sequence[str], problems: Sequence[str], methods: Sequence[str]) -> None:
        """Measure steps in the lab."""
        for repetition in range(REPETITIONS):
            for network in networks:
                jobs = [
                    (
                        f"speed|{problem}|{network}|{method}|{repetition}",
                        self._job(problem, method, LR_GRID[0], measure=BUDGET),
                    )
                    for problem in problems
                    for method in methods
                ]
                self._run(network, jobs, _speed)

    def whole(self, network: str, problem: str, methods: Sequence[str]) -> None:
        """Train in the lab until the goal is reached."""
        for method in methods:
            known = self.learned(problem, method)
            if known["steps"] is None:
                continue
            work = self._job(problem, method, known["lr"], snapshots=True)
            work["config"]["steps"] = known["steps"]
            self._run(network, [(f"whole|{problem}|{network}|{method}", work)], partial(_curve, problem))

    def learned(self, problem: str, method: str) -> dict[str, Any]:
        """Return the best learning rate and the steps to the goal."""
        return learned(self.cache.lines, problem, method, PROBLEMS[problem].goal, LR_GRID)

    def rows(self, problem: str, network: str) -> dict[str, dict[str, Any]]:
        """Return what every method takes on a network."""
        compute = self._seconds(problem, network, ALONE)
        found = {}
        for method in self.methods:
            measures = measured(self.cache.lines, problem, network, method, REPETITIONS)
            middle = {what: median(values) for what, values in measures.items()}
            steps = None if method == ALONE else self.learned(problem, method)["steps"]
            times = [steps * s for s in measures["seconds"]] if steps else []
            limit = beyond_the_limit(middle["seconds"], compute, middle["bytes"], *NETWORKS[network])
            found[method] = {
                "ours": METHODS[method].ours,
                **middle,
                "all seconds": measures["seconds"],
                "times": times,
                "time": median(times) if times else None,
                "beyond the limit": limit,
            }
            if METHODS[method].ours:
                modelled = self._modelled(problem, method, *NETWORKS[network])
                pushed = self._modelled(problem, method, *NETWORKS[network], rendezvous=False)
                found[method] |= {"modelled": modelled, "rendezvous": modelled - pushed}
        return found

    def results(self, networks: Sequence[str]) -> dict[str, Any]:
        """Return everything, put together."""
        return {
            problem: {
                "settings": self._job(problem, "DDP", LR_GRID[0])["config"],
                "goal": [PROBLEMS[problem].goal.target, PROBLEMS[problem].goal.better],
                "learned": {m: self.learned(problem, m) for m in self.methods if m != ALONE},
                "networks": {
                    network: {"rows": (rows := self.rows(problem, network)), "ratios": ratios(rows)}
                    for network in networks
                },
                "heat": self.heat(problem),
                "corners": self.corners(problem) if problem == "CNN" else None,
                "whole": {
                    key.split("|", 2)[2]: line["curve"][-1]
                    for key, line in self.cache.lines.items()
                    if key.startswith(f"whole|{problem}|")
                },
            }
            for problem in self.problems
        }

    def _seconds(self, problem: str, network: str, method: str) -> float:
        return median(measured(self.cache.lines, problem, network, method, REPETITIONS)["seconds"])

    def heat(self, problem: str) -> dict[str, dict[str, dict[str, float]]]:
        """Return the modelled seconds of a step: by bandwidth, latency and method."""
        methods = [method for method in HEAT if method in self.methods]
        return {
            bandwidth: {
                latency: {m: self._modelled(problem, m, bandwidth, latency) for m in methods}
                for latency in LATENCIES
            }
            for bandwidth in BANDWIDTHS
        }

    def corners(self, problem: str) -> dict[str, dict[str, dict[str, float]]]:
        """Return modelled and measured seconds of a step at the corners of that map."""
        return {
            network: {
                method: {
                    "modelled": self._modelled(problem, method, *limits),
                    "measured": self._seconds(problem, network, method),
                }
                for method in HEAT
            }
            for network, limits in CORNERS.items()
        }

    def _modelled(
        self, problem: str, method: str, bandwidth: str, latency: str, *, rendezvous: bool = True
    ) -> float:
        """Return what the clock predicts, from what the method takes where nothing is limited."""
        links = Network.uniform(N, bandwidth, latency, rendezvous=rendezvous)
        config, compute = self._config(problem, method, LR_GRID[0]), self._seconds(problem, FREE, method)
        return predicted(config, self.gamma(problem, method), links, compute)

    def gamma(self, problem: str, method: str) -> float | None:
        """Return the consensus step size that `gamma="auto"` would find."""
        if not METHODS[method].ours:
            return None
        config = self._config(problem, method, LR_GRID[0])
        key = f"gamma|{problem}|{config.algorithm} {config.compressor}"
        if key not in self.cache.lines:
            self.cache.add({"key": key, "gamma": found_gamma(config)})
        gamma: float | None = self.cache.lines[key]["gamma"]
        return gamma

    def _job(
        self, problem: str, method: str, lr: float, *, measure: float = 0, snapshots: bool = False
    ) -> Job:
        every = PROBLEMS[problem].snapshots if snapshots else 0
        config = self._config(problem, method, lr)
        return job(method, config, self.gamma(problem, method), measure=measure, snapshots=every)

    def _config(self, problem: str, method: str, lr: float) -> Config:
        return replace(PROBLEMS[problem].config, lr=lr, **METHODS[method].settings)

    def _run(self, network: str | None, jobs: Sequence[tuple[str, Job]], read: Read) -> None:
        """Do what is missing, in a lab or on the machine as it is, and keep what `read` makes of it."""
        missing = [(key, work) for key, work in jobs if key not in self.cache.lines]
        if not missing:
            return
        keys = iter([key for key, _ in missing])

        def keep(work: Job, outcome: Outcome | None) -> None:
            line: dict[str, Any] = {"key": next(keys)} | (
                read(work, outcome) if outcome else {"failed": True}
            )
            self.cache.add(line)
            shown = line.get("seconds") or (line.get("curve") or ["failed"])[-1]
            print(line["key"], shown, flush=True)

        lab = network and Lab(Scenario.uniform(N, *(NETWORKS | CORNERS)[network]))
        with lab or nullcontext(Loopback(N)) as place:
            work_through(place, [work for _, work in missing], keep)


def _curve(problem: str, work: Job, outcome: Outcome) -> dict[str, Any]:
    return {"curve": outcome.curve(Config(**work["config"]), PROBLEMS[problem].goal.reached)}


def _speed(work: Job, outcome: Outcome) -> dict[str, Any]:
    return outcome.speed()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=RESULTS / "slow_networks_runs.jsonl")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(Lines(given.cache), given.problems, given.methods)
    if "curves" in given.parts:
        study.curves()
    if "speeds" in given.parts:
        study.speeds(given.networks, given.problems, given.methods)
    if "corners" in given.parts:
        study.speeds(list(CORNERS), ["CNN"], HEAT)
    if "whole" in given.parts:
        study.whole("10 Mbit/s, 20 ms", "CNN", WHOLE)
    try:
        results = study.results(given.networks)
    except KeyError as error:
        sys.exit(f"results are not written yet: {error} has not been measured")
    print(write("slow_networks", results))


if __name__ == "__main__":
    main()
