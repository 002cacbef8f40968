"""A real exchange between two processes of this machine: the doctor's last check."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from subprocess import PIPE, STDOUT, Popen
from typing import Literal

import gossamer

LIMIT = 120.0  # seconds for two cold interpreters on a busy machine
WORKER = (sys.executable, "-c", "from gossamer.cli.exchange import exchange; exchange()")


@dataclass(frozen=True)
class Finding:
    """What one check has found, and what to do about it."""

    level: Literal["ok", "warning", "problem"]
    what: str
    detail: str
    remedy: str = ""


def check_exchange(command: Sequence[str] = WORKER, limit: float = LIMIT) -> Finding:
    """Average a tensor between two real processes on this machine, and leave none behind."""
    remedy = "see which line above is not ok; a firewall or VPN may block 127.0.0.1"
    codes, outputs = _run_two(command, limit)
    for rank, code in enumerate(codes):
        if code:
            said = outputs[rank].rpartition("\n")[2][-300:] or f"exit code {code}"
            return Finding("problem", "exchange", f"worker {rank} failed: {said}", remedy)
    if None in codes:
        return Finding("problem", "exchange", f"two processes did not meet in {limit:g} s", remedy)
    told = json.loads(next((line for line in outputs[0].splitlines() if line.startswith("{")), "{}"))
    if not told.get("error", 1.0) < 0.01:
        return Finding("problem", "exchange", f"wrong average: {told or outputs[0]}", remedy)
    took = f"{told['bytes']} bytes per worker, {told['rounds']} rounds, {1000 * told['seconds']:.0f} ms"
    return Finding("ok", "exchange", f"two processes averaged 1000 numbers: {took}")


def _run_two(command: Sequence[str], limit: float) -> tuple[list[int | None], list[str]]:
    """Return the exit codes and outputs of two workers; None for one that had to be ended."""
    from gossamer.runs.processes.launch import meeting_place

    own = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
    own |= meeting_place() | {"WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    processes: list[Popen[str]] = []
    try:
        for rank in ("0", "1"):
            environ = own | {"RANK": rank, "LOCAL_RANK": rank}
            process = Popen(command, env=environ, stdin=PIPE, stdout=PIPE, stderr=STDOUT, text=True)  # noqa: S603
            processes.append(process)
        end = time.monotonic() + limit
        codes: list[int | None] = [None]
        while time.monotonic() < end and None in codes and not any(codes):  # a failure ends it for both
            time.sleep(0.05)
            codes = [process.poll() for process in processes]
    finally:
        for process in processes:
            process.kill()
        outputs = [process.communicate()[0].strip() for process in processes]
    return codes, outputs


def exchange() -> None:
    """Be one of the two workers: average a tensor, and print what it took."""
    import torch

    threading.Thread(target=_end_with_parent, daemon=True).start()
    tensors = [torch.randn(1000, generator=torch.Generator().manual_seed(rank)) for rank in range(2)]
    average = partial(gossamer.average, compressor="topk:0.25", gamma=0.5, deadline=LIMIT)
    own, mean = tensors[int(os.environ["RANK"])], sum(tensors) / 2
    average(own)  # the workers meet
    began = time.perf_counter()
    done = average(own)
    told = {"bytes": done.bytes_sent, "rounds": done.rounds, "seconds": time.perf_counter() - began}
    told["error"] = float((done.value - mean).norm() / (own - mean).norm())
    sys.stdout.write(json.dumps(told) + "\n")


def _end_with_parent() -> None:
    """End this process when its parent is gone: the pipe to its input then closes."""
    os.read(0, 1)
    os._exit(1)
