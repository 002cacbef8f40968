"""Topologies by name, for command lines and configuration files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx

from gossamer._suggest import unknown_name
from gossamer.topology import convert, random_graphs, schedule, static
from gossamer.topology.check import worker_count
from gossamer.topology.graph import Topology
from gossamer.topology.schedule import Schedule
from gossamer.topology.weights import RULE_NAMES, rule_name


@dataclass(frozen=True)
class _Entry:
    """How a name is built, and which options may follow it, each after a colon."""

    build: Callable[..., Topology | Schedule]
    options: tuple[tuple[str, str, Callable[[str], object]], ...] = ()  # shown as, keyword, reader
    seeded: bool = False
    weighted: bool = True


def _sides(text: str) -> tuple[int, int]:
    rows, columns = text.split("x")
    return int(rows), int(columns)


def _lattice(build: Callable[..., Topology]) -> _Entry:
    def shaped(n: int, sides: tuple[int, int] | None = None, **weights: str) -> Topology:
        if sides is None:
            return build(n, **weights)
        static.check_shape(build.__name__, *sides, n)
        return build(n, rows=sides[0], **weights)

    return _Entry(shaped, (("ROWSxCOLUMNS", "sides", _sides),))


def _file(n: int, path: str = "", **weights: str) -> Topology:
    if not path:
        raise ValueError("file needs a path: write file:PATH")
    return convert.from_file(path, n, **weights)


_ENTRIES: dict[str, _Entry] = {
    "ring": _Entry(static.ring),
    "chain": _Entry(static.chain),
    "torus": _lattice(static.torus),
    "grid": _lattice(static.grid),
    "star": _Entry(static.star),
    "complete": _Entry(static.complete),
    "exponential": _Entry(static.exponential),
    "hypercube": _Entry(static.hypercube),
    "random-regular": _Entry(random_graphs.random_regular, (("DEGREE", "degree", int),), seeded=True),
    "small-world": _Entry(
        random_graphs.small_world,
        (("NEIGHBOURS", "neighbours", int), ("REWIRE", "rewire", float)),
        seeded=True,
    ),
    "social": _Entry(static.social),
    "one-peer-exponential": _Entry(schedule.one_peer_exponential, weighted=False),
    "random-matching": _Entry(schedule.random_matching, seeded=True, weighted=False),
    "file": _Entry(_file, (("PATH", "path", str),)),
}
NAMES = tuple(_ENTRIES)


def make(spec: str | Topology | Schedule | nx.Graph, n: int, seed: int = 0) -> Topology | Schedule:
    """Build a topology from text such as "ring", "torus:2x4" or "random-regular:4@fastest".

    Options follow the name after colons and a rule for the weights after an @; `_` is as good
    as `-`. "file:PATH" reads edges from a file. A networkx graph is taken with Metropolis weights
    (`from_networkx` has others). Finished objects are checked for their size and returned.
    """
    n = worker_count(n)
    if isinstance(spec, nx.Graph):
        if spec.number_of_nodes() != n:
            raise ValueError(
                f"the networkx graph has {spec.number_of_nodes()} nodes, but there are {n} workers"
            )
        spec = convert.from_networkx(spec)
    if isinstance(spec, (Topology, Schedule)):
        if spec.n != n:
            raise ValueError(
                f"{spec.name} was built for {spec.n} workers, but there are {n}: make one of {n} workers"
            )
        return spec
    if not isinstance(spec, str):
        raise ValueError(
            f"a topology is a name such as 'ring', a Topology, a Schedule or a networkx graph, not {spec!r}"
        )
    text, weights = _split_weights(spec)
    written, colon, rest = text.partition(":")
    name = written.strip().lower().replace("_", "-")
    if name not in _ENTRIES:
        raise unknown_name("topology", written, NAMES)
    entry = _ENTRIES[name]
    arguments = _options(spec, name, [rest] if name == "file" else rest.split(":") if colon else [])
    if weights and not entry.weighted:
        raise ValueError(f"{name} sets its own weights: drop '@{weights}'")
    if weights:
        arguments["weights"] = weights
    if entry.seeded:
        arguments["seed"] = seed
    return entry.build(n, **arguments)


def _split_weights(spec: str) -> tuple[str, str | None]:
    text, at, weights = spec.rpartition("@")
    if not at or (text.startswith("file:") and weights.replace("-", "_") not in RULE_NAMES):
        return spec, None  # a path may contain an @ of its own
    return text, rule_name(weights)


def _options(spec: str, name: str, texts: list[str]) -> dict[str, object]:
    options = _ENTRIES[name].options
    usage = name + "".join(f"[:{label}]" for label, _, _ in options)
    unreadable = ValueError(f"cannot read {spec!r}: write {usage}")
    if len(texts) > len(options):
        raise unreadable
    try:
        return {key: read(text) for (_, key, read), text in zip(options, texts, strict=False)}
    except ValueError:
        raise unreadable from None
