"""The launcher's end of the switch: starts it, sends it changes, and asks for its statistics."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass
from math import inf
from typing import Any

from gossamer.lab.namespaces import LabError
from gossamer.lab.scenario import Scenario

PATIENCE = 60.0  # seconds for an answer: the machine may have to read Python from a slow disk


@dataclass(frozen=True)
class Stats:
    """What a switch has done so far.

    `delivered[i][j]` are the bytes of the packets from i to j, with the headers of each; `lost` counts
    packets lost on purpose, by loss or a cut, and `overflowed` those that a full queue dropped.
    `packets` are those handed over, where many segments of a stream may be one; `cpu` is in seconds.
    Packets were delivered `late` seconds too late on average, and `latest` at worst: much more than
    a millisecond means that the machine was too busy to emulate this network.
    """

    delivered: tuple[tuple[int, ...], ...]
    packets: int
    lost: int
    overflowed: int
    late: float
    latest: float
    cpu: float


SWITCH = [sys.executable, "-m", "gossamer.lab.switch"]


class Control:
    """A switch process. It ends on request, and when this process is gone."""

    def __init__(self, scenario: Scenario, names: list[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            SWITCH,
            bufsize=0,  # lines are not read ahead, or select would not see them
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the launcher
        )
        self._serial = 0
        try:
            self.realtime: bool = self._send(_settings(scenario, names))["realtime"]
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def ask(self, what: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - plain data
        """Send a command and return the answer."""
        return self._send({"what": what, **more})

    def stats(self) -> Stats:
        """Ask what it has done."""
        answer = self.ask("stats")
        return Stats(
            delivered=tuple(map(tuple, answer["delivered"])),
            packets=answer["packets"],
            lost=answer["lost"],
            overflowed=answer["overflowed"],
            late=answer["late_sum"] / max(answer["packets"], 1),
            latest=answer["late_max"],
            cpu=answer["cpu"],
        )

    def close(self) -> None:
        """Stop it; before it ends it kills all that runs in the namespaces, and removes them."""
        try:
            # Closing the pipe is not enough: a process that was forked from this one may hold it too.
            self._process.communicate(b'{"what": "stop"}\n', timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _send(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None, "it is a pipe"
        self._serial += 1
        line = json.dumps({"serial": self._serial, **message}).encode() + b"\n"
        try:
            while line:
                line = line[self._process.stdin.write(line) :]
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer()
        while answer["serial"] != self._serial:  # an earlier answer, left unread by Ctrl-C
            answer = self._answer()
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "it is a pipe"
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            raise LabError(f"the lab's switch was silent for {PATIENCE:.0f} s: is the machine overloaded?")
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        return json.loads(line)  # type: ignore[no-any-return]  # a dict, see switch.answer

    def _ended(self) -> LabError:
        assert self._process.stderr is not None, "it is a pipe"
        reason = self._process.stderr.read().decode(errors="replace").strip()
        return LabError(f"the lab's switch has ended{': ' + reason if reason else ''}")


def _settings(scenario: Scenario, names: list[str]) -> dict[str, Any]:
    n, network = scenario.n, scenario.network
    return {
        "launcher": os.getpid(),
        "names": names,
        "up": network.up,
        "down": network.down,
        "limits": [[network.limits.get((i, j), inf) for j in range(n)] for i in range(n)],
        "latency": network.latency,
        "jitter": scenario.jitter,
        "loss": scenario.loss,
        "queue": scenario.queue,
        "reorder": scenario.reorder,
    }
