"""One command per worker on this machine: what each finds in its environment, and how all of them end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol

PATIENCE = 10.0  # seconds between asking processes to end and ending them


class Place(Protocol):
    """Where workers can be started: this machine as it is, or a lab."""

    n: int

    def popen(self, i: int, argv: Sequence[str], **keywords: Any) -> subprocess.Popen[Any]:  # noqa: ANN401
        """Start a command as worker i; the keywords are those of subprocess.Popen."""


class ThisMachine:
    """Workers that meet on the loopback device."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._meeting = meeting_place()

    def environment(self, i: int) -> dict[str, str]:
        """Return what worker i finds in its environment, the way torchrun sets it."""
        return {**self._meeting, **workers_environment(self.n), "RANK": str(i), "LOCAL_RANK": str(i)}

    def popen(self, i: int, argv: Sequence[str], **keywords: Any) -> subprocess.Popen[Any]:  # noqa: ANN401
        """Start a command as worker i."""
        inherited = {name: v for name, v in os.environ.items() if not name.startswith("TORCHELASTIC")}
        return subprocess.Popen(list(argv), env={**inherited, **self.environment(i)}, **keywords)  # noqa: S603


class WorkerCommands:
    """The processes of one command per worker."""

    def __init__(self, place: Place, argv: Sequence[str], **keywords: Any) -> None:  # noqa: ANN401
        self.processes: list[subprocess.Popen[Any]] = []
        try:
            for i in range(place.n):
                self.processes.append(place.popen(i, argv, **keywords))
        except BaseException:
            self.kill()
            raise
        self._ended: SimpleQueue[int] = SimpleQueue()  # exit codes, in the order in which they came
        for process in self.processes:
            threading.Thread(target=lambda p=process: self._ended.put(p.wait()), daemon=True).start()

    def wait(self, seconds: float | None = None) -> int | None:
        """Return 0 when all have ended, or the exit code of the first that fails; None if it takes longer.

        The first failure shows the cause: others fail because that worker is gone.
        """
        limit = None if seconds is None else time.monotonic() + seconds
        for _ in self.processes:
            try:
                code = self._ended.get(timeout=None if limit is None else max(0.0, limit - time.monotonic()))
            except Empty:
                return None
            if code:
                return code
        return 0

    def codes(self) -> list[int | None]:
        """Return the exit codes; None for those that run."""
        return [process.poll() for process in self.processes]

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to those that still run, and kill those that have not ended a few seconds later."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)
        limit = time.monotonic() + PATIENCE
        for process in self.processes:
            try:
                process.wait(max(0.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self) -> None:
        """End those that still run at once."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def workers_environment(n: int) -> dict[str, str]:
    """Return what all of n workers on this machine have in common, but for where they meet."""
    return {"WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n), "OMP_NUM_THREADS": "1"}  # they share the cores


def meeting_place() -> dict[str, str]:
    """Return where workers of this machine meet."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    if "lo" in (name for _, name in socket.if_nameindex()):
        meeting["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    return meeting


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_with_parent(first: Callable[[], None] | None = None) -> None:
    """End this process, after `first`, when its standard input closes: its parent is gone."""

    def watch() -> None:
        os.read(0, 1)
        if first is not None:
            first()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
