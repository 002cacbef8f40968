"""The links between workers as numbers: bandwidth, latency, and how a message is handed over.

A file describes them in TOML, or with the same tables in JSON:

    bandwidth = "10mbit"    # or up and down apart; without a limit if nothing is said
    latency = "20ms"        # one way; none if nothing is said

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

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from numbers import Real
from pathlib import Path
from typing import Any

from gossamer.naming import unknown_name

OVERHEAD = 1.036  # bytes on the wire a byte of payload: the headers of TCP and IP in 1500-byte packets

BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0}  # a division by these rounds once, a product twice

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(\D*)", re.ASCII)

SETTINGS = ("bandwidth", "up", "down", "latency", "rendezvous", "overhead", "workers", "links")
OF_A_WORKER = ("bandwidth", "up", "down", "latency")


def bits_per_second(value: float | str) -> float:
    """Read a bandwidth: "10mbit", "1.5 Gbit/s", "unlimited", or a number of bit/s."""
    if isinstance(value, str) and value.strip().lower() == "unlimited":
        return inf
    number, unit = _quantity("bandwidth", value, BITS, "bit", "mbit")
    if not number > 0:
        raise ValueError(f"bandwidth {value!r}: it must be above 0, or 'unlimited'")
    return number * BITS[unit]


def seconds(value: float | str) -> float:
    """Read a time: "20ms", "150 us", "0.5s", or a number of seconds."""
    number, unit = _quantity("time", value, PER_SECOND, "s", "ms")
    if not 0 <= number < inf:
        raise ValueError(f"time {value!r}: it must be finite and not negative")
    return number / PER_SECOND[unit]


OF_A_LINK: dict[str, Callable[[Any], float]] = {"latency": seconds, "bandwidth": bits_per_second}


@dataclass(frozen=True)
class Network:
    """What the links between n workers can do.

    `up[i]` and `down[i]` are worker i's bandwidths in bit/s, shared by all its messages of that
    direction; `latency[i][j]` is the time from i to j in seconds; `limits[i, j]` caps one pair below
    what i and j could do. With `rendezvous`, as in gloo, the receiver's notice must reach the sender
    before a message starts, so that it costs two latencies; without, messages are pushed.
    `overhead` is the number of bytes on the wire a byte of payload.
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
            raise ValueError(f"overhead={self.overhead}: it is wire bytes a payload byte, so at least 1")
        for pair in self.limits:
            check_pair(pair, n)
        # Arrays, lists and text are welcome too; what is kept is plain, comparable and cannot change.
        put = object.__setattr__
        put(self, "up", tuple(map(bits_per_second, self.up)))
        put(self, "down", tuple(map(bits_per_second, self.down)))
        # Nobody sends to itself, so the diagonal says nothing and should not make networks differ.
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
        with at(str(path)):
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


def _quantity(
    what: str, value: float | str, units: Mapping[str, float], plain: str, usual: str
) -> tuple[float, str]:
    """Split a text into its number and unit; a number by itself has the plain unit."""
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value), plain
    found = _QUANTITY.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{what} {value!r}: write a number with its unit, such as '10{usual}'")
    number, unit = found.groups()
    if not unit:
        raise ValueError(f"{what} {value!r} has no unit: write '{number}{usual}' or the like")
    # "mbps" stays unknown: for some it means bits, for others (tc) bytes.
    name = re.sub(r"(?<=bit)(/s|ps)$", "", unit)
    if name not in units:
        with at(f"{what} {value!r}"):
            raise unknown_name("unit", unit, units)
    return float(number), name


def read_file(path: Path, what: str) -> dict[str, Any]:
    """Return the tables of a .toml or .json file that describes `what`."""
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"a {what} file ends in .toml or .json")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {what} file {path}: is the path right?") from None
    kind, parse = ("JSON", json.loads) if path.suffix == ".json" else ("TOML", tomllib.loads)
    with at(f"this is not {kind}"):
        tables = parse(text)
    return read_table("the file", tables)


