"""What simulated and real workers do alike: every algorithm with every compressor, on graphs of all kinds."""

from __future__ import annotations

import torch

from gossamer import topology
from gossamer.algorithms import Algorithm
from gossamer.topology import Schedule, Topology
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN
from tests.support.problem import trained

STEPS = 3
GRAPHS: dict[str, Topology | Schedule] = {
    "ring": topology.ring(4),
    "irregular": topology.from_edges([(0, 1), (1, 2), (2, 3), (3, 0), (2, 4)]),
}


def cases(graph: str) -> dict[str, Algorithm]:
    """All compressors on the ring; what a compressor does has nothing to do with the graph."""
    chosen = {c: C for c, C in COMPRESSORS.items() if graph == "ring" or c in ("topk", "sign", "lowrank")}
    return {**PLAIN, **{f"{a} {c}": make(C) for a, make in COMPRESSED.items() for c, C in chosen.items()}}


def all_cases(rank: int, n: int, graph: str) -> dict[str, tuple[torch.Tensor, int]]:
    results = {}
    for name, algorithm in cases(graph).items():
        x, optimizer = trained(algorithm, GRAPHS[graph], STEPS)
        results[name] = (x, optimizer.bytes_sent)
    return results


def spread() -> dict[str, Algorithm]:
    """Return what flies during two of three local steps."""
    return {
        "spread choco": COMPRESSED["choco-overlapped"](COMPRESSORS["topk"]),
        "spread dpsgd": PLAIN["dpsgd"],
        "spread powergossip": PLAIN["powergossip-overlapped"],
    }


def varied(rank: int, n: int) -> dict[str, torch.Tensor]:
    results = {}
    for name in ("dpsgd", "powergossip", "allreduce"):
        results[name] = trained(PLAIN[name], "random-matching", STEPS)[0]
    results["every"] = trained(PLAIN["allreduce"], "ring", STEPS, every=2)[0]
    for name in ("dpsgd", "powergossip-overlapped"):
        results[f"overlap {name}"] = trained(PLAIN[name], "ring", STEPS, overlap=True)[0]
    choco = COMPRESSED["choco-overlapped"](COMPRESSORS["topk"])
    results["overlap choco"] = trained(choco, "ring", STEPS, overlap=True)[0]
    results["overlap every"] = trained(choco, "ring", STEPS, overlap=True, every=2)[0]
    for name, algorithm in spread().items():
        results[name] = trained(algorithm, "ring", 2 * STEPS, overlap=2, every=3)[0]
    return results
