"""The process from which a run's workers are forked: `python -m gossamer.runs.processes.zygote FOLDER ...`.

It imports torch and reads the data once, for all of them. It ends them when one has failed, on a signal,
and when the process that started it is gone; and they end when it is gone itself.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from torch.nn import Parameter

from gossamer._node.interrupts import SIGNALS
from gossamer._processes import end_with_parent
from gossamer.errors import Diverged, PeerError, TheoryWarning
from gossamer.lab.namespaces import NAMESPACES, enter
from gossamer.runs.config import Config
from gossamer.runs.folder import RunFolder
from gossamer.runs.processes.failures import is_explained, message
from gossamer.runs.processes.meshes import LocalMesh
from gossamer.runs.processes.worker import train_worker
from gossamer.tasks import TASKS

GRACE = 5.0  # seconds for the others to notice that a worker has failed
MAX_TRACEBACK = 30_000  # characters


@dataclass
class WorkerProcess:
    """A worker process."""

    rank: int
    pid: int
    notes: int  # the end of a pipe through which it reports what went wrong
    code: int | None = None
    ended: bool = False  # by us

    def poll(self) -> None:
        """See whether it has ended."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None

    def note(self) -> dict[str, Any] | None:
        """Return its report of what went wrong, or how it ended; None if all went well."""
        with os.fdopen(self.notes, "rb") as pipe:
            text = pipe.read()
        if text:
            return json.loads(text)  # type: ignore[no-any-return]  # a dict, see `failure`
        if not self.code:
            return None
        killed = self.code < 0
        end = f"was killed by {signal.Signals(-self.code).name}" if killed else f"ended with code {self.code}"
        return {"rank": self.rank, "message": end, "killed": True, "consequence": self.ended}


@dataclass
class WorkerProcesses:
    """The workers, and how often they were asked to stop."""

    workers: list[WorkerProcess] = field(default_factory=list)
    stop_requests: int = 0

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Pass a request to stop on; a second one ends them at once."""
        self.stop_requests += 1
        self.send(number if self.stop_requests == 1 else signal.SIGKILL)

    def send(self, number: int) -> None:
        """Send a signal to those that still run."""
        for worker in self.workers:
            if worker.code is None:
                worker.ended = number == signal.SIGKILL
                os.kill(worker.pid, number)

    def wait(self) -> None:
        """Wait for all; if one fails, the others get a few seconds to end by themselves."""
        failed_at: float | None = None
        while any(worker.code is None for worker in self.workers):
            time.sleep(0.02)
            for worker in self.workers:
                worker.poll()
            if failed_at is None and any(worker.code for worker in self.workers):
                failed_at = time.monotonic()
            if failed_at is not None and time.monotonic() - failed_at > GRACE:
                self.send(signal.SIGKILL)

    def wait_and_replace(self, fork: Callable[[int], WorkerProcess]) -> None:
        """Wait for all; start those that were killed again, as long as others are there to return to."""
        while any(worker.code is None for worker in self.workers):
            time.sleep(0.02)
            for i, worker in enumerate(self.workers):
                worker.poll()
                killed = worker.code is not None and worker.code < 0
                others = any(w.code is None for w in self.workers)
                if killed and others and not self.stop_requests:
                    os.close(worker.notes)
                    self.workers[i] = fork(worker.rank)


def main() -> None:
    """Fork the workers, and write their reports of what went wrong to a pipe, as JSON lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--notes", type=int, required=True)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--at-step", type=int)
    parser.add_argument("--loggers", nargs="*", default=[])
    given = parser.parse_args()
    warnings.simplefilter("ignore", TheoryWarning)  # the parent process has shown it
    processes = WorkerProcesses()
    for number in SIGNALS:
        signal.signal(number, processes.on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        _warm_up(RunFolder(given.folder).config())
    except Exception as error:  # noqa: BLE001 - the parent process shows it
        _report(given.notes, [failure(0, error)])
        return
    if processes.stop_requests:
        return
    alive, _held = os.pipe()  # closes when this process ends, however it ends
    n = int(os.environ["WORLD_SIZE"])
    over_mesh = RunFolder(given.folder).config().transport == "mesh"
    given.mesh = LocalMesh(n) if over_mesh else None
    for rank in range(n):
        processes.workers.append(_fork(rank, given, alive, _held))
    end_with_parent(lambda: processes.send(signal.SIGKILL))
    if over_mesh:
        given.resume = False  # who returns gets its model from the others
        processes.wait_and_replace(lambda rank: _fork(rank, given, alive, _held))
    else:
        processes.wait()
    _report(given.notes, [note for worker in processes.workers if (note := worker.note())])


def _warm_up(config: Config) -> None:
    """Do once what every worker would do, as far as it runs only torch's code and ours.

    A user's file is left to the workers: it may start threads, and forks of such processes hang.
    """
    torch.set_num_threads(1)  # no threads that a fork would lose
    if config.task in TASKS:
        config.make_task()  # kept for the workers
    config.make_optimizer([Parameter(torch.zeros(1))])  # torch imports half of itself for the first one


def failure(rank: int, error: BaseException) -> dict[str, Any]:
    """Return what went wrong as plain data."""
    return {
        "rank": rank,
        "message": message(error),
        "traceback": "".join(traceback.format_exception(error))[-MAX_TRACEBACK:],
        "consequence": isinstance(error, PeerError),
        "diverged": isinstance(error, Diverged),
        "explained": is_explained(error),
    }


def _fork(rank: int, given: argparse.Namespace, alive: int, held: int) -> WorkerProcess:
    """Fork a worker and return it."""
    ours, theirs = os.pipe()
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the worker handles them itself
    pid = os.fork()
    if pid == 0:
        for fd in (ours, held, given.notes):
            os.close(fd)
        os.dup2(alive, 0)
        _work(rank, given, theirs)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os.close(theirs)
    return WorkerProcess(rank, pid, ours)


def _work(rank: int, given: argparse.Namespace, notes: int) -> NoReturn:
    """Train as a worker, and end this process."""
    if NAMESPACES in os.environ:
        enter(os.environ[NAMESPACES].split()[rank])
    end_with_parent()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    folder = RunFolder(given.folder)
    if rank:
        log = os.open(folder.log_path(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
    try:
        loggers = tuple(given.loggers)
        config = folder.config()
        train_worker(
            folder,
            config,
            rank,
            resume=given.resume,
            at_step=given.at_step,
            loggers=loggers,
            transport=given.mesh and given.mesh.join(rank, config.deadline),
        )
    except KeyboardInterrupt:
        os._exit(130)  # the user wants it at once
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the parent process shows it
        _report(notes, [failure(rank, error)])
        os._exit(1)
    _leave()


def _leave() -> NoReturn:
    """End this process without torch's clean-up, which takes a second per worker."""
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing ends the processes that it has forked
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _report(pipe: int, notes: list[dict[str, Any]]) -> None:
    """Write notes to a pipe, not to a file: the disk may be full."""
    with os.fdopen(pipe, "w") as file:
        file.writelines(json.dumps(note) + "\n" for note in notes)


if __name__ == "__main__":
    main()
    _leave()
