"""A simulated network with its own time. What goes wrong on it follows from a seed.

A connection is one way and has three channels. Each delivers in order, unless the network is lossy. What is
sent into a cut arrives once the cut has healed, or is lost if the connection is given up before. Where a
connection ends, some of what is under way still arrives, and may do so after what a newer connection carries.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any

from gossamer._mesh.contacts import Channel

FASTEST, SLOWEST = 0.005, 0.05  # seconds that a frame is under way
LINGER = 0.5  # seconds for which what was said last still leaves a connection that is closed
CHANCES = {"delay": 0.02, "duplicate": 0.02, "reorder": 0.02}  # for each frame
LOST = {Channel.CONTROL: 0.05, Channel.DATA: 0.01, Channel.COPIES: 0.01}
OF_FRAMES = ("delay", "loss", "duplicate", "reorder")  # the faults that happen to single frames


class Clock:
    """Time that passes from one event to the next, as fast as they can be computed."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, when: float, what: Callable[..., None], *arguments: Any) -> None:
        """Do something at a time; what is due at the same time happens in the order of these calls."""
        heapq.heappush(self._events, (when, next(self._order), what, arguments))

    def later(self, delay: float, what: Callable[..., None], *arguments: Any) -> None:
        """Do something some seconds from now."""
        self.at(self.now + delay, what, *arguments)

    def run_until(self, end: float) -> None:
        """Let time pass."""
        events = self._events
        while events and events[0][0] <= end:
            self.now, _, what, arguments = heapq.heappop(events)
            what(*arguments)
        self.now = end


class Line:
    """One connection."""

    __slots__ = ("ends", "free", "watched")

    def __init__(self) -> None:
        self.free = [0.0] * len(Channel)  # when each channel can deliver next
        self.ends = [math.inf] * len(Channel)  # when each ceases to deliver
        self.watched = False  # whether it is about to notice that it leads into a cut


class Network(Clock):
    """Carries frames between members, which are known by their ids."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()  # how often each fault, and whatever else, has happened
        self.faults: frozenset[str] = frozenset()  # those of OF_FRAMES that may happen now
        self.lossy = False
        self.copies_slow_until = 0.0
        self.under_way_until = 0.0  # when the last of the frames that were sent arrives
        self._messages_until: dict[tuple[int, int], float] = {}  # when the last message between two arrives
        self._cuts: dict[tuple[int, int], float] = {}  # from whom, to whom: when it heals
        self._lines: dict[tuple[int, int], Line] = {}

    def receive(self, source: int, target: int, data: bytes) -> bool:
        """Hand over a frame; return whether there was anybody to take it."""
        raise NotImplementedError

    def notice(self, source: int, target: int) -> None:
        """Tell a member that its connection to another broke."""
        raise NotImplementedError

    def cut(self, source: int, target: int, until: float) -> None:
        """Let nothing through from one member to another for a while."""
        self._cuts[source, target] = max(until, self._cuts.get((source, target), 0.0))

    def transmit(self, source: int, target: int, channel: Channel, data: bytes) -> None:
        """Send a frame."""
        line = self._lines.get((source, target))
        if line is None:
            line = self._lines[source, target] = Line()
        when = self.now + FASTEST + (SLOWEST - FASTEST) * self.random.random()
        healed = self._cuts.get((source, target), 0.0)
        if healed > self.now:
            self._watch(line, source, target)
            if self.lossy:
                return
            when += healed - self.now
        if channel == Channel.COPIES and self.now < self.copies_slow_until:
            when += self.random.uniform(2.0, 25.0)
        when += self._mishap(when, line.free[channel])
        if self._happens("loss", LOST[channel]):
            return
        if not self._happens("reorder"):
            when = line.free[channel] = max(when, line.free[channel])
        self.at(when, self._arrive, line, source, target, channel, data)
        if self._happens("duplicate"):
            when += self.random.uniform(0.0, 3.0)
            self.at(when, self._arrive, line, source, target, channel, data)
        self.under_way_until = max(self.under_way_until, when)
        self._expect(source, target, channel, when)

    def last_message(self, source: int, target: int) -> float:
        """Return when the last piece of a message between two members arrives, or has arrived."""
        return self._messages_until.get((source, target), 0.0)

    def is_connected(self, source: int, target: int) -> bool:
        """Return whether there is a connection from one member to another."""
        return (source, target) in self._lines

    def hang_up(self, source: int, target: int) -> None:
        """Close a connection: what was said last on the channel for control still leaves."""
        self._end(source, target, LINGER)

    def break_line(self, source: int, target: int) -> None:
        """Break a connection, which its sender notices."""
        self._end(source, target, 0.0)
        self.notice(source, target)

    def _end(self, source: int, target: int, linger: float) -> None:
        line = self._lines.pop((source, target), None)
        if line is not None:
            under_way = self.now + SLOWEST * self.random.random()
            line.ends = [under_way] * len(Channel)
            line.ends[Channel.CONTROL] = max(under_way, self.now + linger)

    def _mishap(self, when: float, free: float) -> float:
        """Return by how much a frame is late; a slow channel is not slowed again while it is."""
        if free > when + 1.0 or not self._happens("delay"):
            return 0.0
        return self.random.uniform(0.5, 6.0)

    def _happens(self, fault: str, chance: float = 0.0) -> bool:
        if fault not in self.faults or (fault != "delay" and not self.lossy):
            return False
        if self.random.random() >= (chance or CHANCES[fault]):
            return False
        self.counts[fault] += 1
        return True

    def _arrive(self, line: Line, source: int, target: int, channel: Channel, data: bytes) -> None:
        if self.now > line.ends[channel]:
            return
        healed = self._cuts.get((source, target), 0.0)
        if healed > self.now:
            if not self.lossy:
                self._expect(source, target, channel, healed)
                self.at(healed, self._arrive, line, source, target, channel, data)
            return
        if not self.receive(source, target, data) and self._lines.get((source, target)) is line:
            self.break_line(source, target)

    def _expect(self, source: int, target: int, channel: Channel, when: float) -> None:
        if channel != Channel.CONTROL:
            self._messages_until[source, target] = max(when, self.last_message(source, target))

    def _watch(self, line: Line, source: int, target: int) -> None:
        """Let a connection notice, after a while, that it leads into a cut."""
        if not line.watched:
            line.watched = True
            self.later(self.random.uniform(1.0, 20.0), self._look, line, source, target)

    def _look(self, line: Line, source: int, target: int) -> None:
        line.watched = False
        if self._lines.get((source, target)) is line and self._cuts.get((source, target), 0.0) > self.now:
            self.break_line(source, target)
