"""How long a round waits for its neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass

FORMS = 'wait="all", "quorum", "quorum:2" (that many neighbours) or a number of seconds'


@dataclass(frozen=True)
class Patience:
    """Wait for all neighbours; or for some of them, or for a time: who is late is heard in a later round."""

    quorum: int | None = None  # neighbours; 0 for half of them
    seconds: float = math.inf

    @classmethod
    def read(cls, wait: str | float) -> Patience:
        """Return what people mean by `wait=`."""
        if isinstance(wait, (int, float)) and not isinstance(wait, bool):
            if not 0 < wait < math.inf:
                raise ValueError(f"wait={wait!r}: {FORMS}")
            return cls(seconds=float(wait))
        word, _, count = str(wait).partition(":")
        if word == "all" and not count:
            return cls()
        if word == "quorum" and (not count or (count.isdecimal() and int(count) > 0)):
            return cls(quorum=int(count or 0))
        raise ValueError(f"wait={wait!r}: {FORMS}")

    @property
    def for_all(self) -> bool:
        """Whether nobody is left behind."""
        return self == Patience()

    def enough(self, neighbours: int) -> int:
        """Return from how many of its neighbours a round must have heard."""
        if self.quorum is None:
            return neighbours
        return min(neighbours, self.quorum or math.ceil(neighbours / 2))
