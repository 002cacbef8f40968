"""Workers of a mesh are killed, freeze, leave and come back: the others train on, and all agree again."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch

from gossamer._mesh.peers import Peers
from gossamer.transport import handshake
from tests.support.members import CHOCO, PATIENT, Mesh, Place, Report, Trainer, absent, signal_self
from tests.support.problem import flat
from tests.support.waiting import wait_until

N = 4
FAULT, LATER, ROUNDS = 20, 40, 60
ALGORITHMS: dict[str, dict[str, Any]] = {
    "choco": CHOCO,
    "dcd": {"algorithm": "dcd", "compressor": "qsgd:8"},
    "deepsqueeze": {"algorithm": "deepsqueeze", "compressor": "qsgd:8", "gamma": 0.4},
    "powergossip": {"algorithm": "powergossip"},
    "dpsgd": {"algorithm": "dpsgd"},
}
RING = {rank: {(rank - 1) % N, (rank + 1) % N} for rank in range(N)}
NEAR = 0.05  # how far from their average workers are that agree; in training it is 2 and more


def without(lost: list[int]) -> dict[int, set[int]]:
    """Return the neighbours of those that are left of four on a ring: each other."""
    rest = set(range(N)) - set(lost)
    return {rank: rest - {rank} for rank in sorted(rest)}


def require_agreement(reports: dict[int, Report]) -> None:
    """Check that workers are close to each other, and that both ends of an edge believe the same."""
    models = torch.stack([report.x for report in reports.values()]).double()
    assert float((models - models.mean(0)).norm(dim=1).square().mean().sqrt()) < NEAR
    require_same_beliefs(reports)


def require_same_beliefs(reports: dict[int, Report]) -> None:
    """Check that what one end shows is what the other holds, bit for bit, after all that both have noted."""
    for (i, mine), (j, theirs) in combinations(reports.items(), 2):
        common = [(e, number) for p, e, number in mine.notes if p == j and (i, e, number) in theirs.notes]
        for epoch, number in common:
            weight, shown, held = mine.notes[j, epoch, number]
            assert theirs.notes[i, epoch, number] == (weight, held, shown), f"{i} and {j} at {number}"
        assert common or not mine.notes or j not in mine.edges, f"{i} and {j} have no message in common"


def goes_on(
    place: Place,
    lost: list[int],
    neighbours: set[int],
    missing: list[int],
    settings: dict[str, Any] = CHOCO,
    silence: float = PATIENT,
) -> Report:
    """Train all rounds though some of the others are lost, and on until all have these neighbours."""
    worker = Trainer(place, silence=silence, **settings)
    worker.train(to=LATER)
    wait_until(lambda: all(worker.statuses[j] in ("DEAD", "LEFT") for j in lost))
    place.mark("others are lost")
    worker.train(to=ROUNDS)
    return worker.train_until_told(neighbours, missing)


def dies(place: Place, in_exchange: bool, settings: dict[str, Any] = CHOCO) -> None:
    worker = Trainer(place, **settings)
    worker.train(to=FAULT)
    worker.die(in_exchange=in_exchange)


@pytest.mark.parametrize("lost", [[0], [1], [2], [3], [0, 1], [0, 2]], ids=str)
def test_the_others_go_on(tmp_path, lost):
    rest = without(lost)
    with Mesh(N, tmp_path) as mesh:
        running = {i: mesh.start(i, goes_on, lost, neighbours, lost) for i, neighbours in rest.items()}
        killed = [mesh.start(rank, dies, rank % 2 == 0) for rank in lost]
        assert all(process.was_killed() for process in killed)
        reports = mesh.finish(running)
    for rank, report in reports.items():
        assert report.rounds > ROUNDS
        assert absent(report.members) == lost
        assert all(report.members[j] == "DEAD" and "dead" in report.heard(j) for j in lost)
        assert report.edges.keys() == rest[rank]
    require_agreement(reports)


def comes_back(place: Place, neighbours: set[int], settings: dict[str, Any]) -> Report:
    return Trainer(place, **settings).train_until_told(neighbours)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_that_was_killed_comes_back(tmp_path, name):
    settings, lost = ALGORITHMS[name], 1
    with Mesh(N, tmp_path) as mesh:
        running = {i: mesh.start(i, goes_on, [lost], RING[i], [], settings) for i in without([lost])}
        assert mesh.start(lost, dies, True, settings).was_killed()
        mesh.wait_for_marks("others are lost", running)
        running[lost] = mesh.start(lost, comes_back, RING[lost], settings)
        reports = mesh.finish(running)
    for rank, report in reports.items():
        assert report.rounds > ROUNDS
        assert report.members == ["ALIVE"] * N
        assert report.edges == pytest.approx(dict.fromkeys(RING[rank], 1 / 3))
        if rank != lost:
            assert "alive" in report.heard(lost)[report.heard(lost).index("dead") :]
    assert reports[lost].began >= LATER - 2, "it has joined the others where they were"
    require_agreement(reports)


def dies_at_the_start(place: Place, when: str) -> None:
    pytest.MonkeyPatch().setattr(f"gossamer.{when}", lambda *_, **__: signal_self(signal.SIGKILL))
    Trainer(place, **CHOCO)


def begins(place: Place) -> Report:
    return Trainer(place, **CHOCO).train_until_told(RING[place.rank])


@pytest.mark.parametrize(
    "when", ["_doors.starting.agree", "_doors.starting.common_start", "_mesh.rounds.EdgeRounds.found"]
)
def test_one_that_is_killed_at_the_start_ends_nobody_else(tmp_path, when):
    """It comes back at once: the others, all new themselves, begin with it, or have begun and take it in."""
    lost = 1
    with Mesh(N, tmp_path) as mesh:
        running = {i: mesh.start(i, begins) for i in without([lost])}
        assert mesh.start(lost, dies_at_the_start, when).was_killed()
        running[lost] = mesh.start(lost, begins)
        reports = mesh.finish(running)
    for rank, report in reports.items():
        assert report.members == ["ALIVE"] * N
        assert report.edges.keys() == RING[rank]
    require_agreement(reports)


def waits_in_handshake(place: Place) -> Report:
    """Send its part, and look for answers only when the one that it was for is back and asks for it again."""
    step, held = vars(handshake)["first_error"], list[int]()

    def later(*args: Any) -> Any:
        if not held:
            held.append(1)
            place.mark("is held")
            wait_until(lambda: place.told("go on"))
        return step(*args)

    pytest.MonkeyPatch().setattr(handshake, "first_error", later)
    return begins(place)


def asks_again(place: Place) -> Report:
    ask = vars(handshake)["broadcast"]

    def asked(*args: Any) -> Any:
        place.mark("asks again")
        return ask(*args)

    pytest.MonkeyPatch().setattr(handshake, "broadcast", asked)
    return begins(place)


def test_one_that_is_killed_and_back_before_others_have_noticed(tmp_path):
    """Worker 0 has told it all that it had to, and expects nothing from it until it is back."""
    lost, held = 1, 0
    with Mesh(N, tmp_path) as mesh:
        running = {i: mesh.start(i, waits_in_handshake if i == held else begins) for i in without([lost])}
        assert mesh.start(lost, dies_at_the_start, "transport.handshake.first_error").was_killed()
        mesh.wait_for_marks("is held", [held])
        running[lost] = mesh.start(lost, asks_again)
        mesh.wait_for_marks("asks again", [lost])
        mesh.tell("go on")
        reports = mesh.finish(running)
    assert all(report.members == ["ALIVE"] * N for report in reports.values())
    require_agreement(reports)


def comes_again(place: Place, neighbours: set[int]) -> Report:
    worker = Trainer(place, **CHOCO)
    assert worker.began >= FAULT, "it has begun anew with others that are new"
    return worker.train_until_told(neighbours)


@pytest.mark.parametrize("lost", [[0, 1, 2], [1, 2, 3]], ids=str)
def test_new_ones_among_themselves_find_the_one_that_trains(tmp_path, lost):
    """Some have no neighbour that trains, and hear of one only by what the others tell."""
    (rest,) = without(lost)
    with Mesh(N, tmp_path) as mesh:
        running = {rest: mesh.start(rest, begins)}
        killed = [mesh.start(rank, dies, False) for rank in lost]
        assert all(process.was_killed() for process in killed)
        running |= {rank: mesh.start(rank, comes_again, RING[rank]) for rank in lost}
        reports = mesh.finish(running)
    assert all(report.members == ["ALIVE"] * N for report in reports.values())
    require_agreement(reports)


def freezes(place: Place, silence: float) -> Report:
    worker = Trainer(place, silence=silence, **CHOCO)
    worker.train(to=FAULT)
    signal_self(signal.SIGSTOP)
    return worker.train_until_told(RING[place.rank])


def test_one_that_freezes_comes_back_by_itself(tmp_path):
    frozen, silence = 2, 6.0
    with Mesh(N, tmp_path) as mesh:
        others = without([frozen])
        running = {i: mesh.start(i, goes_on, [frozen], RING[i], [], CHOCO, silence) for i in others}
        running[frozen] = mesh.start(frozen, freezes, silence)
        mesh.wait_for_marks("others are lost", others)
        assert running[frozen].is_stopped()
        os.kill(running[frozen].handle.pid, signal.SIGCONT)
        reports = mesh.finish(running)
    for rank, report in reports.items():
        assert report.members == ["ALIVE"] * N
        assert report.edges.keys() == RING[rank]
        assert rank == frozen or "dead" in report.heard(frozen)
    assert reports[frozen].began == 0
    require_agreement(reports)


def leaves(place: Place) -> Report:
    worker = Trainer(place, **CHOCO)
    worker.train(to=FAULT)
    return worker.leave()


def test_one_that_leaves_costs_the_others_nothing(tmp_path):
    gone = 1
    with Mesh(N, tmp_path) as mesh:
        left = mesh.start(gone, leaves)
        rest = without([gone]).items()
        running = {i: mesh.start(i, goes_on, [gone], neighbours, [gone]) for i, neighbours in rest}
        reports = mesh.finish(running)
        goodbye = left.result()
    for report in reports.values():
        assert report.members[gone] == "LEFT"
        assert "left" in report.heard(gone)
        assert not {"down", "suspect", "dead"} & set(report.heard(gone)), report.news
    for rank in RING[gone]:  # every message of its last round has arrived, on both sides
        ends = (goodbye.notes, rank), (reports[rank].notes, gone)
        assert [max(number for j, _, number in notes if j == peer) for notes, peer in ends] == [FAULT] * 2
    require_agreement(reports)
    require_same_beliefs({**reports, gone: goodbye})


def saves_and_dies(place: Place) -> None:
    worker = Trainer(place, **CHOCO)
    worker.train(to=FAULT)
    saved = {"optimizer": worker.optimizer.state_dict(), "x": flat(worker.model)}
    torch.save(saved, place.folder / f"{place.rank}.pt")
    worker.train(to=LATER)
    worker.die(in_exchange=place.rank % 2 == 0)


def resumes(place: Place, neighbours: set[int], missing: list[int]) -> Report:
    saved = torch.load(place.folder / f"{place.rank}.pt")
    worker = Trainer(place, saved=saved["optimizer"], silence=5.0, **CHOCO)
    report = worker.train_until_told(neighbours, missing)
    assert torch.equal(report.start, saved["x"])
    return report


@pytest.mark.parametrize("missing", [[], [2]], ids=str)
def test_all_are_killed_and_resume(tmp_path, missing):
    neighbours = without(missing) if missing else RING
    with Mesh(N, tmp_path) as mesh:
        killed = [mesh.start(rank, saves_and_dies) for rank in range(N)]
        assert all(process.was_killed() for process in killed)
        running = {i: mesh.start(i, resumes, neighbours[i], missing) for i in neighbours}
        reports = mesh.finish(running)
    for rank, report in reports.items():
        assert report.began == FAULT
        assert absent(report.members) == missing
        assert report.edges.keys() == neighbours[rank]
    require_agreement(reports)


def comes_back_with(place: Place, peers: Peers, neighbours: set[int], missing: list[int]) -> Report:
    return Trainer(replace(place, peers=peers), **CHOCO).train_until_told(neighbours, missing)


def test_one_that_comes_back_with_a_peers_file_that_has_grown(tmp_path):
    """The others began with three entries; the fourth was added since, and has not come yet."""
    lost, added = 1, 3
    rest = {0: {1, 2}, 1: {0, 2}, 2: {0, 1}}
    with Mesh(N, tmp_path) as mesh:
        grown = mesh.peers
        mesh.peers = Peers(grown.all[:added])
        running = {i: mesh.start(i, goes_on, [lost], rest[i], [added]) for i in rest if i != lost}
        assert mesh.start(lost, dies, False).was_killed()
        mesh.wait_for_marks("others are lost", running)
        running[lost] = mesh.start(lost, comes_back_with, grown, rest[lost], [added])
        reports = mesh.finish(running)
    assert all(absent(report.members) == [added] for report in reports.values())
    assert reports[lost].began >= LATER - 2, "it has joined the others where they were"
    require_agreement(reports)


def hangs(place: Place) -> Report:
    worker = Trainer(place, **CHOCO)
    worker.train(to=FAULT)
    wait_until(lambda: place.told("wake up"))  # its process gives signs of life
    return worker.train_until_told(RING[place.rank])


def bears_it(place: Place, hanging: int) -> Report:
    worker = Trainer(place, deadline=6.0, **CHOCO)
    worker.train(to=LATER)
    missed = worker.missed(hanging)
    worker.train(to=3 * LATER)
    assert worker.statuses[hanging] == "ALIVE"
    assert worker.missed(hanging) == missed, "it was waited for again"
    place.mark("goes on")
    return worker.train_until_told(RING[place.rank])


def test_one_that_hangs_is_waited_for_once(tmp_path):
    hanging = 2
    with Mesh(N, tmp_path) as mesh:
        others = without([hanging])
        running = {rank: mesh.start(rank, bears_it, hanging) for rank in others}
        running[hanging] = mesh.start(hanging, hangs)
        mesh.wait_for_marks("goes on", others)
        mesh.tell("wake up")
        reports = mesh.finish(running)
    assert all(report.members == ["ALIVE"] * N for report in reports.values())
    require_agreement(reports)
