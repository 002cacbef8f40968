"""The workers that do the rows: started once, and again after a row that has gone wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.workers import Workers


@pytest.fixture(scope="session")
def running() -> Iterator[list[Workers]]:
    present: list[Workers] = []  # one group of them, or none
    yield present
    for workers in present:
        workers.close()


@pytest.fixture
def workers(running: list[Workers]) -> Iterator[Workers]:
    if not running:
        running.append(Workers())
    yield running[0]
    if not running[0].sound:
        running.pop().close()
