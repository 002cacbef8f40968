"""Scenarios: what a lab emulates.

A file describes links as a network file does, what else happens to packets, and when it changes:

    workers = 8             # how many it describes; without it, the file fits any number of workers

    [network]               # as in a network file: bandwidth, latency, workers, links
    bandwidth = "100mbit"
    latency = "5ms"

    [sites]                 # workers are at so many places of equal size; this is between two places
    count = 2
    latency = "40ms"
    bandwidth = "50mbit"

    [conditions]
    jitter = "2ms"          # a packet takes so much longer or shorter, at most
    loss = 0.01             # of all packets
    queue = 1000000         # bytes that wait before a slow link; more are lost
    reorder = false         # whether jitter lets packets of a pair overtake each other
    links = [{ between = [0, 1], loss = 0.1 }]

    [[events]]
    at = "8s"               # after the start of the run
    every = "10s"           # repeated, if given
    what = "cut"            # or heal; or latency, jitter, loss, bandwidth, up, down with a value
    between = [0, 1]        # both directions, unless one_way = true; or worker = 3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import inf
from pathlib import Path
from typing import Any

from gossamer._suggest import located, unknown_name
from gossamer.lab.events import Event, fraction, read_events
from gossamer.network.links import OF_A_LINK, Network
from gossamer.network.tables import check_rank, flag, read_file, read_links, read_table
from gossamer.network.units import seconds, show_span, show_time

Matrix = tuple[tuple[float, ...], ...]

QUEUE = 1_000_000  # bytes
TABLES = ("workers", "network", "sites", "conditions", "events")
CONDITIONS = ("jitter", "loss", "queue", "reorder", "links")
SPREAD: dict[str, Callable[[Any], float]] = {"jitter": seconds, "loss": fraction}
BUILT_IN = Path(__file__).with_name("scenarios")


@dataclass(frozen=True)
class Scenario:
    """What a lab emulates: a network, what else happens to its packets, and when it changes.

    `jitter[i][j]` in seconds and `loss[i][j]`, a fraction, are of the packets from i to j; `queue`
    is how many bytes wait before a slow link until more are lost. Packets of a pair keep their order
    unless `reorder`, so that jitter delays those behind a slow one too.
    """

    network: Network
    jitter: Matrix = ()
    loss: Matrix = ()
    queue: int = QUEUE
    reorder: bool = False
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "jitter", self._matrix("jitter", self.jitter, seconds))
        put(self, "loss", self._matrix("loss", self.loss, fraction))
        put(self, "events", tuple(self.events))
        # A packet of the largest size must fit: the kernel hands over up to 64 KB as one.
        if isinstance(self.queue, bool) or not isinstance(self.queue, int) or self.queue < 65_536:
            raise ValueError(f"queue = {self.queue!r}: it is a number of bytes, at least 65536")
        for event in self.events:
            for rank in event.who:
                check_rank(rank, self.n)

    @classmethod
    def uniform(
        cls,
        n: int,
        bandwidth: float | str,
        latency: float | str,
        jitter: float | str = "0s",
        loss: float = 0.0,
    ) -> Scenario:
        """Return n workers with the same links between all."""
        network = Network.uniform(n, bandwidth, latency)
        return cls(network, _even(n, seconds(jitter)), _even(n, fraction(loss)))

    @classmethod
    def from_file(cls, path: str | Path, n: int | None = None) -> Scenario:
        """Read a scenario of n workers; of as many as the file describes if n is left out."""
        path = Path(path)
        with located(str(path)):
            return _scenario(read_file(path, "scenario"), n)

    @classmethod
    def named(cls, name: str, n: int) -> Scenario:
        """Return a scenario that comes with Gossamer."""
        if name not in names():
            raise unknown_name("scenario", name, names())
        with located(f"scenario {name}"):
            return _scenario(read_file(BUILT_IN / f"{name}.toml", "scenario"), n)

    @property
    def n(self) -> int:
        """Return the number of workers."""
        return self.network.n

    def first(self, n: int) -> Scenario:
        """Return the scenario of the first n workers alone."""
        net = self.network
        if not 1 <= n <= self.n:
            raise ValueError(f"{n} workers of {self.n}: ask for 1 to {self.n}")
        network = replace(
            net,
            up=net.up[:n],
            down=net.down[:n],
            latency=_corner(net.latency, n),
            limits={pair: rate for pair, rate in net.limits.items() if max(pair) < n},
        )
        events = tuple(event for event in self.events if max(event.who) < n)
        jitter, loss = _corner(self.jitter, n), _corner(self.loss, n)
        return replace(self, network=network, jitter=jitter, loss=loss, events=events)

    def _matrix(self, what: str, rows: Sequence[Sequence[float]], read: Callable[[Any], float]) -> Matrix:
        if not rows:
            return _even(self.n, 0.0)
        if {len(rows), *map(len, rows)} != {self.n}:
            raise ValueError(f"{what}: give a value for each of {self.n} x {self.n} pairs")
        # As with latencies, the diagonal means nothing.
        return tuple(
            tuple(0.0 if i == j else read(v) for j, v in enumerate(row)) for i, row in enumerate(rows)
        )

    def __str__(self) -> str:
        parts = [f"{self.n} workers: {self.network}"]
        if any(_pairs(self.jitter)):
            parts.append(f"jitter {show_span(_pairs(self.jitter), show_time)}")
        if any(_pairs(self.loss)):
            parts.append(f"loss {show_span(_pairs(self.loss), '{:.3g}'.format)}")
        if self.events:
            parts.append(f"{len(self.events)} events" if len(self.events) > 1 else "1 event")
        return ", ".join(parts)


def names() -> list[str]:
    """Return the names of the scenarios that come with Gossamer."""
    return sorted(path.stem for path in BUILT_IN.glob("*.toml"))


def _scenario(tables: dict[str, Any], n: int | None) -> Scenario:
    tables = read_table("the file", tables, TABLES)
    described = tables.get("workers")
    if described is not None and not _is_count(described):
        raise ValueError(f"workers = {described!r}: it is the number of workers, such as 8")
    size = n if described is None else described
    if size is None:
        raise ValueError("the file fits any number of workers: say how many, or write workers = 8 into it")
    if n is not None and n > size:
        raise ValueError(f"{n} workers, but the file describes {size}: ask for {size} or fewer")
    with located("network"):
        network = Network.from_tables(tables.get("network", {}), size)
    if "sites" in tables:
        with located("sites"):
            network = _with_sites(network, tables)
    with located("conditions"):
        scenario = _with_conditions(network, tables.get("conditions", {}))
    return replace(scenario, events=tuple(read_events(tables.get("events", []), size))).first(n or size)


def _with_sites(network: Network, tables: dict[str, Any]) -> Network:
    """Return the network with other links between places, except for links that are described one by one."""
    n, sites = network.n, read_table("it", tables["sites"], ("count", *OF_A_LINK))
    count = sites.get("count", 2)
    if not _is_count(count) or count > n:
        raise ValueError(f"count = {count!r}: it is a number of places, at most one for each of {n} workers")
    between = {name: read(sites[name]) for name, read in OF_A_LINK.items() if name in sites}
    described = {pair for pair, _ in read_links(tables.get("network", {}).get("links", []), n, OF_A_LINK)}
    latency, limits = [list(row) for row in network.latency], dict(network.limits)
    for i, j in permutations(range(n), 2):
        if i * count // n != j * count // n and (i, j) not in described:
            latency[i][j] = between.get("latency", latency[i][j])
            limits[i, j] = between.get("bandwidth", inf)
    limits = {pair: rate for pair, rate in limits.items() if rate < inf}
    return replace(network, latency=tuple(map(tuple, latency)), limits=limits)


def _with_conditions(network: Network, value: object) -> Scenario:
    conditions = read_table("it", value, CONDITIONS)
    n = network.n
    matrices = {
        name: [[read(conditions.get(name, 0.0))] * n for _ in range(n)] for name, read in SPREAD.items()
    }
    for (i, j), values in read_links(conditions.get("links", []), n, SPREAD):
        for name, v in values.items():
            matrices[name][i][j] = v
    jitter, loss = (tuple(map(tuple, matrices[name])) for name in ("jitter", "loss"))
    reorder = flag(conditions, "reorder", default=False)
    return Scenario(network, jitter, loss, conditions.get("queue", QUEUE), reorder)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _even(n: int, value: float) -> Matrix:
    return tuple(tuple(0.0 if i == j else value for j in range(n)) for i in range(n))


def _corner(matrix: Matrix, n: int) -> Matrix:
    return tuple(row[:n] for row in matrix[:n])


def _pairs(matrix: Matrix) -> list[float]:
    return [v for i, row in enumerate(matrix) for j, v in enumerate(row) if i != j]
