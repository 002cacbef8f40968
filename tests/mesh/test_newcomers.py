"""Workers that come into a run: what they take from whom, and what is said if they cannot."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gossamer._mesh.link import MODEL, Link
from gossamer._mesh.newcomer import SIZE, Donor, _Pieces, meet
from gossamer._mesh.peers import Peers, write_peers
from gossamer._mesh.protocol import Protocol
from gossamer.errors import MismatchError, PeerTimeout
from gossamer.topology import ring
from tests.support.members import CHOCO, Mesh, Place, Report, Trainer, digest, signal_self
from tests.support.meshes import join, new_keys, peers_of
from tests.support.problem import Model
from tests.support.waiting import wait_until

N, NEW = 4, 3
FOUNDERS = [0, 1, 2]
GIVEN = 3  # pieces that a donor sends before it stops: what it says of the model, and two of it
NUMBERS = 15_000_000
SILENCE = 6.0


class Heavy(Model):
    """A model that takes a while to send, of which little is trained."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(NUMBERS, dtype=torch.float32) + seed)
        with torch.no_grad():
            for p in self.parameters():
                p.add_(seed)


def values(model: nn.Module) -> str:
    """Return a digest of all values."""
    return digest(torch.cat([t.detach().reshape(-1) for t in model.state_dict().values()]))


