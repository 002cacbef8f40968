"""What a member tells of itself: true, harmless to its training, and checked by who reads it."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

import torch

import gossamer
from gossamer import topology
from gossamer._mesh import sockets as sockets_module
from gossamer._mesh import status
from gossamer._mesh.ask import Asker
from gossamer._mesh.connections import Trouble
from gossamer._mesh.gate import MOST_COUNTED
from gossamer._mesh.neighbourhood import DRIFT
from gossamer.cli.remarks import said_of
from tests.support.cases import COMPRESSED, COMPRESSORS
from tests.support.meshes import join, new_keys, peers_of
from tests.support.problem import Model, advance, flat, sgd, simulated
from tests.support.processes import run_processes
from tests.support.waiting import LIMIT, wait_for, wait_until

CHOCO = COMPRESSED["choco"](COMPRESSORS["topk"])
QUESTIONS, FIRST = 20, 5
PAIR = topology.complete(2)


@contextmanager
def linked(**options):
    """Yield two members that are in touch, with their keys and peers."""
    keys = new_keys(2)
    peers = peers_of(keys)
    members = [join(peers, i, keys[i], **options) for i in range(2)]
    try:
        for i in range(2):
            with members[i].sockets.changed:
                members[i].protocol.need(1 - i)
        assert all(m.wait_until(lambda p: all(e.up for e in p.links.values()), LIMIT) for m in members)
        yield members, keys, peers
    finally:
        for each in members:
            each.sockets.close(patience=0.1)


def told(transport):
    """Return what a member would tell."""
    with transport.sockets.changed:
        return status.of(transport.sockets)


def train(rank, peers, key, folder):
    """Train; in the middle, a question is asked before every step."""
    transport = join(peers, rank, key, deadline=LIMIT, silence=LIMIT)
    model = Model()
    optimizer = gossamer.decentralize(
        sgd(list(model.parameters())), model, topology=PAIR, algorithm=CHOCO, transport=transport
    )
    advance(model, optimizer, FIRST)
    before = {j: link.epoch for j, link in transport.protocol.links.items()}
    for i in range(QUESTIONS):
        if i % 5 == 0:
            (folder / f"{rank} before {i}").touch()
        wait_for([folder / f"asked {i}"])
        advance(model, optimizer, 1, FIRST + i)
    after = {j: link.epoch for j, link in transport.protocol.links.items()}
    refused = dict(transport.protocol.refused)
    optimizer.close()
    return flat(model), before, after, refused


def question(peers, key, folder):
    """Ask both, with the key of one of them; return what each told."""
    answers = []
    with Asker(peers.all, key) as asker:
        for i in range(QUESTIONS):
            if i % 5 == 0:
                wait_for([folder / f"{rank} before {i}" for rank in range(2)])
            answers.append([answer.told for answer in asker.ask(LIMIT)])
            (folder / f"asked {i}").touch()
    return answers


def train_or_ask(rank, n, peers, keys, folder):
    return question(peers, keys[0], folder) if rank == 2 else train(rank, peers, keys[rank], folder)


def test_training_goes_on_as_if_nobody_had_asked(tmp_path):
    """Bit for bit, and over the same links."""
    keys = new_keys(2)
    *workers, answers = run_processes(3, train_or_ask, peers_of(keys), keys, tmp_path, group=False)
    assert isinstance(answers, list), answers
    expected = simulated(CHOCO.where_edges_change(), PAIR, FIRST + QUESTIONS)
    for rank, result in enumerate(workers):
        assert isinstance(result, tuple), result
        x, before, after, refused = result
        assert torch.equal(x, expected.x[rank])
        assert before == after
        assert refused == {}
    assert len(answers) == QUESTIONS
    for both in answers:
        assert [one.name for one in both] == ["w0", "w1"]
        assert {one.doing for one in both} == {"training"}
        assert len({one.run for one in both} | {one.settings for one in both}) == 2
        (link,) = both[0].links
        assert link.peer == "w1"
        assert link.up
        assert link.edge
    assert answers[-1][0].round > answers[0][0].round >= FIRST - 1
    first, last = (answers[i][0].links[0] for i in (0, -1))
    messages = sum(expected.bytes_sent) / 2 / (FIRST + QUESTIONS)
    assert last.sent - first.sent > 15 * messages
    assert last.received > 15 * messages


def be_killed(rank, n, peers, keys):
    """Be a member that is killed while the other is in touch with it, and tell what is said of it then."""
    transport = join(peers, rank, keys[rank], silence=2.0)
    if rank == 1:
        transport.wait_until(lambda p: any(link.up for link in p.links.values()), LIMIT)
        os.kill(os.getpid(), signal.SIGKILL)
    with transport.sockets.changed:
        transport.protocol.need(1)
    seen = []
    with Asker(peers.all, keys[0]) as asker:

        def dead():
            answers = asker.ask(1.0)
            seen.append((answers[1].trouble, said_of(answers[1], answers)))
            return seen[-1] == (Trouble.REFUSED, "dead")

        wait_until(dead)
    transport.close()
    return seen


def test_a_member_that_is_killed():
    keys = new_keys(2)
    seen, killed = run_processes(2, be_killed, peers_of(keys), keys, group=False)
    assert killed is None
    assert seen[-1] == ("nobody listens there, or a firewall is in between", "dead")


def test_what_a_link_has_done():
    with linked() as (members, _, peers):
        members[1].wait_until(lambda p: p.members.alive() == {0, 1}, LIMIT)
        found = told(members[0])
        assert found.version == gossamer.__version__
        assert found.run == members[0].protocol.run.hex()
        assert found.doing == "connected"
        assert [(m.id, m.name, m.key) for m in found.members] == [
            (p.id, p.name, p.key[:16]) for p in peers.all
        ]
        (link,) = found.links
        assert (link.peer, link.up, link.edge, link.refused, link.drift) == ("w1", True, False, {}, 0)
        assert link.sent > 0
        assert link.received > 0
        wait_until(lambda: told(members[0]).links[0].round_trip)  # it is known where there is Linux


def test_drift_is_counted_at_both_ends():
    with linked() as (members, _, _):
        with members[0].sockets.changed:
            members[0].protocol.end(1, DRIFT)
            members[0].sockets.wake()
        wait_until(lambda: [told(each).links[0].drift for each in members] == [1, 1])
        wait_until(lambda: all(told(each).links[0].up for each in members))  # and it begins anew


def test_refused_frames_are_counted_by_link_and_reason():
    with linked() as (members, _, _):
        with members[1].sockets.changed:
            members[1].protocol.run = bytes(8)
        wait_until(lambda: told(members[0]).links[0].refused.get("run", 0) > 1)
        assert told(members[0]).run != told(members[1]).run


def test_a_revoked_key_is_not_answered():
    with linked() as (members, keys, peers), Asker(peers.all[:1], keys[1]) as asker:
        assert asker.ask(LIMIT)[0].told is not None
        members[0].sockets._admits = lambda key: False
        assert asker.ask(1.0)[0].trouble == Trouble.SILENT
        members[0].sockets._admits = lambda key: True
        wait_until(lambda: asker.ask(1.0)[0].told)


def test_only_so_many_questions_are_answered_in_a_second(monkeypatch):
    with linked() as (members, _, _):
        answered: list[float] = []
        now = 0.0

        def answer(sockets, asked):
            answered.append(now)
            return b""

        monkeypatch.setattr(status, "answer", answer)
        with members[0].sockets.changed:
            for tenths in range(100):  # a question every tenth of a tenth of a second
                now = tenths / 100
                members[0].sockets._answer(b"nobody", memoryview(b""), now)
            assert len(answered) == sockets_module.ANSWERS == 10
            now = 1.0
            members[0].sockets._answer(b"nobody", memoryview(b""), now)
            assert answered[-1] == 1.0


class Asking:
    """What libzmq's question about a connection looks like."""

    def __init__(self, key):
        self.parts = [b"1.0", b"1", b"gossamer", b"127.0.0.1", b"", b"CURVE", key]

    def recv_multipart(self):
        return self.parts

    def send_multipart(self, parts):
        self.answer = parts


def test_strangers_keys_fill_no_memory():
    with linked() as (members, _, _):
        pass
    gone = members[0].sockets._gate
    for i in range(300):
        gone.socket = Asking(i.to_bytes(32, "big"))
        gone.answer()
        assert gone.socket.answer[2] == b"400"
    assert len(gone.turned_away) <= MOST_COUNTED + 1
    assert sum(gone.turned_away.values()) == 300


def test_an_answer_is_read_as_it_was_written():
    with linked() as (members, _, _), members[0].sockets.changed:
        frame = status.answer(members[0].sockets, memoryview(status.question(9)))
        number, read = status.read_answer(frame)
        assert number == 9
        assert read.members == status.of(members[0].sockets).members
        assert [link.peer for link in read.links] == ["w1"]


def test_an_answer_that_is_too_long_leaves_out_the_links(monkeypatch):
    monkeypatch.setattr(status, "MOST_CONTROL", 10)
    with linked() as (members, _, _), members[0].sockets.changed:
        read = status.read_answer(status.answer(members[0].sockets, memoryview(status.question(1))))[1]
    assert read.links == []
    assert len(read.members) == 2
