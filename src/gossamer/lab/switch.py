"""The process that joins a lab's namespaces, with its settings on standard input.

It holds a TUN device in every namespace, reads a packet from worker i's and writes it to worker j's
when a real link would have delivered it. On its way a packet passes i's uplink, the link from i to j
with its limit, latency, jitter and loss, and j's downlink. The kernel holds i back as well (a token
bucket on its device), so that TCP feels a slow uplink as it would feel a slow network card.

It imports nothing but the standard library and modules of this package, so that it starts at once and
leaves the memory to the workers.

The first line of standard input holds the settings, every further line a command; each is answered
by a line. When the input ends or the launcher is gone, for whatever reason, the switch ends all that runs
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
from math import inf
from random import Random
from typing import Any

from gossamer.lab.namespaces import DEVICE, SUBNET, inside, libc, remove
from gossamer.lab.packets import VNET, measure, survivors

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 1, 2
PR_SET_TIMERSLACK = 29
MCL_CURRENT, MCL_FUTURE = 1, 2

LONGEST = 65_536 + VNET
SOON = 50e-6  # seconds: not worth another sleep
BATCH = 16  # packets read from one device before checking whether others are due


def open_tun() -> int:
    """Create the device in the current namespace; it disappears when its descriptor is closed."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), flags))
    # One read then carries up to 64 KB of a TCP stream, which makes Python fast enough.
    fcntl.ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return fd


class Pipe:
    """Carries packets one after the other at a rate in bit/s, with a queue before it."""

    __slots__ = ("free", "queue", "rate")

    def __init__(self, rate: float, queue: float) -> None:
        self.rate, self.queue = rate, queue
        self.free = 0.0  # when the last packet will have passed

    def carry(self, first: float, last: float, size: int) -> tuple[float, float] | None:
        """Return when a packet's first and last bit leave if they arrive at these times; None if it is lost.

        Bits leave while others still arrive, so that two equal pipes in a row cost their time once.
        """
        free = self.free
        if free > first:
            if free > last and (free - last) * self.rate > self.queue * 8:
                return None
            first = free
        through = first + size * 8 / self.rate
        self.free = last = max(through, last)
        return first, last

    def change(self, rate: float) -> None:
        """Set the rate, also for what waits."""
        now = time.monotonic()
        behind = self.free - now
        if behind > 0:
            self.free = now + behind * self.rate / rate
        self.rate = rate


class Link:
    """What is between one worker's uplink and another one's downlink."""

    __slots__ = ("cut", "delivered", "jitter", "latency", "latest", "limit", "loss", "target")

    def __init__(self, settings: dict[str, Any], i: int, j: int) -> None:
        self.target = j
        self.latency: float = settings["latency"][i][j]
        self.jitter: float = settings["jitter"][i][j]
        self.loss: float = settings["loss"][i][j]
        self.cut = False
        self.limit = Pipe(settings["limits"][i][j], settings["queue"])
        self.latest = 0.0  # when the newest of its packets arrives
        self.delivered = 0  # bytes


# A tuple, because these are compared and made often: when it is due, a serial number that keeps the order at
# equal times, whether it has passed the downlink, when its first bit arrived, its size, its link, the packet.
Due = tuple[float, int, bool, float, int, Link, bytes]


