"""Links as numbers, and the time they take."""

from gossamer.network.links import Network
from gossamer.network.units import bits_per_second, seconds

__all__ = ["Network", "bits_per_second", "seconds"]
