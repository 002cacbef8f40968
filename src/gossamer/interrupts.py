"""Ctrl-C in one's own training loop: all workers stop after the same step, so that all can save."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gossamer.stamps import RoundStamps

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME = 1.0  # seconds in which torchrun passes on a Ctrl-C that the terminal has sent to all


@contextmanager
def listening(hear: Callable[[], None], same: float = SAME) -> Iterator[None]:
    """Take Ctrl-C and SIGTERM as a wish to stop, and call `hear`; a second Ctrl-C stops at once.

    One that follows within `same` seconds is still the first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread
        return
    first: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if first and number == signal.SIGINT and time.monotonic() - first[0] > same:
            raise KeyboardInterrupt
        first.append(time.monotonic())  # the first one counts
        hear()

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def catching(stamps: RoundStamps, workers: int) -> Iterator[Callable[[], bool]]:
    """Tell all workers of a signal with the messages of the next rounds; yield whether it is time to stop."""
    stamps.wants_to_stop, stamps.stop_after = False, None

    def wish() -> None:
        stamps.wants_to_stop = True

    def interrupted() -> bool:
        return stamps.wants_to_stop if workers == 1 else stamps.time_to_stop

    with listening(wish):
        yield interrupted
