"""What the modelled clock says a step takes, from the lengths of the messages alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

import torch

import gossamer
from gossamer.network.clock import Clock
from gossamer.network.links import Network
from gossamer.rounds.cadence import Cadence
from gossamer.rounds.phase import Traffic
from gossamer.runs import Config

STEPS = 24  # a multiple of every period; workers on a ring need some to settle


def predicted(config: Config, gamma: float | None, network: Network, compute: float) -> float:
    """Return the seconds of a step on a network if `compute` of them are a worker's own."""
    clock = Clock(network)
    silent, talking = _phases(config.to_json(), gamma)
    cadence = Cadence(config.every, config.overlap)
    for step in range(STEPS):
        clock.step(talking if cadence.exchanges(step) else silent, compute, step, cadence)
    return clock.now / STEPS


@cache
def _phases(settings: str, gamma: float | None) -> tuple[list[Sequence[Traffic]], list[Sequence[Traffic]]]:
    """Return what workers send in a step without and in one with a round."""
    config = Config(**json.loads(settings))
    model = config.make_task().model()
    start = {name: p.detach() for name, p in model.named_parameters()}
    simulation = gossamer.Simulation(
        start,
        config.make_topology(),
        gossamer.algorithms.make(config.algorithm, config.compressor, gamma=gamma, **config.options),
        gradient=lambda rank, parameters, step: {n: torch.ones_like(p) for n, p in parameters.items()},
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        every=config.every,
    )
    steps: list[list[Sequence[Traffic]]] = []
    for _ in range(config.every):
        steps.append([])
        simulation.step(steps[-1].append)
    return steps[0] if config.every > 1 else [], steps[-1]
