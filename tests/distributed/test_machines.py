"""Workers on processors that differ meet, and both ends of an edge read and hold the same numbers."""

from __future__ import annotations

import fcntl
import os
from unittest import mock

import pytest
import torch

import gossamer
from gossamer.algorithms import edges
from gossamer.compress import RandomK
from gossamer.errors import MismatchError
from tests.support.machines import STEPS, cases, instruction_sets, run_machines
from tests.support.problem import trained
from tests.support.processes import run_processes


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """What three workers saw, of as many instruction sets as the processor has."""
    names = instruction_sets()
    if len(names) < 2:
        pytest.skip("torch knows one instruction set for this processor; it takes an x86 one with AVX2")
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own  # once for all that run tests
    with (shared / "machines.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = shared / "machines"
        if not (folder / "seen.pt").exists():
            folder.mkdir()
            torch.save(run_machines((names * 2)[:3], folder), folder / "seen.pt")
        return torch.load(folder / "seen.pt", weights_only=False)


def test_the_processes_do_compute_differently(machines):
    """Or else the other tests would show nothing."""
    assert len({machine["instruction set"] for machine in machines}) == len(instruction_sets())
    for what in ("draw", "sum", "fused"):
        assert len({machine["usual"][what] for machine in machines}) > 1, what


@pytest.mark.parametrize("name", cases())
def test_both_ends_read_every_message_alike(machines, name):
    seen = [machine["cases"][name]["messages"] for machine in machines]
    compared = 0
    for i, sent in enumerate(seen):
        for (phase, sender, receiver), what in sent.items():
            if sender == i:
                assert seen[receiver][phase, sender, receiver] == what, (phase, sender, receiver)
                compared += 1
    assert compared >= 3 * STEPS  # each of three workers sends something in every round


@pytest.mark.parametrize("name", [name for name in cases() if name.startswith("powergossip")])
def test_both_ends_hold_the_same_factors(machines, name):
    found: dict[tuple[int, int], list[str]] = {}
    for machine in machines:
        for edge, factors in machine["cases"][name]["edges"].items():
            found.setdefault(edge, []).append(factors)
    assert sorted(found) == [(0, 1), (0, 2), (1, 2)]
    for edge, both in found.items():
        assert len(both) == 2
        assert both[0] == both[1], edge


@pytest.mark.parametrize("name", [name for name in cases() if name.startswith("allreduce")])
def test_all_workers_step_by_the_same_average(machines, name):
    assert len({machine["cases"][name]["gradient"] for machine in machines}) == 1


def test_averaging_ends_in_the_same_round(machines):
    assert len({machine["average"] for machine in machines}) == 1


def other_draws(rank: int, n: int, algorithm: str, compressor: str | None) -> tuple[int, str]:
    """Worker 2 draws other numbers, as another version of a library might."""
    drawn = 0

    def differently(draw):
        def changed(*args):
            nonlocal drawn
            drawn += 1
            return draw(*args).roll(1)

        return changed

    if rank == 2:
        for owner, name in ((edges, "bell_shaped"), (RandomK, "_choose")):
            mock.patch.object(owner, name, differently(getattr(owner, name))).start()
    try:
        trained(gossamer.algorithms.make(algorithm, compressor, gamma=0.3), "ring", 2, deadline=20)
    except MismatchError as error:
        return drawn, str(error)
    return drawn, "agreed"


@pytest.mark.parametrize(("algorithm", "compressor"), [("powergossip", None), ("choco", "randomk:0.5")])
def test_workers_that_draw_differently_what_they_share_are_refused(algorithm, compressor):
    results = run_processes(3, other_draws, algorithm, compressor)
    assert [drawn > 0 for drawn, _ in results] == [False, False, True]  # the fault is there, in one
    for _, told in results:
        assert told.startswith("worker 2 differs in 'shared randomness': it has "), told


def test_what_an_algorithm_does_not_share_keeps_nobody_apart():
    results = run_processes(3, other_draws, "choco", "sign")
    assert results == [(0, "agreed")] * 3
