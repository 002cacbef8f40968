"""Thousands of schedules of faults, each replayed by its seed: see tests/support/rehearsal.py.

More of them: python -m benchmarks.rehearsals --schedules 100000
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.rehearsal import rehearse
from tests.support.rehearsal_faults import ALL_KINDS

BATCHES, SIZE = 22, 100
# What faults do to the workers: without these, a rehearsal would prove little.
CONSEQUENCES = (
    "exchanges",
    "half exchanges",
    "founded",
    "deadline",
    "news: dead",
    "news: left",
    "news: alive",
)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_schedule_breaks_an_invariant(batch):
    """Among each hundred, every kind of fault has happened, and had consequences."""
    counts: Counter[str] = Counter()
    for seed in range(batch * SIZE, (batch + 1) * SIZE):
        counts += rehearse(seed)
    assert counts["schedules"] == SIZE
    never = [what for what in (*ALL_KINDS, *CONSEQUENCES) if not counts[what]]
    assert not never, f"{never} did not happen"


def test_a_schedule_is_replayed_by_its_seed():
    assert rehearse(3) == rehearse(3)
    assert rehearse(3) != rehearse(4)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_each_kind_of_fault_alone(kind):
    """A kind that never happens by itself, such as coming back, needs another that makes it possible."""
    needs = {"restart": ("kill",), "return": ("leave",)}.get(kind, ())
    counts: Counter[str] = Counter()
    for seed in range(8):
        counts += rehearse(seed, (kind, *needs))
    assert counts[kind], f"{kind} did not happen"
