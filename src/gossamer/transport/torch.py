"""torch.distributed as a transport.

Messages are bytes in host memory and travel over gloo, whatever the user's process group uses: NCCL
has no tags that keep rounds apart, no deadline that leaves the process alive, and does not name the peer
that failed.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.errors import PeerError, PeerLost, PeerTimeout
from gossamer.rounds.phase import Phase
from gossamer.transport import farewell
from gossamer.transport.base import Alone, Ticket, Transport
from gossamer.transport.own_group import START_UP, own_group

NO_ANSWER = "did not answer"
GOODBYE = 5.0  # seconds


@dataclass(eq=False)
class _UnderWay:
    inbox: dict[int, Tensor]
    receives: dict[int, dist.Work]
    sends: list[tuple[int, dist.Work]]
    outbox: list[Tensor]  # alive until sent
    watch: _Watch | None = None


# Keeps transfers alive even if nobody waits for them any more, as when an optimizer with overlap is
# dropped: gloo never reads again from a peer whose message was for a buffer that was freed.
_UNDER_WAY: set[_UnderWay] = set()


def _ignore(peer: int) -> None:
    """Do nothing when a peer's message has arrived."""


class _Watch:
    """A thread that waits for a phase, so that the main thread can ask what has arrived."""

    def __init__(self, peers: Iterable[int], wait: Callable[..., None]) -> None:
        self._peers, self._done = set(peers), set[int]()
        self._news = threading.Condition()
        self._error: BaseException | None = None
        threading.Thread(target=self._run, args=(wait,), daemon=True, name="gossamer-wait").start()

    def arrived(self, need: int | None, until: float | None) -> list[int]:
        """Return whose messages have arrived, as soon as `need` have, or at `until`."""
        enough = len(self._peers) if need is None else min(need, len(self._peers))
        with self._news:
            left = None if until is None else max(until - time.monotonic(), 0.0)
            self._news.wait_for(lambda: self._error is not None or len(self._done) >= enough, left)
            if self._error is not None and len(self._done) < enough:
                raise self._error
            return sorted(self._done)

    def _run(self, wait: Callable[..., None]) -> None:
        try:
            wait(arrived=self._add)
        except BaseException as error:  # noqa: BLE001 - raised by `arrived`
            with self._news:
                self._error = error
                self._news.notify_all()

    def _add(self, peer: int) -> None:
        with self._news:
            self._done |= {peer} & self._peers
            self._news.notify_all()


