"""What runs need of the operating system: workers are forked, and a run's folder is locked."""

from __future__ import annotations

import os

from gossamer.errors import GossamerError


def require_unix() -> None:
    """Raise a GossamerError where runs cannot be done."""
    if not hasattr(os, "fork"):
        raise GossamerError(
            "doing runs needs Linux or macOS; gossamer.Simulation and gossamer.decentralize work here"
        )
