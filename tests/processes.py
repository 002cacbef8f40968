"""Real worker processes for tests: start n of them, wait with a limit, collect what they return."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

START_UP = timedelta(seconds=120)


def run_processes(
    n: int, work: Callable[..., Any], *args: Any, seconds: float = 240, group: bool = True
) -> list[Any]:
    """Run work(rank, n, *args) in n processes and return the results, an exception where one was raised.

    A process that was killed leaves None. With `group`, a gloo process group is there already.
    """
    with TemporaryDirectory() as folder:
        context = mp.get_context("spawn")
        processes = [
            context.Process(target=_body, args=(rank, n, free_port(), folder, group, work, args), daemon=True)
            for rank in range(n)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(seconds)
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
        return [_result(Path(folder) / f"{rank}.pt") for rank in range(n)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _body(
    rank: int, n: int, port: int, folder: str, group: bool, work: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    if group:
        store = f"file://{folder}/store"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=n, timeout=START_UP)
    try:
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
