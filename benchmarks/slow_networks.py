"""Gossamer beside what people would use instead, on slow networks for real. Needs root, takes hours.

    python -m benchmarks.slow_networks             what is missing; goes on where it was stopped
    python -m benchmarks.slow_networks --write     only put together what has been measured

Eight workers train the same model on the same batches, in three parts:

curves   on this machine as it is: how good the average model is after how many steps, for each learning
         rate of the grid. A network changes no bit of it: every method here waits for what it needs.
speeds   in the lab: seconds, bytes by the kernel's counters and processor time of a step, for every
         network; all methods one after the other, three times over.
whole    in the lab, until the accuracy is reached: that steps times seconds a step is what it takes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import gossamer
from benchmarks.peers.crowd import Job, Loopback, Outcome, Place, job, work_through
from benchmarks.peers.methods import ALONE, METHODS
from benchmarks.record import RESULTS, ROOT, Lines
from gossamer.lab import Lab, Scenario
from gossamer.runs import Config

N = 8
REPETITIONS = 3
LR_GRID = (0.03, 0.1, 0.3)
BUDGET = 5.0  # seconds of one measurement
NETWORKS = {
    "1 Gbit/s, 1 ms": ("1gbit", "1ms"),
    "100 Mbit/s, 5 ms": ("100mbit", "5ms"),
    "10 Mbit/s, 20 ms": ("10mbit", "20ms"),
    "5 Mbit/s, 50 ms": ("5mbit", "50ms"),
}


@dataclass(frozen=True)
class Problem:
    """A task with its settings and what is to be reached."""

    config: Config
    target: float
    snapshots: int  # steps between two looks at the average model


FASHION = Config(task="fashion", workers=N, batch_size=32, steps=400, momentum=0.9)
PROBLEMS = {
    "CNN": Problem(replace(FASHION, model="cnn"), 0.80, 10),
    "wide MLP": Problem(replace(FASHION, task=str(ROOT / "benchmarks/peers/wide_mlp.py")), 0.82, 10),
    "GPT": Problem(Config(task="text", model="gpt-tiny", workers=N, batch_size=8, steps=300), 12.0, 10),
}


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
            self._run(Loopback(N), jobs, _curve)

    def speeds(self, networks: Sequence[str]) -> None:
        """Measure steps in the lab."""
        for repetition in range(REPETITIONS):
            for network in networks:
                jobs = [
                    (
                        f"speed|{problem}|{network}|{method}|{repetition}",
                        self._job(problem, method, LR_GRID[0], measure=BUDGET),
                    )
                    for problem in self.problems
                    for method in self.methods
                ]
                if any(key not in self.cache.lines for key, _ in jobs):
                    with Lab(Scenario.uniform(N, *NETWORKS[network])) as lab:
                        self._run(lab, jobs, _speed)

    def gamma(self, problem: str, method: str) -> float | None:
        """Return the consensus step size that `gamma="auto"` would find."""
        config = self._config(problem, method, LR_GRID[0])
        if not METHODS[method].ours or getattr(config.make_algorithm(), "gamma", None) != "auto":
            return None
        key = f"gamma|{problem}|{config.algorithm} {config.compressor}"
        if key not in self.cache.lines:
            shapes = [p.shape for p in config.make_task().model().parameters()]
            found = gossamer.tune_gamma(config.make_algorithm(), config.make_topology(), shapes=shapes)
            self.cache.add({"key": key, "gamma": found})
        return float(self.cache.lines[key]["gamma"])

    def _job(
        self, problem: str, method: str, lr: float, *, measure: float = 0, snapshots: bool = False
    ) -> Job:
        every = PROBLEMS[problem].snapshots if snapshots else 0
        config = self._config(problem, method, lr)
        return job(method, config, self.gamma(problem, method), measure=measure, snapshots=every)

    def _config(self, problem: str, method: str, lr: float) -> Config:
        return replace(PROBLEMS[problem].config, lr=lr, **METHODS[method].settings)

    def _run(self, place: Place, jobs: Sequence[tuple[str, Job]], read: Any) -> None:  # noqa: ANN401
        """Do what is missing and keep what `read` makes of it."""
        missing = [(key, work) for key, work in jobs if key not in self.cache.lines]
        keys = iter([key for key, _ in missing])

        def keep(work: Job, outcome: Outcome | None) -> None:
            line = {"key": next(keys)} | (read(work, outcome) if outcome else {"failed": True})
            self.cache.add(line)
            shown = line.get("seconds") or (line.get("curve") or ["failed"])[-1]
            print(line["key"], shown, flush=True)

        work_through(place, [work for _, work in missing], keep)


def _curve(work: Job, outcome: Outcome) -> dict[str, Any]:
    return {"curve": outcome.curve(Config(**work["config"]))}


def _speed(work: Job, outcome: Outcome) -> dict[str, Any]:
    return outcome.speed()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=RESULTS / "slow_networks_runs.jsonl")
    parser.add_argument("--parts", nargs="+", choices=("curves", "speeds"), default=["curves", "speeds"])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(Lines(given.cache), given.problems, given.methods)
    if "curves" in given.parts:
        study.curves()
    if "speeds" in given.parts:
        study.speeds(given.networks)


if __name__ == "__main__":
    main()
