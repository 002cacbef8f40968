"""A real exchange between two processes of this machine: the doctor's last check."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from subprocess import PIPE, STDOUT
from typing import Literal

import gossamer
from gossamer._processes import ThisMachine, WorkerCommands, end_with_parent

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
            reason = outputs[rank].rpartition("\n")[2][-300:] or f"exit code {code}"
            return Finding("problem", "exchange", f"worker {rank} failed: {reason}", remedy)
    if None in codes:
        return Finding("problem", "exchange", f"two processes did not meet in {limit:g} s", remedy)
    result = json.loads(next((line for line in outputs[0].splitlines() if line.startswith("{")), "{}"))
    if not result.get("error", 1.0) < 0.01:
        return Finding("problem", "exchange", f"wrong average: {result or outputs[0]}", remedy)
    took = f"{result['bytes']} bytes per worker, {result['rounds']} rounds, {1000 * result['seconds']:.0f} ms"
    return Finding("ok", "exchange", f"two processes averaged 1000 numbers: {took}")


def _run_two(command: Sequence[str], limit: float) -> tuple[list[int | None], list[str]]:
    """Return the exit codes and outputs of two workers; None for one that had to be ended."""
    workers = WorkerCommands(ThisMachine(2), command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, text=True)
    try:
        workers.wait(limit)  # a failure ends it for both
        codes = workers.codes()
    finally:
        workers.kill()
        outputs = [process.communicate()[0].strip() for process in workers.processes]
    return codes, outputs


def exchange() -> None:
    """Act as one of the two workers: average a tensor, and print the result."""
    import torch

    end_with_parent()
    tensors = [torch.randn(1000, generator=torch.Generator().manual_seed(rank)) for rank in range(2)]
    average = partial(gossamer.average, compressor="topk:0.25", gamma=0.5, deadline=LIMIT)
    own, mean = tensors[int(os.environ["RANK"])], sum(tensors) / 2
    average(own)  # the workers meet
    began = time.perf_counter()
    done = average(own)
    result = {"bytes": done.bytes_sent, "rounds": done.rounds, "seconds": time.perf_counter() - began}
    result["error"] = float((done.value - mean).norm() / (own - mean).norm())
    sys.stdout.write(json.dumps(result) + "\n")
