"""gossamer doctor: what could go wrong on this machine, and what to do about it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import Annotated, Literal

import torch
import torch.distributed as dist
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch.torch_version import TorchVersion

import gossamer
from gossamer.report import human
from gossamer.runs.launch import meeting_place
from gossamer.tasks import TASKS

OLDEST_TORCH, LITTLE_SPACE = "2.4", 1_000_000_000  # bytes: a few checkpoints of a few workers
LIMIT = 120.0  # seconds for two cold interpreters on a busy machine
SIOCGIFADDR = 0x8915  # Linux: the address of an interface
WORKER = (sys.executable, "-c", "from gossamer.cli.doctor import exchange; exchange()")
EXTRAS = {
    "cli": ("typer", "rich", "safetensors"),
    "report": ("matplotlib", "jinja2"),
    "demo": ("scikit-learn",),
    "tensorboard": ("tensorboard",),
}


@dataclass(frozen=True)
class Finding:
    """What one check has found, and what to do about it."""

    level: Literal["ok", "warning", "problem"]
    what: str
    detail: str
    remedy: str = ""


def doctor(
    data: Annotated[Path | None, typer.Option(help="A folder with a task's data: can it be read?")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Check this machine: versions, network, data, and a real exchange between two processes.

    The exit code is 1 if there is a problem; run it on every machine before a long run.

    [bold]Example:[/bold] gossamer doctor --data ~/cifar-10-batches-bin
    """
    console, found = Console(highlight=False), []
    for check in _checks(data):
        with console.status("checking ...", spinner="line"):  # shown on terminals only
            findings = check()
        found += findings
        for finding in () if as_json else findings:
            console.print(_line(finding))
    problems, warnings = (sum(f.level == level for f in found) for level in ("problem", "warning"))
    if as_json:
        content = {"ok": not problems, "findings": [asdict(f) for f in found]}
        console.print_json(data=content, ensure_ascii=True)
    else:
        console.print(f"\nproblems: {problems}, warnings: {warnings}")
    if problems:
        raise typer.Exit(1)


def _checks(data: Path | None) -> list[Callable[[], list[Finding]]]:
    environ, addresses = os.environ, interfaces()
    named = ", ".join(f"{name} {address or '(no IPv4)'}" for name, address in addresses.items())
    return [
        lambda: [check_versions(), check_threads(environ), check_distributed(), *check_packages()],
        lambda: [Finding("ok", "interfaces", named), check_address(environ, addresses)],
        lambda: [check_torchrun(environ), check_disk(Path.cwd()), *check_data(data)],
        lambda: [check_exchange()],
    ]


def _line(finding: Finding) -> Table:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(width=7, style={"ok": "green", "warning": "yellow"}.get(finding.level, "bold red"))
    table.add_column(width=14, style="bold")
    table.add_column(ratio=1, overflow="fold")
    more = f"\n-> {finding.remedy}" if finding.remedy else ""
    table.add_row(finding.level, finding.what, escape(finding.detail + more))
    return table


def check_versions(version: str = torch.__version__) -> Finding:
    """Refuse a torch older than the package needs."""
    text = f"Python {platform.python_version()}, torch {version}, gossamer {gossamer.__version__}"
    if TorchVersion(version) < OLDEST_TORCH:
        return Finding("problem", "versions", text, f"torch is too old: pip install 'torch>={OLDEST_TORCH}'")
    return Finding("ok", "versions", f"{text} on {platform.system()} {platform.machine()}")


def check_threads(environ: Mapping[str, str], cores: int | None = None) -> Finding:
    """Warn if a worker would use more threads than there are cores."""
    cores = cores or (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()) or 1
    setting = environ.get("OMP_NUM_THREADS", "")
    text = f"{cores} cores, OMP_NUM_THREADS {setting or 'not set'}, {torch.get_num_threads()} torch threads"
    crowded = setting.isdigit() and int(setting) > cores
    remedy = "export OMP_NUM_THREADS=1 where workers share a machine" if crowded else ""
    return Finding("warning" if crowded else "ok", "threads", text, remedy)


def check_distributed() -> Finding:
    """Tell which backends torch.distributed has; gloo is the one that is needed."""
    if not dist.is_available() or not dist.is_gloo_available():
        return Finding("problem", "distributed", "this torch has no gloo", "take a wheel from pytorch.org")
    there = {"gloo": True, "nccl": dist.is_nccl_available(), "mpi": dist.is_mpi_available()}
    names = ", ".join(name for name, is_there in there.items() if is_there)
    return Finding("ok", "distributed", f"{names}; {'a' if torch.cuda.is_available() else 'no'} GPU")


def check_packages() -> list[Finding]:
    """Tell which optional packages are there, and how to get those that are not."""
    versions, missing = [], []
    for extra, names in EXTRAS.items():
        for name in names:
            try:
                versions.append(f"{name} {metadata.version(name)}")
            except metadata.PackageNotFoundError:
                text = f"{name} is not installed"
                missing.append(Finding("warning", "packages", text, f"pip install 'gossamer[{extra}]'"))
    return [Finding("ok", "packages", ", ".join(versions)), *missing]


