"""Stamps: three bytes of every message's header that are checked by the receiving neighbour.

They reveal learning rates that drift apart and a step that was skipped on one worker alone, and spread one
worker's request to stop. Each would otherwise fail silently or hang, and none is worth an extra message.
docs/wire.md describes the bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gossamer.errors import MismatchError

log = logging.getLogger("gossamer")

STOPPING = 1 << 23  # below this: a value to compare; from here on: STOPPING + the rounds left
CLOSE = 2  # units in the last place of bfloat16, 2 %: another machine's cosine may round differently


class RoundStamps:
    """One worker's stamps: written when a round begins, read when the neighbours' messages have arrived.

    `reach(t)` is how many rounds it takes, from round t on, until news of this worker has reached all others.
    """

    def __init__(
        self,
        rank: int,
        groups: Callable[[], Sequence[dict[str, Any]]],
        rounds: Callable[[], int],
        reach: Callable[[int], int],
    ) -> None:
        self._rank, self._groups, self._rounds, self._reach = rank, groups, rounds, reach
        self._last: tuple[int, int] = (0, 0)  # the round of the last stamp, and the value to compare in it
        self._warned = False
        self.zero_grads = 0  # calls of zero_grad()
        self.wants_to_stop = False  # whether this worker does; sent when the next round begins
        self.stop_after: int | None = None  # the number of rounds after which all workers stop
        self.stopping: list[int] = []  # what it was set to; empty if nobody wanted to stop

    @property
    def time_to_stop(self) -> bool:
        """Whether a worker wanted to stop and all know it by now: the same answer after the same round."""
        return self.stop_after is not None and self._rounds() >= self.stop_after

    def write(self) -> int:
        """Return the stamp of the round that begins."""
        t = self._rounds()
        if self.wants_to_stop and self.stop_after is None:
            self._stop_after(t + self._reach(t))
        left = None if self.stop_after is None else self.stop_after - (t + 1)
        value = self._learning_rate() if t % 2 == 0 else self.zero_grads % (1 << 16)
        self._last = (t, value)
        return value if left is None or left < 0 else STOPPING + min(left, STOPPING - 1)

    def read(self, peer: int, stamp: int) -> None:
        """Compare a neighbour's stamp with this worker's of the same round."""
        t, own = self._last
        if stamp >= STOPPING:
            self._stop_after(t + 1 + stamp - STOPPING)
        elif t % 2 == 0 and abs(stamp - own) > CLOSE:
            rate, expected = _from_bfloat16(stamp), _from_bfloat16(own)
            raise MismatchError(
                "learning rate",
                peer,
                f"{rate:.3g}",
                f"{expected:.3g}",
                reference=self._rank,
                remedy="a scheduler that follows a metric must see the same number on all workers: "
                "scheduler.step(optimizer.mean(loss))",
            )
        elif t % 2 == 1 and stamp != own:
            self._warn_of_skipped_step(peer, (stamp - own + (1 << 15)) % (1 << 16) - (1 << 15))

    def _stop_after(self, t: int) -> None:
        self.stop_after = t if self.stop_after is None else min(self.stop_after, t)
        self.stopping.append(self.stop_after)

    def _learning_rate(self) -> int:
        total = torch.tensor(sum(float(group["lr"]) for group in self._groups() if "lr" in group))
        return int(total.to(torch.bfloat16).view(torch.int16)) & 0x7FFF  # no sign: it is not below 0

    def _warn_of_skipped_step(self, peer: int, more: int) -> None:
        if self._warned:
            return
        self._warned = True
        log.warning(
            "worker %d has called zero_grad() %s than worker %d at the same round, so one of them has "
            "called step() less often: has a GradScaler skipped a step on one worker alone (use "
            "gossamer.GradScaler)? At the end its neighbours will wait for the missing steps.",
            peer,
            f"{abs(more)} times {'more' if more > 0 else 'less'} often",
            self._rank,
        )


def _from_bfloat16(stamp: int) -> float:
    return float(torch.tensor(stamp, dtype=torch.int16).view(torch.bfloat16))
