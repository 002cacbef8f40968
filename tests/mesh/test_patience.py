"""For whom a round waits: all neighbours, a quorum of them, or a time."""

from __future__ import annotations

import math

import pytest

import gossamer
from gossamer._mesh.patience import Patience
from gossamer._mesh.rounds import _Progress
from tests.support.meshes import join, made_up_keys, peers_of
from tests.support.problem import Model, advance, sgd
from tests.support.processes import run_processes
from tests.support.waiting import LIMIT, wait_for


@pytest.mark.parametrize(
    ("wait", "patience"),
    [
        ("all", Patience()),
        ("quorum", Patience(quorum=0)),
        ("quorum:3", Patience(quorum=3)),
        (2.5, Patience(seconds=2.5)),
        (4, Patience(seconds=4.0)),
    ],
)
def test_what_people_may_say(wait, patience):
    assert Patience.read(wait) == patience


@pytest.mark.parametrize(
    "wait", ["some", "quorum:0", "quorum:x", "all:2", 0, -1.0, math.inf, math.nan, True, ""]
)
def test_what_makes_no_sense(wait):
    with pytest.raises(ValueError, match='wait="all", "quorum"'):
        Patience.read(wait)


@pytest.mark.parametrize(
    ("wait", "neighbours", "enough"),
    [("all", 3, 3), ("quorum", 2, 1), ("quorum", 3, 2), ("quorum:2", 1, 1), (1.0, 3, 3), ("quorum", 0, 0)],
)
def test_how_many_are_enough(wait, neighbours, enough):
    assert Patience.read(wait).enough(neighbours) == enough


def test_what_is_still_arriving_is_not_late(monkeypatch):
    """Only a pause counts, however long it takes until all is there."""
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    progress = _Progress()
    for k in range(10):
        now = 5.0 * k
        assert progress.pause({1: 100 * k, 2: 100 * min(k, 4)}) == max(0.0, now - 20.0)
    assert progress.late(20.0) == [2]
    assert progress.pause({1: 900}) == 0.0, "nobody else is awaited"


def without_worker_2(rank, n, peers, algorithm, compressor, folder):
    """Worker 2 takes no step before the others are done; then it is with them at once."""
    transport = join(peers, rank, wait="quorum", deadline=LIMIT, silence=LIMIT)
    model = Model()
    optimizer = gossamer.decentralize(
        sgd(list(model.parameters())),
        model,
        algorithm=algorithm,
        compressor=compressor,
        transport=transport,
    )
    advance(model, optimizer, 2)
    if rank == 2:
        wait_for([folder / str(i) for i in range(n) if i != 2])
        advance(model, optimizer, 2)
        (folder / "2").touch()
    while not (folder / "2").exists():
        advance(model, optimizer, 1)
        if optimizer.rounds >= 30:
            (folder / str(rank)).touch()
    rounds = optimizer.rounds
    optimizer.close()
    return rounds


@pytest.mark.parametrize(
    ("algorithm", "compressor"), [("choco", "topk:0.5"), ("dcd", "qsgd:8"), ("dpsgd", None)]
)
def test_nobody_waits_for_one_that_is_late(tmp_path, algorithm, compressor):
    peers = peers_of(made_up_keys(4))
    results = run_processes(4, without_worker_2, peers, algorithm, compressor, tmp_path, group=False)
    assert min(results) >= 30, "worker 2 has taken four steps, and is where the others are"


def test_power_gossip_needs_its_neighbours():
    peers = peers_of(made_up_keys(1))
    transport = join(peers, 0, wait="quorum")
    model = Model()
    try:
        with pytest.raises(ValueError, match="wait='all'"):
            gossamer.decentralize(
                sgd(list(model.parameters())), model, algorithm="powergossip", transport=transport
            )
    finally:
        transport.close()