def interfaces() -> dict[str, str]:
    """Return every network interface's IPv4 address; "" where it has none or the system does not tell."""
    found = {name: "" for _, name in socket.if_nameindex()}
    if sys.platform == "linux":
        from fcntl import ioctl  # noqa: PLC0415 - not on every system

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for name in found:
                with suppress(OSError):
                    answer = ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
                    found[name] = socket.inet_ntoa(answer[20:24])
    return found


def check_address(environ: Mapping[str, str], addresses: Mapping[str, str]) -> Finding:
    """Tell which address gloo takes: other machines must be able to reach it."""
    wanted = environ.get("GLOO_SOCKET_IFNAME", "")
    outside = [name for name, address in addresses.items() if address and not _is_loopback(address)]
    outside.sort(key=lambda name: name.startswith(("docker", "br-", "veth", "virbr")))  # seldom the way out
    if wanted:
        missing = [name for name in wanted.split(",") if name not in addresses]
        if missing:
            text = f"GLOO_SOCKET_IFNAME={wanted}, but there is no interface {missing[0]}"
            return Finding("problem", "address", text, f"use one of {', '.join(outside or addresses)}")
        return Finding("ok", "address", f"gloo takes {wanted}, as GLOO_SOCKET_IFNAME says")
    host = socket.gethostname()
    try:
        bound = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None)})
    except OSError:
        bound = []
    if bound and not all(map(_is_loopback, bound)):
        return Finding("ok", "address", f"the host name {host} is {', '.join(bound)}: gloo takes that")
    why = f"is {', '.join(bound)}" if bound else "does not resolve"
    text = f"the host name {host} {why}: gloo takes an address that only this machine can reach"
    master = environ.get("MASTER_ADDR", "localhost")
    several = master not in (host, *addresses.values()) and not _is_loopback(master)
    remedy = f"between machines: export GLOO_SOCKET_IFNAME={outside[0] if outside else 'eth0'} on each"
    return Finding("problem" if several else "warning" if outside else "ok", "address", text, remedy)


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")


def check_torchrun(environ: Mapping[str, str]) -> Finding:
    """Look at the variables by which workers find each other."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    given = {name: environ[name] for name in names if name in environ}
    text = ", ".join(f"{name}={value}" for name, value in given.items())
    if not given:
        return Finding("ok", "torchrun", "not under torchrun: gossamer train starts the workers itself")
    missing = [name for name in names if name not in given]
    if missing and ("RANK" in given or "WORLD_SIZE" in given):
        text = f"{text}, but no {', '.join(missing)}"
        return Finding("problem", "torchrun", text, "torchrun sets all four")
    rank, size, port = (given.get(name, "1") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    numbers = rank.isdigit() and size.isdigit() and port.isdigit() and 0 < int(port) < 65536
    if not numbers or ("RANK" in given and int(rank) >= int(size)):
        return Finding("problem", "torchrun", text, "whole numbers, please: RANK < WORLD_SIZE, port < 65536")
    try:
        socket.getaddrinfo(given.get("MASTER_ADDR", "localhost"), None)
    except OSError:
        return Finding("problem", "torchrun", f"{text}: no such host", "use an address of worker 0's machine")
    return Finding("ok", "torchrun", text)


def check_disk(folder: Path) -> Finding:
    """Warn if checkpoints will soon fill the disk."""
    free = shutil.disk_usage(folder).free
    text = f"{human.size(free).replace(human.SPACE, ' ')} free for runs in {folder}"
    full = free < LITTLE_SPACE
    remedy = "make space, or keep few checkpoints: --keep 1" if full else ""
    return Finding("warning" if full else "ok", "disk", text, remedy)


def check_data(data: Path | None) -> list[Finding]:
    """Load the built-in tasks, or those whose data is in the given folder."""
    found = []
    for name, make in TASKS.items():
        try:
            count = len(make("", data).train)
            found.append(Finding("ok", f"task {name}", f"{count} examples to train on"))
        except (OSError, ValueError) as error:
            # without a place of its own for the data, there is nothing that could be missing
            asks = data is None and "needs its data" in str(error)
            found.append(Finding("ok" if asks else "warning", f"task {name}", str(error)))
    if data is None:
        return found
    readable = [f for f in found if f.level == "ok" and f.what != "task digits"]  # which takes no data
    text = f"no built-in task can read {data}" if data.exists() else f"there is no {data}"
    expected = "fashion: four IDX files; cifar10: data_batch_1.bin ...; wikitext: train.txt ...; text: a file"
    return readable or [Finding("problem", "data", text, expected)]


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
    took = f"{told['bytes']} bytes a worker, {told['rounds']} rounds, {1000 * told['seconds']:.0f} ms"
    return Finding("ok", "exchange", f"two processes averaged 1000 numbers: {took}")


def _run_two(command: Sequence[str], limit: float) -> tuple[list[int | None], list[str]]:
    """Return the exit codes and outputs of two workers; None for one that had to be ended."""
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
