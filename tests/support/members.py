"""Worker processes of a mesh that train and report, die or freeze on cue, and come back."""

from __future__ import annotations

import faulthandler
import hashlib
import os
import pickle
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor, nn

import gossamer
from gossamer._mesh.contacts import News
from gossamer._mesh.keys import Key
from gossamer._mesh.peers import Peers
from tests.support.meshes import join, new_keys, peers_of
from tests.support.problem import LR, MOMENTUM, Model, advance, flat
from tests.support.processes import PRELOADED
from tests.support.waiting import LIMIT, wait_until

PATIENT = 20.0  # seconds of silence that no healthy worker keeps, however busy the machine is
SUSPICION = 1.0  # seconds from a connection that broke to death: on this machine none breaks by itself
LAST = 100  # rounds without training at the end, in which workers come to agree
CHOCO: dict[str, Any] = {"algorithm": "choco", "compressor": "topk:0.25", "gamma": 0.3}


@dataclass(frozen=True)
class Place:
    """Who a process is, and where it finds the others."""

    rank: int
    peers: Peers
    keys: list[Key]
    folder: Path  # in which processes leave marks for each other

    def mark(self, what: str) -> None:
        """Say how far this process is."""
        (self.folder / f"{self.rank} {what}").touch()

    def told(self, what: str) -> bool:
        """Return whether the test has said something to all."""
        return (self.folder / what).exists()


@dataclass
class Report:
    """What a worker has to say at its end."""

    began: int  # the round in which it began
    start: Tensor  # its parameters at that time
    rounds: int
    x: Tensor
    members: list[str]  # their statuses before anybody left
    edges: dict[int, float]  # the weights at that time, by neighbour
    news: list[News]
    notes: dict[tuple[int, int, int], tuple[float, str, str]]  # see Trainer._note
    refused: Counter[tuple[str, str]]
    turned_away: Counter[str]

    def heard(self, peer: int) -> list[str]:
        """Return what this worker was told about another one."""
        return [news.what for news in self.news if news.peer == peer]


class Trainer:
    """A worker of a mesh, in its own process."""

    def __init__(
        self,
        place: Place,
        *,
        model: nn.Module | None = None,
        lr: float = LR,
        silence: float = PATIENT,
        deadline: float = LIMIT,
        saved: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.place, self.model = place, model or Model()
        own = place.rank, place.keys[place.rank]
        self.transport = join(place.peers, *own, silence=silence, deadline=deadline)
        self.protocol = self.transport.protocol
        self.protocol.members._suspicion = SUSPICION
        self.news: list[News] = []
        self.transport.on_change = self.news.append
        inner = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=MOMENTUM)
        self.optimizer = gossamer.decentralize(
            inner, self.model, transport=self.transport, broadcast=saved is None, **settings
        )
        if saved is not None:
            self.optimizer.load_state_dict(saved)
        assert self.optimizer._edges is not None
        self._rounds = self.optimizer._edges
        self.began, self.start = self.optimizer.rounds, flat(self.model)
        self._notes: dict[tuple[int, int, int], tuple[float, str, str]] = {}
        self._seen: tuple[list[str], dict[int, float]] = ([], {})

    @property
    def statuses(self) -> list[str]:
        """What is believed of all members."""
        return [member.status.name for member in self.optimizer.members]

    @property
    def edges(self) -> dict[int, float]:
        """The weights of the edges that count."""
        edges = self._rounds._hood.edges
        return {j: edge.weight for j, edge in edges.items() if edge.known and edge.weight > 0}

    def missed(self, peer: int) -> int:
        """Return how many rounds have ended without a neighbour's message."""
        return self._rounds.missed[peer]

    def step(self) -> None:
        advance(self.model, self.optimizer, 1, first=self.optimizer.steps)
        self._note()

    def train(self, to: int) -> None:
        """Train up to this round."""
        while self.optimizer.rounds < to:
            self.step()

    def train_until(self, happens: Callable[[], bool]) -> None:
        """Train until something is so, and at least one round."""
        self.step()
        while not happens():
            self.step()

    def train_until_told(self, neighbours: set[int], missing: Sequence[int] = ()) -> Report:
        """Train until all workers see who is there and have their edges; then agree with them, and leave.

        Nobody waits for others between two rounds: these may need one more of its messages.
        """
        gone = list(missing)
        self.train_until(lambda: self.edges.keys() == neighbours and absent(self.statuses) == gone)
        self.place.mark("complete")
        self.train_until(lambda: self.place.told("finish"))
        self.look_around()
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        self.train(to=self.optimizer.rounds + LAST)
        return self.leave()

    def look_around(self) -> None:
        """See who is there while nobody has left yet."""
        self._seen = (self.statuses, self.edges)

    def leave(self) -> Report:
        """Say goodbye, and what there was to see."""
        with self.transport.sockets.changed:
            self.transport.follow_news()
            counters = Counter(self.protocol.refused), Counter(self.transport.sockets.turned_away)
        self.optimizer.close()
        begun, ended = (self.began, self.start), (self.optimizer.rounds, flat(self.model))
        return Report(*begun, *ended, *self._seen, self.news, self._notes, *counters)

    def die(self, *, in_exchange: bool) -> None:
        """Be killed, between two rounds or while messages are on their way."""
        if in_exchange:
            pytest.MonkeyPatch().setattr(self._rounds, "collect", lambda *_: signal_self(signal.SIGKILL))
            self.step()
        signal_self(signal.SIGKILL)

    def _note(self) -> None:
        """Note of every edge, by peer, epoch and number of the last message: weight, x^_i and x^_j."""
        (state,) = self.optimizer._node.states
        copies = getattr(state, "others", {})
        for j, edge in self._rounds._hood.edges.items():
            if edge.known and j in copies:
                known = (digest(state.x_hat), digest(copies[j]))
                self._notes.setdefault((j, edge.epoch, edge.number), (edge.weight, *known))


