"""Which topologies there are, by the names people type; a new one is a line here."""

from __future__ import annotations

from gossamer._registry import Registry
from gossamer.topology.builder import Builder


def spelt(written: str) -> str:
    """Return a name as it stands below: `_` is as good as `-`."""
    return written.strip().lower().replace("_", "-")


NAMES: Registry[Builder] = Registry(
    "topology",
    "gossamer.topologies",
    {
        "ring": "gossamer.topology.static:ring",
        "chain": "gossamer.topology.static:chain",
        "torus": "gossamer.topology.static:torus",
        "grid": "gossamer.topology.static:grid",
        "star": "gossamer.topology.static:star",
        "complete": "gossamer.topology.static:complete",
        "exponential": "gossamer.topology.static:exponential",
        "hypercube": "gossamer.topology.static:hypercube",
        "random-regular": "gossamer.topology.random_graphs:random_regular",
        "small-world": "gossamer.topology.random_graphs:small_world",
        "social": "gossamer.topology.static:social",
        "one-peer-exponential": "gossamer.topology.schedule:one_peer_exponential",
        "random-matching": "gossamer.topology.schedule:random_matching",
        "file": "gossamer.topology.convert:file",
    },
    admit="gossamer.topology.builder:builder_of",
    spell=spelt,
)