def stops_after_a_few_pieces(place: Place, how: signal.Signals) -> None:
    """Let the first donor that is asked send a few pieces, and stop once they have arrived."""
    whole = Donor.answer

    def answer(donor: Donor, lock: Any, model: Tensor, about: dict[str, Any]) -> None:
        try:
            os.close(os.open(place.folder / "asked", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            whole(donor, lock, model, about)
            return
        protocol = donor._protocol
        (peer, _), post = protocol.asked[0], protocol.post
        with pytest.MonkeyPatch.context() as patch:
            few = lambda j, stream, message: post(j, stream, message) if message.phase < GIVEN else 0  # noqa: E731
            patch.setattr(protocol, "post", few)
            whole(donor, lock, model, about)
        stream = protocol.links[peer].streams[MODEL]
        assert stream.posted == GIVEN
        place.mark("stops")
        threading.Thread(target=stop, args=(stream,), daemon=True).start()

    def stop(stream: Any) -> None:
        wait_until(lambda: not stream.queue and not stream.unclaimed)
        signal_self(how)

    pytest.MonkeyPatch().setattr(Donor, "answer", answer)


def founds(place: Place, how: signal.Signals) -> str:
    stops_after_a_few_pieces(place, how)
    worker = Trainer(place, model=Heavy(0), lr=0.0, silence=SILENCE, **CHOCO)
    worker.train_until(lambda: worker.statuses[NEW] == "LEFT")
    place.mark("is alone")
    worker.train_until(lambda: place.told("finish"))
    worker.leave()
    return values(worker.model)


def founds_and_leaves(place: Place) -> None:
    worker = Trainer(place, model=Heavy(0), lr=0.0, silence=SILENCE, **CHOCO)
    worker.train(to=3)
    worker.leave()


def joins(place: Place) -> tuple[str, dict[int, list[int]], int]:
    """Return the model that came, and from whom which pieces."""
    came: dict[int, list[int]] = {}
    take = _Pieces.take

    def noted(pieces: _Pieces, protocol: Any, peer: int) -> int:
        before = set(pieces._have)
        new = take(pieces, protocol, peer)
        came.setdefault(peer, []).extend(sorted(set(pieces._have) - before))
        return new

    pytest.MonkeyPatch().setattr(_Pieces, "take", noted)
    worker = Trainer(place, model=Heavy(1), lr=0.0, silence=SILENCE, **CHOCO)
    joined = values(worker.model)
    worker.train(to=worker.began + 5)
    worker.leave()
    return joined, came, worker.began


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_the_rest_comes_from_another_donor(tmp_path, how):
    with Mesh(N, tmp_path) as mesh:
        running = {rank: mesh.start(rank, founds, how) for rank in FOUNDERS}
        mesh.start(NEW, founds_and_leaves).result()
        mesh.wait_for_marks("is alone", FOUNDERS)
        joined, came, began = mesh.start(NEW, joins).result()
        (lost,) = [rank for rank in FOUNDERS if (tmp_path / f"{rank} stops").exists()]
        assert running[lost].is_stopped() if how == signal.SIGSTOP else running[lost].was_killed()
        mesh.tell("finish")
        expected = {running[rank].result() for rank in FOUNDERS if rank != lost}
    assert {joined} == expected
    assert began >= 3
    assert came[lost] == list(range(GIVEN))
    others = [piece for rank, pieces in came.items() if rank != lost for piece in pieces]
    assert sorted(others) == list(range(GIVEN, 2 + (NUMBERS * 4 + 2 * 4 * 141) // SIZE)), came


class Taller(Model):
    """One more row than the others' model."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(13, 8))


WRONG: dict[str, dict[str, Any]] = {
    "layout.matrix": {"model": Taller(), **CHOCO},
    "algorithm": {"algorithm": "dpsgd"},
    "algorithm.compressor": {**CHOCO, "compressor": "topk:0.5"},
    "optimizer.param_groups[0].lr": {**CHOCO, "lr": 0.1},
}


def trains(place: Place) -> Report:
    worker = Trainer(place, **CHOCO)
    worker.train_until(lambda: worker.statuses[NEW] == "LEFT")
    place.mark("is alone")
    worker.train_until(lambda: place.told("all have tried"))
    return worker.train_until_told({(place.rank - 1) % N, (place.rank + 1) % N})


def tries(place: Place, settings: dict[str, Any], waits: bool) -> list[MismatchError]:
    """Try to join; one that waits is greeted by a member before it has said what it is."""
    greet = Protocol._greet

    def later(protocol: Protocol, link: Link) -> None:
        if protocol.members.training():
            greet(protocol, link)

    if waits:
        pytest.MonkeyPatch().setattr(Protocol, "_greet", later)
    with pytest.raises(MismatchError) as caught:
        Trainer(place, **settings)
    return [caught.value]


def trains_a_little(place: Place) -> None:
    worker = Trainer(place, **CHOCO)
    worker.train(to=3)
    worker.leave()


def joins_rightly(place: Place) -> Report:
    return Trainer(place, **CHOCO).train_until_told({0, 2})


def test_what_differs_is_named(tmp_path):
    with Mesh(N, tmp_path) as mesh:
        running = {rank: mesh.start(rank, trains) for rank in FOUNDERS}
        mesh.start(NEW, trains_a_little).result()
        mesh.wait_for_marks("is alone", FOUNDERS)
        for field, settings in WRONG.items():
            waits = field == "algorithm"
            (error,) = mesh.start(NEW, tries, settings, waits).result()
            assert error.field == field
            assert error.rank == NEW
            assert error.reference in FOUNDERS
            assert f"worker 3 differs in '{field}': it has " in str(error)
            assert f", worker {error.reference} has " in str(error)
        mesh.tell("all have tried")
        reports = mesh.finish({**running, NEW: mesh.start(NEW, joins_rightly)})
    assert all(report.members == ["ALIVE"] * N for report in reports.values())
    assert reports[NEW].began > 0
    for rank in FOUNDERS:
        assert reports[rank].began == 0
        assert reports[rank].heard(rank) == []
    refused = sum((reports[rank].refused for rank in FOUNDERS), start=Counter())
    assert refused["w3", "settings"] >= len(WRONG)


def test_a_port_that_is_in_use():
    keys = new_keys(2)
    peers = peers_of(keys)
    first = join(peers, 0, keys[0])
    try:
        with pytest.raises(ValueError, match=r"^cannot listen on 127\.0\.0\.1:\d+: .*running already$"):
            join(peers, 0, keys[0])
    finally:
        first.close()
    join(peers, 0, keys[0]).close()


def test_one_that_has_the_key_of_another():
    """As after copying a folder to the next machine: the others say whose key is wrong."""
    keys = new_keys(2)
    peers = peers_of(keys)
    own, double = join(peers, 0, keys[0]), join(peers, 1, keys[0])
    try:
        said = r"^worker 1 \(w1\) is not there: it has another key than the peers file says in start-up"
        with pytest.raises(PeerTimeout, match=said):
            meet(own, {"every": "1"}, ring, patience=3.0)
    finally:
        own.close()
        double.close()


def trains_in_part(place: Place) -> tuple[int, list[int], int]:
    worker = Trainer(place, **CHOCO)
    worker.train(to=5)
    there = [member.id for member in worker.optimizer.members]
    worker.leave()
    return worker.optimizer.rank, there, worker.optimizer.rounds


@pytest.mark.parametrize("revoked", [0, 1])
def test_a_file_in_which_one_is_revoked(tmp_path, revoked):
    """Entries stay where they are, so that nobody gets another number."""
    rest = [rank for rank in range(N) if rank != revoked]
    with Mesh(N, tmp_path) as mesh:
        mesh.peers = Peers(tuple(replace(peer, revoked=peer.id == revoked) for peer in mesh.peers.all))
        running = [mesh.start(rank, trains_in_part) for rank in rest]
        assert [process.result() for process in running] == [(rank, rest, 5) for rank in rest]


def test_two_entries_with_one_key(tmp_path):
    keys = new_keys(2)
    first, second = peers_of(keys).all
    twice = Peers((first, replace(second, key=first.key)))
    same = r"^\[\[peer\]\] 1 \(w0\) and 2 \(w1\) have the same key: give each its own$"
    with pytest.raises(ValueError, match=same):
        write_peers(tmp_path / "peers.toml", twice)
