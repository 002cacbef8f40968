"""How much of a fast and long link one edge of the mesh fills, and what a megabyte costs both ends.

    sudo python -m benchmarks.mesh_link

Two workers in the lab, 1 Gbit/s and 50 ms one way. One sends messages of 8 MB, all of them queued at once,
over one edge with 1 to 8 connections, encrypted; what arrives a second, after the first third, stands
beside what iperf3 measures in the same lab with as many connections, right before. Once with the lab's large
socket buffers, which let one connection fill the link, and once with a stock kernel's (4 MB to send), which
do not.

Then on the loopback device: the processor time of both ends for the same stream, beside that of bare DEALER
and ROUTER with CURVE and the same messages in pieces of 1 MiB, as the mesh cuts them.

Writes docs/results/mesh_link.json: medians of the repetitions, with the lowest and the highest.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
import zmq

from benchmarks.mesh_workers import Invitation, ask
from benchmarks.record import write
from gossamer._mesh.keys import z85
from gossamer._processes import Place, ThisMachine, free_port
from gossamer.lab import Lab, Scenario
from gossamer.lab.kernel import SYSTEM
from gossamer.lab.namespaces import inside
from gossamer.rounds.phase import Phase
from gossamer.transport import START_UP

BANDWIDTH, LATENCY, PORT = 1e9, 0.050, 7000
CONNECTIONS = (1, 2, 4, 8)
STOCK = {"tcp_wmem": "4096 16384 4194304", "tcp_rmem": "4096 131072 6291456"}
MESSAGE, COUNT = 8_000_000, 120
PIECE = 1 << 20
SECONDS, OMITTED = 6, 3  # of iperf3
REPETITIONS, CPU_REPETITIONS = 3, 7


def stream(invitation: Invitation, rank: int, connections: int) -> dict[str, float]:
    """Send to worker 1, or receive from worker 0; return the bit/s of the later messages and the CPU time."""
    transport = invitation.join(rank, connections=connections, deadline=START_UP.total_seconds())
    hello = Phase.of({1 - rank: torch.zeros(1, dtype=torch.uint8)}, {1 - rank: 1})
    transport.wait(transport.start(hello, "hello"))
    message, arrived = torch.randint(256, (MESSAGE,), dtype=torch.uint8), []
    used = cpu()
    if rank == 0:
        for _ in range(COUNT):
            transport.start(Phase.of({1: message}, {}), "stream")
    else:
        for _ in range(COUNT):
            transport.wait(transport.start(Phase.of({}, {0: MESSAGE}), "stream"))
            arrived.append(time.monotonic())
    transport.wait(transport.start(hello, "end"))
    used = cpu() - used
    transport.close()
    return {"cpu": used, "bit/s": rate(arrived) if rank else 0.0}


def rate(arrived: Sequence[float]) -> float:
    """Return the bit/s of the messages between the first third and the last tenth.

    At the end connections run dry one after the other, and messages that waited for the slowest come at once.
    """
    first, last = len(arrived) // 3, len(arrived) * 9 // 10 - 1
    return (last - first) * MESSAGE * 8 / (arrived[last] - arrived[first])


def bare(invitation: Invitation, rank: int, connections: int) -> dict[str, float]:
    """Send as many bytes through a DEALER, or receive them with a ROUTER; return the CPU time."""
    key, peers = invitation.key(rank), invitation.peers.all
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER if rank else zmq.DEALER)
    socket.sndhwm = socket.rcvhwm = 64
    message = torch.randint(256, (MESSAGE,), dtype=torch.uint8).numpy().data
    pieces = [message[at : at + PIECE] for at in range(0, MESSAGE, PIECE)] * COUNT
    if rank:
        socket.curve_server, socket.curve_secretkey = True, z85(key.secret)
        socket.bind(f"tcp://{peers[1].address}")
        sender, _hello = socket.recv_multipart()
        socket.send_multipart([sender, b"go"])
        used = cpu()
        for _ in pieces:
            socket.recv_multipart(copy=False)
        used = cpu() - used
        socket.send_multipart([sender, b"end"])
    else:
        socket.curve_serverkey = z85(peers[1].key)
        socket.curve_publickey, socket.curve_secretkey = z85(key.public), z85(key.secret)
        socket.connect(f"tcp://{peers[1].address}")
        socket.send(b"hello")
        socket.recv()
        used = cpu()
        for data in pieces:
            socket.send(data, copy=False)
        socket.recv()
        used = cpu() - used
    socket.close(linger=1000)
    return {"cpu": used}


def cpu() -> float:
    """Return the processor time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


