"""The process that joins a lab's namespaces, with its settings on standard input.

It holds a TUN device in every namespace, reads a packet from worker i's and writes it to worker j's
when a real link would have delivered it. On its way a packet passes i's uplink, the link from i to j
with its limit, latency, jitter and loss, and j's downlink. The kernel holds i back as well (a token
bucket on its device), so that TCP feels a slow uplink as it would feel a slow network card.

It imports nothing but the standard library and its neighbours here: see BOOT for how it is started
without gossamer's own imports.

The first line of standard input holds the settings, each following one a command; all are answered
by a line. When the input ends or the launcher is gone, however it went, the switch ends all that runs
in the namespaces, deletes them and stops.
"""

from __future__ import annotations

import fcntl
import gc
import heapq
import json
import os
import resource
import select
import struct
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from gossamer.lab.namespaces import DEVICE, SUBNET, inside, libc, remove
from gossamer.lab.packets import VNET, measure, survivors

PACKAGE = Path(__file__).resolve().parent
# Whoever imports a part of gossamer imports torch: seconds of start-up, and memory that the workers need.
# So the switch is started under empty packages of that name, which only say where the files are.
BOOT = f"""
import sys, types
for name, folder in (("gossamer", {str(PACKAGE.parent)!r}), ("gossamer.lab", {str(PACKAGE)!r})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from gossamer.lab.switch import main
main()
"""

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 1, 2
PR_SET_TIMERSLACK = 29
MCL_CURRENT, MCL_FUTURE = 1, 2

LONGEST = 65_536 + VNET
BATCH = 16  # packets read from one device before it is looked whether others are due


