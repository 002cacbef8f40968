"""The papers' algorithms, one file each; a file's class is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossamer._lazy import loading
from gossamer.algorithms.names import NAMES

if TYPE_CHECKING:  # so that type checkers know them; when the code runs, names.py says where they are
    from gossamer.algorithms.allreduce import AllReduce as AllReduce
    from gossamer.algorithms.base import Algorithm as Algorithm
    from gossamer.algorithms.base import Gamma as Gamma
    from gossamer.algorithms.base import Order as Order
    from gossamer.algorithms.choco import Choco as Choco
    from gossamer.algorithms.dcd import DCD as DCD
    from gossamer.algorithms.deep_squeeze import DeepSqueeze as DeepSqueeze
    from gossamer.algorithms.dpsgd import DPSGD as DPSGD
    from gossamer.algorithms.ecd import ECD as ECD
    from gossamer.algorithms.naive import NaiveQuantized as NaiveQuantized
    from gossamer.algorithms.power_gossip import PowerGossip as PowerGossip
    from gossamer.algorithms.specs import make as make
    from gossamer.algorithms.specs import needs_compressor as needs_compressor
    from gossamer.algorithms.specs import register as register
    from gossamer.algorithms.specs import takes as takes

_FOUND_IN = {
    "Algorithm": "base",
    "Gamma": "base",
    "Order": "base",
    "make": "specs",
    "needs_compressor": "specs",
    "register": "specs",
    "takes": "specs",
    **NAMES.exports(),
}
__all__ = ["NAMES", *_FOUND_IN]  # noqa: PLE0604 - texts, all of them
__getattr__ = loading(__name__, _FOUND_IN)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
