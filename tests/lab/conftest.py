"""Labs for tests."""

from __future__ import annotations

import pytest

from gossamer.lab import Lab


@pytest.fixture
def start(machine):
    """Start labs that are closed after the test."""
    labs = []

    def start(scenario):
        labs.append(Lab(scenario))
        return labs[-1]

    yield start
    for lab in labs:
        lab.close()
