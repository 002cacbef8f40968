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
from pathlib import Path

import torch

from benchmarks.peers.methods import METHODS
from benchmarks.record import Lines, NotMeasuredError, raw_lines, write
from benchmarks.slow_networks.plan import (
    CLOCKED,
    CLOCKED_ON,
    CORNERS,
    HEAT,
    LOOPBACK,
    NETWORKS,
    PROBLEMS,
    WHOLE,
    WHOLE_ON,
)
from benchmarks.slow_networks.study import Study

PARTS = ("curves", "speeds", "clock", "corners", "whole")


def main() -> None:
    given = _arguments()
    torch.set_num_threads(1)
    study = Study(Lines("slow_networks", given.cache))
    try:
        measure(study, given)
        if set(given.methods) != set(METHODS):
            sys.exit("results are not written: they compare all methods, and --methods names some")
        results = study.findings.everything(given.problems, given.networks, given.methods)
    except NotMeasuredError as error:
        sys.exit(f"results are not written: {error}")
    print(write("slow_networks", results, study.cache))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.slow_networks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cache", type=Path, default=raw_lines("slow_networks"))
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    return parser.parse_args()


def measure(study: Study, given: argparse.Namespace) -> None:
    """Measure what is missing of the parts that were asked for."""
    for problem in given.problems if given.parts else ():
        PROBLEMS[problem].config.make_task()  # what data is missing is said here; nobody would hear workers
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


if __name__ == "__main__":
    main()
