"""What a round sees and yields, and how rounds are advanced."""

from gossamer.rounds.phase import Mail, Post, Round, blame
from gossamer.rounds.worker import Worker

__all__ = ["Mail", "Post", "Round", "Worker", "blame"]
