"""What happens to a lab's network during a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gossamer._suggest import located, unknown_name
from gossamer.network.tables import check_rank, flag, read_pair, read_table
from gossamer.network.units import bits_per_second, seconds


def fraction(value: float) -> float:
    """Read a loss: a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"loss {value!r}: it is a fraction of all packets, such as 0.01")
    return float(value)


OF_AN_EVENT = ("at", "every", "what", "value", "between", "one_way", "worker")
READERS: dict[str, Callable[[Any], float] | None] = {
    "cut": None,
    "heal": None,
    "latency": seconds,
    "jitter": seconds,
    "loss": fraction,
    "bandwidth": bits_per_second,
    "up": bits_per_second,
    "down": bits_per_second,
}


@dataclass(frozen=True)
class Event:
    """A change of the network: `what` happens to `who`, `at` seconds after the start.

    `who` is one worker, with all its links, or a pair; a pair means both directions unless `one_way`.
    An event with `every` is repeated after so many seconds, again and again.
    """

    at: float
    what: str
    who: tuple[int, ...]
    value: float | str | None = None
    one_way: bool = False
    every: float | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "at", seconds(self.at))
        put(self, "who", tuple(self.who))
        if len(self.who) not in (1, 2) or len(set(self.who)) != len(self.who):
            raise ValueError(f"{self.who} is neither a worker, such as (3,), nor two, such as (0, 1)")
        if self.what not in READERS:
            raise unknown_name("event", self.what, READERS)
        read = READERS[self.what]
        if (read is None) != (self.value is None):
            remedy = "it has no value" if read is None else f"say to what: value = {_example(self.what)}"
            raise ValueError(f"{self.what}: {remedy}")
        if read is not None and self.value is not None:
            put(self, "value", read(self.value))
        if self.what in ("up", "down") and len(self.who) != 1:
            raise ValueError(f"{self.what} belongs to a worker: write worker = 0, or bandwidth for a link")
        if self.every is not None:
            put(self, "every", seconds(self.every))
            if not self.every:
                raise ValueError("every = 0: leave it out for an event that happens once")


def read_events(entries: object, n: int) -> Iterator[Event]:
    """Yield the events that the tables of a scenario file describe, for n workers."""
    if not isinstance(entries, list):
        raise ValueError("events: write each as its own table under [[events]]")
    for k, entry in enumerate(entries):
        with located(f"events, entry {k + 1}"):
            table = read_table("an event", entry, OF_AN_EVENT)
            if "at" not in table or "what" not in table:
                raise ValueError('say when and what: at = "10s", what = "cut"')
            if ("between" in table) == ("worker" in table):
                raise ValueError("say to whom: either between = [0, 1] or worker = 3")
            single = "worker" in table
            who = (check_rank(table["worker"], n),) if single else read_pair(table["between"], n)
            one_way = flag(table, "one_way", default=False)
            yield Event(table["at"], table["what"], who, table.get("value"), one_way, table.get("every"))


def _example(what: str) -> str:
    read = READERS[what]
    return "0.01" if read is fraction else '"20ms"' if read is seconds else '"10mbit"'
