"""The links between workers as numbers: bandwidth, latency, and how a message is handed over.

A file describes them in TOML, or with the same tables in JSON:

    bandwidth = "10mbit"    # or up and down separately; unlimited if left out
    latency = "20ms"        # one way; 0 if left out

    [workers.3]
    up = "1mbit"
    down = "10mbit"
    latency = "60ms"        # of all its links; the larger one if both workers have their own

    [[links]]
    between = [0, 4]        # both directions, unless one_way = true
    latency = "80ms"
    bandwidth = "5mbit"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from gossamer._suggest import located
from gossamer.network.tables import check_pair, check_rank, flag, read_file, read_links, read_table
from gossamer.network.units import bits_per_second, seconds, show_rate, show_span, show_time

OVERHEAD = 1.036  # bytes on the wire per byte of payload: the headers of TCP and IP in 1500-byte packets


SETTINGS = ("bandwidth", "up", "down", "latency", "rendezvous", "overhead", "workers", "links")
OF_A_WORKER = ("bandwidth", "up", "down", "latency")


OF_A_LINK: dict[str, Callable[[Any], float]] = {"latency": seconds, "bandwidth": bits_per_second}


@dataclass(frozen=True)
class Network:
    """What the links between n workers can do.

    `up[i]` and `down[i]` are worker i's bandwidths in bit/s, shared by all its messages of that
    direction; `latency[i][j]` is the time from i to j in seconds; `limits[i, j]` caps one pair below
    what i and j could do. With `rendezvous`, as in gloo, the receiver's notice must reach the sender
    before a message starts, so that it costs two latencies; without, messages are pushed.
    `overhead` is the number of bytes on the wire per byte of payload.
    """

    up: tuple[float, ...]
    down: tuple[float, ...]
    latency: tuple[tuple[float, ...], ...]
    limits: Mapping[tuple[int, int], float] = field(default_factory=dict, hash=False)
    rendezvous: bool = True
    overhead: float = OVERHEAD

    def __post_init__(self) -> None:
        n = len(self.up)
        if n == 0:
            raise ValueError("a network has at least one worker")
        if {len(self.down), len(self.latency), *map(len, self.latency)} != {n}:
            raise ValueError(
                f"{n} values in up: give as many in down, and a latency for each of {n} x {n} pairs"
            )
        if not 1 <= self.overhead < inf:
            raise ValueError(f"overhead={self.overhead}: it is wire bytes per payload byte, so at least 1")
        for pair in self.limits:
            check_pair(pair, n)
        # Accept arrays, lists and text too; keep tuples of floats, which can be compared and cannot change.
        put = object.__setattr__
        put(self, "up", tuple(map(bits_per_second, self.up)))
        put(self, "down", tuple(map(bits_per_second, self.down)))
        # No worker sends to itself, so the diagonal means nothing and must not make networks differ.
        rows = [
            [0.0 if i == j else seconds(v) for j, v in enumerate(row)] for i, row in enumerate(self.latency)
        ]
        put(self, "latency", tuple(map(tuple, rows)))
        put(self, "limits", {pair: bits_per_second(v) for pair, v in self.limits.items()})

    @classmethod
    def uniform(
        cls, n: int, bandwidth: float | str, latency: float | str, *, rendezvous: bool = True
    ) -> Network:
        """Return n workers with the same bandwidth up and down and the same latency between all."""
        rate, delay = bits_per_second(bandwidth), seconds(latency)
        return cls((rate,) * n, (rate,) * n, ((delay,) * n,) * n, rendezvous=rendezvous)

    @classmethod
    def from_file(cls, path: str | Path, n: int) -> Network:
        """Read the links between n workers from a .toml or .json file."""
        path = Path(path)
        with located(str(path)):
            return cls.from_tables(read_file(path, "network"), n)

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any], n: int) -> Network:
        """Read the links between n workers from the tables of such a file, or of a part of another one."""
        return _network(read_table("the network", tables, SETTINGS), n)

    @property
    def n(self) -> int:
        """Return the number of workers."""
        return len(self.up)

    def __str__(self) -> str:
        parts = [show_span(self.up, show_rate)]
        if self.up != self.down:
            parts = [f"{parts[0]} up", f"{show_span(self.down, show_rate)} down"]
        pairs = [v for i, row in enumerate(self.latency) for j, v in enumerate(row) if i != j]
        parts.append(show_span(pairs or [0.0], show_time))
        if self.limits:
            parts.append(f"{len(self.limits)} links limited to {show_span(self.limits.values(), show_rate)}")
        if not self.rendezvous:
            parts.append("push")
        return ", ".join(parts)


def _network(tables: dict[str, Any], n: int) -> Network:
    up, down = ([_bandwidth(tables, way, "unlimited")] * n for way in ("up", "down"))
    with located("latency"):
        usual, own = seconds(tables.get("latency", 0.0)), [-1.0] * n
    for name, entry in read_table("workers", tables.get("workers", {})).items():
        with located(f"workers.{name}"):
            rank = check_rank(int(name) if name.isdecimal() else name, n)
            worker = read_table("a worker", entry, OF_A_WORKER)
            up[rank] = _bandwidth(worker, "up", up[rank])
            down[rank] = _bandwidth(worker, "down", down[rank])
            own[rank] = seconds(worker["latency"]) if "latency" in worker else own[rank]
    latency = [[v if (v := max(a, b)) >= 0 else usual for b in own] for a in own]
    limits: dict[tuple[int, int], float] = {}
    for (i, j), link in read_links(tables.get("links", []), n, OF_A_LINK):
        latency[i][j] = link.get("latency", latency[i][j])
        if "bandwidth" in link:
            limits[i, j] = link["bandwidth"]
    rendezvous = flag(tables, "rendezvous", default=True)
    overhead = tables.get("overhead", OVERHEAD)
    if isinstance(overhead, bool) or not isinstance(overhead, int | float):
        raise ValueError(f"overhead = {overhead!r}: it is a number, such as {OVERHEAD}")
    return Network(tuple(up), tuple(down), tuple(map(tuple, latency)), limits, rendezvous, overhead)


def _bandwidth(table: dict[str, Any], way: str, otherwise: float | str) -> float:
    """Return a table's bandwidth in one direction: its own, that for both directions, or the default."""
    with located(way if way in table else "bandwidth"):
        return bits_per_second(table.get(way, table.get("bandwidth", otherwise)))
