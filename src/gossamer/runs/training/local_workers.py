"""The workers of a run that live in this process: one of them over a network, or all, simulated.

The loop that trains them is the same, and so are their checkpoints.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from gossamer._doors.decentralize import decentralize
from gossamer._node.buckets import make_buckets
from gossamer._node.checkpoint import joined_state, take_apart
from gossamer._node.gamma import with_gamma
from gossamer._node.node import Node
from gossamer._node.settings import run_settings
from gossamer._node.together import ByItself, InOneProcess, OverTransport, Together
from gossamer.algorithms import Algorithm
from gossamer.network.clock import Clock
from gossamer.rounds.drive import run_together
from gossamer.rounds.phase import Traffic
from gossamer.runs.config import Config
from gossamer.runs.training.learner import Learner
from gossamer.tasks import Sampler, Task
from gossamer.transport import Transport

MODEL = ("parameters", "buffers")  # the model in an optimizer's state; a run saves it separately


class LocalWorkers(ABC):
    """The workers in this process, and how they reach all others."""

    learners: list[Learner]
    together: Together
    algorithm: Algorithm  # with the gamma that is used
    seconds: float  # that training has taken, without evaluations and checkpoints
    sent: list[Counter[int]]  # bytes by receiver, one counter per local worker
    sent_evaluating: list[int]  # bytes, one number per local worker
    first_step = 0  # in a run that goes on already, how far it is

    @property
    def n(self) -> int:
        """The number of all workers."""
        return len(self.together.members)

    @property
    def speaks(self) -> bool:
        """Whether what is said of all workers, such as how good their average is, is said here."""
        return self.learners[0].rank == self.together.members[0]

    @property
    def independent(self) -> bool:
        """Whether the others go on whatever happens here."""
        return False

    @abstractmethod
    def step(self, step: int, lr: float) -> list[float]:
        """Do one step and its round on every local worker; return their losses."""

    @abstractmethod
    def state_of(self, index: int) -> dict[str, Any]:
        """Return the optimizer's and the algorithm's state of a local worker."""

    @abstractmethod
    def load_state_of(self, index: int, state: dict[str, Any]) -> None:
        """Load what `state_of` returned."""

    def time_state(self) -> dict[str, Any]:
        """Return the time that has passed."""
        return {"seconds": self.seconds}

    def load_time_state(self, state: dict[str, Any]) -> None:
        """Load what `time_state` returned."""
        self.seconds = state["seconds"]


class OneWorker(LocalWorkers):
    """One worker of a run over a network."""

    def __init__(
        self,
        config: Config,
        task: Task,
        sampler: Sampler,
        rank: int,
        transport: Transport | None,
        *,
        broadcast: bool = True,
    ) -> None:
        founders = range(config.workers) if transport is None else transport.everybody
        self.learners = [Learner(config, task, sampler, rank, share_of(rank, founders))]
        self.optimizer = decentralize(
            self.learners[0].optimizer,
            self.learners[0].model,
            topology=config.make_topology(),
            algorithm=config.make_algorithm(),
            every=config.every,
            overlap=config.overlap,
            buffers=config.buffers,  # type: ignore[arg-type]  # checked by Config
            seed=config.seed,
            deadline=config.deadline,
            transport=transport,
            broadcast=broadcast,
        )
        self._comes_and_goes = config.transport == "mesh" and not self.optimizer.algorithm.reaches_all
        self.together = ByItself(rank) if self._comes_and_goes else OverTransport(self.optimizer.transport)
        self.first_step = self.optimizer.steps
        self.algorithm, self.seconds = self.optimizer.algorithm, 0.0
        self.sent, self.sent_evaluating = [self.optimizer.sent], [0]

    @property
    def independent(self) -> bool:
        """Whether it is one of those that come and go."""
        return self._comes_and_goes

    def step(self, step: int, lr: float) -> list[float]:
        """Do one step and one round with the neighbours."""
        began = time.perf_counter()
        loss = self.learners[0].backward(step, lr)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seconds += time.perf_counter() - began
        return [loss]

    def state_of(self, index: int) -> dict[str, Any]:
        """Return what the optimizer saves."""
        return _without_model(self.optimizer.state_dict())

    def load_state_of(self, index: int, state: dict[str, Any]) -> None:
        """Load what `state_of` returned."""
        self.optimizer.load_state_dict(state)


class AllWorkers(LocalWorkers):
    """All workers of a run, in this process."""

    def __init__(
        self,
        config: Config,
        task: Task,
        sampler: Sampler,
        clock: Clock | None = None,
        compute: float | None = None,
    ) -> None:
        self.learners = [Learner(config, task, sampler, rank) for rank in range(config.workers)]
        if len({id(learner.model) for learner in self.learners}) < config.workers:
            raise ValueError("the task's model() must make a new model every time it is called")
        for learner in self.learners[1:]:  # as worker 0's values are broadcast over a network
            learner.model.load_state_dict(self.learners[0].model.state_dict())
        graph, asked = config.make_topology(), config.make_algorithm()
        shapes = [p.shape for p in self.learners[0].parameters.values()]
        self.algorithm = with_gamma(asked, graph, shapes, config.seed)
        self.nodes = [
            Node(
                learner.rank,
                make_buckets(learner.parameters),
                learner.optimizer.step,
                self.algorithm,
                graph,
                common_start=True,
                every=config.every,
                overlap=config.overlap,
                seed=config.seed,
            )
            for learner in self.learners
        ]
        layouts = [bucket.layout for bucket in self.nodes[0].buckets]
        self._settings = run_settings(
            asked, graph, layouts, config.every, config.overlap, config.buffers, config.seed
        )
        self.together, self.seconds = InOneProcess(config.workers), 0.0
        self.sent = [Counter() for _ in self.learners]
        self.sent_evaluating = [0] * config.workers
        self._clock, self._compute = clock, compute

    def step(self, step: int, lr: float) -> list[float]:
        """Do one step of all workers; their time is that of one of them, or the clock's."""
        phases: list[Sequence[Traffic]] = []
        began = time.perf_counter()
        losses = [learner.backward(step, lr) for learner in self.learners]
        with torch.no_grad():
            sent = run_together([node.round() for node in self.nodes], phases.append)
        for learner in self.learners:
            learner.optimizer.zero_grad()
        compute = self._compute if self._compute is not None else (time.perf_counter() - began) / self.n
        for total, now in zip(self.sent, sent, strict=True):
            total.update(now)
        self.seconds += self._time_passed(phases, compute, step)
        return losses

    def state_of(self, index: int) -> dict[str, Any]:
        """Return what this worker's optimizer would save."""
        own = self.nodes[index].state_dict() | {"settings": self._settings}
        own |= {"sent": dict(self.sent[index]), "consensus_sent": {}}
        return _without_model(joined_state(self.learners[index].optimizer, own))

    def load_state_of(self, index: int, state: dict[str, Any]) -> None:
        """Load what `state_of` returned."""
        inner, own = take_apart(state, self._settings)
        self.nodes[index].load_state_dict(own)
        self.learners[index].optimizer.load_state_dict(inner)

    def time_state(self) -> dict[str, Any]:
        """Return the time that has passed, and the clock's state."""
        return super().time_state() | ({} if self._clock is None else {"clock": self._clock.state()})

    def load_time_state(self, state: dict[str, Any]) -> None:
        """Load what `time_state` returned."""
        super().load_time_state(state)
        if self._clock is not None:
            self._clock.load_state(state["clock"])

    def _time_passed(self, phases: list[Sequence[Traffic]], compute: float, step: int) -> float:
        """Return how long a step takes: its computing, or what the network makes of it."""
        if self._clock is None:
            return compute
        before = self._clock.now
        self._clock.step(phases, compute, step, self.nodes[0].cadence)
        return self._clock.now - before


def share_of(rank: int, founders: Sequence[int]) -> int:
    """Return which share of the data a worker has, given the ids of those that the data are dealt to.

    Ids have gaps where entries of a peers file are revoked, and shares must have none. Who was added later
    keeps its id, which is beyond all shares.
    """
    return founders.index(rank) if rank in founders else rank


def _without_model(state: dict[str, Any]) -> dict[str, Any]:
    inner, own = take_apart(state)
    return inner | {"gossamer": {name: value for name, value in own.items() if name not in MODEL}}
