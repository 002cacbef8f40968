"""From what people type to an algorithm, and how to add one to what they can type."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar

from gossamer import compress
from gossamer._registry import admitted_class
from gossamer.algorithms.base import COSTS, Algorithm
from gossamer.algorithms.names import NAMES, spelt
from gossamer.compress import Compressor

Kind = TypeVar("Kind", bound=type[Algorithm])


def register(kind: Kind) -> Kind:
    """Register an algorithm in this process under the names of its `examples`; can decorate a class.

    An installed package has entry points of the group gossamer.algorithms instead: the command line and its
    worker processes know those too.
    """
    NAMES.add(kind)
    return kind


def admit(thing: object) -> type[Algorithm]:
    """Return the class of an algorithm that can be registered, or raise a ValueError."""
    kind = admitted_class(thing, Algorithm)  # type: ignore[type-abstract]  # one of its kinds
    if not is_dataclass(kind):
        raise ValueError(f"{kind.__name__} is no dataclass: write @dataclass(frozen=True) above it")
    if not set(kind.costs) <= set(COSTS):
        raise ValueError(f"{kind.__name__}.costs says {', '.join(kind.costs)}; known are {', '.join(COSTS)}")
    return kind


def takes(spec: str, option: str) -> bool:
    """Return whether the algorithm of this name has such an option; False if there is no such name."""
    return option in _defaults(spec)


def needs_compressor(spec: str) -> bool:
    """Return whether the algorithm of this name needs a compressor."""
    return _defaults(spec).get("compressor") is MISSING


def make(
    spec: str | Algorithm, compressor: str | Compressor | None = None, **options: float | str | bool | None
) -> Algorithm:
    """Return the algorithm behind a name; an algorithm is returned as it is.

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
    written, *texts = spec.split(":")
    name, kind = NAMES.find(spelt(written))
    if compressor is not None:
        given["compressor"] = compress.make(compressor)
    given = kind.read_spec(name, texts) | given
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
    kind = NAMES.get(spelt(spec.partition(":")[0]))
    return {f.name: f.default for f in fields(kind)} if kind is not None else {}  # type: ignore[arg-type]
