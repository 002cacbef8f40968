"""Tests that start processes run one after another: gloo spins, and two at once starve each other."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
WITH_PROCESSES = (
    "distributed",
    "lab",
    "cli/test_lab.py",
    "cli/test_doctor.py",
    "runs/test_train.py",
    "runs/test_checkpoint.py",
    "report/test_browser.py",
    "test_average.py",
    "test_readme.py",
)


def pytest_collection_modifyitems(items):
    for item in items:
        place = item.path.relative_to(HERE).as_posix()
        if place.startswith(WITH_PROCESSES):
            item.add_marker(pytest.mark.xdist_group("processes"))
