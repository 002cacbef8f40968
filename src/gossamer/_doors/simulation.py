"""Many workers in one process: the same rounds, the same bytes, no network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from gossamer import algorithms
from gossamer._node.buckets import make_buckets
from gossamer._node.gamma import with_gamma
from gossamer._node.node import Node
from gossamer._node.together import squared_distance
from gossamer.algorithms import Algorithm
from gossamer.compress import Compressor
from gossamer.rounds.drive import run_together
from gossamer.rounds.phase import Traffic
from gossamer.topology import Schedule, Topology
from gossamer.topology import make as make_topology

Named = Mapping[str, Tensor]
GradientFunction = Callable[[int, dict[str, Any], int], Named | None]  # the values are Parameters


class Simulation:
    """n virtual workers that step in lockstep and deliver each other the encoded bytes.

    Args:
        start: Every worker's named start values: one mapping for all workers, or a sequence of mappings, one
            per worker. Parameters are used as they are, so that a mapping may be
            `dict(model.named_parameters())`.
        topology: Who talks to whom: a name, a `Topology` or a `Schedule`.
        algorithm: A name such as "choco" or "powergossip:2", or an `Algorithm`.
        compressor: A name such as "topk:0.01" or a `Compressor`, for algorithms that take one.
        gamma: The consensus step size; found before the first step if left out.
        gradient: `gradient(rank, parameters, step)` returns gradients by name, or calls backward() and
            returns None. Without it, workers only average.
        optimizer: Makes a torch optimizer from a list of parameters. Given if and only if `gradient` is.
        workers: How many, if `start` is one mapping and the topology a name.
        every: Optimizer steps per round, as in `decentralize`.
        overlap: Gradients computed while messages fly, as in `decentralize`.
        seed: Seeds all random draws.

    Raises:
        ValueError: Settings that do not go together; the text says what to do instead.

    Example:
        Eight workers on a ring, each attracted by its own point; they approach the points' average.

        >>> import torch, gossamer
        >>> targets = torch.arange(8.0)
        >>> run = gossamer.Simulation(
        ...     {"x": torch.zeros(20)},
        ...     "ring",
        ...     "choco",
        ...     "sign",
        ...     workers=8,
        ...     gradient=lambda rank, parameters, step: {"x": parameters["x"] - targets[rank]},
        ...     optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        ... )
        >>> run.run(100)
        >>> run.x.shape, run.steps
        (torch.Size([8, 20]), 100)
        >>> bool((run.average() - targets.mean()).abs().max() < 0.1)
        True
    """

    def __init__(
        self,
        start: Named | Sequence[Named],
        topology: str | Topology | Schedule,
        algorithm: str | Algorithm,
        compressor: str | Compressor | None = None,
        *,
        gamma: float | str | None = None,
        gradient: GradientFunction | None = None,
        optimizer: Callable[[list[Parameter]], Optimizer] | None = None,
        workers: int | None = None,
        every: int = 1,
        overlap: int = 0,
        seed: int = 0,
    ) -> None:
        starts = _starts(start, topology, workers)
        self.topology = make_topology(topology, len(starts), seed)
        chosen = algorithms.make(algorithm, compressor, gamma=gamma)
        self.algorithm = with_gamma(chosen, self.topology, [v.shape for v in starts[0].values()], seed)
        if (gradient is None) != (optimizer is None):
            raise ValueError("give both a gradient function and an optimizer, or neither to average only")
        self.bytes_sent = [0] * len(starts)
        self._gradient = gradient
        common = all(_equal(s, starts[0]) for s in starts)
        self._parameters = [{name: _parameter(v) for name, v in s.items()} for s in starts]
        self.optimizers = [optimizer(list(p.values())) for p in self._parameters] if optimizer else []
        self.nodes = [
            Node(
                rank,
                make_buckets(parameters),
                step=self.optimizers[rank].step if optimizer else _stand_still,
                algorithm=self.algorithm,
                topology=self.topology,
                common_start=common,
                every=every,
                overlap=overlap,
                seed=seed,
            )
            for rank, parameters in enumerate(self._parameters)
        ]

    @property
    def n(self) -> int:
        """Return the number of workers."""
        return len(self.nodes)

    @property
    def steps(self) -> int:
        """Return the number of optimizer steps done."""
        return self.nodes[0].steps

    @property
    def x(self) -> Tensor:
        """Return all workers' parameters, one flat row per worker."""
        return torch.stack([torch.cat([bucket.x for bucket in node.buckets]) for node in self.nodes])

    def parameters(self, rank: int) -> dict[str, Parameter]:
        """Return a worker's parameters by name.

        Args:
            rank: Which worker.

        Returns:
            The parameters themselves, not copies.
        """
        return self._parameters[rank]

    def state(self, rank: int) -> Any:  # noqa: ANN401 - the algorithm's own type
        """Return what a worker's algorithm remembers from round to round.

        Args:
            rank: Which worker.

        Returns:
            The algorithm's own state; a list of them if the model has several dtypes.
        """
        states = self.nodes[rank].states
        return states[0] if len(states) == 1 else states

    def average(self) -> Tensor:
        """Return the average of all workers' parameters.

        Returns:
            A flat vector.
        """
        return self.x.mean(0)

    def consensus_distance(self) -> float:
        """Return how far the workers are from their average.

        Returns:
            The root mean square, sqrt(1/n sum_i |x_i - average|^2).
        """
        x = self.x.double()
        average = x.mean(0)
        return math.sqrt(sum(squared_distance([row], [average]) for row in x) / self.n)

    def step(self, observe: Callable[[Sequence[Traffic]], None] | None = None) -> None:
        """Do one optimizer step on every worker, with its round if it is the last step of one.

        Args:
            observe: Is called for every phase with the bytes that each worker sends and expects in it.
        """
        if self._gradient is not None:
            for rank, parameters in enumerate(self._parameters):
                gradients = self._gradient(rank, parameters, self.steps)
                for name, g in (gradients or {}).items():
                    parameters[name].grad = g.detach().to(parameters[name].dtype).clone()
        with torch.no_grad():
            sent = run_together([node.round() for node in self.nodes], observe)
        self.bytes_sent = [a + b.total() for a, b in zip(self.bytes_sent, sent, strict=True)]
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def run(self, steps: int) -> None:
        """Do several steps.

        Args:
            steps: How many.
        """
        for _ in range(steps):
            self.step()


def _starts(
    start: Named | Sequence[Named], topology: str | Topology | Schedule, workers: int | None
) -> list[Named]:
    if not isinstance(start, Mapping):
        if workers not in (None, len(start)):
            raise ValueError(f"{len(start)} start values for {workers} workers")
        return list(start)
    n = workers or (None if isinstance(topology, str) else topology.n)
    if n is None:
        raise ValueError("one start value for all: say how many workers with workers=...")
    return [{name: v.detach().clone() for name, v in start.items()} for _ in range(n)]


def _parameter(value: Tensor) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value.detach().clone())


def _equal(a: Named, b: Named) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def _stand_still() -> None:
    """Take the place of an optimizer where workers only average."""
