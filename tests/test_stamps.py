"""What neighbours tell each other by the way: learning rates, skipped steps, the wish to stop."""

from __future__ import annotations

import os
import signal
import threading

import pytest
import torch
from torch import nn

import gossamer
from gossamer import topology
from gossamer._node.stamps import STOPPING, RoundStamps
from gossamer.compress import wire
from gossamer.errors import MismatchError, WireError
from gossamer.topology import Schedule, Topology, rounds_to_reach_all
from tests.support.threads import run_threads, seeded
from tests.support.training import fit, small, wrap

GRAPHS: dict[str, Topology | Schedule] = {
    "ring": topology.ring(7),
    "chain": topology.chain(6),
    "star": topology.star(5),
    "complete": topology.complete(4),
    "one-peer-exponential": topology.one_peer_exponential(8),
    "random-matching": topology.random_matching(6, seed=3),
}


def test_a_stamp_leaves_the_message_what_it_is():
    message = wire.seal(1, [torch.arange(5.0)])
    plain = message.clone()
    wire.stamp(message, 0)
    assert torch.equal(message, plain), "no stamp, the same bytes"
    wire.stamp(message, 0xABCDEF)
    assert message[13:16].tolist() == [0xEF, 0xCD, 0xAB]
    assert wire.stamp_of(message) == 0xABCDEF
    assert torch.equal(wire.unseal(message, 1, message.numel()), wire.unseal(plain, 1, plain.numel()))


@pytest.mark.parametrize("bit", range(13 * 8, 16 * 8))
@pytest.mark.parametrize("stamp", [0, 0x123456])
def test_a_damaged_stamp_is_noticed(bit, stamp):
    message = wire.seal(1, [torch.arange(5.0)])
    wire.stamp(message, stamp)
    message[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WireError, match="checksum"):
        wire.unseal(message, 1, message.numel())


def test_a_message_without_our_header_is_left_alone():
    message = torch.arange(30, dtype=torch.uint8)
    wire.stamp(message, 5)
    assert torch.equal(message, torch.arange(30, dtype=torch.uint8))
    assert wire.stamp_of(message) == 0
    assert wire.stamp_of(torch.zeros(3, dtype=torch.uint8)) == 0


def test_learning_rates_that_come_apart_stop_the_neighbours():
    """As ReduceLROnPlateau makes them from each worker's own loss."""

    def work(link):
        model = small()
        optimizer = wrap(model, link)
        fit(model, optimizer, 3, link.rank)
        if link.rank == 2:
            optimizer.param_groups[0]["lr"] *= 0.1
        try:
            fit(model, optimizer, 4, link.rank)
        except MismatchError as error:
            link.leave()
            return error, optimizer.rounds
        except gossamer.PeerError:  # of those who have stopped
            return None
        return None

    results = run_threads(5, work)
    for rank in (1, 2, 3):
        error, rounds = results[rank]
        assert error.field == "learning rate"
        assert 2 in (error.rank, error.reference)
        assert "scheduler.step(optimizer.mean(loss))" in str(error)
        assert rounds <= 5
    assert {results[2][0].found, results[2][0].expected} == {"0.05", "0.005"}


def test_learning_rates_that_round_differently_are_the_same():
    def work(link):
        model = small()
        optimizer = wrap(model, link)
        optimizer.param_groups[0]["lr"] *= 1 + 1e-12 * link.rank
        fit(model, optimizer, 4, link.rank)
        return optimizer.rounds

    assert run_threads(3, work) == [4] * 3


def test_a_step_skipped_on_one_worker_is_told(caplog):
    def work(link):
        model = small()
        optimizer = wrap(model, link)
        if link.rank == 1:
            optimizer.zero_grad()  # and no step, as a GradScaler does
        fit(model, optimizer, 6, link.rank)
        return optimizer.rounds

    with caplog.at_level("WARNING", logger="gossamer"):
        assert run_threads(3, work) == [6] * 3
    assert "worker 1 has called zero_grad() 1 times more often than worker 0" in caplog.text
    assert "worker 0 has called zero_grad() 1 times less often than worker 1" in caplog.text
    assert "gossamer.GradScaler" in caplog.text
    assert caplog.text.count("WARNING") == 3, "once a worker"


def rounds_until_stop(graph: Topology | Schedule, asking: dict[int, int]) -> dict[int, int]:
    """Pass stamps along the graph by hand; return after how many rounds each worker stops."""
    done = [0] * graph.n

    def stamping(i: int) -> RoundStamps:
        return RoundStamps(
            i, lambda: [{"lr": 0.1}], lambda: done[i], lambda t: rounds_to_reach_all(graph, i, t)
        )

    stamps = [stamping(i) for i in range(graph.n)]
    stopped: dict[int, int] = {}
    for t in range(400):
        for i, when in asking.items():
            stamps[i].wants_to_stop |= t >= when
        written = [s.write() for s in stamps]
        for j in range(graph.n):
            for i in graph.senders(j, t):
                stamps[j].read(i, written[i])
        for i in range(graph.n):
            done[i] += 1
            if stamps[i].time_to_stop:
                stopped.setdefault(i, done[i])
        if stopped:
            return stopped
    raise AssertionError("nobody has stopped")


@pytest.mark.parametrize("name", GRAPHS)
def test_all_workers_stop_after_the_same_round(name):
    graph = GRAPHS[name]
    for asking in ({0: 0}, {graph.n - 1: 5}, {0: 2, 1: 3}, dict.fromkeys(range(graph.n), 4), {1: 1, 3: 3}):
        stopped = rounds_until_stop(graph, asking)
        assert set(stopped) == set(range(graph.n)), "somebody has not heard of it in time"
        assert len(set(stopped.values())) == 1


def test_far_away_workers_fit_into_a_stamp():
    done = [0]
    far = RoundStamps(0, lambda: [{"lr": 0.1}], lambda: done[0], lambda t: 5000)
    near = RoundStamps(1, lambda: [{"lr": 0.1}], lambda: done[0], lambda t: 5000)
    far.wants_to_stop = True
    stamp = far.write()
    near.write()
    near.read(0, stamp)
    assert stamp == STOPPING + 4999
    assert far.stop_after == near.stop_after == 5000


def test_a_signal_stops_all_workers_after_the_same_step():
    """Signals go to the main thread: worker 0 of three runs there."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("needs the main thread")
    before = signal.getsignal(signal.SIGINT)

    def work(link):
        with seeded():
            model = nn.Linear(6, 3)
        optimizer = wrap(model, link, every=2)
        with optimizer.catching_interrupts() as interrupted:
            for step in range(200):
                fit(model, optimizer, 1, link.rank, step)
                if link.rank == 1 and step == 20:
                    os.kill(os.getpid(), signal.SIGINT)
                if interrupted():
                    return step
        return None

    stopped = run_threads(3, work, main=0)
    assert stopped[0] is not None
    assert stopped == [stopped[0]] * 3
    assert stopped[0] < 200
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("twice", [False, True])
def test_alone_an_interrupt_is_heard_at_once(twice, monkeypatch):
    """Older versions of torchrun pass on what the terminal has sent to the workers already."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    if twice:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
        monkeypatch.setattr(os, "getpgrp", lambda: os.getpid() + 1)
    model = small()
    optimizer = wrap(model)
    with optimizer.catching_interrupts() as interrupted:
        fit(model, optimizer, 1)
        assert not interrupted()
        for _ in range(2 if twice else 1):
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
