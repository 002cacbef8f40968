"""Which compressors there are, by the names people type; a new one is a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossamer._registry import Registry

if TYPE_CHECKING:  # names can be listed without torch
    from gossamer.compress.base import Compressor


def spelt(written: str) -> str:
    """Return a name as it stands below: top-k is as good as topk."""
    return written.strip().lower().replace("-", "").replace("_", "")


NAMES: Registry[type[Compressor]] = Registry(
    "compressor",
    "gossamer.compressors",
    {
        "identity": "gossamer.compress.identity:Identity",
        "fp16": "gossamer.compress.identity:Cast",
        "bf16": "gossamer.compress.identity:Cast",
        "fp8": "gossamer.compress.identity:Cast",
        "int8": "gossamer.compress.identity:Cast",
        "qsgd": "gossamer.compress.qsgd:QSGD",
        "sign": "gossamer.compress.sign:Sign",
        "topk": "gossamer.compress.sparse:TopK",
        "randomk": "gossamer.compress.sparse:RandomK",
        "lowrank": "gossamer.compress.lowrank:LowRank",
        "split": "gossamer.compress.split:Split",
    },
    admit="gossamer.compress.specs:admit",
    spell=spelt,
)
