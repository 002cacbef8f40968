"""gossamer doctor: what could go wrong on this machine, and what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import gossamer
from gossamer.cli.exchange import Finding, check_exchange
from gossamer.report import format as human

OLDEST_TORCH = "2.4"  # as pyproject.toml says, and `make test-oldest` tries
LITTLE_SPACE = 1_000_000_000  # bytes: a few checkpoints of a few workers
SIOCGIFADDR = 0x8915  # Linux: the address of an interface
EXTRAS = {
    "cli": ("typer", "rich", "safetensors"),
    "report": ("matplotlib", "jinja2"),
    "demo": ("scikit-learn",),
    "tensorboard": ("tensorboard",),
    "mesh": ("pyzmq",),
}


Check = Callable[[], list[Finding]]

MESH = "One worker of a mesh"
Data = Annotated[Path | None, typer.Option("--data", help="A folder with a task's data: can it be read?")]
Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Listen = Annotated[
    str | None, typer.Option("--listen", help="Where it will listen: 0.0.0.0:7000.", rich_help_panel=MESH)
]
PeersFile = Annotated[Path | None, typer.Option("--peers", help="The peers file.", rich_help_panel=MESH)]
KeyName = Annotated[str | None, typer.Option("--key", help="Its key, by name or file.", rich_help_panel=MESH)]
Plain = Annotated[bool, typer.Option("--plain", help="Do not encrypt.", rich_help_panel=MESH)]
Only = Annotated[str | None, typer.Option("--peer", help="Try this peer only.", rich_help_panel=MESH)]
Wait = Annotated[
    float, typer.Option("--wait", help="Seconds to wait for others, and answer them.", rich_help_panel=MESH)
]


def doctor(
    data: Data = None,
    as_json: Json = False,
    listen: Listen = None,
    peers: PeersFile = None,
    key: KeyName = None,
    plain: Plain = False,
    peer: Only = None,
    wait: Wait = 0.0,
) -> None:
    """Check this machine: versions, network, data, and a real exchange between two processes.

    With --listen and --peers also a worker's place in a mesh, and a real exchange with the others.

    The exit code is 1 if there is a problem; run it on every machine before a long run.

    [bold]Examples[/bold]

    gossamer doctor --data ~/cifar-10-batches-bin

    gossamer doctor --listen 0.0.0.0:7000 --peers peers.toml --key alice --wait 60
    """
    console, found = Console(highlight=False), []
    for check in [*_checks(data), *_mesh_checks(listen, peers, key, peer, wait, plain=plain)]:
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


def _mesh_checks(
    listen: str | None, peers: Path | None, key: str | None, peer: str | None, wait: float, *, plain: bool
) -> list[Check]:
    """Return the checks of a worker's place in a mesh, if one is given."""
    if listen is None and peers is None:
        if key is not None or peer is not None or wait or plain:
            raise ValueError(
                "--key, --peer, --wait and --plain are for a mesh: give --listen and --peers, too"
            )
        return []
    if listen is None or peers is None:
        raise ValueError("a worker of a mesh needs both --listen HOST:PORT and --peers FILE")
    from gossamer.cli.mesh_exchange import check_peers, check_place, find_place

    place = find_place(listen, peers, key, plain=plain)
    if isinstance(place, Finding):
        finding = place
        return [lambda: [finding]]
    if peer is not None:
        place.everybody.by_name(peer)  # a misspelt one is said at once
    return [lambda: check_place(place, interfaces()), lambda: check_peers(place, peer, wait)]


def _checks(data: Path | None) -> list[Check]:
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


def check_versions(version: str | None = None) -> Finding:
    """Refuse a torch older than the package needs."""
    from torch.torch_version import TorchVersion

    version = version or metadata.version("torch")
    text = f"Python {platform.python_version()}, torch {version}, gossamer {gossamer.__version__}"
    if TorchVersion(version) < OLDEST_TORCH:
        return Finding("problem", "versions", text, f"torch is too old: pip install 'torch>={OLDEST_TORCH}'")
    return Finding("ok", "versions", f"{text} on {platform.system()} {platform.machine()}")


