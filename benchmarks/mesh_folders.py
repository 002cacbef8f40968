"""What faults do to the folders of runs over a mesh: a disk that is full, and all workers killed at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.mesh_soak import N, wait_until
from benchmarks.mesh_workers import Invitation
from benchmarks.record import ROOT
from gossamer.runs.folder import RunFolder
from gossamer.runs.processes.ports import HeldPorts

DISK = "24m"  # two checkpoints of eight workers take 6 MB
EVERY, STEPS = 100, 1500  # steps between two checkpoints, and of the run on a full disk
ENDLESS = 1_000_000
MISSING = (2, 5)  # who does not come back after all were killed
PATIENCE = 120.0
TRAIN = [sys.executable, "-m", "gossamer", "train", "--transport", "mesh"]
SETTINGS = ["--task", "digits", "--compressor", "topk:0.1", "--checkpoint-every", str(EVERY), "--quiet"]
COMPLAINT = "could not save step"

Row = dict[str, Any]


@contextmanager
def small_disk() -> Iterator[Path]:
    """Mount a small file system in memory."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", folder], check=True)  # noqa: S607
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)  # noqa: S607


def fill(path: Path) -> int:
    """Write to a file until the disk is full; return its bytes."""
    written = 0
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4096):
            try:
                while True:
                    written += file.write(bytes(size))
            except OSError:
                continue
    return written


def sound(run: Path, ranks: Sequence[int] = range(N)) -> dict[int, int]:
    """Return each worker's newest checkpoint, after reading all of them; one that is damaged raises."""
    kept = RunFolder(run).checkpoints
    steps = {rank: kept.steps(rank) for rank in ranks}
    for rank, each in steps.items():
        for step in each:
            kept.load(step, rank)
    return {rank: max(each, default=0) for rank, each in steps.items()}


def disk_full() -> list[Row]:
    """Fill the disk under a run of eight workers, then make room and resume."""
    rows = []
    for disturbed in (True, False):
        with small_disk() as disk:
            out = disk / "run"
            command = [*TRAIN, *SETTINGS, "--workers", str(N), "--steps", str(STEPS), "--out", str(out)]
            process = subprocess.Popen(command, cwd=ROOT, text=True, stderr=subprocess.PIPE)
            assert wait_until(partial(_has_two, out), PATIENCE), "no checkpoints"
            filled, before = (fill(disk / "filler") if disturbed else 0), sound(out)
            _, errors = process.communicate(timeout=PATIENCE)
            row = _after_full(disk, out, before, errors) if disturbed else {}
        known = {"run": "disk full" if disturbed else "undisturbed", "bytes filled": filled}
        rows.append({**known, "exit code": process.returncode, **row})
    return rows


def _has_two(out: Path) -> bool:
    return all(len(RunFolder(out).checkpoints.steps(rank)) > 1 for rank in range(N))


def _after_full(disk: Path, out: Path, before: dict[int, int], errors: str) -> Row:
    """Return what was said and kept, and how the run was resumed once there was room."""
    said = [line for line in errors.splitlines() if COMPLAINT in line]
    assert said, f"nobody has noticed: {errors[-500:]}"
    assert "No space left" in said[0]
    after = sound(out)
    (disk / "filler").unlink()
    again = [*TRAIN, "--quiet", "--resume", str(out)]
    resumed = subprocess.run(again, cwd=ROOT, check=False, capture_output=True)
    return {
        "warnings": len(said),
        "the first": said[0],
        "the last line": errors.splitlines()[-1],
        "newest checkpoints before": sorted(set(before.values())),
        "newest sound checkpoints after": sorted(set(after.values())),
        "none was damaged": all(after[r] >= before[r] for r in before),
        "exit code of the resumed run": resumed.returncode,
        "its last checkpoints": sorted(set(sound(out).values())),
    }


def all_killed() -> list[Row]:
    """Kill all eight workers at once; six of them resume from their own checkpoints, and go on."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ports = HeldPorts(N)  # until the last of them has come back
        Invitation.write(folder, ports.addresses)
        runs = {rank: folder / f"run-{rank}" for rank in range(N)}
        first = [_start(folder, r, [*SETTINGS, "--steps", str(ENDLESS), "--out", str(runs[r])]) for r in runs]
        try:
            assert _reach(dict.fromkeys(runs, 3 * EVERY), runs), "they have not begun"
            for process in first:
                process.send_signal(signal.SIGKILL)
            assert [process.wait() for process in first] == [-signal.SIGKILL] * N, "not all were killed"
        finally:
            _end(first)
        return [_resumed(folder, {r: path for r, path in runs.items() if r not in MISSING})]


def _resumed(folder: Path, runs: dict[int, Path]) -> Row:
    before = {rank: sound(path, [rank])[rank] for rank, path in runs.items()}
    began = time.monotonic()
    again = [_start(folder, rank, ["--quiet", "--resume", str(path)]) for rank, path in runs.items()]
    try:
        goes_on = _reach({rank: step + 3 * EVERY for rank, step in before.items()}, runs)
        took, running = time.monotonic() - began, [process.poll() is None for process in again]
        for process in again:
            process.send_signal(signal.SIGINT)
        codes = [process.wait(PATIENCE) for process in again]
    finally:
        _end(again)
    after = {rank: sound(path, [rank])[rank] for rank, path in runs.items()}
    return {
        "run": f"all {N} killed, {len(runs)} resumed",
        "killed": N,
        "missing": list(MISSING),
        "the six go on": goes_on and all(running),
        "resumed at": sorted(before.values()),
        "steps since, of each": sorted(after[r] - before[r] for r in runs),
        "seconds": round(took, 1),
        "exit codes after Ctrl-C": codes,
    }


def _start(folder: Path, rank: int, more: Sequence[str]) -> subprocess.Popen[bytes]:
    address = Invitation(folder).peers.all[rank].address
    place = ["--listen", address, "--peers", str(folder / "peers.toml"), "--key", f"w{rank}"]
    environment = {**os.environ, "GOSSAMER_KEYS": str(folder), "OMP_NUM_THREADS": "1"}
    log = (folder / f"log-{rank}").open("ab")
    with log:
        return subprocess.Popen([*TRAIN, *place, *more], cwd=ROOT, env=environment, stdout=log, stderr=log)


def _reach(steps: dict[int, int], runs: dict[int, Path]) -> bool:
    """Wait until all have checkpoints of these steps or later; return whether they have."""

    def newest(rank: int) -> int:
        return max(RunFolder(runs[rank]).checkpoints.steps(rank), default=0)

    return wait_until(lambda: all(newest(rank) >= step for rank, step in steps.items()), PATIENCE)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()
