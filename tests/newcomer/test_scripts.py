"""People's own scripts, as they start and stop them: Ctrl-C under torchrun, an exception of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import gossamer
from gossamer._processes import free_port
from tests.support.problem import flat
from tests.support.processes import run_processes
from tests.support.training import fit
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]

BEGINNING = """
import pathlib, time
import torch
import gossamer
from tests.support.training import batch, fit, small
from tests.support.waiting import LIMIT, wait_for

folder = pathlib.Path(__file__).parent

model = small()
inner = torch.optim.Adam(model.parameters(), lr=0.03)
optimizer = gossamer.decentralize(inner, model, compressor="sign", gamma=0.2, deadline=LIMIT)
rank = optimizer.rank
"""

# Each trains until it is interrupted, and says when it has begun.
ENDLESS = """
for step in range(1_000_000):
    fit(model, optimizer, 1, rank, step)
    if step == 2:
        (folder / f"began-{rank}").touch()
"""

SAVING = """
with optimizer.catching_interrupts() as interrupted:
    for step in range(1_000_000):
        fit(model, optimizer, 1, rank, step)
        time.sleep(0.02)  # for the test: it repeats all steps
        if step == 2:
            (folder / f"began-{rank}").touch()
        if interrupted():
            torch.save(optimizer.state_dict(), folder / f"worker-{rank}.pt")
            break
"""

FAILING = """
try:
    fit(model, optimizer, 2, rank)
    if rank == 1:
        raise FileNotFoundError("batch-17.npz is missing")
    fit(model, optimizer, 1, rank, 2)
except gossamer.PeerError as error:
    (folder / f"{rank}.txt").write_text(f"{error.first_failure}")
    wait_for([folder / "0.txt", folder / "2.txt"])  # whoever leaves first must not be taken for worker 1
    raise
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "train.py"
        path.write_text(BEGINNING + text)
        return path

    return write


def environment(**more):
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_PORT")}
    return {**clean, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more}


def interrupted(script: Path) -> tuple[int, list[str]]:
    """Start three workers with torchrun, press Ctrl-C; return the exit code and what each worker wrote."""
    folder = script.parent
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--redirects", "3"]
    command += ["--master-port", str(free_port()), "--log-dir", str(folder / "logs"), str(script)]
    torchrun = subprocess.Popen(
        command,
        env=environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(folder / f"began-{rank}" for rank in range(3))
        os.killpg(torchrun.pid, signal.SIGINT)  # the terminal's Ctrl-C goes to all of its processes
        code = torchrun.wait(timeout=300)
    finally:
        if torchrun.poll() is None:
            os.killpg(torchrun.pid, signal.SIGKILL)
            torchrun.wait()
    return code, [next(folder.glob(f"logs/*/attempt_0/{rank}/stderr.log")).read_text() for rank in range(3)]


def test_ctrl_c_ends_all_workers_with_a_line_each(script):
    code, errors = interrupted(script(ENDLESS))
    assert code != 0
    for rank, error in enumerate(errors):
        assert "Traceback" not in error, error
        assert error.count("\n") <= 2, error
        assert f"worker {rank} was interrupted; Gossamer has saved nothing" in error, error
        assert "optimizer.catching_interrupts()" in error, error


def began() -> tuple[torch.nn.Module, gossamer.DecentralizedOptimizer]:
    """Do what the scripts do."""
    names: dict[str, Any] = {}
    exec(BEGINNING.replace("__file__", "'.'"), names)  # noqa: S102 - the text above
    return names["model"], names["optimizer"]


def resumed(rank: int, n: int, folder: Path) -> tuple[int, bool]:
    """Resume for three steps; return how many were done, and whether it equals a run that never stopped."""
    state = torch.load(folder / f"worker-{rank}.pt")
    model, optimizer = began()
    optimizer.load_state_dict(state)
    done = optimizer.rounds
    fit(model, optimizer, 3, rank, done)
    never_stopped, optimizer = began()
    fit(never_stopped, optimizer, done + 3, rank)
    return done, torch.equal(flat(model), flat(never_stopped))


def test_ctrl_c_with_catching_interrupts_saves_the_same_step_everywhere_and_resumes_with_the_same_bits(
    script,
):
    path = script(SAVING)
    _, errors = interrupted(path)
    assert all((path.parent / f"worker-{rank}.pt").exists() for rank in range(3)), errors
    results = run_processes(3, resumed, path.parent)
    done = results[0][0]
    assert done > 3, "it was interrupted when all had begun"
    assert results == [(done, True)] * 3


def test_an_exception_in_ones_own_code_is_told_to_the_others(script):
    path = script(FAILING)
    common = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    workers = [  # without torchrun, which would end the others as soon as one has failed
        subprocess.Popen(
            [sys.executable, str(path)],
            env=environment(**common, RANK=str(rank)),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    errors = [worker.communicate(timeout=600)[1] for worker in workers]
    assert all(worker.returncode for worker in workers)
    assert "FileNotFoundError: batch-17.npz is missing" in errors[1]
    for rank in (0, 2):
        assert (path.parent / f"{rank}.txt").exists(), errors[rank]
        told = (path.parent / f"{rank}.txt").read_text()
        assert told == "worker 1 with FileNotFoundError: batch-17.npz is missing"
        assert f"The first to fail was {told}" in errors[rank]
