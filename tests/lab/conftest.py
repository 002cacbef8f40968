"""A lab needs root and a few tools: where they are missing, its tests say so and are skipped."""

from __future__ import annotations

import pytest

from gossamer.lab import Lab, LabError, require_lab


@pytest.fixture
def machine():
    try:
        require_lab()
    except LabError as error:
        pytest.skip(str(error))


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
