"""The workers of a run that live in this process: one of them over a network, or all, simulated.

The loop that trains them is the same. It reaches the others through rounds, which these drive.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gossamer._doors.decentralize import decentralize
from gossamer._doors.optimizer import DecentralizedOptimizer
from gossamer._doors.simulation import Simulation
from gossamer.algorithms import Algorithm
from gossamer.network.clock import Clock
from gossamer.rounds.collectives import all_gather, all_mean, as_accumulator, first_error
from gossamer.rounds.drive import run_together
from gossamer.rounds.phase import Phase, Round
from gossamer.runs.config import Config
from gossamer.runs.training.learner import Learner
from gossamer.tasks import Sampler, Task
from gossamer.transport import Transport, run

COMPLAINT = 2000  # bytes
MODEL = ("parameters", "buffers")  # what an optimizer's state has of the model


class LocalWorkers(ABC):
    """Workers of this process, and the way to all others."""

    learners: list[Learner]
    n: int  # all workers
    seconds: float  # that training has taken, without evaluations and checkpoints
    sent: list[Counter[int]]  # bytes by receiver, of every worker here
    sent_evaluating: list[int]  # bytes, of every worker here
    sent_besides: list[int]  # bytes of all that is not training, of every worker here

    @property
    @abstractmethod
    def algorithm(self) -> Algorithm:
        """The algorithm, with the gamma that is used."""

    @abstractmethod
    def step(self, step: int, lr: float) -> list[float]:
        """Do one step and its round on every worker here; return their losses."""

    @abstractmethod
    def drive(self, rounds: list[Round], name: str) -> list[int]:
        """Run one round per worker here, together with all others; return the bytes each of them sent."""

    @abstractmethod
    def state_of(self, index: int) -> Any:  # noqa: ANN401 - a tree of tensors and numbers
        """Return the optimizer's and the algorithm's state of a worker here."""

    @abstractmethod
    def load_state_of(self, index: int, state: Any) -> None:  # noqa: ANN401
        """Take it up again."""

    def time_state(self) -> dict[str, Any]:
        """Return what is known of the time."""
        return {"seconds": self.seconds}

    def load_time_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.seconds = state["seconds"]

    def _drive(self, rounds: list[Round], name: str) -> None:
        sent = self.drive(rounds, name)
        self.sent_besides = [a + b for a, b in zip(self.sent_besides, sent, strict=True)]

    def means(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Average one vector per worker over all workers; return one copy per worker here."""
        totals = [as_accumulator(v) for v in vectors]
        rounds = [
            all_mean(s.rank, range(self.n), total) for s, total in zip(self.learners, totals, strict=True)
        ]
        self._drive(rounds, "average of all workers")
        return [total.to(v.dtype) for total, v in zip(totals, vectors, strict=True)]

    def gathered(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """Return all workers' rows of numbers, given the rows of those here."""
        tables = [torch.zeros(self.n, len(row), dtype=torch.float64) for row in rows]
        for learner, table, row in zip(self.learners, tables, rows, strict=True):
            table[learner.rank] = torch.tensor(row, dtype=torch.float64)
        pairs = zip(self.learners, tables, strict=True)
        self._drive(
            [all_gather(s.rank, range(self.n), list(table)) for s, table in pairs], "numbers of all workers"
        )
        return tables[0].tolist()

    def first_error(self, complaints: Sequence[str]) -> str:
        """Return one worker's complaint, the same for all, or "" if nobody has any."""
        texts = [torch.zeros(COMPLAINT, dtype=torch.uint8) for _ in complaints]
        for text, complaint in zip(texts, complaints, strict=True):
            encoded = complaint.encode()[:COMPLAINT]
            text[: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8)
        pairs = zip(self.learners, texts, strict=True)
        self._drive([first_error(s.rank, range(self.n), text) for s, text in pairs], "complaints")
        return bytes(texts[0].tolist()).rstrip(b"\0").decode(errors="replace")


class OneWorker(LocalWorkers):
    """One worker of a run over a network."""

    def __init__(
        self, config: Config, task: Task, sampler: Sampler, rank: int, transport: Transport | None
    ) -> None:
        self.learners = [Learner(config, task, sampler, rank)]
        self.optimizer: DecentralizedOptimizer = decentralize(
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
        )
        self.n, self.seconds = self.optimizer.transport.size, 0.0
        self.sent, self.sent_evaluating, self.sent_besides = [self.optimizer.sent], [0], [0]

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm, with the gamma that is used."""
        return self.optimizer.algorithm

    def step(self, step: int, lr: float) -> list[float]:
        """Do one step and one round with the neighbours."""
        began = time.perf_counter()
        loss = self.learners[0].backward(step, lr)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seconds += time.perf_counter() - began
        return [loss]

    def drive(self, rounds: list[Round], name: str) -> list[int]:
        """Run this worker's round."""
        with torch.no_grad():
            return [run(rounds[0], self.optimizer.transport, name)]

    def state_of(self, index: int) -> Any:  # noqa: ANN401
        """Return the optimizer's and the algorithm's state, without the model, which is saved by itself."""
        state = self.optimizer.state_dict()
        kept = {name: value for name, value in state["gossamer"].items() if name not in MODEL}
        return {**state, "gossamer": kept}

    def load_state_of(self, index: int, state: Any) -> None:  # noqa: ANN401
        """Take it up again."""
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
        optimizers = iter([learner.optimizer for learner in self.learners])
        self.simulation = Simulation(
            [learner.parameters for learner in self.learners],
            config.make_topology(),
            config.make_algorithm(),
            gradient=self._gradient,
            optimizer=lambda _: next(optimizers),
            every=config.every,
            overlap=config.overlap,
            seed=config.seed,
        )
        self.n, self.seconds = config.workers, 0.0
        self.sent = [Counter() for _ in range(self.n)]
        self.sent_evaluating, self.sent_besides = [0] * self.n, [0] * self.n
        self._losses: list[float] = []
        self._lr = config.lr
        self._clock, self._compute = clock, compute

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm, with the gamma that is used."""
        return self.simulation.algorithm

    def step(self, step: int, lr: float) -> list[float]:
        """Do one step of all workers; their time is that of one of them, or the clock's."""
        self._losses, self._lr = [], lr
        phases: list[Sequence[Phase]] = []
        began = time.perf_counter()
        self.simulation.step(phases.append)
        compute = self._compute if self._compute is not None else (time.perf_counter() - began) / self.n
        for of_all in phases:
            for sent, phase in zip(self.sent, of_all, strict=True):
                sent.update(phase.sent())
        self.seconds += self._time_passed(phases, compute, step)
        return self._losses

    def drive(self, rounds: list[Round], name: str) -> list[int]:
        """Run all workers' rounds in lockstep."""
        with torch.no_grad():
            return run_together(rounds)

    def state_of(self, index: int) -> Any:  # noqa: ANN401
        """Return a worker's optimizer and algorithm state."""
        node = self.simulation.nodes[index].state_dict()
        kept = {name: value for name, value in node.items() if name not in MODEL}
        return {"optimizer": self.simulation.optimizers[index].state_dict(), "member": kept}

    def load_state_of(self, index: int, state: Any) -> None:  # noqa: ANN401
        """Take it up again."""
        self.simulation.nodes[index].load_state_dict(state["member"])
        self.simulation.optimizers[index].load_state_dict(state["optimizer"])

    def time_state(self) -> dict[str, Any]:
        """Return what is known of the time, the clock's included."""
        return super().time_state() | ({} if self._clock is None else {"clock": self._clock.state()})

    def load_time_state(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        super().load_time_state(state)
        if self._clock is not None:
            self._clock.load_state(state["clock"])

    def _time_passed(self, phases: list[Sequence[Phase]], compute: float, step: int) -> float:
        """Return how long a step takes: its computing, or what the network makes of it."""
        if self._clock is None:
            return compute
        before = self._clock.now
        self._clock.step(phases, compute, step, self.simulation.nodes[0].cadence)
        return self._clock.now - before

    def _gradient(self, rank: int, parameters: dict[str, Any], step: int) -> None:
        self._losses.append(self.learners[rank].backward(step, self._lr))
