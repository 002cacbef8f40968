"""Whom a mesh admits while it runs, and what its members find out together when one is lost."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
import torch

import gossamer
from gossamer._mesh import admission
from gossamer._mesh.admission import Admission
from gossamer._mesh.members import Status
from gossamer._mesh.peers import Peer, Peers, write_peers
from tests.support.meshes import join, made_up_keys, new_keys, peers_of
from tests.support.problem import Model, advance, sgd
from tests.support.processes import run_processes
from tests.support.waiting import LIMIT, wait_for, wait_until

MORE = "f" * 64


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(admission, "PAUSE", 0.0)


def revised(peers: Peers, rank: int) -> Peers:
    """Return the file in which one of the peers is revoked."""
    return Peers(tuple(replace(p, revoked=p.id == rank) for p in peers.all))


def test_a_changed_file_counts_at_once(tmp_path, at_once):
    path, peers = tmp_path / "peers.toml", peers_of(made_up_keys(3))
    write_peers(path, peers)
    admits, new = Admission(peers, path), list[Peer]()
    admits.on_new = new.append
    assert [admits(p.key) for p in peers.all] == [True] * 3
    write_peers(path, revised(peers, 1))
    assert [admits(p.key) for p in peers.all] == [True, False, True]
    dave = Peer(3, "dave", "127.0.0.1:7999", MORE)
    write_peers(path, Peers((*revised(peers, 1).all, dave)))
    assert admits(MORE)
    assert new == [dave]


@pytest.mark.parametrize("mistake", ["damaged", "removed", "gone", "unreadable"])
def test_a_file_that_makes_no_sense_changes_nothing(tmp_path, at_once, caplog, mistake):
    path, peers = tmp_path / "peers.toml", peers_of(made_up_keys(3))
    write_peers(path, peers)
    admits = Admission(peers, path)
    if mistake == "damaged":
        path.write_text("[[peer]")
    elif mistake == "removed":
        write_peers(path, Peers(tuple(replace(p, id=i) for i, p in enumerate(peers.all[1:]))))
    elif mistake == "gone":
        path.unlink()
    else:  # also for root, whom no mode keeps out
        path.unlink()
        path.mkdir()
    assert [admits(p.key) for p in peers.all] == [True] * 3
    assert len(caplog.records) == 1


def decentralized(transport):
    model = Model()
    inner = sgd(list(model.parameters()))
    return model, gossamer.decentralize(inner, model, algorithm="dpsgd", transport=transport)


def revoked_in_training(rank, n, path, keys, peers, folder):
    """Train until worker 2 is not among the others any more."""
    transport = gossamer.mesh(peers.all[rank].address, path, keys[rank], deadline=LIMIT, silence=20.0)
    model, optimizer = decentralized(transport)
    advance(model, optimizer, 5)
    (folder / str(rank)).touch()
    if rank == 0:
        wait_for([folder / str(i) for i in range(n)])
        write_peers(path, revised(peers, 2))
    if rank == 2:
        wait_for([folder / "expelled 0", folder / "expelled 1"])
        return "waited"

    def expelled() -> bool:
        advance(model, optimizer, 1)
        return optimizer.members[2].status > Status.SUSPECT or 2 not in optimizer._edges._hood.edges

    wait_until(expelled)
    refused = lambda: any(why == "not admitted" for _, why in transport.protocol.refused)  # noqa: E731
    wait_until(lambda: refused() or optimizer.members[2].status > Status.SUSPECT)
    (folder / f"expelled {rank}").touch()
    optimizer.close()
    return "went on"


def test_a_key_that_is_revoked_in_training(tmp_path):
    keys = new_keys(3)
    peers, path = peers_of(keys), tmp_path / "peers.toml"
    write_peers(path, peers)
    folder = tmp_path / "marks"
    folder.mkdir()
    results = run_processes(3, revoked_in_training, path, keys, peers, folder, group=False)
    assert results == ["went on", "went on", "waited"]


def killed_before_consensus(rank, n, peers, folder):
    model, optimizer = decentralized(join(peers, rank, deadline=LIMIT))
    advance(model, optimizer, 3)
    (folder / str(rank)).touch()
    if rank == 1:
        wait_for([folder / str(i) for i in range(n)])
        os.kill(os.getpid(), signal.SIGKILL)
    wait_for([folder / str(i) for i in range(n)])
    own = [p.detach().clone() for p in model.parameters()]
    with optimizer.consensus():
        average = [p.detach().clone() for p in model.parameters()]
    mean = optimizer.mean(rank)
    statuses = [member.status for member in optimizer.members]
    advance(model, optimizer, 3, first=3)
    optimizer.close()
    return own, average, mean, statuses


def test_the_average_of_those_that_are_left(tmp_path):
    results = run_processes(4, killed_before_consensus, peers_of(made_up_keys(4)), tmp_path, group=False)
    assert results[1] is None, "worker 1 was killed"
    left = [r for r in results if r is not None]
    for own, average, mean, statuses in left:
        assert mean == pytest.approx(5 / 3)
        assert statuses[1] == Status.DEAD
        for i, value in enumerate(average):
            expected = sum(other[0][i].double() for other in left) / 3
            assert torch.allclose(value.double(), expected, atol=1e-6)
        assert own
