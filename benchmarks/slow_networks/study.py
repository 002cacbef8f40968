"""Measures what is missing, in the lab or on this machine as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from benchmarks.peers.crowd import Job, Outcome, job, work_through
from benchmarks.peers.methods import ALONE
from benchmarks.record import Lines
from benchmarks.slow_networks.plan import (
    BUDGET,
    CORNERS,
    LOOPBACK,
    NETWORKS,
    PAUSE,
    PROBLEMS,
    REPETITIONS,
    N,
)
from benchmarks.slow_networks.results import Findings
from gossamer._processes import ThisMachine
from gossamer.lab import Lab, Scenario
from gossamer.runs import Config

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
        with Lab(Scenario.uniform(N, *limits)) if limits else nullcontext(ThisMachine(N)) as place:
            work_through(place, list(missing.values()), keep)


def _curve(problem: str, work: Job, outcome: Outcome) -> dict[str, Any]:
    return {"curve": outcome.curve(Config(**work["config"]), PROBLEMS[problem].goal.reached)}
