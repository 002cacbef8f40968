"""Workers of a mesh freeze or hang: the others train on, and all agree again once they go on."""

from __future__ import annotations

import os
import signal

from tests.support.members import CHOCO, Mesh, Place, Report, Trainer, signal_self
from tests.support.survivors import FAULT, LATER, RING, N, goes_on, require_agreement, without
from tests.support.waiting import wait_until


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
