"""The library imports and works where Python has nothing that only Unix has, and the rest says so."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The libraries come first: what they do on another system is their own affair.
AS_ELSEWHERE = """
import ctypes, os, select, signal, socket, sys
import multiprocessing, networkx, numpy, rich.console, torch, torch._dynamo, torch.distributed, typer
for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
missing = {
    os: "fork forkpty geteuid getpgid getpgrp getsid getuid kill killpg mkfifo posix_spawn register_at_fork"
    " sched_getaffinity sched_param sched_setscheduler setpgid setsid uname waitpid WNOHANG SCHED_FIFO",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGUSR1 alarm pthread_kill pthread_sigmask setitimer",
    socket: "AF_UNIX socketpair",
    select: "epoll poll",
}
for module, names in missing.items():
    for name in names.split():
        vars(module).pop(name, None)
open_library = ctypes.CDLL
def by_name_only(name, *more, **options):
    if name is None:
        raise TypeError("expected str, not None")
    return open_library(name, *more, **options)
ctypes.CDLL = by_name_only
"""

LIBRARY = """
import gossamer, pkgutil
from importlib import import_module
rooms = "compress topology algorithms rounds transport network _mesh _node _doors testing tasks"
for room in rooms.split():
    package = import_module(f"gossamer.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
targets = torch.eye(4)
run = gossamer.Simulation(
    {"x": torch.zeros(4)},
    "ring",
    "choco",
    "topk:0.5",
    workers=4,
    gradient=lambda rank, parameters, step: {"x": parameters["x"] - targets[rank]},
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
)
run.run(50)
assert (run.average() - 0.25).norm() < 0.05, run.average()
"""

ALONE = """
import gossamer
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
model = torch.nn.Linear(2, 1)
inner = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = gossamer.decentralize(inner, model, algorithm="dpsgd")
with optimizer.catching_interrupts() as interrupted:
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    assert not interrupted()
with optimizer.consensus():
    pass
"""

COMMAND = """
sys.argv = {words}
from gossamer.__main__ import main
main()
"""


def elsewhere(code: str, folder) -> subprocess.CompletedProcess[str]:
    """Run code as on a system that is not Unix."""
    return subprocess.run(
        [sys.executable, "-c", AS_ELSEWHERE + code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize("code", [LIBRARY, ALONE], ids=["all of it", "decentralize"])
def test_the_library_needs_nothing_of_unix(tmp_path, code):
    done = elsewhere(code, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["--help"], ["topology", "ring", "--n", "4"], ["algorithms"]])
def test_commands_that_start_nothing_need_nothing_of_unix(tmp_path, words):
    done = elsewhere(COMMAND.format(words=["gossamer", *words]), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words", [["train"], ["simulate"], ["compare", "dpsgd", "allreduce"], ["train", "--resume", "x"]]
)
def test_runs_say_what_they_need(tmp_path, words):
    done = elsewhere(COMMAND.format(words=["gossamer", *words]), tmp_path)
    assert done.returncode == 1, done.stderr
    assert "needs Linux or macOS; gossamer.Simulation and gossamer.decentralize work here" in done.stderr
    assert not list(tmp_path.iterdir()), "nothing is left behind"