def check_threads(environ: Mapping[str, str], cores: int | None = None) -> Finding:
    """Warn if a worker would use more threads than there are cores."""
    import torch

    cores = cores or (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()) or 1
    setting = environ.get("OMP_NUM_THREADS", "")
    text = f"{cores} cores, OMP_NUM_THREADS {setting or 'not set'}, torch threads: {torch.get_num_threads()}"
    crowded = setting.isdigit() and int(setting) > cores
    remedy = "export OMP_NUM_THREADS=1 where workers share a machine" if crowded else ""
    return Finding("warning" if crowded else "ok", "threads", text, remedy)


def check_distributed() -> Finding:
    """List the backends that torch.distributed has; gloo is the one that is needed."""
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return Finding("problem", "distributed", "this torch has no gloo", "install a wheel from pytorch.org")
    backends = {"gloo": True, "nccl": dist.is_nccl_available(), "mpi": dist.is_mpi_available()}
    names = ", ".join(name for name, available in backends.items() if available)
    return Finding("ok", "distributed", f"{names}; {'a' if torch.cuda.is_available() else 'no'} GPU")


def check_packages() -> list[Finding]:
    """List the optional packages that are installed, and how to get those that are not."""
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
    """Return every network interface's IPv4 address; "" where it has none or cannot be asked."""
    found = {name: "" for _, name in socket.if_nameindex()}
    if sys.platform == "linux":
        from fcntl import ioctl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            for name in found:
                with suppress(OSError):
                    answer = ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
                    found[name] = socket.inet_ntoa(answer[20:24])
    return found


def check_address(environ: Mapping[str, str], addresses: Mapping[str, str]) -> Finding:
    """Show which address gloo uses: other machines must be able to reach it."""
    wanted = environ.get("GLOO_SOCKET_IFNAME", "")
    outside = [name for name, address in addresses.items() if address and not _is_loopback(address)]
    outside.sort(key=lambda name: name.startswith(("docker", "br-", "veth", "virbr")))  # seldom the way out
    if wanted:
        missing = [name for name in wanted.split(",") if name not in addresses]
        if missing:
            text = f"GLOO_SOCKET_IFNAME={wanted}, but there is no interface {missing[0]}"
            return Finding("problem", "address", text, f"use one of {', '.join(outside or addresses)}")
        return Finding("ok", "address", f"gloo uses {wanted}, as GLOO_SOCKET_IFNAME says")
    host = socket.gethostname()
    try:
        bound = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None)})
    except OSError:
        bound = []
    if bound and not all(map(_is_loopback, bound)):
        return Finding("ok", "address", f"the host name {host} is {', '.join(bound)}: gloo uses that")
    why = f"is {', '.join(bound)}" if bound else "does not resolve"
    text = f"the host name {host} {why}: gloo uses an address that only this machine can reach"
    master = environ.get("MASTER_ADDR", "localhost")
    several = master not in (host, *addresses.values()) and not _is_loopback(master)
    remedy = f"between machines: export GLOO_SOCKET_IFNAME={outside[0] if outside else 'eth0'} on each"
    return Finding("problem" if several else "warning" if outside else "ok", "address", text, remedy)


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address in ("::1", "localhost")


def check_torchrun(environ: Mapping[str, str]) -> Finding:
    """Check the environment variables by which workers find each other."""
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
    from gossamer.tasks import TASKS

    found = []
    for name, make in TASKS.items():
        try:
            count = len(make("", data).train)
            found.append(Finding("ok", f"task {name}", f"{count} examples to train on"))
        except (OSError, ValueError) as error:
            # a task that needs --data is no problem if none was given
            asks = data is None and "needs its data" in str(error)
            found.append(Finding("ok" if asks else "warning", f"task {name}", str(error)))
    if data is None:
        return found
    readable = [f for f in found if f.level == "ok" and f.what != "task digits"]  # which takes no data
    text = f"no built-in task can read {data}" if data.exists() else f"there is no {data}"
    expected = "fashion: four IDX files; cifar10: data_batch_1.bin ...; wikitext: train.txt ...; text: a file"
    return readable or [Finding("problem", "data", text, expected)]
