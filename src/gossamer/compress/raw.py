"""Which tensors of a message are sent as they are.

A policy is one of
    "auto"       biases and norms (tensors of fewer than 2 dimensions), if that makes the message
                 at most 2 % longer
    "vectors"    all tensors of fewer than 2 dimensions, whatever it costs
    "never"      none
    1000         every tensor of at most so many entries
    ("*.bias",)  every tensor whose name matches one of the patterns
    function     every tensor for which function(name, shape) is true

It is short for a `Split` of two: TopK(0.1, raw=("*.bias",)) sends what
Split({"*.bias": Identity(), "*": TopK(0.1, raw="never")}) sends.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Literal

from gossamer.compress.layout import Layout
from gossamer.compress.parts import RAW, Packer, Part, nbytes

RawPolicy = (
    Literal["auto", "vectors", "never"] | int | tuple[str, ...] | Callable[[str, tuple[int, ...]], bool]
)

AUTO_COST = 0.02  # "auto" accepts a message longer by this fraction


def require_policy(policy: RawPolicy) -> None:
    """Raise a ValueError for what is no policy."""
    known = policy in ("auto", "vectors", "never") if isinstance(policy, str) else None
    if known is False or not (isinstance(policy, str | int | tuple) or callable(policy)):
        raise ValueError(
            f"raw={policy!r}: use 'auto', 'vectors', 'never', a size, a tuple of name patterns "
            f"or a function of name and shape"
        )


def parts_of(layout: Layout, policy: RawPolicy, packer: Packer) -> tuple[Part, ...]:
    """Return what is sent raw, if anything is, and what the packer compresses."""
    everything = _parts(layout, [False] * len(layout.shapes), packer)
    if policy == "never":
        return everything
    if policy in ("auto", "vectors"):
        vectors_raw = _parts(layout, [len(shape) < 2 for shape in layout.shapes], packer)
        cheap = nbytes(vectors_raw) <= (1 + AUTO_COST) * nbytes(everything)
        return vectors_raw if cheap or policy == "vectors" else everything
    raw = [_is_raw(policy, n, s) for n, s in zip(layout.names, layout.shapes, strict=True)]
    return _parts(layout, raw, packer)


def _parts(layout: Layout, raw: list[bool], packer: Packer) -> tuple[Part, ...]:
    """Return the raw part and the compressed one, unless they are empty."""
    raw_part = Part.of(layout, [i for i, is_raw in enumerate(raw) if is_raw], RAW)
    compressed = Part.of(layout, [i for i, is_raw in enumerate(raw) if not is_raw], packer)
    return tuple(part for part in (raw_part, compressed) if part.layout.size)


def _is_raw(policy: RawPolicy, name: str, shape: tuple[int, ...]) -> bool:
    if isinstance(policy, int):
        return Layout((name,), (shape,)).size <= policy
    if isinstance(policy, tuple):
        return any(fnmatchcase(name, pattern) for pattern in policy)
    assert callable(policy), "require_policy has checked"
    return bool(policy(name, shape))
