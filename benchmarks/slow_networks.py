"""Gossamer beside what people would use instead, on slow networks for real. Needs root, takes hours.

    python -m benchmarks.slow_networks             what is missing; goes on where it was stopped
    python -m benchmarks.slow_networks --parts     only put together what has been measured

Eight workers train the same model on the same batches, in parts:

curves   on this machine as it is: how good the average model is after how many steps, for each learning
         rate of the grid. A network changes no bit of it: every method here waits for what it needs.
speeds   in the lab: seconds, bytes by the kernel's counters and processor time of a step, for every
         network; all methods one after the other, three times over.
clock    the same with a pause in place of the gradient, for those that the modelled clock is checked with:
         computing on shared cores would measure the cores.
corners  as speeds, where bandwidth and latency are both extreme, for what the map of both shows.
whole    in the lab, until the accuracy is reached: that steps times seconds a step is what it takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.crowd import Job, Loopback, Outcome, job, work_through
from benchmarks.peers.methods import ALONE, METHODS
from benchmarks.record import RESULTS, Lines, write
from benchmarks.slow_networks_plan import (
    BUDGET,
    CLOCKED,
    CLOCKED_ON,
    CORNERS,
    HEAT,
    LOOPBACK,
    NETWORKS,
    PAUSE,
    PROBLEMS,
    REPETITIONS,
    WHOLE,
    WHOLE_ON,
    N,
)
from benchmarks.slow_networks_results import Findings
from gossamer.lab import Lab, Scenario
from gossamer.runs import Config

PARTS = ("curves", "speeds", "clock", "corners", "whole")
Read = Callable[[Job, Outcome], Mapping[str, Any]]


class Study:
    """Measures what is missing."""

    def __init__(self, cache: Lines) -> None:
        self.cache, self.findings = cache, Findings(cache)

    def curves(self, problem: str, methods: Sequence[str]) -> None:
        """Train on the loopback interface, with every learning rate of the grid."""
        jobs = {
            f"curve|{problem}|{method}|{lr}": self._job(problem, method, lr, snapshots=True)
            for method in methods
            for lr in PROBLEMS[problem].grid
            if method != ALONE
        }
        self._run(LOOPBACK, jobs, partial(_curve, problem))

    def speeds(
        self, part: str, networks: Sequence[str], problems: Sequence[str], methods: Sequence[str]
    ) -> None:
        """Measure steps in the lab."""
        for repetition in range(REPETITIONS):
            for network in networks:
                jobs = {
                    f"{part}|{problem}|{network}|{method}|{repetition}": self._job(
                        problem, method, measure=BUDGET, pause=PAUSE if part == "clock" else 0
                    )
                    for problem in problems
                    for method in methods
                }
                self._run(network, jobs, lambda work, outcome: outcome.speed())

    def whole(self, network: str, problem: str, methods: Sequence[str]) -> None:
        """Train in the lab until the goal is reached."""
        for method in methods:
            known = self.findings.learned(problem, method)
            if known["steps"] is None:
                continue
            work = self._job(problem, method, known["lr"], snapshots=True)
            work["config"]["steps"] = known["steps"]
            self._run(network, {f"whole|{problem}|{network}|{method}": work}, partial(_curve, problem))

    def _job(
        self,
        problem: str,
        method: str,
        lr: float | None = None,
        *,
        measure: float = 0,
        pause: float = 0,
        snapshots: bool = False,
    ) -> Job:
        every = PROBLEMS[problem].snapshots if snapshots else 0
        config, gamma = self.findings.config(problem, method, lr), self.findings.gamma(problem, method)
        return job(method, config, gamma, measure=measure, pause=pause, snapshots=every)

    def _run(self, network: str, jobs: Mapping[str, Job], read: Read) -> None:
        """Do what is missing, in a lab or on the machine as it is, and keep what `read` makes of it."""
        missing = {key: work for key, work in jobs.items() if key not in self.cache.lines}
        if not missing:
            return
        keys = iter(missing)

        def keep(work: Job, outcome: Outcome | None) -> None:
            line = {"key": next(keys), **(read(work, outcome) if outcome else {"failed": True})}
            self.cache.add(line)
            shown = line.get("seconds") or (line.get("curve") or ["failed"])[-1]
            print(line["key"], shown, flush=True)

        limits = (NETWORKS | CORNERS).get(network)
        with Lab(Scenario.uniform(N, *limits)) if limits else nullcontext(Loopback(N)) as place:
            work_through(place, list(missing.values()), keep)


def _curve(problem: str, work: Job, outcome: Outcome) -> dict[str, Any]:
    return {"curve": outcome.curve(Config(**work["config"]), PROBLEMS[problem].goal.reached)}


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
    for problem in given.problems:  # what data is missing is said here; in the workers nobody would hear it
        PROBLEMS[problem].config.make_task()
    study = Study(Lines(given.cache))
    if "curves" in given.parts:
        for problem in given.problems:
            study.curves(problem, given.methods)
    if "speeds" in given.parts:
        study.speeds("speed", given.networks, given.problems, given.methods)
    if "clock" in given.parts:
        study.speeds("clock", [LOOPBACK, *CLOCKED_ON], ["CNN"], CLOCKED)
    if "corners" in given.parts:
        study.speeds("speed", list(CORNERS), ["CNN"], HEAT)
    if "whole" in given.parts:
        study.whole(WHOLE_ON, "CNN", WHOLE)
    if set(given.methods) != set(METHODS):
        sys.exit("results are not written: they compare all methods, and --methods names some")
    try:
        results = study.findings.everything(given.problems, given.networks, given.methods)
    except KeyError as error:
        sys.exit(f"results are not written yet: {error} has not been measured")
    print(write("slow_networks", results))


if __name__ == "__main__":
    main()
