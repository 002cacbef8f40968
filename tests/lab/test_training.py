"""Training in a lab, and what it says when a link is cut."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gossamer.lab import Scenario
from tests.support.waiting import IMPATIENT, LIMIT

pytestmark = pytest.mark.usefixtures("machine")

SCRIPT = """
import sys, torch, gossamer
torch.manual_seed(0)
model = torch.nn.Linear(1000, 10)
optimizer = gossamer.decentralize(
    torch.optim.SGD(model.parameters(), lr=0.01), model, algorithm="dpsgd", deadline=float(sys.argv[1])
)
try:
    for step in range(100_000):
        model(torch.randn(4, 1000)).square().mean().backward()
        optimizer.step()
        if step == 3:
            print("trains", flush=True)
except gossamer.PeerError as error:
    print(type(error).__name__, error.peer, error.phase, flush=True)
sys.stdin.read()
"""


def test_a_cut_link_is_told_with_the_peer_at_its_other_end(start):
    """A timeout closes all of a worker's connections, and so does its end.

    So only those at the link are impatient, and nobody leaves before all have told: what the others tell
    is then not a matter of who is first.
    """
    lab = start(Scenario.uniform(4, "50mbit", "2ms"))
    workers = []
    for i, deadline in enumerate((LIMIT, IMPATIENT, IMPATIENT, LIMIT)):
        command = [sys.executable, "-c", SCRIPT, str(deadline)]
        workers.append(lab.popen(i, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for worker in workers:
        assert worker.stdout.readline() == "trains\n"
    lab.cut(1, 2)
    told = [worker.stdout.readline().split()[:3] for worker in workers]
    assert told[1:3] == [["PeerTimeout", "2", "round"], ["PeerTimeout", "1", "round"]]
    assert told[::3] == [["PeerLost", "1", "round"], ["PeerLost", "2", "round"]]
    for worker in workers:
        worker.communicate(timeout=LIMIT)
