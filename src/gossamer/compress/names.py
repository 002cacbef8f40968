"""Compressors by the names people type."""

from __future__ import annotations

from collections.abc import Callable

from gossamer._suggest import unknown_name
from gossamer.compress.base import Compressor
from gossamer.compress.identity import Cast, Identity
from gossamer.compress.lowrank import LowRank
from gossamer.compress.qsgd import QSGD
from gossamer.compress.sign import Sign
from gossamer.compress.sparse import RandomK, TopK


def make(spec: str | Compressor) -> Compressor:
    """Return the compressor behind a text; a compressor passes through.

    "identity", "fp16", "bf16", "fp8", "int8", "sign", "topk:0.01" or "topk:1%", "topk:0.01:fp16",
    "randomk:0.1", "randomk:0.1:scaled", "randomk:0.1:qsgd:4", "qsgd:4", "qsgd:4:contraction",
    "lowrank:2".
    """
    if isinstance(spec, Compressor):
        return spec
    if not isinstance(spec, str):
        raise ValueError(
            f"a compressor is a text such as 'topk:0.01' or an object such as TopK(0.01), not {spec!r}"
        )
    name, *options = spec.strip().lower().split(":")
    name = name.replace("-", "").replace("_", "")
    if name not in NAMES:
        raise unknown_name("compressor", name, NAMES)
    try:
        return NAMES[name](options)
    except ValueError as error:
        raise ValueError(f"compressor '{spec}': {error}") from error


def _sparse(kind: type[TopK] | type[RandomK], options: list[str]) -> Compressor:
    ratio = _ratio(_first(options, "the ratio of entries to send, as in topk:0.01"))
    rest = options[1:]
    scaled = kind is RandomK and "scaled" in rest
    rest = [option for option in rest if not (scaled and option == "scaled")]
    values = make(":".join(rest)) if rest else Identity()
    return RandomK(ratio, values, scaled) if kind is RandomK else kind(ratio, values)


def _ratio(text: str) -> float:
    """Read a part of the entries, "0.01" or "1%"; a bare 1 could be meant as either."""
    try:
        ratio = float(text.removesuffix("%"))
    except ValueError:
        raise ValueError(f"'{text}' is no ratio; write 0.01 or 1% for one entry in a hundred") from None
    if text == "1":
        raise ValueError("1 would send all entries; write 0.01 or 1% for one in a hundred, 1.0 for all")
    return ratio / 100 if text.endswith("%") else ratio


def _qsgd(options: list[str]) -> Compressor:
    bits = int(_first(options, "the number of bits, as in qsgd:4"))
    if not options[1:]:
        return QSGD(bits)
    if options[1:] != ["contraction"]:
        raise ValueError(f"'{':'.join(options[1:])}' is unknown after the bits; 'contraction' is known")
    return QSGD(bits, scale="contraction")


def _lowrank(options: list[str]) -> Compressor:
    return LowRank(int(_only(options, 1)[0]) if options else 1)


def _plain(compressor: Compressor) -> Callable[[list[str]], Compressor]:
    def build(options: list[str]) -> Compressor:
        _only(options, 0)
        return compressor

    return build


def _first(options: list[str], what: str) -> str:
    if not options or not options[0]:
        raise ValueError(f"give {what}")
    return options[0]


def _only(options: list[str], count: int) -> list[str]:
    if len(options) > count:
        raise ValueError(f"'{':'.join(options[count:])}' is one option too many")
    return options


NAMES: dict[str, Callable[[list[str]], Compressor]] = {
    "identity": _plain(Identity()),
    "fp16": _plain(Cast("fp16")),
    "bf16": _plain(Cast("bf16")),
    "fp8": _plain(Cast("fp8")),
    "int8": _plain(Cast("int8")),
    "topk": lambda options: _sparse(TopK, options),
    "randomk": lambda options: _sparse(RandomK, options),
    "sign": _plain(Sign()),
    "qsgd": _qsgd,
    "lowrank": _lowrank,
}
