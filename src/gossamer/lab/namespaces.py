"""Network namespaces of the operating system: made, entered, read and removed, with nothing left behind.

A lab's namespaces are called gossamer-PID-LAB-WORKER, by the process that has made them and how many
labs it had made before. An alias of the loopback device says when that process was started: another
process may get the same id later.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from gossamer.errors import GossamerError

DEVICE = "t0"  # the TUN device, called the same in every namespace
SUBNET = bytes((10, 77, 0))  # worker i is 10.77.0.(i + 1)
FOLDER = Path("/var/run/netns")
NAMESPACES, LAB = "GOSSAMER_NAMESPACES", "GOSSAMER_LAB"  # environment variables for workers

CLONE_NEWNET = 0x40000000

_NAME = re.compile(r"gossamer-(\d+)-\d+-\d+")
_labs = itertools.count()

T = TypeVar("T")


class LabError(GossamerError):
    """A machine that cannot be a lab as it is, or a lab that has broken down; the text says what to do."""


@cache
def libc() -> ctypes.CDLL:
    """Return the system's C library, which not every system has under this name."""
    return ctypes.CDLL(None, use_errno=True)


def require_lab() -> None:
    """Raise a LabError that lists all that a lab lacks here, and how to get it."""
    if not sys.platform.startswith("linux"):
        raise LabError("the lab needs Linux: it is made of network namespaces; a virtual machine will do")
    missing = []
    if os.geteuid() != 0:
        missing.append("root: start it with sudo")
    tools = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if tools:
        missing.append(f"{' and '.join(tools)}: apt install iproute2")
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except PermissionError:
        missing.append("access to /dev/net/tun: start it with sudo, in a container with --privileged")
    except OSError:
        missing.append("/dev/net/tun: modprobe tun, in a container --privileged --device /dev/net/tun")
    if missing:
        raise LabError("the lab lacks " + "; ".join(missing))


def create(n: int) -> list[str]:
    """Make n namespaces that belong to this process and return their names."""
    lab, pid = next(_labs), os.getpid()
    names = [f"gossamer-{pid}-{lab}-{i}" for i in range(n)]
    try:
        command("ip", "-batch", "-", lines=[f"netns add {name}" for name in names])
        for name in names:
            alias = f"gossamer {pid} {_started(pid)}"
            command("ip", "-n", name, "-batch", "-", lines=[f'link set lo up alias "{alias}"'])
    except BaseException:
        for name in names:
            remove(name)
        raise
    return names


def enter(name: str) -> None:
    """Move the calling thread into a network namespace, with all processes and threads it will start.

    Threads that already run stay where they are: call it before starting any.
    """
    try:
        fd = os.open(FOLDER / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise LabError(f"there is no namespace {name}: has its lab been closed?") from None
    try:
        if libc().setns(fd, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(fd)


def inside(name: str, work: Callable[[], T]) -> T:
    """Call something inside a namespace and return its result; sockets made there stay there."""
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            enter(name)
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=body)  # a new one, so that nothing has to leave the namespace again
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def remove(name: str) -> None:
    """End all processes in a namespace and delete it, if it exists."""
    if not (FOLDER / name).exists():
        return
    for _ in range(100):
        found = _run("ip", "netns", "pids", name).stdout.split()
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if not found:
            break
        time.sleep(0.01)  # they need a moment to end, and may have been forking
    _run("ip", "netns", "del", name)


def sweep() -> list[str]:
    """Remove the namespaces of labs whose process is gone, with all that runs in them; return their names."""
    names = sorted(path.name for path in FOLDER.glob("gossamer-*")) if FOLDER.is_dir() else []
    left = [name for name in names if (found := _NAME.fullmatch(name)) and _orphan(name, int(found[1]))]
    for name in left:
        remove(name)
    return left


def _orphan(name: str, pid: int) -> bool:
    now = _started(pid)
    if now is None:
        return True
    shown = _run("ip", "-n", name, "-json", "link", "show", "lo").stdout
    alias = json.loads(shown)[0].get("ifalias") if shown else None
    # Without an alias its process is about to give it one.
    return alias is not None and alias != f"gossamer {pid} {now}"


def _started(pid: int) -> int | None:
    """Return when a process was started, in ticks since the machine was; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = text.rpartition(")")[2].split()  # the name before may hold anything
    return None if state in "ZX" else int(fields[18])


def command(*arguments: str, lines: Iterable[str] = ()) -> str:
    """Run a tool and return its output, or raise a LabError."""
    ended = _run(*arguments, lines=lines)
    if ended.returncode:
        reason = ended.stderr.strip() or f"exit code {ended.returncode}"
        hint = "; in a container the lab needs --privileged" if "not permitted" in reason else ""
        raise LabError(f"{' '.join(arguments)}: {reason}{hint}")
    return ended.stdout


def _run(*arguments: str, lines: Iterable[str] = ()) -> subprocess.CompletedProcess[str]:
    text = "".join(line + "\n" for line in lines)
    return subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)  # noqa: S603
