"""The gloo transport: its contract, and what it says when a peer fails."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import gossamer
from gossamer._processes import free_port
from gossamer.algorithms import DPSGD, Algorithm
from gossamer.errors import MismatchError, PeerError, PeerLost, PeerTimeout, WireError
from gossamer.rounds.phase import Phase
from gossamer.testing.transports import check_transport
from gossamer.transport import TorchTransport
from tests.support.problem import Model, advance, sgd, trained
from tests.support.processes import run_processes
from tests.support.waiting import IMPATIENT, LIMIT, wait_for


def conformance(rank: int, n: int) -> str:
    check_transport(TorchTransport())
    half = dist.new_group([1, 2, 3])  # a group whose ranks are not the global ones
    if rank > 0:
        check_transport(TorchTransport(half))
    return "ok"


def test_contract():
    assert run_processes(4, conformance) == ["ok"] * 4


def forgotten_exchange(rank: int, n: int, folder: Path) -> str:
    """Worker 0 begins to receive and lets go of it before worker 1 sends."""
    transport = TorchTransport(deadline=20)
    message = {1 - rank: torch.ones(100, dtype=torch.uint8)}
    expect = {1 - rank: 100}
    if rank == 1:
        wait_for([folder / "let go"])
    transport.start(Phase.of(message, expect), "forgotten")
    if rank == 0:
        gc.collect()
        (folder / "let go").touch()
    transport.wait(transport.start(Phase.of(message, expect), "next"))
    return "went on"


def test_a_forgotten_exchange_does_not_stop_the_next(tmp_path):
    """A round of an overlapping optimizer that is dropped while its messages fly."""
    assert run_processes(2, forgotten_exchange, tmp_path) == ["went on"] * 2


def after_three_steps() -> tuple[Model, gossamer.DecentralizedOptimizer, TorchTransport]:
    """Return a worker on a ring, with all the patience there is; tests make it impatient afterwards."""
    model, link = Model(), TorchTransport(deadline=LIMIT)
    inner = sgd(list(model.parameters()))
    optimizer = gossamer.decentralize(inner, model, algorithm=DPSGD(), transport=link)
    advance(model, optimizer, 3)
    return model, optimizer, link


def silent_peer(rank: int, n: int, folder: Path) -> str:
    """Worker 2 takes part no more, but is there until its neighbours have told of it."""
    model, optimizer, link = after_three_steps()
    if rank == 2:
        wait_for([folder / "1", folder / "3"])
        return "slept"
    if rank != 0:  # it hears of a lost neighbour
        link.deadline = IMPATIENT
    try:
        advance(model, optimizer, 100)
    finally:
        (folder / str(rank)).touch()
    return "went on"


def test_a_silent_peer_is_named_in_time(tmp_path):
    results = run_processes(4, silent_peer, tmp_path)
    assert results[2] == "slept"
    neighbours = [results[1], results[3]]
    assert all(isinstance(error, PeerError) for error in neighbours), results
    timeouts = [error for error in neighbours if isinstance(error, PeerTimeout)]
    assert timeouts, neighbours  # the second may see its connection closed by the first's timeout
    for error in timeouts:
        assert error.peer == 2
        assert error.phase == "round 4, phase 1"
        assert "worker 2 did not answer in round 4, phase 1" in str(error)
        assert error.age >= IMPATIENT


def killed_peer(rank: int, n: int, folder: Path) -> str:
    """Worker 2 is gone; its neighbours stay until both have told, or one would lose the other."""
    model, optimizer, _ = after_three_steps()
    if rank == 2:
        os.kill(os.getpid(), 9)
    try:
        advance(model, optimizer, 100)
    finally:
        (folder / str(rank)).touch()
        if rank != 0:
            wait_for([folder / "1", folder / "3"])
    return "went on"


def test_a_killed_peer_is_named(tmp_path):
    results = run_processes(4, killed_peer, tmp_path)
    assert results[2] is None
    for rank in (1, 3):
        assert isinstance(results[rank], PeerLost), results
        assert results[rank].peer == 2, results  # and not a neighbour that is alive
    assert isinstance(results[0], PeerLost)


def out_of_step(rank: int, n: int) -> str:
    """Worker 0 makes one step less than the others, then all want the average."""
    model, optimizer, link = after_three_steps()
    link.deadline = IMPATIENT
    advance(model, optimizer, 2 - (rank == 0), first=3)
    with optimizer.consensus():
        return "went on"


def test_workers_out_of_step_raise_and_do_not_abort():
    results = run_processes(3, out_of_step)
    assert all(isinstance(error, PeerError) for error in results), results
    assert any("equally often" in str(error) for error in results), results


LEAVING = """
import pathlib, sys
import gossamer
from tests.support.problem import Model, advance, sgd
from tests.support.waiting import wait_for
model, folder = Model(), pathlib.Path(__file__).parent
optimizer = gossamer.decentralize(sgd(list(model.parameters())), model, algorithm="dpsgd", deadline=100_000)
try:
    advance(model, optimizer, 3)
    if optimizer.rank == 2:
        sys.exit(1)
    advance(model, optimizer, 100)
