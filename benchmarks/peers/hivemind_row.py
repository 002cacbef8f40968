"""hivemind, where it is installed: local steps, and averages of groups that find each other in a DHT."""

from __future__ import annotations

import os
import socket

import hivemind
import torch
import torch.distributed as dist
from hivemind.averaging import DecentralizedAverager
from hivemind.compression import Float16Compression

from benchmarks.peers.trainers import PERIOD, Alone
from gossamer.runs.training.learner import Learner

PATIENCE = 60.0  # seconds for a group to be found and averaged
MATCHMAKING, REQUEST = 2.0, 1.0  # seconds to find a group; hivemind's own 5 would rule the result


class Hivemind(Alone):
    """Local steps, and an average in half precision now and then."""

    period = PERIOD

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._dht = _join()
        self._averager = DecentralizedAverager(
            [p.detach().clone() for p in learner.parameters.values()],
            self._dht,
            start=True,
            prefix="benchmark",
            target_group_size=dist.get_world_size(),
            min_matchmaking_time=MATCHMAKING,
            request_timeout=REQUEST,
            compression=Float16Compression(),
        )
        self._steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Do the optimizer's step, and average when it is time."""
        super().update()
        self._steps += 1
        if self._steps % PERIOD:
            return
        parameters = list(self.learner.parameters.values())
        with self._averager.get_tensors() as tensors:
            for tensor, p in zip(tensors, parameters, strict=True):
                tensor.copy_(p)
        self._averager.step(timeout=PATIENCE)
        with self._averager.get_tensors() as tensors:
            for tensor, p in zip(tensors, parameters, strict=True):
                p.copy_(tensor)

    def close(self) -> None:
        """Leave the DHT."""
        dist.barrier()
        self._averager.shutdown()
        self._dht.shutdown()


def _join() -> hivemind.DHT:
    """Start a node of the DHT; all others know worker 0's."""
    first = dist.get_rank() == 0
    address = [f"/ip4/{_own_address()}/tcp/0"]
    known: list[list[str] | None] = [None]
    if first:
        dht = hivemind.DHT(host_maddrs=address, start=True)
        known = [[str(peer) for peer in dht.get_visible_maddrs()]]
    dist.broadcast_object_list(known)
    if not first:
        dht = hivemind.DHT(host_maddrs=address, initial_peers=known[0], start=True)
    dist.barrier()
    return dht


def _own_address() -> str:
    """Return the address from which this process reaches worker 0."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], 9))
        return str(probe.getsockname()[0])
