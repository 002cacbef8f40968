"""What members cost each other: starting up, staying in touch, and how both grow with their number.

    python -m benchmarks.mesh_members

First 8 and 16 real processes on a ring on the loopback device, encrypted: from the first one's `mesh` to the
end of the last one's `decentralize`, with the memory that this has added to each process and the TCP
connections that it then has, and has a while later in training; beside the same over gloo.

Then the protocol alone, which is written without sockets and clocks, for 8 to 256 members on a network of its
own with 20 ms between any two: virtual seconds until all know all others, the links of a member, the frames
and bytes that it sends a second when nothing happens, with the processor time for them, and the memory of its
links and of its list of members. Writes docs/results/mesh_members.json.
"""

from __future__ import annotations

import gc
import heapq
import json
import os
import sys
import time
from collections import Counter
from functools import lru_cache
from itertools import count
from pathlib import Path
from random import Random
from statistics import mean, median
from tempfile import TemporaryDirectory
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.distributed as dist

import gossamer
from benchmarks.mesh_workers import Invitation, ask
from benchmarks.record import write
from gossamer._mesh.contacts import Send
from gossamer._mesh.members import Member, Status
from gossamer._mesh.protocol import Protocol
from gossamer._mesh.sockets import TICK
from gossamer._mesh.wiring import Wiring
from gossamer._processes import ThisMachine, free_port
from gossamer.topology import make
from gossamer.transport import Transport

WORKERS, REPETITIONS = (8, 16), 3
STEPS, PAUSE = 65, 0.2  # in these 13 s links that nobody needs are closed
ESTABLISHED = "01"  # in /proc/net/tcp
NUMBERS, GRAPHS = (8, 64, 256), ("ring", "exponential")
LATENCY = 0.02
SETTLING, QUIET = 15.0, 5.0  # virtual seconds until links that nobody needs are closed, and that are measured


def worker(folder: Path, kind: str) -> None:
    """Begin together with the others, train for a while, and print what it took."""
    rank = int(os.environ["RANK"])
    model = torch.nn.Linear(100, 10)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    together(folder, "imported", rank)
    before, begun = memory(), time.monotonic()
    if kind == "mesh":
        transport: Transport | None = Invitation(folder).join(rank)
    else:
        dist.init_process_group("gloo")
        transport = None  # made of the process group
    optimizer = gossamer.decentralize(optimizer, model, compressor="sign", gamma=0.4, transport=transport)
    found = {"begun": begun, "ended": time.monotonic(), "memory": memory() - before}
    together(folder, "started", rank)
    found["connections"] = connections()
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 100)).square().mean().backward()
        optimizer.step()
        time.sleep(PAUSE)
    found["connections in training"] = connections()
    together(folder, "done", rank)
    print(json.dumps(found), flush=True)
    os._exit(0)  # without goodbyes: nothing is measured any more


