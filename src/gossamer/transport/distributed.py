"""torch.distributed as a transport: gloo here; NCCL and MPI by the same calls."""

from __future__ import annotations

import atexit
import os
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.errors import PeerError, PeerLost, PeerTimeout
from gossamer.transport.base import Alone, Transport
from gossamer.worker import Mail, Post

NO_ANSWER = "did not answer"
GOODBYE = 5.0  # seconds
START_UP = timedelta(seconds=300)  # eight cold interpreters on a busy machine take a minute


@dataclass(eq=False)
class _Ticket:
    phase: str
    began: float
    inbox: Mail
    works: list[tuple[int, dist.Work]]
    outbox: list[Tensor]  # alive until sent


# What is under way lives on even if nobody waits for it any more, as when an overlapping optimizer is
# dropped: gloo never reads again from a peer whose message was for a buffer that is gone.
_UNDER_WAY: set[_Ticket] = set()


class TorchTransport(Transport):
    """Point-to-point messages over a process group.

    Receives are posted before sends: gloo announces a ready receive in the same queue as bulk
    data, and with sends first the two directions of an edge run one after the other. A message
    longer than its buffer would abort the process, so lengths are always those of `Post.expect`.
    After a timeout gloo closes every connection of the group: the run cannot go on in it.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, deadline: float = 300.0) -> None:
        if deadline <= 0:
            raise ValueError(f"deadline={deadline}: the seconds to wait for a peer, above 0")
        if group is not None and dist.get_rank(group) < 0:
            raise ValueError("this process is not in the process group; call it on the group's members only")
        self._group = group
        self.deadline = deadline
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.sent, self.received, self.waited = Counter(), Counter(), 0.0
        on_gpu = dist.get_backend(group) == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")

    def post(self, post: Post, phase: str) -> _Ticket:
        """Post all receives, then all sends."""
        inbox = {
            j: torch.empty(post.expect[j], dtype=torch.uint8, device=self._device)
            for j in sorted(post.expect)
        }
        outbox = {j: post.send[j].to(self._device) for j in sorted(post.send)}
        ops: list[tuple[int, Callable[..., dist.Work | None], Tensor]]
        ops = [(j, dist.irecv, buffer) for j, buffer in inbox.items()]
        ops += [(j, dist.isend, message) for j, message in outbox.items()]
        ticket = _Ticket(phase, time.monotonic(), inbox, [], list(outbox.values()))
        if (
            self._device.type == "cuda"
        ):  # NCCL must have all of a phase at once; the first peer stands for all
            batch = [dist.P2POp(op, t, self._global(j), self._group) for j, op, t in ops]
            ticket.works = [(ops[0][0], work) for work in (dist.batch_isend_irecv(batch) if batch else [])]
        else:
            ticket.works = [(j, self._begin(op, t, j, phase)) for j, op, t in ops]
        _UNDER_WAY.add(ticket)
        for j, message in outbox.items():
            self.sent[j] += message.numel()
        return ticket

    def wait(self, ticket: _Ticket) -> Mail:
        """Wait for receives and sends until the deadline, counted from now."""
        start = time.monotonic()
        for peer, work in ticket.works:
            left = max(self.deadline - (time.monotonic() - start), 0.001)
            try:
                work.wait(timedelta(seconds=left))
            except RuntimeError as error:
                raise _peer_error(error, peer, ticket.phase, time.monotonic() - ticket.began) from error
        _UNDER_WAY.discard(ticket)
        self.waited += time.monotonic() - start
        for j, message in ticket.inbox.items():
            self.received[j] += message.numel()
        return {j: message.cpu() for j, message in ticket.inbox.items()}

    def close(self) -> None:
        """Nothing to do: the group belongs to whoever made it."""

    def _begin(self, op: Callable[..., dist.Work | None], buffer: Tensor, peer: int, phase: str) -> dist.Work:
        # The tag keeps phases apart: workers out of step time out instead of reading each other's
        # messages, and gloo would end the process over one that is too long. 0 is for collectives.
        tag = 1 + zlib.crc32(phase.encode()) % (2**31 - 2)
        try:
            work = op(buffer, self._global(peer), self._group, tag)
        except RuntimeError as error:  # a connection that is already known to be dead
            raise PeerLost(peer, phase, 0.0, _lost(error)) from error
        assert work is not None, "this process belongs to the group: the constructor has asked for its rank"
        return work

    def _global(self, peer: int) -> int:
        return peer if self._group is None else dist.get_global_rank(self._group, peer)


def connect(group: dist.ProcessGroup | None = None, deadline: float = 300.0) -> Transport:
    """Join the given or the default process group, else torchrun's environment, else stay alone."""
    if group is None and not dist.is_initialized():
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return Alone()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=START_UP
        )
        transport = TorchTransport(None, deadline)
        atexit.register(_leave, transport)
        return transport
    return TorchTransport(group, deadline)


def _leave(transport: TorchTransport) -> None:
    """Leave the group that `connect` made.

    A peer that exits right after its last send can break the receiver, so workers say goodbye to
    those they have talked to. One that failed does not, and nobody waits long for an answer: the
    others may still be busy, or wait for a message that will never come.
    """
    if not dist.is_initialized():
        return
    if not hasattr(sys, "last_value"):
        peers = sorted({*transport.sent, *transport.received})
        word = torch.zeros(1, dtype=torch.uint8)
        transport.deadline = GOODBYE
        try:
            transport.wait(
                transport.post(Post(dict.fromkeys(peers, word), dict.fromkeys(peers, 1)), "goodbye")
            )
        except PeerError:
            return  # they are gone or busy; the sockets close with this process
    dist.destroy_process_group()


def _peer_error(error: RuntimeError, peer: int, phase: str, age: float) -> PeerLost | PeerTimeout:
    text = str(error).lower()
    if "timed out" in text or "timeout" in text:
        return PeerTimeout(peer, phase, age, NO_ANSWER)
    return PeerLost(peer, phase, age, _lost(error))


def _lost(error: RuntimeError) -> str:
    """Return the backend's own word, without the place in its source and its advice."""
    word = re.sub(r"^\[[^]]*\]\s*", "", str(error).strip()).split(". ")[0][:200]
    return f"was lost ({word or type(error).__name__})"