def _network(tables: dict[str, Any], n: int) -> Network:
    up, down = ([_bandwidth(tables, way, "unlimited")] * n for way in ("up", "down"))
    with at("latency"):
        usual, own = seconds(tables.get("latency", 0.0)), [-1.0] * n
    for name, entry in read_table("workers", tables.get("workers", {})).items():
        with at(f"workers.{name}"):
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


def read_links(
    links: object, n: int, readers: Mapping[str, Callable[[Any], float]]
) -> Iterator[tuple[tuple[int, int], dict[str, float]]]:
    """Yield every described pair (from, to) with its values, read by their readers."""
    if not isinstance(links, list):
        raise ValueError("links: write each as a table of its own under [[links]]")
    described = set()
    for k, entry in enumerate(links):
        with at(f"links, entry {k + 1}"):
            link = read_table("a link", entry, ("between", *readers, "one_way"))
            i, j = read_pair(link.get("between"), n)
            pairs = [(i, j)] if flag(link, "one_way", default=False) else [(i, j), (j, i)]
            values = {name: read(link[name]) for name, read in readers.items() if name in link}
        for pair in pairs:
            if pair in described:
                raise ValueError(f"links: the one from {pair[0]} to {pair[1]} is there twice: write it once")
            described.add(pair)
            yield pair, values


def read_pair(between: object, n: int) -> tuple[int, int]:
    """Return the two workers of `between = [0, 4]`."""
    if not isinstance(between, list) or len(between) != 2:
        raise ValueError("say which two workers it joins: between = [0, 4]")
    return check_pair((between[0], between[1]), n)


def _bandwidth(table: dict[str, Any], way: str, otherwise: float | str) -> float:
    """Return a table's bandwidth of one way: its own, that for both ways, or what held before."""
    with at(way if way in table else "bandwidth"):
        return bits_per_second(table.get(way, table.get("bandwidth", otherwise)))


def read_table(what: str, value: object, known: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a value that must be a table, with none but the known names in it."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a table of names and values, not {value!r}")
    for name in value:
        if known is not None and name not in known:
            raise unknown_name("setting", name, known)
    return value


def flag(table: dict[str, Any], name: str, *, default: bool) -> bool:
    """Return a table's true or false."""
    value = table.get(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name} = {value!r}: it is true or false")
    return value


def check_rank(value: object, n: int) -> int:
    """Return the number of a worker that exists."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n:
        raise ValueError(f"there is no worker {value!r}: with {n} workers they are 0 to {n - 1}")
    return value


def check_pair(pair: tuple[object, object], n: int) -> tuple[int, int]:
    """Return two different workers that exist."""
    i, j = (check_rank(rank, n) for rank in pair)
    if i == j:
        raise ValueError(f"a link joins two workers, not {i} with itself")
    return i, j


@contextmanager
def at(place: str) -> Iterator[None]:
    """Say where the mistake of a ValueError raised inside is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def show_span(values: Iterable[float], show: Callable[[float], str]) -> str:
    """Show the least and the most of some values: "5 ms to 20 ms", or "5 ms" if they are equal."""
    ordered = sorted(values)
    least, most = show(ordered[0]), show(ordered[-1])
    return least if least == most else f"{least} to {most}"


def show_rate(v: float) -> str:
    """Show a bandwidth: "10 Mbit/s"."""
    if v == inf:
        return "unlimited"
    unit = next((u for u in ("Gbit", "Mbit", "kbit") if v >= BITS[u.lower()]), "bit")
    return f"{v / BITS[unit.lower()]:g} {unit}/s"


def show_time(v: float) -> str:
    """Show a time: "20 ms"."""
    unit = next((u for u in ("s", "ms") if v * PER_SECOND[u] >= 1), "us") if v else "ms"
    return f"{v * PER_SECOND[unit]:g} {unit}"
