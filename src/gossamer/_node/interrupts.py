"""Ctrl-C in a user's training loop: all workers stop after the same step, so that all can save."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from gossamer._node.stamps import RoundStamps

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def listening(on_signal: Callable[[], None]) -> Iterator[None]:
    """Call `on_signal` on Ctrl-C and SIGTERM; a second Ctrl-C raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    polite = 2 if _each_comes_twice() else 1
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and len(received) >= polite:
            raise KeyboardInterrupt
        received.append(number)
        on_signal()

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _each_comes_twice() -> bool:
    """Return whether torchrun passes on a Ctrl-C that the terminal has sent to this worker already.

    It does where it leaves workers in its own process group; newer versions start each in a new group.
    """
    has_groups = hasattr(os, "getpgrp")  # not on Windows
    return has_groups and "TORCHELASTIC_RUN_ID" in os.environ and os.getpgrp() != os.getpid()


@contextmanager
def catching(stamps: RoundStamps, workers: int) -> Iterator[Callable[[], bool]]:
    """Pass a signal on to all workers with the next rounds' messages; yield whether to stop now."""
    stamps.wants_to_stop, stamps.stop_after = False, None

    def request_stop() -> None:
        stamps.wants_to_stop = True

    def interrupted() -> bool:
        return stamps.wants_to_stop if workers == 1 else stamps.time_to_stop

    with listening(request_stop):
        yield interrupted
