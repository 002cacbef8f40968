"""A transport between threads of one process, to test what sits on a transport without processes."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gossamer.errors import PeerLost, PeerTimeout
from gossamer.transport import Ticket, Transport
from tests.support.waiting import LIMIT

Queues = dict[tuple[int, int], queue.Queue[Tensor | None]]  # by sender and receiver

_SEEDING = threading.Lock()


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Draw from torch's global generator alone: the threads that stand for workers share it."""
    with _SEEDING:
        torch.manual_seed(seed)
        yield


class ThreadTransport(Transport):
    """One queue for every ordered pair of workers."""

    def __init__(self, rank: int, queues: Queues, deadline: float) -> None:
        super().__init__(rank, 1 + max(i for pair in [*queues, (0, 0)] for i in pair), deadline)
        self._queues = queues
        self._open: list[Ticket] = []  # not yet filled, in order

    def begin(self, outbox: Mapping[int, Tensor], sizes: Mapping[int, int], ticket: Ticket) -> Any:
        for j, message in outbox.items():
            self._queues[self.rank, j].put(message.clone())
        self._open.append(ticket)
        return sizes, {}

    def collect(self, ticket: Ticket, need: int | None, until: float | None) -> Mapping[int, Tensor]:
        while ticket in self._open:  # messages meet in the order of starting
            first = self._open[0]
            sizes, inbox = first.own
            for j in [j for j in sizes if j not in inbox]:
                if first is ticket and need is not None and len(inbox) >= need:
                    return dict(inbox)
                end = time.monotonic() + self.deadline if until is None else until
                try:
                    message = self._queues[j, self.rank].get(timeout=max(end - time.monotonic(), 0.0))
                except queue.Empty:
                    if until is not None:
                        return dict(ticket.own[1])
                    raise PeerTimeout(
                        j, first.name, time.monotonic() - first.began, "did not answer"
                    ) from None
                if message is None:
                    raise PeerLost(j, first.name, time.monotonic() - first.began, "was lost")
                assert message.numel() == sizes[j]
                inbox[j] = message
            self._open.pop(0)
        return ticket.own[1]

    def close(self) -> None:
        """Stay: others may still have to read what was sent."""

    def leave(self) -> None:
        """Let all others lose this worker, after what it has sent them."""
        for (i, _), messages in self._queues.items():
            if i == self.rank:
                messages.put(None)


def run_threads(
    n: int, work: Callable[[ThreadTransport], Any], deadline: float = LIMIT, main: int | None = None
) -> list[Any]:
    """Run work(transport) in n threads and return the results; the first failure is raised.

    Worker `main` runs in the thread of the caller, who may be the one that hears signals.
    """
    queues: Queues = {(i, j): queue.Queue() for i in range(n) for j in range(n) if i != j}
    results: list[Any] = [None] * n
    failures: list[BaseException] = []

    def body(rank: int) -> None:
        link = ThreadTransport(rank, queues, deadline)
        try:
            results[rank] = work(link)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)
            link.leave()

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(n) if rank != main]
    for thread in threads:
        thread.start()
    if main is not None:
        body(main)
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
