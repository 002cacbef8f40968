"""Contract checks for your own classes: call them in your tests."""

from gossamer.testing.algorithms import check_algorithm
from gossamer.testing.compressors import check_compressor
from gossamer.testing.topologies import check_topology
from gossamer.testing.transports import check_transport

__all__ = ["check_algorithm", "check_compressor", "check_topology", "check_transport"]