except gossamer.PeerError as error:
    (folder / f"{optimizer.rank}.txt").write_text(str(error))
    wait_for([folder / "0.txt", folder / "1.txt"])  # whoever leaves first must not be taken for worker 2
    raise
"""


def test_a_worker_that_leaves_is_noticed_long_before_the_deadline(tmp_path):
    root = Path(__file__).resolve().parents[2]
    (tmp_path / "train.py").write_text(LEAVING)
    common = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common |= {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    workers = [  # without torchrun, which would end the others as soon as one has failed
        subprocess.Popen(
            [sys.executable, str(tmp_path / "train.py")], env={**os.environ, **common, "RANK": str(rank)}
        )
        for rank in range(3)
    ]
    codes = [worker.wait(timeout=600) for worker in workers]
    assert all(codes), codes
    for rank in (0, 1):
        assert "worker 2 was lost" in (tmp_path / f"{rank}.txt").read_text()


class Corrupting(TorchTransport):
    """Flips one bit of what arrives from worker 1."""

    def collect(self, ticket, need, until):
        inbox = super().collect(ticket, need, until)
        if 1 in inbox and ticket.name == "round 2, phase 1":
            inbox[1][40] ^= 16
        return inbox


def corrupted(rank: int, n: int) -> str:
    transport = Corrupting(deadline=LIMIT) if rank == 0 else TorchTransport(deadline=LIMIT)
    trained(
        gossamer.algorithms.Choco(gossamer.compress.TopK(0.25), gamma=0.3), "ring", 4, transport=transport
    )
    return "went on"


def test_a_corrupted_message_is_refused_with_the_peers_name():
    error = run_processes(3, corrupted)[0]
    assert isinstance(error, WireError), error
    assert error.peer == 1
    assert str(error) == "message from worker 1: corrupted: the checksum does not match"


def different(rank: int, n: int, field: str) -> str:
    odd = rank == 2
    model = Model()
    if field == "layout.matrix" and odd:
        model.matrix = torch.nn.Parameter(torch.zeros(12, 9))
    if field == "layout.extra" and odd:
        model.extra = torch.nn.Parameter(torch.zeros(3))
    compressor = gossamer.compress.TopK(0.5 if field == "algorithm.compressor" and odd else 0.25)
    algorithm: Algorithm = gossamer.algorithms.Choco(
        compressor, gamma=0.2 if field == "algorithm.gamma" and odd else 0.3
    )
    if field == "algorithm" and odd:
        algorithm = DPSGD()
    gossamer.decentralize(
        sgd(list(model.parameters())),
        model,
        topology="chain" if field == "topology" and odd else "ring",
        algorithm=algorithm,
        every=3 if field == "every" and odd else 1,
        seed=4 if field == "seed" and odd else 0,
        deadline=LIMIT,
    )
    return "agreed"


FIELDS = (
    "topology",
    "algorithm",
    "algorithm.compressor",
    "algorithm.gamma",
    "every",
    "seed",
    "layout.matrix",
    "layout.extra",
)


def all_differences(rank: int, n: int) -> dict[str, str]:
    found = {}
    for field in FIELDS:
        try:
            found[field] = different(rank, n, field)
        except MismatchError as error:
            found[field] = str(error)
    return found


def test_a_difference_stops_all_workers_with_its_name_and_rank():
    results = run_processes(4, all_differences)
    for field in FIELDS:
        texts = {result[field] for result in results}
        assert len(texts) == 1, texts
        assert texts.pop().startswith(f"worker 2 differs in '{field}': it has "), texts


def test_a_deadline_that_cannot_be_meant():
    with pytest.raises(ValueError, match="deadline"):
        TorchTransport(deadline=0)
