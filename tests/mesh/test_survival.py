"""Workers of a mesh are killed, leave and come back: the others train on, and all agree again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from gossamer._mesh.peers import Peers
from tests.support.members import CHOCO, Mesh, Place, Report, Trainer, absent
from tests.support.problem import flat
from tests.support.survivors import (
    ALGORITHMS,
    FAULT,
    LATER,
    RING,
    ROUNDS,
    N,
    dies,
    goes_on,
    require_agreement,
    require_same_beliefs,
    without,
)


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
