"""Word of the first failure: it reaches everybody, and a store that is gone stops nobody."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NoReturn

import pytest
from torch._C._distributed_c10d import HashStore, Store

from gossamer.errors import PeerLost
from gossamer.transport import TorchTransport, farewell
from gossamer.transport.farewell import KEY, Farewell
from tests.support.processes import run_processes
from tests.support.training import fit, small, wrap
from tests.support.waiting import LIMIT, wait_for


@pytest.fixture
def store():
    return HashStore()


def test_the_first_word_counts(store):
    workers = [Farewell(rank, store) for rank in range(3)]
    assert workers[0].first() == ""
    workers[2].leave("Diverged: 'matrix' holds nan")
    workers[1].leave("PeerLost: worker 2 was lost")
    assert [w.first() for w in workers] == ["worker 2 with Diverged: 'matrix' holds nan"] * 3
    assert [w.left for w in workers] == [False, True, True]
    workers[1].forget()
    assert workers[0].first() == ""
    assert not workers[1].left


def test_word_from_before_all_have_started_again_is_not_told(store):
    """A caught failure that breaks no connection, such as a MismatchError, and a new wrap."""
    early, late = (Farewell(rank, store) for rank in range(2))
    for worker in (early, late):
        worker.start()
    early.leave("MismatchError: 'seed'")
    early.start()
    late.leave("MismatchError: 'seed'")  # still of the first start
    late.start()
    assert [early.first(), late.first(), early.left, late.left] == ["", "", False, False]
    late.leave("Diverged: nan")
    assert early.first() == "worker 1 with Diverged: nan"


def test_a_long_word_is_cut(store):
    word = Farewell(0, store)
    word.leave("x" * 100_000)
    assert len(word.first()) == farewell.LONGEST


class Late(Store):
    """A store in which word comes while somebody asks for it."""

    def __init__(self, asked_before: int) -> None:
        super().__init__()
        self.left = asked_before

    def check(self, keys: list[str]) -> bool:
        assert len(keys) == 1
        assert keys[0].startswith(KEY)
        self.left -= 1
        return self.left < 0

    def get(self, key: str) -> bytes:
        return b"worker 1 with PeerTimeout"


def test_word_that_comes_a_moment_later_is_waited_for():
    assert Farewell(0, Late(5)).first() == "", "who does not wait hears nothing"
    assert Farewell(0, Late(5)).first(wait=LIMIT) == "worker 1 with PeerTimeout"


class Gone(Store):
    """A store whose host was lost: calls fail, or never come back."""

    def __init__(self, hangs: bool) -> None:
        super().__init__()
        self.hangs, self.calls = hangs, 0

    def _lost(self) -> NoReturn:
        self.calls += 1
        while self.hangs:
            time.sleep(0.05)
        raise RuntimeError("Connection reset by peer")

    def check(self, keys: list[str]) -> bool:
        self._lost()

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        self._lost()

    def delete_key(self, key: str) -> bool:
        self._lost()

    def get(self, key: str) -> bytes:
        self._lost()


@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "hangs"])
def test_a_store_that_is_gone_neither_fails_nor_hangs(hangs, monkeypatch):
    monkeypatch.setattr(farewell, "PATIENCE", 0.2)
    store = Gone(hangs)
    word = Farewell(0, store)
    word.leave("ValueError: mine")
    assert word.left
    assert word.first() == ""
    word.forget()
    assert store.calls == 3
    store.hangs = False


def far_away(rank: int, n: int) -> str:
    """On a chain 0-1-2-3-4 worker 0's loss is not a number; worker 4 has never talked to it."""
    model = small()
    optimizer = wrap(model, topology="chain", deadline=LIMIT)
    fit(model, optimizer, 2, rank)
    if rank == 0:
        model[0].weight.data[0, 0] = float("nan")
    fit(model, optimizer, 10, rank, 2)
    return "went on"


def test_workers_that_are_no_neighbours_are_told_the_first_failure():
    results = run_processes(5, far_away)
    assert "'0.weight' holds nan" in str(results[0])
    for error in results[1:]:
        assert isinstance(error, PeerLost), results
        assert error.first_failure.startswith("worker 0 with Diverged: "), error
        assert "holds nan" in str(error)


def without_a_store(rank: int, n: int, folder: Path) -> str:
    """Worker 1 is killed, and the store is no longer there to ask."""
    model, link = small(), TorchTransport(deadline=LIMIT)
    optimizer = wrap(model, link)
    fit(model, optimizer, 2, rank)
    link.farewell._store = Gone(hangs=rank == 0)
    if rank == 1:
        os.kill(os.getpid(), 9)
    try:
        fit(model, optimizer, 1, rank, 2)
    finally:
        assert link.farewell._store.calls, "nobody has asked it"
        (folder / str(rank)).touch()
        wait_for([folder / "0", folder / "2"])
    return "went on"


def test_a_lost_worker_is_named_although_the_store_is_gone(tmp_path):
    results = run_processes(3, without_a_store, tmp_path)
    assert results[1] is None
    for rank in (0, 2):
        assert isinstance(results[rank], PeerLost), results
        assert results[rank].peer == 1
        assert results[rank].first_failure == ""
