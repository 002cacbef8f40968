"""What the benchmark on slow networks takes for a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.peers.crowd import job, work_through
from benchmarks.peers.methods import METHODS

from gossamer.lab import Scenario
from gossamer.runs import Config


def test_a_message_in_flight_belongs_to_an_overlapped_step(start):
    """A barrier between warm-up and measurement empties the wire: the first step measured would be free."""
    config = Config(task="digits", workers=4, batch_size=8)
    rows = ("D-PSGD", "D-PSGD, overlap 1")
    jobs = [job(row, replace(config, **METHODS[row].settings), None, measure=0.1) for row in rows]
    found = []

    def keep(work, outcome):
        found.append(outcome.speed())

    work_through(start(Scenario.uniform(4, "8mbit", "5ms")), jobs, keep)
    waiting, overlapped = found
    assert 2 <= overlapped["steps"] <= 8  # so few that one would be missed
    assert overlapped["bytes"] == pytest.approx(waiting["bytes"], rel=0.1)
