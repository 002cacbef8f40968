"""How a worker that stops reports its reason to the others, and prints one line on Ctrl-C."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # some builds of torch have no distributed part
    from torch._C._distributed_c10d import Store

KEY = "first failure"
LONGEST = 1000  # characters of a report
PATIENCE = 2.0  # seconds to wait for the store, whose host may be the worker that was lost
MOMENT = 1.0  # seconds to wait for the report of a peer that timed out: first its connections break


class Farewell:
    """The first failure among workers, kept where all can read it: in the store of the process group."""

    def __init__(self, rank: int, store: Store) -> None:
        self.rank, self._store = rank, store
        self.starts = 0  # how often the workers have started together
        self.left = False  # whether this worker has failed

    def start(self) -> None:
        """Begin anew with all workers: reports of earlier failures no longer count."""
        self.starts += 1
        self.left = False

    @property
    def _key(self) -> str:
        return f"{KEY} {self.starts}"

    def leave(self, reason: str) -> None:
        """Report why this worker stops. Only the first report of all workers is kept."""
        self.left = True
        text = f"worker {self.rank} with {reason}"[:LONGEST]
        within(PATIENCE, lambda: self._store.compare_set(self._key, "", text))

    def forget(self) -> None:
        """Begin anew, from a checkpoint."""
        self.left = False
        within(PATIENCE, lambda: self._store.delete_key(self._key))

    def first(self, wait: float = 0.0) -> str:
        """Return the report of the worker that failed first; "" if none came in time."""
        found: list[str] = []

        def read() -> None:
            end = time.monotonic() + wait
            while not self._store.check([self._key]):
                if time.monotonic() >= end:
                    return
                time.sleep(0.02)
            found.append(self._store.get(self._key).decode(errors="replace"))

        within(PATIENCE + wait, read)
        return found[0] if found else ""

    def at_exit(self) -> None:
        """Make sure that the exception that ends this process is reported, and Ctrl-C in one line."""
        if self in _AT_EXIT:
            return
        atexit.register(self._report_last_exception)
        if not _AT_EXIT:
            _be_brief_on_interrupt()
        _AT_EXIT.append(self)

    def _report_last_exception(self) -> None:
        if not self.left and hasattr(sys, "last_value"):
            self.leave(f"{type(sys.last_value).__name__}: {sys.last_value}")


_AT_EXIT: list[Farewell] = []  # of this process, one for every group of workers


def _be_brief_on_interrupt() -> None:
    """End this process with one line, at once, when Ctrl-C has ended the script.

    All workers are interrupted together, and their tracebacks are of no use. Exit handlers still run; only
    torch's own clean-up, which takes seconds, is skipped.
    """
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            previous(kind, value, traceback)
            return
        for farewell in _AT_EXIT:
            farewell.leave("an interrupt (Ctrl-C)")
        sys.stderr.write(
            f"worker {_AT_EXIT[0].rank} was interrupted; Gossamer has saved nothing. To let all workers save "
            f"first, see optimizer.catching_interrupts()\n"
        )
        sys.last_value = value
        atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)

    sys.excepthook = hook


def within(seconds: float, action: Callable[[], object]) -> None:
    """Run an action that may fail or hang, and wait for it no longer than this."""

    def attempt() -> None:
        with suppress(RuntimeError):  # the store is gone
            action()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
