"""What the command on every worker returns."""

from __future__ import annotations

import threading
from io import StringIO

from gossamer.lab.everywhere import run_everywhere
from tests.support.waiting import LIMIT


class Process:
    """One that has ended, or that ends when all others are being ended."""

    stdout = ()

    def __init__(self, code, *, late=False):
        self.code, self.asked = code, threading.Event()
        if not late:
            self.asked.set()

    def wait(self, timeout=None):
        self.asked.wait(LIMIT)
        return self.code

    def poll(self):
        self.asked.set()
        return self.code


class Place:
    n = 2

    def __init__(self, *processes):
        self.processes = processes

    def popen(self, i, argv, **keywords):
        return self.processes[i]


def test_the_code_is_that_of_the_first_failure():
    """The worker of rank 0 fails because that of rank 1 is gone: rank 1 tells why."""
    assert run_everywhere(Place(Process(4, late=True), Process(3)), ["command"], StringIO()) == 3
    assert run_everywhere(Place(Process(0), Process(0)), ["command"], StringIO()) == 0
