"""The papers' algorithms, one file each."""

from gossamer.algorithms.allreduce import AllReduce
from gossamer.algorithms.base import Algorithm, Gamma, Order
from gossamer.algorithms.choco import Choco
from gossamer.algorithms.dcd import DCD
from gossamer.algorithms.deep_squeeze import DeepSqueeze
from gossamer.algorithms.dpsgd import DPSGD
from gossamer.algorithms.ecd import ECD
from gossamer.algorithms.naive import NaiveQuantized
from gossamer.algorithms.names import NAMES, make, needs_compressor, takes
from gossamer.algorithms.power_gossip import PowerGossip

__all__ = [
    "DCD",
    "DPSGD",
    "ECD",
    "NAMES",
    "Algorithm",
    "AllReduce",
    "Choco",
    "DeepSqueeze",
    "Gamma",
    "NaiveQuantized",
    "Order",
    "PowerGossip",
    "make",
    "needs_compressor",
    "takes",
]
