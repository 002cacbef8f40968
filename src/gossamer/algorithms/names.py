"""Algorithms by the names people type."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from gossamer import compress
from gossamer._suggest import unknown_name
from gossamer.algorithms.allreduce import AllReduce
from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.choco import Choco
from gossamer.algorithms.dcd import DCD
from gossamer.algorithms.deep_squeeze import DeepSqueeze
from gossamer.algorithms.dpsgd import DPSGD
from gossamer.algorithms.ecd import ECD
from gossamer.algorithms.naive import NaiveQuantized
from gossamer.algorithms.power_gossip import PowerGossip
from gossamer.compress import Compressor

NAMES: dict[str, type[Algorithm]] = {
    "allreduce": AllReduce,
    "dpsgd": DPSGD,
    "naive": NaiveQuantized,
    "dcd": DCD,
    "ecd": ECD,
    "choco": Choco,
    "deepsqueeze": DeepSqueeze,
    "powergossip": PowerGossip,
}


def takes(spec: str, option: str) -> bool:
    """Return whether the algorithm of this name has such an option; False if there is no such name."""
    return option in _defaults(spec)


def needs_compressor(spec: str) -> bool:
    """Return whether the algorithm of this name cannot do without a compressor."""
    return _defaults(spec).get("compressor") is MISSING


def make(
    spec: str | Algorithm, compressor: str | Compressor | None = None, **options: float | str | bool | None
) -> Algorithm:
    """Return the algorithm behind a name; an algorithm passes through.

    "choco" with compressor="topk:0.01" and, say, gamma=0.04. Options that are None are left out.
    PowerGossip takes its rank after a colon: "powergossip:2".
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if isinstance(spec, Algorithm):
        if compressor is not None or given:
            raise ValueError("give the compressor and options to the algorithm object itself")
        return spec
    if not isinstance(spec, str):
        raise ValueError(
            f"an algorithm is a name such as 'choco' or an object such as Choco('sign'), not {spec!r}"
        )
    name, rank = _split(spec)
    if name not in NAMES:
        raise unknown_name("algorithm", name, NAMES)
    kind = NAMES[name]
    if rank:
        given["rank"] = int(rank) if rank.isdigit() else rank
    if compressor is not None:
        given["compressor"] = compress.make(compressor)
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]  # every algorithm is a dataclass
    for option in given:
        if option not in known:
            raise ValueError(
                f"{name} takes no {option}: leave it out; it takes: {', '.join(known) or 'nothing'}"
            )
    if compressor is None and needs_compressor(name):
        raise ValueError(f"{name} needs a compressor, such as compressor='topk:0.01' or 'sign'")
    return kind(**given)


def _defaults(spec: str) -> dict[str, Any]:
    """Return the options of the algorithm of this name with their defaults; none if there is no such name."""
    kind = NAMES.get(_split(spec)[0])
    return {f.name: f.default for f in fields(kind)} if kind is not None else {}  # type: ignore[arg-type]


def _split(spec: str) -> tuple[str, str]:
    name, _, rank = spec.strip().lower().partition(":")
    return name.replace("-", "").replace("_", ""), rank
