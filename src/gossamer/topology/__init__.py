"""Who talks to whom, and with which weights: graphs as pure functions of integers and a seed."""

from gossamer._options import Option
from gossamer.topology.convert import from_edges, from_file, from_networkx
from gossamer.topology.graph import Topology
from gossamer.topology.names import NAMES
from gossamer.topology.random_graphs import random_regular, small_world
from gossamer.topology.schedule import (
    Schedule,
    cycle,
    one_peer_exponential,
    random_matching,
    rounds_to_reach_all,
)
from gossamer.topology.specs import make, register
from gossamer.topology.spectrum import Spectrum
from gossamer.topology.static import (
    chain,
    complete,
    exponential,
    grid,
    hypercube,
    remark,
    ring,
    social,
    star,
    torus,
)
from gossamer.topology.weights import Weights

__all__ = [
    "NAMES",
    "Option",
    "Schedule",
    "Spectrum",
    "Topology",
    "Weights",
    "chain",
    "complete",
    "cycle",
    "exponential",
    "from_edges",
    "from_file",
    "from_networkx",
    "grid",
    "hypercube",
    "make",
    "one_peer_exponential",
    "random_matching",
    "random_regular",
    "register",
    "remark",
    "ring",
    "rounds_to_reach_all",
    "small_world",
    "social",
    "star",
    "torus",
]
