"""Gossamer: train one PyTorch model over machines joined by slow links, without a server."""

from importlib.metadata import version

from gossamer import algorithms, compress, testing, topology
from gossamer.average import Averaged, average, simulate_average
from gossamer.decentralize import decentralize
from gossamer.errors import (
    Diverged,
    GossamerError,
    MismatchError,
    PeerError,
    PeerLost,
    PeerTimeout,
    TheoryWarning,
    WireError,
)
from gossamer.optimizer import DecentralizedOptimizer
from gossamer.scaler import GradScaler
from gossamer.simulation import Simulation
from gossamer.tuning import tune_gamma

__version__ = version("gossamer")

__all__ = [
    "Averaged",
    "DecentralizedOptimizer",
    "Diverged",
    "GossamerError",
    "GradScaler",
    "MismatchError",
    "PeerError",
    "PeerLost",
    "PeerTimeout",
    "Simulation",
    "TheoryWarning",
    "WireError",
    "algorithms",
    "average",
    "compress",
    "decentralize",
    "simulate_average",
    "testing",
    "topology",
    "tune_gamma",
]
