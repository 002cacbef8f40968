"""Anybody's command on every worker of a lab, the way torchrun starts it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import TextIO

from gossamer._processes import Place, WorkerCommands


def run_everywhere(place: Place, argv: Sequence[str], out: TextIO = sys.stdout) -> int:
    """Run a command once per worker, with RANK, WORLD_SIZE and MASTER_ADDR set; return its exit code.

    Every line that a worker prints is shown after its rank. If one fails, the others are ended and
    its code is returned; after Ctrl-C it is 130.
    """
    commands = WorkerCommands(place, argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lock = threading.Lock()
    processes = enumerate(commands.processes)
    readers = [threading.Thread(target=_show, args=(i, p, out, lock)) for i, p in processes]
    for reader in readers:
        reader.start()
    try:
        code = commands.wait() or 0
    except KeyboardInterrupt:
        code = 130
    commands.end(signal.SIGINT if code == 130 else signal.SIGTERM)
    for reader in readers:
        reader.join()
    return 128 - code if code < 0 else code  # as a shell reports signals


def _show(rank: int, process: subprocess.Popen[str], out: TextIO, lock: threading.Lock) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        with lock:
            out.write(f"{rank} | {line}")
            out.flush()
