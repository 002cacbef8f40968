"""How long a round over the mesh takes on a slow network, beside bare ZeroMQ, gloo and the limit.

    sudo python -m benchmarks.mesh_rounds

Eight workers on a ring in the lab, 10 Mbit/s and 20 ms one way: each sends the same number of bytes to both
neighbours and waits for as many from each. The mesh and the bare DEALER and ROUTER encrypt with CURVE; gloo
does not. All of them are connected all the time and take turns, many times. The limit is one latency and the
time in which both messages leave the uplink, with the headers of TCP and IP. Writes
docs/results/mesh_rounds.json: the mean of a round in milliseconds, over all rounds and workers, with the
lowest and the highest of the turns' means.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import zmq
from torch import Tensor

from benchmarks.mesh_workers import Invitation, ask
from benchmarks.record import write
from gossamer._mesh.keys import z85
from gossamer._mesh.peers import parse_address
from gossamer.lab import Lab, Scenario
from gossamer.network.links import OVERHEAD
from gossamer.rounds.phase import Phase
from gossamer.transport import START_UP

N, BANDWIDTH, LATENCY = 8, 10e6, 0.020
SIZES = (1_000, 10_000, 50_000)
TURNS, ROUNDS, FIRST = 8, 23, 3  # the first rounds of a turn do not count: workers and TCP settle
PORT, BARE_PORT = 7000, 7001

Exchange = Callable[[Tensor], None]  # sends a message to both neighbours, and receives theirs


def limit(size: int) -> float:
    """Return the seconds that a round takes at least."""
    return LATENCY + 2 * size * 8 * OVERHEAD / BANDWIDTH


def over_mesh(invitation: Invitation, rank: int, near: Sequence[int]) -> Exchange:
    """Exchange through the transport."""
    transport = invitation.join(rank, deadline=START_UP.total_seconds())

    def exchange(message: Tensor) -> None:
        phase = Phase.of(dict.fromkeys(near, message), dict.fromkeys(near, message.numel()))
        transport.wait(transport.start(phase, "round"))

    return exchange


def over_bare_zmq(invitation: Invitation, rank: int, near: Sequence[int]) -> Exchange:
    """Exchange through sockets as the mesh has them, without a protocol."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    key, peers = invitation.key(rank), invitation.peers.all
    router = context.socket(zmq.ROUTER)
    router.curve_server, router.curve_secretkey = True, z85(key.secret)
    router.bind(f"tcp://{parse_address(peers[rank].address)[0]}:{BARE_PORT}")
    dealers = {}
    for j in near:
        dealer = dealers[j] = context.socket(zmq.DEALER)
        dealer.identity = b"%d" % rank
        dealer.curve_serverkey = z85(peers[j].key)
        dealer.curve_publickey, dealer.curve_secretkey = z85(key.public), z85(key.secret)
        dealer.connect(f"tcp://{parse_address(peers[j].address)[0]}:{BARE_PORT}")
    ahead = dict.fromkeys(near, 0)  # messages that have come and were not waited for

    def exchange(message: Tensor) -> None:
        for dealer in dealers.values():
            dealer.send(message.numpy().data, copy=False)
        while not all(ahead.values()):
            who, _ = router.recv_multipart(copy=False)
            ahead[int(who.bytes)] += 1
        for j in near:
            ahead[j] -= 1

    return exchange


def over_gloo(invitation: Invitation, rank: int, near: Sequence[int]) -> Exchange:
    """Exchange as torch.distributed does without a GPU."""
    dist.init_process_group("gloo", timeout=START_UP)

    def exchange(message: Tensor) -> None:
        arriving = [dist.irecv(torch.empty_like(message), j) for j in near]  # before any isend: it matters
        for work in [*arriving, *(dist.isend(message, j) for j in near)]:
            assert work is not None
            work.wait()

    return exchange


KINDS = {"mesh": over_mesh, "bare zmq": over_bare_zmq, "gloo": over_gloo}


def worker(folder: Path) -> None:
    """Take part, and print the mean seconds of a round in every turn, by kind and size."""
    rank, invitation = int(os.environ["RANK"]), Invitation(folder)
    near = sorted({(rank - 1) % N, (rank + 1) % N})
    exchanges = {kind: connect(invitation, rank, near) for kind, connect in KINDS.items()}
    turns = [(kind, size) for _ in range(TURNS) for size in SIZES for kind in KINDS]
    found: dict[str, list[float]] = {f"{kind} {size}": [] for kind, size in turns}
    for kind, size in turns:
        message = torch.randint(256, (size,), dtype=torch.uint8)
        for i in range(ROUNDS):
            if i == FIRST:
                began = time.perf_counter()
            exchanges[kind](message)
        found[f"{kind} {size}"].append((time.perf_counter() - began) / (ROUNDS - FIRST))
    print(json.dumps(found), flush=True)
    dist.barrier()
    os._exit(0)  # without goodbyes: nothing is measured any more


def row(size: int, answers: Sequence[dict[str, list[float]]]) -> dict[str, Any]:
    """Return what is known of one size: means over the workers, turn by turn and of all turns."""
    by_worker = {kind: [answer[f"{kind} {size}"] for answer in answers] for kind in KINDS}
    turns = {kind: list(map(mean, zip(*found, strict=True))) for kind, found in by_worker.items()}
    return {
        "bytes": size,
        "limit ms": round(1e3 * limit(size), 2),
        **{f"{kind} ms": round(1e3 * mean(turns[kind]), 2) for kind in KINDS},
        "mesh of the limit": round(mean(turns["mesh"]) / limit(size), 3),
        "lowest and highest ms": {k: [round(1e3 * f(t), 2) for f in (min, max)] for k, t in turns.items()},
    }


def main() -> None:
    with Lab(Scenario.uniform(N, BANDWIDTH, LATENCY)) as lab, TemporaryDirectory() as name:
        invitation = Invitation.write(Path(name), [f"{lab.address(i)}:{PORT}" for i in range(N)])
        answers = ask(lab, "benchmarks.mesh_rounds", str(invitation.folder))
        stats, tcp = lab.stats(), lab.congestion_control
    rows = [row(size, answers) for size in SIZES]
    for found in rows:
        print(found)
    about = {
        "workers": N,
        "bit/s": BANDWIDTH,
        "seconds one way": LATENCY,
        "rounds": TURNS * (ROUNDS - FIRST),
        "tcp": tcp,
        "ms that packets were late": round(1e3 * stats.late, 3),
    }
    write("mesh_rounds", {"about": about, "rounds": rows})


if __name__ == "__main__":
    worker(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
