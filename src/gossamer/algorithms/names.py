"""Which algorithms there are, by the names people type; a new one is a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossamer._registry import Registry

if TYPE_CHECKING:  # names can be listed without torch
    from gossamer.algorithms.base import Algorithm


def spelt(written: str) -> str:
    """Return a name as it stands below: deep-squeeze is as good as deepsqueeze."""
    return written.strip().lower().replace("-", "").replace("_", "")


NAMES: Registry[type[Algorithm]] = Registry(
    "algorithm",
    "gossamer.algorithms",
    {
        "choco": "gossamer.algorithms.choco:Choco",
        "powergossip": "gossamer.algorithms.power_gossip:PowerGossip",
        "deepsqueeze": "gossamer.algorithms.deep_squeeze:DeepSqueeze",
        "dcd": "gossamer.algorithms.dcd:DCD",
        "ecd": "gossamer.algorithms.ecd:ECD",
        "dpsgd": "gossamer.algorithms.dpsgd:DPSGD",
        "allreduce": "gossamer.algorithms.allreduce:AllReduce",
        "naive": "gossamer.algorithms.naive:NaiveQuantized",
    },
    admit="gossamer.algorithms.specs:admit",
    spell=spelt,
)
