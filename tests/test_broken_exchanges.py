"""After an exchange that failed in the middle, nothing is half done."""

from __future__ import annotations

import copy

import pytest
import torch

from gossamer.errors import GossamerError, PeerLost, PeerTimeout, WireError
from tests.support.problem import Model, advance, flat
from tests.support.threads import ThreadTransport, run_threads
from tests.support.training import CHOCO, wrap


class Failing(ThreadTransport):
    """Fails in a given phase: with a flipped bit, or as a peer that stays silent; the others lose it."""

    def __init__(self, link, phase, error):
        self.__dict__.update(link.__dict__)
        self.phase, self.error, self.failed = phase, error, False

    def collect(self, ticket, need, until):
        inbox = super().collect(ticket, need, until)
        if ticket.name == self.phase:
            self.failed = True
            self.leave()
            raise self.error
        return inbox


def test_after_a_failed_round_nothing_goes_on_until_a_checkpoint_is_loaded():
    def work(link):
        if link.rank == 1:
            link = Failing(link, "round 3, phase 1", WireError("corrupted", 0))
        model = Model()
        optimizer = wrap(model, link, algorithm=CHOCO)
        advance(model, optimizer, 2)
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if link.rank == 0:
            advance(model, optimizer, 1, first=2)
            return None
        with pytest.raises(WireError):
            advance(model, optimizer, 1, first=2)
        for use in (lambda: advance(model, optimizer, 1), optimizer.consensus_distance):
            with pytest.raises(GossamerError, match="an earlier exchange broke off"):
                use()
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        return optimizer.rounds

    assert run_threads(2, work) == [None, 2]


def test_a_consensus_that_fails_leaves_the_model_as_it_was():
    def work(link):
        if link.rank == 1:
            link = Failing(
                link, "average of all workers, phase 2", PeerTimeout(0, "p", 1.0, "did not answer")
            )
        model = Model()
        optimizer = wrap(model, link)
        advance(model, optimizer, 2)
        before = flat(model).clone()
        with pytest.raises(PeerTimeout if link.rank == 1 else PeerLost), optimizer.consensus():
            pass
        link.leave()
        assert link.rank != 1 or link.failed
        return torch.equal(before, flat(model))

    assert run_threads(3, work) == [True] * 3
