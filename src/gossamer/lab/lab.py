"""A lab: workers in separate network namespaces, joined by links that are as slow as a scenario says."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import permutations
from types import TracebackType
from typing import Any, Self

from gossamer.lab import kernel, namespaces
from gossamer.lab.control import Control, Stats
from gossamer.lab.events import Event
from gossamer.lab.namespaces import DEVICE, SUBNET, LabError
from gossamer.lab.scenario import Scenario
from gossamer.network.tables import check_rank

MAX_WORKERS = 250  # the addresses of one subnet
PORT = 29_500  # free, because every namespace has its own ports

log = logging.getLogger("gossamer")


class Lab:
    """The namespaces of a scenario's workers and the links between them, until it is closed.

    Use it in a with statement. Closing ends every process in the namespaces and removes them; the switch
    does the same if this process ends otherwise, even by kill -9. `swept` names what an earlier lab
    had left behind nevertheless and this one has removed. It needs root on Linux.

    Args:
        scenario: What the links are like.

    Raises:
        LabError: Something that a lab needs is missing; the text says what.
        ValueError: More workers than one subnet has addresses.

    Example:
        >>> from gossamer.lab import Lab, Scenario
        >>> with Lab(Scenario.uniform(2, "100mbit", "1ms")) as lab:
        ...     ping = lab.popen(0, ["python3", "-c", "print('worker', __import__('os').environ['RANK'])"])
        ...     lab.n, ping.wait(timeout=60)
        (2, 0)
    """

    engine = "userspace switch"

    def __init__(self, scenario: Scenario) -> None:
        namespaces.require_lab()
        if scenario.n > MAX_WORKERS:
            raise ValueError(f"{scenario.n} workers: a lab has addresses for at most {MAX_WORKERS}")
        self.scenario, self.n = scenario, scenario.n
        self.swept = namespaces.sweep()
        self._owner = os.getpid()
        self._closing = threading.Event()
        self._lock = threading.RLock()
        self._cut_pairs: set[tuple[int, int]] = set()
        self._cut_workers: set[int] = set()
        self._processes: list[subprocess.Popen[Any]] = []
        self._control: Control | None = None
        self._names: list[str] = []
        try:
            self._names = namespaces.create(self.n)
            self._control = Control(scenario, self._names)
            for i in range(self.n):
                kernel.prepare(self._names[i], self.address(i))
                kernel.shape(self._names[i], scenario.network.up[i], scenario.queue)
            self.congestion_control = kernel.congestion_control(self._names[0])
        except BaseException:
            self.close()
            raise

    @property
    def realtime(self) -> bool:
        """Return whether the switch has priority over other processes; if not, a busy machine delays it."""
        return self._switch.realtime

    def address(self, i: int) -> str:
        """Return the address of worker i."""
        return ".".join(map(str, (*SUBNET, check_rank(i, self.n) + 1)))

    def namespace(self, i: int) -> str:
        """Return the name of worker i's namespace: for `enter`, or `ip netns exec`."""
        return self._names[check_rank(i, self.n)]

    def environment(self, i: int) -> dict[str, str]:
        """Return what worker i's process finds in its environment, as if every worker were a machine."""
        return {
            "GLOO_SOCKET_IFNAME": DEVICE,
            "TP_SOCKET_IFNAME": DEVICE,
            "NCCL_SOCKET_IFNAME": DEVICE,
            "MASTER_ADDR": self.address(0),
            "MASTER_PORT": str(PORT),
            "RANK": str(check_rank(i, self.n)),
            "WORLD_SIZE": str(self.n),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # they share this machine's cores
        }

    def popen(
        self,
        i: int,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        **keywords: Any,  # noqa: ANN401 - they are subprocess.Popen's
    ) -> subprocess.Popen[Any]:
        """Start a process as worker i, with `environment(i)` besides this process's environment or `env`.

        Where they differ, `env` counts.
        """
        inherited = {**os.environ, **self.environment(i)} if env is None else {**self.environment(i), **env}
        command = ["ip", "netns", "exec", self.namespace(i), *argv]
        process = subprocess.Popen(command, env=inherited, **keywords)  # noqa: S603 - what the caller wants
        self._processes.append(process)
        return process

    def cut(self, i: int, j: int | None = None, *, one_way: bool = False) -> None:
        """Drop all packets between i and j, or between i and everybody."""
        self.apply(Event(0, "cut", _who(i, j), one_way=one_way))

    def heal(self, i: int, j: int | None = None, *, one_way: bool = False) -> None:
        """Undo a cut; a worker that was cut as a whole is healed as a whole."""
        self.apply(Event(0, "heal", _who(i, j), one_way=one_way))

    def set_latency(self, value: float | str, i: int, j: int | None = None, *, one_way: bool = False) -> None:
        """Set the latency between i and j, or between i and everybody."""
        self._set("latency", value, i, j, one_way)

    def set_jitter(self, value: float | str, i: int, j: int | None = None, *, one_way: bool = False) -> None:
        """Set the jitter between i and j, or between i and everybody."""
        self._set("jitter", value, i, j, one_way)

    def set_loss(self, value: float, i: int, j: int | None = None, *, one_way: bool = False) -> None:
        """Set the fraction of packets that are lost between i and j, or between i and everybody."""
        self._set("loss", value, i, j, one_way)

    def set_bandwidth(
        self, value: float | str, i: int, j: int | None = None, *, one_way: bool = False
    ) -> None:
        """Set the limit of the link between i and j, or worker i's bandwidth up and down."""
        self._set("bandwidth", value, i, j, one_way)

    def apply(self, event: Event) -> None:
        """Apply an event now, whatever its time."""
        for rank in event.who:
            check_rank(rank, self.n)
        with self._lock:
            if event.what in ("cut", "heal"):
                self._cut_or_heal(event)
            elif len(event.who) == 1 and event.what in ("bandwidth", "up", "down"):
                self._set_rates(event)
            else:
                what = "limit" if event.what == "bandwidth" else event.what
                self._switch.ask(what, pairs=self._pairs(event), value=event.value)

    def run_events(self, start: float | None = None) -> threading.Thread:
        """Apply the scenario's events at their times after `start` by time.monotonic(), or after now."""
        begin = time.monotonic() if start is None else start
        thread = threading.Thread(target=self._play, args=(begin,), name="events", daemon=True)
        thread.start()
        return thread

    def stats(self) -> Stats:
        """Return what the switch has done so far."""
        with self._lock:
            return self._switch.stats()

    def counters(self, i: int) -> kernel.Counters:
        """Return what has passed worker i's interface so far, the probe's packets too."""
        return kernel.counters(self.namespace(i))

    def bytes_sent(self, i: int) -> int:
        """Return the bytes worker i has sent, as its kernel counts them on its interface."""
        return self.counters(i).bytes_sent

    def bytes_received(self, i: int) -> int:
        """Return the bytes worker i has received, as its kernel counts them on its interface."""
        return self.counters(i).bytes_received

    def close(self) -> None:
        """End all that runs in the namespaces, and remove them."""
        if os.getpid() != self._owner:
            return  # a forked worker that leaves the with statement must not end the others
        self._closing.set()
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None
            for name in self._names:  # the switch has removed them, unless it was killed
                namespaces.remove(name)
            for process in self._processes:
                process.kill()  # it may not have been in its namespace yet
                process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _switch(self) -> Control:
        if self._control is None or self._closing.is_set():
            raise LabError("this lab is closed: make another one")
        return self._control

    def _set(self, what: str, value: float | str, i: int, j: int | None, one_way: bool) -> None:
        self.apply(Event(0, what, _who(i, j), value, one_way))

    def _set_rates(self, event: Event) -> None:
        (i,), rate = event.who, event.value
        assert isinstance(rate, float), "Event has read it"
        if event.what != "down":
            kernel.shape(self._names[i], rate, self.scenario.queue)
            self._switch.ask("up", workers=[i], value=rate)
        if event.what != "up":
            self._switch.ask("down", workers=[i], value=rate)

    def _cut_or_heal(self, event: Event) -> None:
        before = self._all_cut()
        change = set.update if event.what == "cut" else set.difference_update
        if len(event.who) == 1:
            change(self._cut_workers, event.who)
        else:
            change(self._cut_pairs, self._pairs(event))
        after = self._all_cut()
        self._switch.ask("cut", pairs=sorted(after - before), value=True)
        self._switch.ask("cut", pairs=sorted(before - after), value=False)

    def _all_cut(self) -> set[tuple[int, int]]:
        pairs = permutations(range(self.n), 2)
        return self._cut_pairs | {pair for pair in pairs if not self._cut_workers.isdisjoint(pair)}

    def _pairs(self, event: Event) -> list[tuple[int, int]]:
        if len(event.who) == 1:
            return [pair for pair in permutations(range(self.n), 2) if event.who[0] in pair]
        i, j = event.who
        return [(i, j)] if event.one_way else [(i, j), (j, i)]

    def _play(self, begin: float) -> None:
        coming = [(event.at, k) for k, event in enumerate(self.scenario.events)]
        while coming:
            when, k = min(coming)
            coming.remove((when, k))
            if self._closing.wait(max(begin + when - time.monotonic(), 0)):
                return
            event = self.scenario.events[k]
            try:
                self.apply(event)
            except LabError as error:
                if not self._closing.is_set():
                    log.warning("the lab's events have stopped: %s", error)
                return
            if event.every is not None:
                coming.append((when + event.every, k))


def _who(i: int, j: int | None) -> tuple[int, ...]:
    return (i,) if j is None else (i, j)
