"""Anybody's command on every worker of a lab, the way torchrun starts it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TextIO

from gossamer.lab.lab import Lab

PATIENCE = 10.0  # seconds between asking processes to end and ending them


def run_everywhere(lab: Lab, argv: Sequence[str], out: TextIO = sys.stdout) -> int:
    """Run a command once a worker, with RANK, WORLD_SIZE and MASTER_ADDR set; return its exit code.

    Every line that a worker prints is shown after its rank. If one fails, the others are ended and
    its code is returned; after Ctrl-C it is 130.
    """
    processes = [
        lab.popen(i, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for i in range(lab.n)
    ]
    lock = threading.Lock()
    readers = [threading.Thread(target=_show, args=(i, p, out, lock)) for i, p in enumerate(processes)]
    for reader in readers:
        reader.start()
    ended: SimpleQueue[int] = SimpleQueue()  # in the order of their ends: others fail of the first failure
    for process in processes:
        threading.Thread(target=lambda p=process: ended.put(p.wait()), daemon=True).start()
    try:
        code = next((code for code in (ended.get() for _ in processes) if code), 0)
    except KeyboardInterrupt:
        code = 130
    _end(processes, signal.SIGINT if code == 130 else signal.SIGTERM)
    for reader in readers:
        reader.join()
    return 128 - code if code < 0 else code  # as a shell tells of signals


def _show(rank: int, process: subprocess.Popen[str], out: TextIO, lock: threading.Lock) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with lock:
            out.write(f"{rank} | {line}")
            out.flush()


def _end(processes: Sequence[subprocess.Popen[str]], number: int) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)
    limit = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
