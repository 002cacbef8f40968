"""What the kernel does for a worker's namespace: its address, its uplink's rate, and its counters."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path

from gossamer.lab.namespaces import DEVICE, command, inside

PACKET = 1500  # bytes
LARGEST = 65_536  # bytes that the kernel hands over at once
SYSTEM = Path("/proc/sys/net/ipv4")
TUNING = {
    "tcp_wmem": "4096 65536 33554432",  # otherwise 1 Gbit/s over long links is out of reach
    "tcp_rmem": "4096 131072 33554432",
    "tcp_no_metrics_save": "1",  # otherwise a connection starts with an earlier one's estimates
    "tcp_tso_rtt_log": "31",  # TCP may send as much at once as `shape` allows, on long links too
}


@dataclass(frozen=True)
class Counters:
    """What has passed a worker's interface, as the kernel counts it.

    Segments that the kernel hands over together have their headers counted once: up to 3 % less than
    a wire would carry, and the less so the slower the uplink.
    """

    bytes_received: int
    packets_received: int
    bytes_sent: int
    packets_sent: int


def prepare(name: str, address: str) -> None:
    """Make a namespace with its device ready for traffic."""
    inside(name, _tune)
    lines = [f"address add {address}/24 dev {DEVICE}", f"link set {DEVICE} up txqueuelen 1000"]
    command("ip", "-n", name, "-batch", "-", lines=lines)


def shape(name: str, rate: float, queue: int) -> None:
    """Let the kernel hold packets back that exceed a rate: TCP notices it at once, and without losses.

    The exact timing is the switch's. So the kernel may hand over two milliseconds' worth of packets at once,
    which is far less work for the switch than single packets, and may be ahead by that much.
    """
    at_once = LARGEST if rate == inf else min(max(round(rate / 8 * 0.002), 2 * PACKET + 200), LARGEST)
    command("ip", "-n", name, "link", "set", DEVICE, "gso_max_size", str(at_once))
    device = ("tc", "-n", name, "qdisc", "replace", "dev", DEVICE, "root")
    if rate == inf:
        command(*device, "pfifo", "limit", "1000")
        return
    burst = max(round(rate / 8 * 0.003), at_once)
    limit = max(queue, 2 * burst)
    command(*device, "tbf", "rate", f"{round(rate)}bit", "burst", str(burst), "limit", str(limit))


def congestion_control(name: str) -> str:
    """Return the name of the algorithm by which TCP finds its rate."""
    return inside(name, (SYSTEM / "tcp_congestion_control").read_text).strip()


def counters(name: str) -> Counters:
    """Read the counters of a namespace's device."""
    text = inside(name, Path("/proc/thread-self/net/dev").read_text)
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{DEVICE}:"))
    words = [int(word) for word in line.partition(":")[2].split()]
    return Counters(words[0], words[1], words[8], words[9])


def _tune() -> None:
    for setting, value in TUNING.items():
        if (SYSTEM / setting).exists():  # old kernels have fewer
            (SYSTEM / setting).write_text(value)
    no_ipv6 = Path(f"/proc/sys/net/ipv6/conf/{DEVICE}/disable_ipv6")
    if no_ipv6.exists():
        no_ipv6.write_text("1")  # otherwise the kernel itself sends packets
