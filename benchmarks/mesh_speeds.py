"""Rows of docs/slow_networks.md over the mesh, beside the same rows over gloo, in one run. Needs root.

    sudo python -m benchmarks.mesh_speeds

Eight workers in the lab train as in benchmarks.slow_networks, a few seconds for each row: once over gloo and
once over the mesh, which encrypts, by turns and in changing order, several times. Neither the network nor the
transport changes a bit of what is learned, so the steps to the goal are those of slow_networks.json. Writes
docs/results/mesh_speeds.json: medians of the repetitions, and the median of their ratios with the lowest and
the highest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.peers.crowd import Job, Outcome, job, work_through
from benchmarks.peers.methods import METHODS
from benchmarks.record import found_gamma, read, write
from benchmarks.slow_networks.plan import BUDGET, NETWORKS, PROBLEMS, SLOW, N
from gossamer.lab import Lab, Scenario

# With a million parameters D-PSGD only waits for bandwidth, which is the same for both.
ROWS = {
    "CNN": ("D-PSGD", "CHOCO, sign", "PowerGossip, rank 1"),
    "wide MLP": ("CHOCO, sign", "PowerGossip, rank 1"),
}
OVER = ("gloo", "mesh")
REPETITIONS, PORT = 3, 7000

Speed = Mapping[str, float]
Pair = Mapping[str, Speed]  # over gloo and over the mesh, one right after the other


class Turn(NamedTuple):
    """A measurement."""

    problem: str
    method: str
    repetition: int
    over: str


def turns() -> list[Turn]:
    """Return all measurements on a network in their order: who is first changes with every repetition."""
    return [
        Turn(problem, method, repetition, over)
        for repetition in range(REPETITIONS)
        for problem, methods in ROWS.items()
        for method in methods
        for over in (OVER if repetition % 2 == 0 else OVER[::-1])
    ]


def jobs() -> dict[Turn, Job]:
    """Return what workers have to do for each measurement."""
    configs = {
        (problem, method): replace(PROBLEMS[problem].config, **METHODS[method].settings)
        for problem, methods in ROWS.items()
        for method in methods
    }
    gammas = {row: found_gamma(config) for row, config in configs.items()}
    found = {}
    for turn in turns():
        row = turn.problem, turn.method
        found[turn] = job(turn.method, configs[row], gammas[row], measure=BUDGET, mesh=turn.over == "mesh")
    return found


def speeds(network: str, work: Mapping[Turn, Job]) -> dict[Turn, Speed]:
    """Measure on a network; what has failed is left out."""
    found: dict[Turn, Speed] = {}
    left = iter(work)

    def keep(_: Job, outcome: Outcome | None) -> None:
        turn = next(left)
        if outcome is not None:
            found[turn] = outcome.speed()
        shown = f"{1e3 * found[turn]['seconds']:.1f} ms a step" if turn in found else "failed"
        print(f"{network}: {', '.join(map(str, turn))}: {shown}", flush=True)

    with Lab(Scenario.uniform(N, *NETWORKS[network])) as lab:
        addresses = [f"{lab.address(i)}:{PORT}" for i in range(N)]
        work_through(lab, list(work.values()), keep, addresses)
    return found


def rows(network: str, found: Mapping[Turn, Speed], steps: Mapping[tuple[str, str], int]) -> list[Any]:
    """Return a row for each task, with what is known of its methods."""
    made: dict[str, dict[str, Any]] = {}
    for problem, method in steps:
        each = [{o: found.get(Turn(problem, method, k, o)) for o in OVER} for k in range(REPETITIONS)]
        pairs = [{o: s for o, s in pair.items() if s} for pair in each]
        whole = [pair for pair in pairs if len(pair) == len(OVER)]
        row = made.setdefault(problem, {"network": network, "task": problem, "methods": {}})
        row["methods"][method] = compared(whole, steps[problem, method])
    return list(made.values())


def compared(pairs: Sequence[Pair], steps: int) -> dict[str, Any]:
    """Return the medians over gloo and over the mesh, and how many times sooner the mesh is there."""
    row: dict[str, Any] = {"steps": steps, "pairs": len(pairs)}
    for over in OVER:
        middle = {what: median(pair[over][what] for pair in pairs) for what in pairs[0][over]}
        row[over] = {
            "seconds": round(middle["seconds"], 5),
            "bytes": round(middle["bytes"]),
            "cpu seconds": round(middle["cpu seconds"], 5),
            "time": round(steps * middle["seconds"], 3),
        }
    ratios = sorted(pair["gloo"]["seconds"] / pair["mesh"]["seconds"] for pair in pairs)
    row["times sooner"] = round(median(ratios), 3)
    row["lowest and highest"] = [round(ratios[0], 3), round(ratios[-1], 3)]
    return row


def main() -> None:
    torch.set_num_threads(1)
    tasks = read("slow_networks")["results"]["tasks"]
    steps = {(p, m): tasks[p]["learned"][m]["steps"] for p, methods in ROWS.items() for m in methods}
    work = jobs()
    made = [row for network in SLOW for row in rows(network, speeds(network, work), steps)]
    about = {"workers": N, "seconds of a measurement": BUDGET, "repetitions": REPETITIONS}
    print(write("mesh_speeds", {"about": about, "rows": made}))


if __name__ == "__main__":
    main()
