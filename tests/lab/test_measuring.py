"""What the benchmark on slow networks takes for a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.peers.crowd import job, work_through
from benchmarks.peers.methods import METHODS

from gossamer.lab import Scenario
from gossamer.runs import Config


def test_a_message_under_way_belongs_to_a_late_step(start):
    """A barrier between warm-up and measurement empties the wire: the first step measured would be free."""
    config = Config(task="digits", workers=4, batch_size=8)
    rows = ("D-PSGD", "D-PSGD, late")
    jobs = [job(row, replace(config, **METHODS[row].settings), None, measure=0.1) for row in rows]
    found = []
    work_through(
        start(Scenario.uniform(4, "8mbit", "5ms")), jobs, lambda work, outcome: found.append(outcome.speed())
    )
    waiting, late = found
    assert 2 <= late["steps"] <= 8  # so few that one would be missed
    assert late["bytes"] == pytest.approx(waiting["bytes"], rel=0.1)
