"""Real worker processes for tests: start n of them, wait with a limit, collect what they return.

They are forked from a process that has done nothing but import, once for all tests of a session.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ROOT = Path(__file__).resolve().parents[2]
START_UP = timedelta(seconds=240)
PRELOADED = ["torch._dynamo", "torch.distributed", "gossamer"]  # torch imports _dynamo for the first step


def run_processes(
    n: int, work: Callable[..., Any], *args: Any, seconds: float = 400, group: bool = True
) -> list[Any]:
    """Run work(rank, n, *args) in n processes and return the results, an exception where one was raised.

    A process that was killed leaves None; one that takes too long says first where it stands.
    With `group`, a gloo process group is there already.
    """
    with TemporaryDirectory() as folder:
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        processes = [
            context.Process(target=_body, args=(rank, n, folder, group, work, args, seconds), daemon=True)
            for rank in range(n)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(seconds)
            if process.is_alive():
                process.kill()
        return [_result(Path(folder) / f"{rank}.pt") for rank in range(n)]


def _body(
    rank: int,
    n: int,
    folder: str,
    group: bool,
    work: Callable[..., Any],
    args: tuple[Any, ...],
    seconds: float,
) -> None:
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(0.9 * seconds)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        if group:
            store = f"file://{folder}/store"
            dist.init_process_group("gloo", init_method=store, rank=rank, world_size=n, timeout=START_UP)
        result = work(rank, n, *args)
    except Exception as error:  # noqa: BLE001 - handed to the test
        result = error
    torch.save(result, Path(folder) / f"{rank}.part")
    os.replace(Path(folder) / f"{rank}.part", Path(folder) / f"{rank}.pt")
    if group and not isinstance(result, Exception):
        dist.barrier()
        dist.destroy_process_group()


def _result(path: Path) -> Any:
    return torch.load(path, weights_only=False) if path.exists() else None


def torchrun(script: Path | str, folder: Path, *arguments: str, n: int = 2) -> str:
    """Run a script on n workers and return what it printed; torchrun leaves its logs in `folder`."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n))
    return run_python(*launcher, str(script), *arguments, PYTHONPATH=str(ROOT), TMPDIR=str(folder))


def run_python(*arguments: str, **environment: str) -> str:
    """Run this interpreter with one torch thread, and return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
