"""What a round sees and yields, and how rounds are advanced."""

from gossamer.rounds.phase import Inbox, Phase, Round, Step, StepsAndPhases, Traffic, blame
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker

__all__ = ["Inbox", "Phase", "Round", "Step", "StepsAndPhases", "Traffic", "View", "Worker", "blame"]
