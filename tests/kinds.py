"""What tests need, told by their marks, and what `--quick` leaves out.

The marks are found, not written: whatever a test, its fixtures and the helpers of theirs in this folder name
is looked through. A test that starts a process in a way that is not noticed fails with `--quick`, which
lets none be started.
"""

from __future__ import annotations

import inspect
import multiprocessing.process
import multiprocessing.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from gossamer.runs import train

MARKS = {
    "process": "starts processes",
    "root": "needs root on Linux, for namespaces or mounts",
    "browser": "needs chromium and chromedriver",
    "slow": "computes for seconds",
    "study": "a long statistical or empirical study: make study",
}
NOT_QUICK = ("process", "root", "browser", "slow")
# Names that only those use who start processes, beside gossamer.runs.train.
STARTERS = ("run_processes", "subprocess", "Process", "Popen", "popen", "fork", "WorkerFailed")
OF_FIXTURES = {"machine": ("process", "root"), "driver": ("process", "browser")}
SYSTEM_TOOLS = ("git", "fc-list")  # the commit of a run, the fonts for matplotlib: over at once


def mark(item: pytest.Function) -> None:
    """Give a test the marks of what it needs."""
    fixtures = item._fixtureinfo.name2fixturedefs
    functions = [item.function, *(each.func for name in fixtures for each in fixtures[name])]
    found = {kind for function in functions for kind in _kinds(function, set())}
    found.update(kind for name in fixtures for kind in OF_FIXTURES.get(name, ()))
    for kind in sorted(found):
        item.add_marker(kind)


def is_quick(item: pytest.Item) -> bool:
    return not any(item.get_closest_marker(kind) for kind in NOT_QUICK)


def _kinds(what: Any, seen: set[int]) -> Iterator[str]:
    """Yield what a function or class of the tests, and all of theirs that it names, will need."""
    if id(what) in seen or not str(getattr(what, "__module__", "")).startswith("tests"):
        return
    seen.add(id(what))
    if inspect.isclass(what):
        for member in vars(what).values():
            yield from _kinds(member, seen)
    what = inspect.unwrap(what) if callable(what) else what
    if isinstance(what, FunctionType):
        for name in _names(what.__code__):
            value = what.__globals__.get(name)
            if name in STARTERS or value is train:
                yield "process"
            yield from _kinds(value, seen)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


class NoProcesses:
    """Lets no test start a process, and remembers who has tried, for the error may have been caught."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self._testing = False
        sys.addaudithook(self._hear)
        for module, name in (
            (multiprocessing.process.BaseProcess, "start"),
            (multiprocessing.util, "spawnv_passfds"),
        ):
            setattr(module, name, self._refusing(getattr(module, name)))

    @contextmanager
    def testing(self) -> Iterator[None]:
        """Take effect while a test runs."""
        del self.tried[:]
        self._testing = True
        try:
            yield
        finally:
            self._testing = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.fork", "os.forkpty", "os.posix_spawn", "os.system"):
            self._refuse(event)
        if event == "subprocess.Popen" and Path(str(arguments[0])).name not in SYSTEM_TOOLS:
            self._refuse(f"{arguments[0]} {arguments[1]}"[:200])

    def _refusing(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """Return what starts a process without an event that `_hear` would hear."""

        def refusing(*arguments: Any, **more: Any) -> Any:
            self._refuse("a process of multiprocessing")
            return start(*arguments, **more)

        return refusing

    def _refuse(self, what: str) -> None:
        if self._testing:
            self.tried.append(what)
            raise RuntimeError(f"quick tests start no processes, but this one does: {what}")
