"""What a round sees and yields, and how rounds are advanced."""

from gossamer.rounds.phase import Inbox, Phase, Round, blame
from gossamer.rounds.worker import Worker

__all__ = ["Inbox", "Phase", "Round", "Worker", "blame"]
