"""From what people type to a compressor, and how to add one to what they can type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gossamer._registry import admitted_class
from gossamer.compress.base import Compressor
from gossamer.compress.names import NAMES, spelt

Kind = TypeVar("Kind", bound=type[Compressor])


def register(kind: Kind) -> Kind:
    """Register a compressor in this process under the names of its `examples`; can decorate a class.

    An installed package has entry points of the group gossamer.compressors instead: the command line and its
    worker processes know those too.
    """
    NAMES.add(kind)
    return kind


def admit(thing: object) -> type[Compressor]:
    """Return the class of a compressor that can be registered, or raise a ValueError."""
    return admitted_class(thing, Compressor)  # type: ignore[type-abstract]  # one of its kinds


def make(spec: str | Compressor) -> Compressor:
    """Return the compressor behind a text; a compressor is returned as it is.

    "identity", "fp16", "bf16", "fp8", "int8", "sign", "topk:0.01" or "topk:1%", "topk:0.01:fp16",
    "randomk:0.1", "randomk:0.1:scaled", "randomk:0.1:qsgd:4", "qsgd:4", "qsgd:4:contraction",
    "lowrank:2", "split:*.bias=identity,*=topk:0.01".
    """
    if isinstance(spec, Compressor):
        return spec
    if not isinstance(spec, str):
        raise ValueError(
            f"a compressor is a text such as 'topk:0.01' or an object such as TopK(0.01), not {spec!r}"
        )
    written, *options = spec.strip().split(":")
    name, kind = NAMES.find(spelt(written))
    if not kind.keeps_case:
        options = [option.lower() for option in options]
    try:
        return kind.from_spec(name, options)
    except ValueError as error:
        raise ValueError(f"compressor '{spec}': {error}") from error


def first(options: Sequence[str], what: str) -> str:
    """Return the first option, which is required."""
    if not options or not options[0]:
        raise ValueError(f"give {what}")
    return options[0]
