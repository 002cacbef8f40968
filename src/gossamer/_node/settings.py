"""What all workers must have in common, as text that can be compared and shown."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from typing import Any

from torch import Tensor

from gossamer.algorithms import Algorithm
from gossamer.compress.layout import Layout
from gossamer.compress.wire import VERSION, as_bytes
from gossamer.topology import Schedule, Topology


def settings(
    algorithm: Algorithm, topology: Topology | Schedule, layouts: Iterable[Layout], every: int, seed: int
) -> dict[str, str]:
    """Return every setting by name, the most informative ones first."""
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
        "shared randomness": fingerprint(algorithm.shared_draws()),
    }


def run_settings(
    algorithm: Algorithm,
    topology: Topology | Schedule,
    layouts: Iterable[Layout],
    every: int,
    overlap: int,
    buffers: str,
    seed: int,
) -> dict[str, str]:
    """Return every setting that a run's checkpoints hold."""
    common = settings(algorithm, topology, layouts, every, seed)
    return common | {"overlap": str(int(overlap)), "buffers": buffers}


def describe(value: Any) -> str:  # noqa: ANN401 - whatever a user's dataclass holds
    """Return a text that is the same in every process: functions by their names, not addresses."""
    if is_dataclass(value):
        inside = ", ".join(f"{f.name}={describe(getattr(value, f.name))}" for f in _fields(value))
        return f"{type(value).__name__}({inside})"
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)  # a partial has no name
        return f"{getattr(value, '__module__', '')}.{name}"
    return repr(value)


def fingerprint(draws: Iterable[Tensor]) -> str:
    """Return a short hash of the bits of tensors, "none" where there are none."""
    digest = hashlib.sha256()
    parts = [as_bytes(t).numpy().data for t in draws]
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16] if parts else "none"


def _fields(value: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return fields(value) if is_dataclass(value) else ()
