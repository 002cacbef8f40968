"""Workers of a mesh are killed while all begin, or before others know: nobody waits for ever, or alone."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from gossamer.transport import handshake
from tests.support.members import CHOCO, Mesh, Place, Report, Trainer, signal_self
from tests.support.survivors import FAULT, RING, N, dies, require_agreement, without
from tests.support.waiting import LIMIT, wait_until


def dies_at_the_start(place: Place, when: str) -> None:
    pytest.MonkeyPatch().setattr(f"gossamer.{when}", lambda *_, **__: signal_self(signal.SIGKILL))
    Trainer(place, **CHOCO)


def begins(place: Place) -> Report:
    """Train from the beginning; nobody's silence may be what ends a wait."""
    return Trainer(place, silence=4 * LIMIT, **CHOCO).train_until_told(RING[place.rank])


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
