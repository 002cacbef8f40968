"""Our own algorithms, topologies and transports pass the checks that we offer to others."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from gossamer import topology
from gossamer.algorithms import Algorithm
from gossamer.testing.algorithms import check_algorithm
from gossamer.testing.topologies import check_topology
from gossamer.testing.transports import check_transport
from gossamer.transport import Alone
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN
from tests.support.threads import run_threads

SOME = ("identity", "topk-fp16", "randomk", "sign", "qsgd-4bit", "lowrank-1")


@pytest.mark.parametrize("name", PLAIN)
def test_algorithms_without_compressor(name):
    check_algorithm(PLAIN[name])


@pytest.mark.parametrize("compressor", SOME)
@pytest.mark.parametrize("name", COMPRESSED)
def test_algorithms_with_compressor(name, compressor):
    check_algorithm(COMPRESSED[name](COMPRESSORS[compressor]))


@dataclass(frozen=True)
class Impatient(Algorithm):
    """Says that it sends before the gradient, and does not."""

    @property
    def sends_before_gradient(self):
        return True

    def start(self, worker):
        return None

    def round(self, worker, state):
        yield worker.step()
        yield from PLAIN["dpsgd-adapt-first"].round(worker, None)


@dataclass(frozen=True)
class Noisy(Algorithm):
    """Draws from torch's global generator."""

    def start(self, worker):
        return None

    def round(self, worker, state):
        worker.x.add_(torch.randn(worker.x.shape))
        yield from PLAIN["dpsgd"].round(worker, None)


@dataclass(frozen=True)
class Forgetful(Algorithm):
    """Keeps what a checkpoint should hold where no checkpoint sees it."""

    def start(self, worker):
        worker.hidden = torch.zeros_like(worker.x)

    def round(self, worker, state):
        yield worker.step()
        worker.hidden.add_(worker.x)
        worker.x.add_(worker.hidden, alpha=0.01)
        yield from PLAIN["dpsgd"].round(worker, None)


@dataclass(frozen=True)
class Idle(Algorithm):
    """Asks for a step and does not yield it."""

    def start(self, worker):
        return None

    def round(self, worker, state):
        worker.step()
        q = worker.encode(COMPRESSORS["identity"], worker.x)
        inbox = yield worker.exchange(q)
        worker.add_disagreement(COMPRESSORS["identity"], worker.x, q, inbox)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (Impatient(), "sends_before_gradient"),
        (Noisy(), "global random"),
        (Forgetful(), "resumed"),
        (Idle(), "yield worker.step"),
    ],
)
def test_check_algorithm_finds_what_is_wrong(wrong, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_algorithm(wrong)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 16])
@pytest.mark.parametrize("name", ["ring", "chain", "torus", "grid", "star", "complete", "exponential"])
def test_topologies(name, n):
    check_topology(topology.make(name, n))


@pytest.mark.parametrize("name", ["one-peer-exponential", "random-matching", "hypercube", "random-regular"])
def test_other_topologies(name):
    check_topology(topology.make(name, 8))
    check_topology(topology.social())


@pytest.mark.parametrize("n", [2, 3, 5])
def test_transport_between_threads(n):
    run_threads(n, check_transport)


def test_transport_of_one():
    check_transport(Alone())