class Switch:
    """The devices, what is between them, and the packets in flight."""

    def __init__(self, settings: dict[str, Any], devices: list[int]) -> None:
        self.devices = devices
        ranks = range(len(devices))
        self.up, self.down = ([Pipe(rate, settings["queue"]) for rate in settings[w]] for w in ("up", "down"))
        self.links = [[Link(settings, i, j) for j in ranks] for i in ranks]
        self.reorder: bool = settings["reorder"]
        self.random = Random()  # noqa: S311 - fair, not secret
        self.due: list[Due] = []  # a heap
        self.serial = 0
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
            # Only IPv4 to a worker: the kernel also sends to multicast groups (224.0.0.22).
            j = packet[VNET + 19] - 1 if len(packet) >= VNET + 20 else -1
            known = packet[VNET] >> 4 == 4 and packet[VNET + 16 : VNET + 19] == SUBNET
            if known and 0 <= j < len(self.devices) and j != i:
                self.send(i, self.links[i][j], packet)

    def send(self, i: int, link: Link, packet: bytes) -> None:
        """Let a packet leave worker i."""
        now = time.monotonic()
        size, count = measure(packet)
        left = self.up[i].carry(now, now, size)
        if left is None:
            self.counts["overflowed"] += count
        elif link.cut:
            self.counts["lost"] += count
        elif link.loss:
            lost = [k for k in range(count) if self.random.random() < link.loss]
            self.counts["lost"] += len(lost)
            for part in survivors(packet, lost):
                self.travel(link, *left, measure(part)[0], part)
        else:
            self.travel(link, *left, size, packet)

    def travel(self, link: Link, first: float, last: float, size: int, packet: bytes) -> None:
        """Send a packet on its way whose first and last bit have left the uplink at these times."""
        if link.limit.rate < inf:
            left = link.limit.carry(first, last, size)
            if left is None:
                self.counts["overflowed"] += measure(packet)[1]
                return
            first, last = left
        arrival = last + link.latency
        if link.jitter:
            arrival = max(arrival + self.random.uniform(-link.jitter, link.jitter), last)
        if not self.reorder:
            arrival = link.latest = max(arrival, link.latest)
        self.serial += 1
        entry = (arrival, self.serial, False, arrival - (last - first), size, link, packet)
        heapq.heappush(self.due, entry)

    def deliver(self) -> None:
        """Pass on what has arrived at the downlinks, and hand over what has passed them."""
        now = time.monotonic()
        soon = now + SOON
        while self.due and self.due[0][0] <= soon:
            when, serial, through, first, size, link, packet = heapq.heappop(self.due)
            if not through:
                left = self.down[link.target].carry(first, when, size)
                if left is None:
                    self.counts["overflowed"] += measure(packet)[1]
                    continue
                when = left[1]
                if when > soon:
                    heapq.heappush(self.due, (when, serial, True, first, size, link, packet))
                    continue
            try:
                os.write(self.devices[link.target], packet)
            except OSError:  # the device is down
                self.counts["refused"] += 1
                continue
            self.counts["packets"] += 1
            link.delivered += size
            if now > when:
                self.late_sum += now - when
                self.late_max = max(self.late_max, now - when)

    def command(self, given: dict[str, Any]) -> dict[str, Any]:
        """Do what the launcher asks for."""
        what = given["what"]
        if what == "stats":
            used = resource.getrusage(resource.RUSAGE_SELF)
            return {
                **self.counts,
                "late_sum": self.late_sum,
                "late_max": self.late_max,
                "cpu": used.ru_utime + used.ru_stime,
                "delivered": [[link.delivered for link in row] for row in self.links],
            }
        for i in given.get("workers", ()):
            (self.up if what == "up" else self.down)[i].change(given["value"])
        for i, j in given.get("pairs", ()):
            if what == "limit":
                self.links[i][j].limit.change(given["value"])
            else:
                setattr(self.links[i][j], what, given["value"])
        return {}

    def run(self, launcher: int) -> None:
        """Forward until the input ends or the launcher is gone (a descriptor that is readable then)."""
        worker = {device: i for i, device in enumerate(self.devices)}
        watched, rest = [0, launcher, *self.devices], b""
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
                *lines, rest = (rest + text).split(b"\n")
                for line in lines:
                    given = json.loads(line)
                    if given["what"] == "stop":
                        return
                    answer(given, self.command(given))
            self.deliver()


def answer(given: dict[str, Any], value: dict[str, Any]) -> None:
    """Write one line to the launcher."""
    line = json.dumps({"serial": given["serial"], **value}).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


def hurry() -> bool:
    """Ask the kernel for punctual wake-ups; return whether this process now has priority over others."""
    libc().prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)  # nanoseconds
    libc().mlockall(MCL_CURRENT | MCL_FUTURE)
    gc.disable()  # there are no cycles to collect here, and it would cause pauses
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(10))
    except OSError:
        return False
    return True


def main() -> None:
    """Run the switch."""
    line = b""
    while not line.endswith(b"\n"):  # the launcher waits for the answer before it sends more
        text = os.read(0, 65_536)
        if not text:
            sys.exit("there were no settings")
        line += text
    settings = json.loads(line)
    launcher = os.pidfd_open(settings["launcher"])
    try:
        switch = Switch(settings, [inside(name, open_tun) for name in settings["names"]])
        answer(settings, {"realtime": hurry()})
        switch.run(launcher)
    finally:
        for name in settings["names"]:
            remove(name)


if __name__ == "__main__":
    main()