class TorchTransport(Transport):
    """Point-to-point messages between the workers of the given or the default process group.

    They travel over a gloo group of Gossamer's own, so that they never share a connection with the user's
    collectives, and the user's group need not have a CPU backend. All workers of the group make their
    transports together.

    Receives are posted before sends: gloo announces a ready receive in the same queue as bulk
    data, and with sends first the two directions of an edge run one after the other. A message
    longer than its buffer would abort the process, so lengths are always those of `Phase.expect`.
    After a timeout gloo closes every connection of the group: the run cannot continue in it.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, deadline: float = 300.0) -> None:
        if deadline <= 0:
            raise ValueError(f"deadline={deadline}: the seconds to wait for a peer, above 0")
        self._own = own_group(group)
        super().__init__(self._own.rank, self._own.size, deadline)
        self.ranks = dist.get_process_group_ranks(group or dist.group.WORLD)  # in the default group
        self.farewell = self._own.farewell
        self.farewell.start()

    def begin(self, outbox: Mapping[int, Tensor], sizes: Mapping[int, int], ticket: Ticket) -> _UnderWay:
        """Post all receives, then all sends."""
        # The tag keeps phases apart: workers out of step time out instead of reading each other's
        # messages, and gloo would end the process over one that is too long. 0 is for collectives.
        tag = 1 + zlib.crc32(ticket.name.encode()) % (2**31 - 2)
        inbox = {j: torch.empty(size, dtype=torch.uint8) for j, size in sizes.items()}
        own = _UnderWay(inbox, {}, [], list(outbox.values()))
        _UNDER_WAY.add(own)
        try:
            for j, buffer in inbox.items():
                own.receives[j] = self._own.receive(buffer, j, tag)
            for j, message in outbox.items():
                own.sends.append((j, self._own.send(message, j, tag)))
        except RuntimeError as error:  # a connection that is already known to be dead
            raise self._peer_error(error, j, ticket.name, 0.0) from error
        return own

    def collect(self, ticket: Ticket, need: int | None, until: float | None) -> Mapping[int, Tensor]:
        """Wait for receives and sends until the deadline, counted from now.

        gloo cannot be asked what has arrived, and closes all connections if a wait ends early. So a thread
        waits for everything where the caller asks for less.
        """
        own: _UnderWay = ticket.own
        if own.watch is None and need is None and until is None:
            self._wait_for_all(ticket, time.monotonic() + self.deadline)
            return own.inbox
        if own.watch is None:
            own.watch = _Watch(
                own.receives, partial(self._wait_for_all, ticket, time.monotonic() + self.deadline)
            )
        return {j: own.inbox[j] for j in own.watch.arrived(need, until)}

    def _wait_for_all(self, ticket: Ticket, end: float, arrived: Callable[[int], None] = _ignore) -> None:
        own: _UnderWay = ticket.own
        for peer, work in [*own.receives.items(), *own.sends]:
            left = max(end - time.monotonic(), 0.001)
            try:
                work.wait(timedelta(seconds=left))
            except RuntimeError as error:
                age = time.monotonic() - ticket.began
                raise self._peer_error(error, peer, ticket.name, age) from error
            arrived(peer)
        _UNDER_WAY.discard(own)

    def close(self) -> None:
        """Nothing to do: other transports may share the connections, which close with the process group."""

    def fail(self, reason: str) -> None:
        """Report a failure in the store of the process group; an empty reason withdraws the report."""
        if reason:
            self.farewell.leave(reason)
        else:
            self.farewell.forget()

    def _peer_error(self, error: RuntimeError, peer: int, phase: str, age: float) -> PeerLost | PeerTimeout:
        self._own.broken = True
        text = str(error).lower()
        if "timed out" in text or "timeout" in text:
            return PeerTimeout(peer, phase, age, NO_ANSWER, self.farewell.first())
        return PeerLost(peer, phase, age, _lost(error), self.farewell.first(wait=farewell.MOMENT))


def connect(group: dist.ProcessGroup | None = None, deadline: float = 300.0) -> Transport:
    """Join the given or the default process group, else torchrun's environment, else stay alone."""
    made = group is None and not dist.is_initialized()
    if made:
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return Alone()
        dist.init_process_group("gloo", timeout=START_UP)
    transport = TorchTransport(group, deadline)
    if made:
        atexit.register(_leave, transport)
    elif not _AT_EXIT:
        _AT_EXIT.append(atexit.register(_end_threads_of_gloo))
    transport.farewell.at_exit()
    return transport


_AT_EXIT: list[object] = []


def _end_threads_of_gloo() -> None:
    """Destroy the user's process group before Python ends, if all went well and the user has not.

    A thread of gloo may still hold the tensors of the user's last collective. If it frees them while Python
    shuts down, torch aborts the process ("terminate called without an active exception"): frameworks that
    leave the group open then fail after all is done, often on a busy machine.
    """
    if dist.is_initialized() and "gloo" in str(dist.get_backend()) and not hasattr(sys, "last_value"):
        farewell.within(GOODBYE, dist.destroy_process_group)


def _leave(transport: TorchTransport) -> None:
    """Leave the group that `connect` made.

    A peer that exits right after its last send can break the receiver, so workers exchange one more byte
    with all their peers. A worker that failed does not, and nobody waits long for an answer: the others
    may still be busy, or wait for a message that will never come.
    """
    if not dist.is_initialized():
        return
    if not transport.farewell.left and not hasattr(sys, "last_value"):
        peers = sorted({*transport.sent, *transport.received})
        byte = torch.zeros(1, dtype=torch.uint8)
        transport.deadline = GOODBYE
        try:
            goodbye = Phase.of(dict.fromkeys(peers, byte), dict.fromkeys(peers, 1))
            transport.wait(transport.start(goodbye, "goodbye"))
        except PeerError:
            return  # they are gone or busy; the sockets close with this process
    dist.destroy_process_group()


def _lost(error: RuntimeError) -> str:
    """Return the backend's message, without its source line and advice."""
    text = re.sub(r"^\[[^]]*\]\s*", "", str(error).strip()).split(". ")[0][:200]
    return f"was lost ({text or type(error).__name__})"
