"""A transport between threads of one process, to test what sits on a transport without processes."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gossamer.errors import PeerLost, PeerTimeout
from gossamer.rounds.phase import Inbox, Phase
from gossamer.transport import Transport
from tests.waiting import LIMIT

_SEEDING = threading.Lock()


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Draw from torch's global generator alone: the threads that stand for workers share it."""
    with _SEEDING:
        torch.manual_seed(seed)
        yield


class ThreadTransport(Transport):
    """One queue for every ordered pair of workers."""

    def __init__(
        self, rank: int, queues: dict[tuple[int, int], queue.Queue[Tensor | None]], deadline: float
    ) -> None:
        self.rank, self.size = rank, 1 + max(i for pair in [*queues, (0, 0)] for i in pair)
        self.sent, self.received, self.waited = Counter(), Counter(), 0.0
        self._queues, self.deadline = queues, deadline
        self._open: list[Any] = []  # tickets not yet filled, in order

    def start(self, phase: Phase, name: str) -> Any:
        for j, message in phase.send.items():
            self.sent[j] += message.numel()
            self._queues[self.rank, j].put(message.clone())
        self._open.append((phase.expect, name, time.monotonic(), {}))
        return self._open[-1]

    def wait(self, ticket: Any) -> Inbox:
        while any(t is ticket for t in self._open):  # messages meet in the order of posting
            expect, phase, began, inbox = self._open.pop(0)
            for j in sorted(expect):
                try:
                    message = self._queues[j, self.rank].get(timeout=self.deadline)
                except queue.Empty:
                    raise PeerTimeout(j, phase, time.monotonic() - began, "did not answer") from None
                if message is None:
                    raise PeerLost(j, phase, time.monotonic() - began, "was lost")
                assert message.numel() == expect[j]
                inbox[j] = message
                self.received[j] += expect[j]
        return ticket[3]

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
    queues = {(i, j): queue.Queue() for i in range(n) for j in range(n) if i != j}
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
