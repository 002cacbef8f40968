"""Four workers on a ring, of which some are lost, and what must be true of all of them at the end."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import torch

from tests.support.members import CHOCO, PATIENT, Place, Report, Trainer
from tests.support.waiting import wait_until

N = 4
FAULT, LATER, ROUNDS = 20, 40, 60
ALGORITHMS: dict[str, dict[str, Any]] = {
    "choco": CHOCO,
    "dcd": {"algorithm": "dcd", "compressor": "qsgd:8"},
    "deepsqueeze": {"algorithm": "deepsqueeze", "compressor": "qsgd:8", "gamma": 0.4},
    "powergossip": {"algorithm": "powergossip"},
    "dpsgd": {"algorithm": "dpsgd"},
}
RING = {rank: {(rank - 1) % N, (rank + 1) % N} for rank in range(N)}
NEAR = 0.05  # how far from their average workers are that agree; in training it is 2 and more


def without(lost: list[int]) -> dict[int, set[int]]:
    """Return the neighbours of those that are left of four on a ring: each other."""
    rest = set(range(N)) - set(lost)
    return {rank: rest - {rank} for rank in sorted(rest)}


def require_agreement(reports: dict[int, Report]) -> None:
    """Check that workers are close to each other, and that both ends of an edge believe the same."""
    models = torch.stack([report.x for report in reports.values()]).double()
    assert float((models - models.mean(0)).norm(dim=1).square().mean().sqrt()) < NEAR
    require_same_beliefs(reports)


def require_same_beliefs(reports: dict[int, Report]) -> None:
    """Check that what one end shows is what the other holds, bit for bit, after all that both have noted."""
    for (i, mine), (j, theirs) in combinations(reports.items(), 2):
        common = [(e, number) for p, e, number in mine.notes if p == j and (i, e, number) in theirs.notes]
        for epoch, number in common:
            weight, shown, held = mine.notes[j, epoch, number]
            assert theirs.notes[i, epoch, number] == (weight, held, shown), f"{i} and {j} at {number}"
        assert common or not mine.notes or j not in mine.edges, f"{i} and {j} have no message in common"


def goes_on(
    place: Place,
    lost: list[int],
    neighbours: set[int],
    missing: list[int],
    settings: dict[str, Any] = CHOCO,
    silence: float = PATIENT,
) -> Report:
    """Train all rounds though some of the others are lost, and on until all have these neighbours."""
    worker = Trainer(place, silence=silence, **settings)
    worker.train(to=LATER)
    wait_until(lambda: all(worker.statuses[j] in ("DEAD", "LEFT") for j in lost))
    place.mark("others are lost")
    worker.train(to=ROUNDS)
    return worker.train_until_told(neighbours, missing)


def dies(place: Place, in_exchange: bool, settings: dict[str, Any] = CHOCO) -> None:
    worker = Trainer(place, **settings)
    worker.train(to=FAULT)
    worker.die(in_exchange=in_exchange)
