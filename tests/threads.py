"""A transport between threads of one process, to test what sits on a transport without processes."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from torch import Tensor

from gossamer.errors import PeerTimeout
from gossamer.transport import Transport
from gossamer.worker import Mail, Post


class ThreadTransport(Transport):
    """One queue for every ordered pair of workers."""

    def __init__(
        self, rank: int, queues: dict[tuple[int, int], queue.Queue[Tensor]], deadline: float
    ) -> None:
        self.rank, self.size = rank, 1 + max(i for pair in [*queues, (0, 0)] for i in pair)
        self.sent, self.received, self.waited = Counter(), Counter(), 0.0
        self._queues, self.deadline = queues, deadline
        self._open: list[Any] = []  # tickets not yet filled, in order

    def post(self, post: Post, phase: str) -> Any:
        for j, message in post.send.items():
            self.sent[j] += message.numel()
            self._queues[self.rank, j].put(message.clone())
        self._open.append((post.expect, phase, time.monotonic(), {}))
        return self._open[-1]

    def wait(self, ticket: Any) -> Mail:
        while any(t is ticket for t in self._open):  # messages meet in the order of posting
            expect, phase, began, inbox = self._open.pop(0)
            for j in sorted(expect):
                try:
                    inbox[j] = self._queues[j, self.rank].get(timeout=self.deadline)
                except queue.Empty:
                    raise PeerTimeout(j, phase, time.monotonic() - began, "did not answer") from None
                assert inbox[j].numel() == expect[j]
                self.received[j] += expect[j]
        return ticket[3]

    def close(self) -> None:
        pass


def run_threads(n: int, work: Callable[[ThreadTransport], Any], deadline: float = 60.0) -> list[Any]:
    """Run work(transport) in n threads and return the results; the first failure is raised."""
    queues = {(i, j): queue.Queue() for i in range(n) for j in range(n) if i != j}
    results: list[Any] = [None] * n
    failures: list[BaseException] = []

    def body(rank: int) -> None:
        try:
            results[rank] = work(ThreadTransport(rank, queues, deadline))
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
