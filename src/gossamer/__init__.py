"""Gossamer: train one PyTorch model over machines joined by slow links, without a server.

Names are loaded when they are first used, so that graphs, reports and the command's help need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossamer._lazy import loading
from gossamer.errors import (
    Diverged,
    GossamerError,
    MismatchError,
    PackageError,
    PeerError,
    PeerLost,
    PeerTimeout,
    TheoryWarning,
    WireError,
)

if TYPE_CHECKING:
    from gossamer import algorithms, compress, lab, network, report, runs, tasks, testing, topology
    from gossamer._doors.average import Averaged, average, simulate_average
    from gossamer._doors.decentralize import decentralize
    from gossamer._doors.mesh import mesh
    from gossamer._doors.optimizer import DecentralizedOptimizer
    from gossamer._doors.scaler import GradScaler
    from gossamer._doors.simulation import Simulation
    from gossamer._node.gamma import tune_gamma
    from gossamer._version import __version__

__all__ = [
    "Averaged",
    "DecentralizedOptimizer",
    "Diverged",
    "GossamerError",
    "GradScaler",
    "MismatchError",
    "PackageError",
    "PeerError",
    "PeerLost",
    "PeerTimeout",
    "Simulation",
    "TheoryWarning",
    "WireError",
    "__version__",
    "algorithms",
    "average",
    "compress",
    "decentralize",
    "lab",
    "mesh",
    "network",
    "report",
    "runs",
    "simulate_average",
    "tasks",
    "testing",
    "topology",
    "tune_gamma",
]

__getattr__ = loading(
    __name__,
    {
        "Averaged": "_doors.average",
        "DecentralizedOptimizer": "_doors.optimizer",
        "GradScaler": "_doors.scaler",
        "Simulation": "_doors.simulation",
        "__version__": "_version",
        "algorithms": "",
        "average": "_doors.average",
        "compress": "",
        "decentralize": "_doors.decentralize",
        "lab": "",
        "mesh": "_doors.mesh",
        "network": "",
        "report": "",
        "runs": "",
        "simulate_average": "_doors.average",
        "tasks": "",
        "testing": "",
        "topology": "",
        "tune_gamma": "_node.gamma",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