def together(folder: Path, name: str, rank: int) -> None:
    """Wait until all have come here."""
    (folder / f"{name}-{rank}").touch()
    while len(list(folder.glob(f"{name}-*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.002)


def memory() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def connections() -> int:
    """Return how many ends of established TCP connections this process holds."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = {f"socket:[{words[9]}]" for words in lines if words[3] == ESTABLISHED}
    held = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return sum(os.readlink(path) in established for path in held if path.is_symlink())


def start_up(kind: str, n: int) -> dict[str, Any]:
    """Return what starting has cost, as the median of the repetitions."""
    seconds, answers = [], []
    for _ in range(REPETITIONS):
        with TemporaryDirectory() as folder:
            Invitation.write(Path(folder), [f"127.0.0.1:{free_port()}" for _ in range(n)])
            found = ask(ThisMachine(n), "benchmarks.mesh_members", folder, kind)
        seconds.append(max(a["ended"] for a in found) - min(a["begun"] for a in found))
        answers += found
        print(f"{kind}, {n} workers: {seconds[-1]:.2f} s", flush=True)
    row = {"over": kind, "workers": n, "seconds": round(median(seconds), 2)}
    row["lowest and highest"] = [round(min(seconds), 2), round(max(seconds), 2)]
    row["MB a process"] = round(mean(a["memory"] for a in answers) / 1e6, 1)
    for name in ("connections", "connections in training"):
        row[name] = round(mean(a[name] for a in answers), 1)
    return row


class Crowd:
    """Members on a network with its own time, where every frame takes as long."""

    def __init__(self, n: int, graph: str) -> None:
        self.now, self.frames, self.bytes = 0.0, 0, 0
        self.knew: dict[int, float] = {}  # when each member knew all others
        self.most_links = Counter[int]()
        self._graph = lru_cache(lambda n: make(graph, n, 0))
        self._graph(n)
        self._due: list[tuple[float, int, int, int, bytes]] = []  # when, order, from whom, to whom, what
        self._order, self._random = count(), Random(0)  # noqa: S311 - no secrets here
        self.members = [self._member(i, n) for i in range(n)]
        for i in range(n):
            self._push(self._random.uniform(0, TICK), i, i)

    def run_until(self, end: float) -> None:
        """Let time pass."""
        while self._due[0][0] <= end:
            self.now, _, source, target, data = heapq.heappop(self._due)
            protocol = self.members[target]
            if source == target:
                self._tick(protocol)
                self._push(self.now + TICK, target, target)
            else:
                protocol.heard(f"{source:064x}", data, self.now)
            self._carry(protocol)
        self.now = end

    def run_until_all_know_all(self) -> float:
        """Return how long that takes."""
        while len(self.knew) < len(self.members):
            self.run_until(self.now + TICK)
        return max(self.knew.values())

    def _member(self, i: int, n: int) -> Protocol:
        def entry(j: int, incarnation: int, status: Status) -> Member:
            return Member(j, f"{j:064x}", f"w{j}", f"198.51.100.{j % 256}:7000", incarnation, status)

        known = [entry(j, -1, Status.DEAD) for j in range(n) if j != i]
        nonce = lambda: self._random.getrandbits(62) | 1  # noqa: E731
        return Protocol(entry(i, 1_800_000_000, Status.WAITING), known, b"together", nonce, 0.0)

    def _tick(self, protocol: Protocol) -> None:
        everybody = frozenset(range(len(self.members)))
        if not protocol.begun and not protocol.meeting:  # as gossamer.decentralize begins
            protocol.agree_on({"algorithm": "choco"})
            protocol.meeting = True
            for peer in Wiring(self._graph).edges(protocol.id, sorted(everybody), everybody):
                protocol.need(peer)
        protocol.tick(self.now)
        if protocol.meeting and protocol.members.alive() >= everybody:
            self.knew[protocol.id] = self.now
            protocol.begin(together=True)
            protocol.rewire(Wiring(self._graph))
            protocol.be_ready()
        self.most_links[protocol.id] = max(self.most_links[protocol.id], len(protocol.links))

    def _carry(self, protocol: Protocol) -> None:
        while protocol.out:
            action = protocol.out.popleft()
            if isinstance(action, Send):
                self.frames, self.bytes = self.frames + 1, self.bytes + len(action.data)
                self._push(self.now + LATENCY, protocol.id, action.peer, action.data)
        protocol.news.clear()

    def _push(self, when: float, source: int, target: int, data: bytes = b"") -> None:
        heapq.heappush(self._due, (when, next(self._order), source, target, data))


def weight(*roots: object) -> int:
    """Return the bytes of objects and of all that they hold."""
    found: dict[int, object] = {}
    todo = list(roots)
    while todo:
        one = todo.pop()
        if id(one) not in found and not isinstance(one, type | FunctionType | ModuleType):
            found[id(one)] = one
            todo += gc.get_referents(one)
    return sum(map(sys.getsizeof, found.values()))


def rehearse(n: int, graph: str) -> dict[str, Any]:
    """Return what so many members cost each other."""
    crowd = Crowd(n, graph)
    knew = crowd.run_until_all_know_all()
    starting = crowd.bytes
    crowd.run_until(crowd.now + SETTLING)
    frames, sent, used = crowd.frames, crowd.bytes, time.process_time()
    crowd.run_until(crowd.now + QUIET)
    seconds = n * QUIET
    return {
        "members": n,
        "graph": graph,
        "degree": mean(len(p.wanted) for p in crowd.members),
        "links": mean(len(p.links) for p in crowd.members),
        "most links at the start": max(crowd.most_links.values()),
        "seconds until all know all": round(knew, 2),
        "kB sent until then": round(starting / n / 1e3, 1),
        "frames a second": round((crowd.frames - frames) / seconds, 2),
        "bytes a second": round((crowd.bytes - sent) / seconds),
        "processor ms a second": round(1e3 * (time.process_time() - used) / seconds, 2),
        "kB of links": round(mean(weight(p.links) for p in crowd.members) / 1e3, 1),
        "kB of members": round(mean(weight(p.members) for p in crowd.members) / 1e3, 1),
    }


def main() -> None:
    rows = []
    for graph in GRAPHS:
        for n in NUMBERS:
            rows.append(rehearse(n, graph))
            print(rows[-1], flush=True)
    real = [start_up(kind, n) for n in WORKERS for kind in ("mesh", "gloo")]
    for row in real:
        print(row)
    write("mesh_members", {"start-up": real, "protocol alone": rows})


if __name__ == "__main__":
    worker(Path(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 1 else main()
