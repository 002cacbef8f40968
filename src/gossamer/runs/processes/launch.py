"""A run as one command: worker processes on this machine, watched, and never left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from gossamer._node.interrupts import SIGNALS
from gossamer._processes import meeting_place, workers_environment
from gossamer.errors import GossamerError
from gossamer.lab.namespaces import NAMESPACES
from gossamer.runs.folder import RunFolder
from gossamer.runs.training.stop import Stop
from gossamer.runs.training.summarize import mark_failed


class WorkerFailed(GossamerError):  # noqa: N818 - the words say it
    """A worker failed; the text is its own, with its traceback where that helps."""


def launch(
    folder: RunFolder, *, resume: bool = False, at_step: int | None = None, loggers: tuple[str, ...] = ()
) -> str:
    """Run the workers of a run whose folder exists; return how it ended.

    Ctrl-C lets them save and stop, a second one ends them. If a worker fails, the others are
    stopped and WorkerFailed holds its message. If this process dies, so do they.
    """
    Stop.clear(folder.path)
    folder.write_summary(replace(folder.summary(), status="running", error=None))
    arguments = ["--resume"] if resume else []
    arguments += ["--at-step", str(at_step)] if at_step is not None else []
    ours, theirs = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # inherited by the new process until it handles them
    process = _start(folder, theirs, [*arguments, "--loggers", *loggers])
    interrupts = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        process.send_signal(number)
        if interrupts == 1:
            os.write(2, b"\nStopping after the next steps, with a checkpoint; once more to stop at once.\n")

    in_main = threading.current_thread() is threading.main_thread()  # only it can handle signals
    before = {number: signal.signal(number, on_signal) for number in SIGNALS if in_main}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        with os.fdopen(ours) as pipe:
            notes = [json.loads(line) for line in pipe]
        code = process.wait()
    finally:
        process.kill()
        process.communicate()
        for number, handler in before.items():
            signal.signal(number, handler)
    return _outcome(folder, notes, interrupts, code)


def _start(folder: RunFolder, notes: int, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start the process that the workers come from; it has the other end of the pipe from now on."""
    module = [sys.executable, "-m", "gossamer.runs.processes.zygote", str(folder.path), "--notes", str(notes)]
    process = subprocess.Popen(  # noqa: S603 - our own module
        [*module, *arguments],
        env=_environment(folder.config().workers),
        stdin=subprocess.PIPE,  # closes when this process ends, however it ends
        pass_fds=[notes],
        start_new_session=True,  # Ctrl-C comes from here, once
    )
    os.close(notes)
    return process


def _environment(n: int) -> dict[str, str]:
    return {
        **os.environ,
        **(meeting_place() if NAMESPACES not in os.environ else {}),
        **workers_environment(n),  # one thread: they are forked, and have the simulation's bits
    }


def _outcome(folder: RunFolder, notes: list[dict[str, Any]], interrupts: int, code: int) -> str:
    if folder.status() != "running":
        return folder.status()
    if interrupts > 1 or (interrupts and not notes):
        mark_failed(folder, "interrupted", "stopped at once, without a checkpoint of the last steps")
        return "interrupted"
    if not notes:
        text = f"the process that runs the workers has ended with code {code}"
        mark_failed(folder, "failed", text)
        raise WorkerFailed(text)
    # The worker that failed first explains more than those that lost it, or were ended because of it.
    first = min(notes, key=lambda note: (note.get("consequence", False), note.get("killed", False)))
    if first.get("diverged"):
        mark_failed(folder, "diverged", first["message"])
        return "diverged"
    text = _description(folder.path, first)
    mark_failed(folder, "failed", text)
    raise WorkerFailed(text)


def _description(folder: Path, note: dict[str, Any]) -> str:
    rank = note["rank"]
    if note.get("killed"):
        log = folder / "logs" / f"worker-{rank}.log"
        more = f"; see {log}" if log.is_file() and log.stat().st_size else ""
        return f"worker {rank} {note['message']}{more}. Resume with --resume {shlex.quote(str(folder))}"
    if note["explained"]:
        return f"worker {rank} stopped: {note['message']}"
    return f"worker {rank} failed\n{note['traceback']}"
