"""Labs leave nothing behind: no namespace, no device, no process, however they end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gossamer.lab import Lab, LabError, Scenario, namespaces, require_lab, sweep
from tests.support.waiting import LIMIT, within

LAUNCHER = """
import os, signal, time
from gossamer.lab import Lab, Scenario, enter
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who runs these tests with nohup wants to hear of it
with Lab(Scenario.uniform(2, "10mbit", "1ms")) as lab:
    workers = [lab.popen(i, ["sleep", "1000"]) for i in range(2)]
    while not all(open(f"/proc/{w.pid}/comm").read() == "sleep\\n" for w in workers):
        time.sleep(0.01)
    ours, theirs = os.pipe()
    forked = os.fork()  # it inherits all descriptors, the one on which the switch listens too
    if not forked:
        enter(lab.namespace(0))
        os.write(theirs, b".")
        time.sleep(1000)
    os.read(ours, 1)
    print(lab._control.pid, forked, *[worker.pid for worker in workers], flush=True)
    time.sleep(1000)
"""


class Launched:
    """A process with a lab in which workers sleep: two that it has started, and one that it has forked."""

    def __init__(self):
        command = [sys.executable, "-c", LAUNCHER]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        with self.process.stdout as told:
            self.switch, *self.workers = map(int, told.readline().split())

    def namespaces(self):
        return left_of(self.process.pid)

    def gone(self):
        return not self.namespaces() and not any(map(alive, [self.switch, *self.workers]))


@pytest.fixture
def launched(machine):
    launched = Launched()
    assert len(launched.namespaces()) == 2
    yield launched
    for pid in (launched.process.pid, launched.switch, *launched.workers):
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    launched.process.wait()
    sweep()


def left_of(pid):
    return sorted(path.name for path in namespaces.FOLDER.glob(f"gossamer-{pid}-*"))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_after_a_signal_to_the_launcher(launched, number):
    os.kill(launched.process.pid, number)
    launched.process.wait(LIMIT)
    assert within(LIMIT, launched.gone)


def test_after_kill_9_of_the_launcher_and_the_switch(launched):
    os.kill(launched.switch, signal.SIGSTOP)  # it must not be quicker
    for pid in (launched.process.pid, launched.switch):
        os.kill(pid, signal.SIGKILL)
    launched.process.wait(LIMIT)
    assert within(LIMIT, lambda: not alive(launched.switch))
    left = launched.namespaces()
    assert len(left) == 2
    assert all(map(alive, launched.workers))
    with Lab(Scenario.uniform(1, "1mbit", "1ms")) as lab:
        assert set(left) <= set(lab.swept)
    assert within(LIMIT, launched.gone)


def test_a_switch_that_is_killed_is_noticed(start):
    lab = start(Scenario.uniform(2, "10mbit", "1ms"))
    worker = lab.popen(0, ["sleep", "1000"])
    os.kill(lab._control.pid, signal.SIGKILL)
    with pytest.raises(LabError, match="the lab's switch has ended"):
        lab.stats()
    lab.close()
    assert worker.returncode
    assert not left_of(os.getpid())


def test_after_an_exception(machine):
    def fail():
        with Lab(Scenario.uniform(2, "10mbit", "1ms")) as lab:
            workers.append(lab.popen(1, ["sleep", "1000"]))
            assert len(left_of(os.getpid())) == 2
            raise ZeroDivisionError

    workers: list[subprocess.Popen[Any]] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    (worker,) = workers
    assert worker.returncode == -signal.SIGKILL
    assert not left_of(os.getpid())


def test_after_a_start_that_fails(machine, monkeypatch):
    monkeypatch.setattr("gossamer.lab.kernel.prepare", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Lab(Scenario.uniform(2, "10mbit", "1ms"))
    monkeypatch.setattr(
        "gossamer.lab.control.SWITCH", [sys.executable, "-c", "import sys; sys.exit('no luck today')"]
    )
    with pytest.raises(LabError, match="the lab's switch has ended: no luck today"):
        Lab(Scenario.uniform(2, "10mbit", "1ms"))
    assert not left_of(os.getpid())


def test_a_process_that_has_the_number_of_a_launcher_is_not_it(start):
    lab = start(Scenario.uniform(1, "10mbit", "1ms"))
    name = f"gossamer-{os.getpid()}-999-0"
    namespaces.command("ip", "netns", "add", name)
    assert sweep() == []  # may be one that is just being made
    namespaces.command("ip", "-n", name, "link", "set", "lo", "alias", f"gossamer {os.getpid()} 1")
    assert sweep() == [name]
    assert left_of(os.getpid()) == [lab.namespace(0)]


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda tool: None)
    monkeypatch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(FileNotFoundError()))
    with pytest.raises(
        LabError, match="the lab lacks root: start it with sudo; ip and tc: apt install"
    ) as error:
        require_lab()
    assert "/dev/net/tun: modprobe tun" in str(error.value)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(LabError, match="the lab needs Linux"):
        require_lab()
