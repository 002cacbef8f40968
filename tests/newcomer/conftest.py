"""The crew that does the rows: started once, and again after a row that has gone wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.newcomer.crew import Crew


@pytest.fixture(scope="session")
def crews() -> Iterator[list[Crew]]:
    present: list[Crew] = []  # one or none
    yield present
    for crew in present:
        crew.close()


@pytest.fixture
def crew(crews: list[Crew]) -> Iterator[Crew]:
    if not crews:
        crews.append(Crew())
    yield crews[0]
    if not crews[0].sound:
        crews.pop().close()
