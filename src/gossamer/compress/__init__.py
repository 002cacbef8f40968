"""Compressors: vectors become short messages, and messages become vectors again.

A class is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossamer._lazy import loading
from gossamer.compress.names import NAMES

if TYPE_CHECKING:  # so that type checkers know them; when the code runs, names.py says where they are
    from gossamer.compress.base import Compressor as Compressor
    from gossamer.compress.identity import Cast as Cast
    from gossamer.compress.identity import Identity as Identity
    from gossamer.compress.lowrank import LowRank as LowRank
    from gossamer.compress.qsgd import QSGD as QSGD
    from gossamer.compress.raw import RawPolicy as RawPolicy
    from gossamer.compress.sign import Sign as Sign
    from gossamer.compress.sparse import RandomK as RandomK
    from gossamer.compress.sparse import TopK as TopK
    from gossamer.compress.specs import make as make
    from gossamer.compress.specs import register as register
    from gossamer.compress.split import Split as Split

_FOUND_IN = {
    "Compressor": "base",
    "RawPolicy": "raw",
    "make": "specs",
    "register": "specs",
    **NAMES.exports(),
}
__all__ = ["NAMES", *_FOUND_IN]  # noqa: PLE0604 - texts, all of them
__getattr__ = loading(__name__, _FOUND_IN)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