@dataclass
class Process:
    """One of the processes, as the test sees it."""

    handle: Any
    outcome: Path

    def result(self) -> Any:
        """Return what it came to, or raise what it raised."""
        self.handle.join(LIMIT)
        assert self.outcome.exists(), f"it has not come back: {self.handle.exitcode}"
        result = pickle.loads(self.outcome.read_bytes())  # noqa: S301 - by the test's own process
        if isinstance(result, Exception):
            raise result
        return result

    def was_killed(self) -> bool:
        """Wait until it is gone; return whether by SIGKILL."""
        self.handle.join(LIMIT)
        return bool(self.handle.exitcode == -signal.SIGKILL)

    def is_stopped(self) -> bool:
        """Return whether the kernel lets it do nothing: state T."""
        return Path(f"/proc/{self.handle.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@dataclass
class Mesh:
    """The processes of one test: all are ended with it."""

    n: int
    folder: Path
    processes: list[Process] = field(default_factory=list)
    keys: list[Key] = field(init=False)
    peers: Peers = field(init=False)

    def __post_init__(self) -> None:
        self.keys = new_keys(self.n)
        self.peers = peers_of(self.keys)

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, *exception: object) -> None:
        for process in self.processes:
            process.handle.kill()
            process.handle.join()

    def start(self, rank: int, work: Callable[..., Any], *args: Any) -> Process:
        """Begin work(place, ...) in a new process."""
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        outcome = self.folder / f"outcome {len(self.processes)}"
        place = Place(rank, self.peers, self.keys, self.folder)
        handle = context.Process(target=_body, args=(place, outcome, work, args), daemon=True)
        handle.start()
        self.processes.append(Process(handle, outcome))
        return self.processes[-1]

    def finish(self, running: dict[int, Process]) -> dict[int, Report]:
        """Let workers finish as soon as all of them have their edges; return their reports."""
        self.wait_for_marks("complete", running)
        self.tell("finish")
        return {rank: running[rank].result() for rank in sorted(running)}

    def wait_for_marks(self, what: str, ranks: Iterable[int]) -> None:
        """Wait until all of these have said how far they are; raise if one has failed instead."""
        paths = [self.folder / f"{rank} {what}" for rank in ranks]

        def all_are_there() -> bool:
            for process in [process for process in self.processes if process.outcome.exists()]:
                process.result()
            return all(path.exists() for path in paths)

        wait_until(all_are_there)

    def tell(self, what: str) -> None:
        """Say something to all processes."""
        (self.folder / what).touch()


def _body(place: Place, outcome: Path, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(0.9 * LIMIT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = work(place, *args)
    except Exception as error:  # noqa: BLE001 - handed to the test
        error.add_note(f"worker {place.rank}: {traceback.format_exc()}")
        result = error
    part = outcome.with_suffix(".part")
    part.write_bytes(pickle.dumps(result))
    os.replace(part, outcome)


def signal_self(which: signal.Signals) -> None:
    os.kill(os.getpid(), which)


def absent(statuses: list[str]) -> list[int]:
    return [j for j, status in enumerate(statuses) if status != "ALIVE"]


def digest(x: Tensor) -> str:
    return hashlib.blake2b(x.numpy().tobytes(), digest_size=8).hexdigest()