def open_tun() -> int:
    """Create the device in the namespace one is in; it goes when its descriptor is closed."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), flags))
    # One read then carries up to 64 KB of a TCP stream, which makes Python fast enough.
    fcntl.ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return fd


class Pipe:
    """A stretch that carries so many bits a second, one packet after the other, with a queue before it."""

    __slots__ = ("free", "queue", "rate")

    def __init__(self, rate: float, queue: float) -> None:
        self.rate, self.queue = rate, queue
        self.free = 0.0  # when the last packet will be through

    def carry(self, first: float, last: float, size: int) -> tuple[float, float] | None:
        """Return when a packet's first and last bit leave if they come at these times; None if it is lost.

        Bits leave while others still come, so that two equal stretches cost their time once.
        """
        behind = self.free - last
        if behind > 0 and behind * self.rate > self.queue * 8:
            return None
        first = max(first, self.free)
        last = max(first + size * 8 / self.rate, last)
        self.free = last
        return first, last

    def change(self, rate: float) -> None:
        """Set the rate; what waits goes on at the new one."""
        now = time.monotonic()
        behind = self.free - now
        if behind > 0:
            self.free = now + behind * self.rate / rate
        self.rate = rate


class Switch:
    """The devices, what is between them, and the packets under way."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.names: list[str] = settings["names"]
        self.devices = [inside(name, open_tun) for name in self.names]
        n, queue = len(self.names), settings["queue"]
        self.up = [Pipe(rate, queue) for rate in settings["up"]]
        self.down = [Pipe(rate, queue) for rate in settings["down"]]
        self.limits = [[Pipe(rate, queue) for rate in row] for row in settings["limits"]]
        self.matrices = {what: settings[what] for what in ("latency", "jitter", "loss", "cut")}
        self.latency, self.jitter, self.loss, self.cut = self.matrices.values()
        self.reorder: bool = settings["reorder"]
        self.random = Random()  # noqa: S311 - fair, not secret
        self.latest = [[0.0] * n for _ in range(n)]  # when the newest packet of a pair arrives
        self.due: list[tuple[float, int, bool, float, int, int, int, bytes]] = []
        self.serial = 0  # packets that are due at the same time keep their order
        self.delivered = [[0] * n for _ in range(n)]
        self.counts = {"packets": 0, "lost": 0, "overflowed": 0, "refused": 0}
        self.late_sum = self.late_max = 0.0

    def receive(self, i: int) -> None:
        """Take packets that worker i has sent."""
        device = self.devices[i]
        for _ in range(BATCH):
            try:
                packet = os.read(device, LONGEST)
            except BlockingIOError:
                return
            # Only IPv4 to somebody here: the kernel also greets groups (224.0.0.22).
            j = packet[VNET + 19] - 1 if len(packet) >= VNET + 20 else -1
            known = packet[VNET] >> 4 == 4 and packet[VNET + 16 : VNET + 19] == SUBNET
            if known and 0 <= j < len(self.devices) and j != i:
                self.send(i, j, packet)

    def send(self, i: int, j: int, packet: bytes) -> None:
        """Let a packet leave worker i for worker j."""
        now = time.monotonic()
        size, count = measure(packet)
        left = self.up[i].carry(now, now, size)
        if left is None:
            self.counts["overflowed"] += count
        elif self.cut[i][j]:
            self.counts["lost"] += count
        elif self.loss[i][j]:
            lost = [k for k in range(count) if self.random.random() < self.loss[i][j]]
            self.counts["lost"] += len(lost)
            for part in survivors(packet, lost):
                self.travel(i, j, *left, measure(part)[0], part)
        else:
            self.travel(i, j, *left, size, packet)

    def travel(self, i: int, j: int, first: float, last: float, size: int, packet: bytes) -> None:
        """Put a packet under way whose first and last bit have left worker i at these times."""
        left = self.limits[i][j].carry(first, last, size)
        if left is None:
            self.counts["overflowed"] += 1
            return
        first, last = left
        arrival, jitter = last + self.latency[i][j], self.jitter[i][j]
        if jitter:
            arrival = max(arrival + self.random.uniform(-jitter, jitter), last)
        if not self.reorder:
            arrival = self.latest[i][j] = max(arrival, self.latest[i][j])
        self.serial += 1
        entry = (arrival, self.serial, False, arrival - (last - first), size, i, j, packet)
        heapq.heappush(self.due, entry)

    def deliver(self) -> None:
        """Pass on what has arrived at the downlinks, and hand over what is through them."""
        now = time.monotonic()
        while self.due and self.due[0][0] <= now:
            when, serial, through, first, size, i, j, packet = heapq.heappop(self.due)
            if not through:
                left = self.down[j].carry(first, when, size)
                if left is None:
                    self.counts["overflowed"] += 1
                    continue
                if left[1] > now:
                    heapq.heappush(self.due, (left[1], serial, True, first, size, i, j, packet))
                    continue
            try:
                os.write(self.devices[j], packet)
            except OSError:  # the device is down
                self.counts["refused"] += 1
                continue
            self.counts["packets"] += 1
            self.delivered[i][j] += size
            self.late_sum += now - when
            self.late_max = max(self.late_max, now - when)

    def command(self, given: dict[str, Any]) -> dict[str, Any]:
        """Do what the launcher asks for."""
        what = given["what"]
        if what == "stats":
            used = resource.getrusage(resource.RUSAGE_SELF)
            late = {"late_sum": self.late_sum, "late_max": self.late_max}
            cpu = used.ru_utime + used.ru_stime
            return {**self.counts, **late, "cpu": cpu, "delivered": self.delivered}
        if what in ("up", "down"):
            pipes = self.up if what == "up" else self.down
            for i in given["workers"]:
                pipes[i].change(given["value"])
        for i, j in given.get("pairs", ()):
            if what == "limit":
                self.limits[i][j].change(given["value"])
            else:
                self.matrices[what][i][j] = given["value"]
        return {}

    def run(self, launcher: int) -> None:
        """Forward until the input ends or the launcher is gone (a descriptor that is readable then)."""
        worker = {device: i for i, device in enumerate(self.devices)}
        watched, heard = [0, launcher, *self.devices], b""
        while True:
            # Not epoll: Python rounds its timeouts up to whole milliseconds.
            wait = max(self.due[0][0] - time.monotonic(), 0) if self.due else None
            for fd in select.select(watched, (), (), wait)[0]:
                if fd in worker:
                    self.receive(worker[fd])
                    self.deliver()
                    continue
                text = os.read(0, 65_536) if fd == 0 else b""
                if not text:
                    return
                *lines, heard = (heard + text).split(b"\n")
                for line in lines:
                    answer(self.command(json.loads(line)))
            self.deliver()


def answer(value: dict[str, Any]) -> None:
    """Write one line to the launcher."""
    os.write(1, json.dumps(value).encode() + b"\n")


def hurry() -> bool:
    """Ask the kernel for punctual wake-ups; return whether this process now comes before all others."""
    libc.prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)  # nanoseconds
    libc.mlockall(MCL_CURRENT | MCL_FUTURE)
    gc.disable()  # there are no cycles here, only pauses
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(10))
    except OSError:
        return False
    return True


def main() -> None:
    """Be the switch."""
    heard = b""
    while not heard.endswith(b"\n"):  # the launcher waits for the answer before it says more
        text = os.read(0, 65_536)
        if not text:
            sys.exit("there were no settings")
        heard += text
    settings = json.loads(heard)
    launcher = os.pidfd_open(settings["launcher"])
    try:
        switch = Switch(settings)
        answer({"realtime": hurry()})
        switch.run(launcher)
    finally:
        for name in settings["names"]:
            remove(name)
