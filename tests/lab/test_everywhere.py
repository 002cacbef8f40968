"""What the command on every worker returns."""

from __future__ import annotations

import threading
import time
from io import StringIO

from gossamer.lab.everywhere import run_everywhere


class Process:
    """One that ends after another, if there is one, but whose code can be asked for at once."""

    stdout = ()

    def __init__(self, code, after=None):
        self.code, self.after, self.told = code, after, threading.Event()

    def wait(self, timeout=None):
        if self.after is not None:
            self.after.told.wait()
            time.sleep(0.2)
        self.told.set()
        return self.code

    def poll(self):
        return self.code


class Place:
    n = 2

    def __init__(self, *processes):
        self.processes = processes

    def popen(self, i, argv, **keywords):
        return self.processes[i]


def test_the_code_is_that_of_the_first_failure():
    """The worker of rank 0 fails because that of rank 1 is gone: rank 1 tells why."""
    one = Process(3)
    assert run_everywhere(Place(Process(4, after=one), one), ["command"], StringIO()) == 3
    assert run_everywhere(Place(Process(0), Process(0)), ["command"], StringIO()) == 0
