"""Compressors: vectors become short messages, and messages become vectors again."""

from gossamer.compress.base import Compressor
from gossamer.compress.identity import Cast, Identity
from gossamer.compress.lowrank import LowRank
from gossamer.compress.names import NAMES, make
from gossamer.compress.qsgd import QSGD
from gossamer.compress.raw import RawPolicy
from gossamer.compress.sign import Sign
from gossamer.compress.sparse import RandomK, TopK

__all__ = [
    "NAMES",
    "QSGD",
    "Cast",
    "Compressor",
    "Identity",
    "LowRank",
    "RandomK",
    "RawPolicy",
    "Sign",
    "TopK",
    "make",
]
