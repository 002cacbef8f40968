"""The lab: slow networks for real, on one Linux machine."""

from gossamer.lab.control import Stats
from gossamer.lab.events import Event
from gossamer.lab.kernel import Counters
from gossamer.lab.lab import Lab
from gossamer.lab.namespaces import LabError, enter, require_lab, sweep
from gossamer.lab.probe import Measured, Measurement, measure
from gossamer.lab.scenario import Scenario, names

__all__ = [
    "Counters",
    "Event",
    "Lab",
    "LabError",
    "Measured",
    "Measurement",
    "Scenario",
    "Stats",
    "enter",
    "measure",
    "names",
    "require_lab",
    "sweep",
]
