"""Training in a lab, and what it says when a link is cut."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gossamer.lab import Scenario

pytestmark = pytest.mark.usefixtures("machine")

SCRIPT = """
import torch, gossamer
torch.manual_seed(0)
model = torch.nn.Linear(1000, 10)
optimizer = gossamer.decentralize(
    torch.optim.SGD(model.parameters(), lr=0.01), model, algorithm="dpsgd", deadline=4
)
try:
    for step in range(100_000):
        model(torch.randn(4, 1000)).square().mean().backward()
        optimizer.step()
        if step == 3:
            print("trains", flush=True)
except gossamer.PeerError as error:
    print(type(error).__name__, error.peer, error.phase, flush=True)
"""


def test_a_cut_link_is_told_with_the_peer_at_its_other_end(start):
    lab = start(Scenario.uniform(4, "50mbit", "2ms"))
    command = [sys.executable, "-c", SCRIPT]
    workers = [lab.popen(i, command, stdout=subprocess.PIPE, text=True) for i in range(4)]
    for worker in workers:
        assert worker.stdout.readline() == "trains\n"
    lab.cut(1, 2)
    told = [worker.communicate(timeout=60)[0].split() for worker in workers]
    assert told[1][:3] == ["PeerTimeout", "2", "round"]
    assert told[2][:3] == ["PeerTimeout", "1", "round"]
    assert {told[0][0], told[3][0]} <= {"PeerTimeout", "PeerLost"}  # they have lost a neighbour each
    assert (told[0][1], told[3][1]) == ("1", "2")
