"""What all workers must have in common, as text that can be compared and shown."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

import torch

from gossamer.algorithms import Algorithm
from gossamer.compress import RandomK
from gossamer.layout import Layout
from gossamer.rng import generator
from gossamer.topology import Schedule, Topology
from gossamer.wire import VERSION


def settings(
    algorithm: Algorithm, topology: Topology | Schedule, layouts: Iterable[Layout], every: int, seed: int
) -> dict[str, str]:
    """Return every setting by name, the telling ones first."""
    parts = {f"algorithm.{f.name}": describe(getattr(algorithm, f.name)) for f in _fields(algorithm)}
    tensors = {
        f"layout.{name}": f"{shape} {layout.dtype}"
        for layout in layouts
        for name, shape in zip(layout.names, layout.shapes, strict=True)
    }
    return {
        "version": f"gossamer {version('gossamer')}, wire format {VERSION}",
        "topology": f"{topology.name} of {topology.n} ({topology.fingerprint()})",
        "algorithm": type(algorithm).__name__,
        **parts,
        "every": str(every),
        "seed": str(seed),
        **tensors,
        "shared randomness": _random_probe(),
    }


def describe(value: Any) -> str:  # noqa: ANN401 - whatever a user's dataclass holds
    """Return a text that is the same in every process: functions by their names, not addresses."""
    if is_dataclass(value):
        inside = ", ".join(f"{f.name}={describe(getattr(value, f.name))}" for f in _fields(value))
        return f"{type(value).__name__}({inside})"
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)  # a partial has none of its own
        return f"{getattr(value, '__module__', '')}.{name}"
    return repr(value)


def _random_probe() -> str:
    """Draw what both ends of an edge must draw alike; library versions could differ in it."""
    layout = Layout.flat(1000)
    chosen = RandomK(0.1).encode(torch.ones(1000), layout, generator("probe"))
    dense = RandomK(0.1).decode(chosen, layout).numpy().tobytes()
    drawn = torch.randn(100, generator=generator("probe")).numpy().tobytes()
    return hashlib.sha256(dense + drawn).hexdigest()[:16]


def _fields(value: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return fields(value) if is_dataclass(value) else ()
