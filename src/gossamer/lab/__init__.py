"""The lab: slow networks for real, on one Linux machine."""

from gossamer.lab.control import Stats
from gossamer.lab.events import Event
from gossamer.lab.lab import Lab
from gossamer.lab.namespaces import LabError, enter, require_lab, sweep
from gossamer.lab.scenario import Scenario, names

__all__ = ["Event", "Lab", "LabError", "Scenario", "Stats", "enter", "names", "require_lab", "sweep"]
