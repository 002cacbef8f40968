"""Waiting for what must happen: for as long as a busy machine may need, and no longer than it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

LIMIT = 240.0  # seconds that nothing should ever take
IMPATIENT = 8.0  # seconds that nobody waits for their turn on a busy machine: after them, something is wrong


def within(seconds: float, happens: Callable[[], Any]) -> bool:
    """Return whether something happens in time."""
    end = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def wait_until(happens: Callable[[], Any], seconds: float = LIMIT) -> None:
    assert within(seconds, happens), f"it did not happen in {seconds:.0f} s"


def wait_for(paths: Iterable[Path]) -> None:
    """Wait until files are there: how processes of a test tell each other how far they are."""
    for path in paths:
        wait_until(path.exists)