KINDS: dict[str, Callable[[Invitation, int, int], dict[str, float]]] = {"stream": stream, "bare": bare}


def run(place: Place, addresses: Sequence[str], kind: str, connections: int = 1) -> list[dict[str, float]]:
    """Let two new workers do it, and return what they say."""
    with TemporaryDirectory() as folder:
        Invitation.write(Path(folder), addresses)
        return ask(place, "benchmarks.mesh_link", folder, kind, str(connections))


def iperf(lab: Lab, connections: int) -> float:
    """Return the bit/s that iperf3 receives."""
    server = lab.popen(1, ["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    words = f"iperf3 -c {lab.address(1)} -t {SECONDS} -O {OMITTED} -P {connections} -J".split()
    time.sleep(0.5)
    out, _ = lab.popen(0, words, stdout=subprocess.PIPE, text=True).communicate(timeout=120)
    server.wait(timeout=60)
    return float(json.loads(out)["end"]["sum_received"]["bits_per_second"])


def throughputs(buffers: str) -> list[dict[str, Any]]:
    """Return a row for each number of connections."""
    found: dict[int, list[tuple[float, float]]] = {k: [] for k in CONNECTIONS}
    with Lab(Scenario.uniform(2, BANDWIDTH, LATENCY)) as lab:
        for i in range(lab.n):
            for name, value in STOCK.items() if buffers == "stock" else ():
                inside(lab.namespace(i), lambda p=SYSTEM / name, v=value: p.write_text(v))  # type: ignore[misc]
        for _ in range(REPETITIONS):
            for k, pairs in found.items():
                bound = iperf(lab, k)
                mesh = run(lab, [f"{lab.address(i)}:{PORT}" for i in range(2)], "stream", k)[1]["bit/s"]
                pairs.append((mesh, bound))
                print(f"{buffers}, {k} connections: {mesh / 1e6:.0f} of {bound / 1e6:.0f} Mbit/s", flush=True)
    return [link_row(buffers, k, pairs) for k, pairs in found.items()]


def link_row(buffers: str, connections: int, pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the medians of pairs of rates, and of their ratios."""
    ratios = sorted(mesh / bound for mesh, bound in pairs)
    return {
        "buffers": buffers,
        "connections": connections,
        "mesh Mbit/s": round(median(mesh for mesh, _ in pairs) / 1e6, 1),
        "iperf3 Mbit/s": round(median(bound for _, bound in pairs) / 1e6, 1),
        "ratio": round(median(ratios), 3),
        "lowest and highest ratio": [round(ratios[0], 3), round(ratios[-1], 3)],
    }


def costs() -> dict[str, Any]:
    """Return the processor time of both ends, in milliseconds for a megabyte."""
    megabytes = COUNT * MESSAGE / 1e6
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(CPU_REPETITIONS):
        for kind, times in found.items():
            addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
            ends = run(ThisMachine(2), addresses, kind)
            times.append(1e3 * sum(end["cpu"] for end in ends) / megabytes)
            print(f"{kind}: {[round(1e3 * end['cpu'] / megabytes, 2) for end in ends]} ms/MB", flush=True)
    ratios = sorted(a / b for a, b in zip(found["stream"], found["bare"], strict=True))
    return {
        "mesh ms/MB": round(median(found["stream"]), 3),
        "bare zmq ms/MB": round(median(found["bare"]), 3),
        "ratio": round(median(ratios), 3),
        "lowest and highest ratio": [round(ratios[0], 3), round(ratios[-1], 3)],
    }


def worker(folder: str, kind: str, connections: str) -> None:
    """Take part, and print what was measured."""
    torch.set_num_threads(1)
    print(json.dumps(KINDS[kind](Invitation(Path(folder)), int(os.environ["RANK"]), int(connections))))


def main() -> None:
    rows = throughputs("large") + throughputs("stock")
    about = {"bit/s": BANDWIDTH, "seconds one way": LATENCY, "message": MESSAGE, "messages": COUNT}
    write("mesh_link", {"about": about, "throughput": rows, "processor": costs()})


if __name__ == "__main__":
    worker(*sys.argv[1:]) if len(sys.argv) > 1 else main()
