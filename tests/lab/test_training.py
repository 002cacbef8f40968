"""Training in a lab, and what it says when a link is cut."""

from __future__ import annotations

import subprocess
import sys
from select import select

import pytest

from gossamer.lab import Scenario
from tests.support.waiting import IMPATIENT, LIMIT

AT_LINK = {0: 1, 3: 2}  # the neighbours at the link of those that are not
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
    """Only those at the link are impatient: a timeout closes all of its connections, as its end does.

    One of the others loses its neighbour at the link. The last one may be a round behind, wait for that one's
    message, and lose it in turn.
    """
    lab = start(Scenario.uniform(4, "50mbit", "2ms"))
    workers = []
    for i, deadline in enumerate((LIMIT, IMPATIENT, IMPATIENT, LIMIT)):
        command = [sys.executable, "-c", SCRIPT, str(deadline)]
        workers.append(lab.popen(i, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for worker in workers:
        assert worker.stdout.readline() == "trains\n"
    lab.cut(1, 2)
    assert told(workers[1]) == ["PeerTimeout", "2", "round"]
    assert told(workers[2]) == ["PeerTimeout", "1", "round"]
    ready, _, _ = select([workers[0].stdout, workers[3].stdout], [], [], LIMIT)
    first, last = (0, 3) if workers[0].stdout in ready else (3, 0)
    assert told(workers[first]) == ["PeerLost", str(AT_LINK[first]), "round"]
    workers[first].communicate(timeout=LIMIT)
    error, peer, phase = told(workers[last])
    assert (error, phase) == ("PeerLost", "round")
    assert int(peer) in (AT_LINK[last], first)
    for worker in (workers[1], workers[2], workers[last]):
        worker.communicate(timeout=LIMIT)


def told(worker):
    """Return the error, the peer and the phase that a worker tells."""
    return worker.stdout.readline().split()[:3]
