"""The contract of an algorithm."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import Tensor

from gossamer import topology
from gossamer._doors.simulation import Simulation
from gossamer._node.state import dump
from gossamer.algorithms import Algorithm
from gossamer.rounds.drive import advance
from gossamer.topology import Schedule, Topology

IRREGULAR = [(0, 1), (1, 2), (2, 3), (3, 0), (2, 4)]


def check_algorithm(algorithm: Algorithm, rounds: int = 6) -> None:
    """Raise an AssertionError if an algorithm breaks what the drivers rely on.

    It must be a frozen dataclass; give the same bits again for the same seed; leave torch's global
    generator alone; resume from a saved state bit for bit; run with 1, 2, 4 and 5 workers,
    on changing and directed graphs if it says so, and refuse them if not; not touch a message it
    has sent; raise a ValueError for a gradient that is not finite; take the optimizer's step once per
    round; and, if it claims to be `sends_before_gradient`, need no gradient and change nothing before
    its first messages arrive.

    Args:
        algorithm: The one to check; check every setting that matters.
        rounds: How many rounds each check runs.

    Raises:
        AssertionError: The first thing that is wrong.

    Example:
        >>> from gossamer.algorithms import Choco
        >>> from gossamer.testing import check_algorithm
        >>> check_algorithm(Choco("sign", gamma=0.4))
    """
    kind = type(algorithm)
    assert is_dataclass(kind) and kind.__dataclass_params__.frozen, "an algorithm is a frozen dataclass"
    for graph in (topology.ring(1), topology.ring(2), topology.ring(4), topology.from_edges(IRREGULAR)):
        _check_repeats(algorithm, graph, rounds)
    _check_resumes(algorithm, rounds)
    _check_graphs(algorithm)
    _check_sends_before_gradient(algorithm)
    _check_messages_stay(algorithm)
    _check_refuses_nan(algorithm)
    _check_steps_once(algorithm)


def problem(algorithm: Algorithm, graph: Topology | Schedule, lr: float = 0.05, every: int = 1) -> Simulation:
    """Return a small strongly convex problem: every worker has its own minimum."""
    start = {"matrix": torch.zeros(12, 8), "bias": torch.zeros(8)}
    rng = torch.Generator().manual_seed(1)
    targets = [
        {name: torch.randn(v.shape, generator=rng) for name, v in start.items()} for _ in range(graph.n)
    ]

    def gradient(rank: int, parameters: dict[str, Any], step: int) -> dict[str, Tensor]:
        return {name: p - targets[rank][name] for name, p in parameters.items()}

    return Simulation(
        start,
        graph,
        algorithm,
        gradient=gradient,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.5),
        every=every,
        seed=3,
    )


def _check_repeats(algorithm: Algorithm, graph: Topology, rounds: int) -> None:
    before = torch.get_rng_state()
    runs = [problem(algorithm, graph) for _ in range(2)]
    for run in runs:
        run.run(rounds)
    assert torch.equal(torch.get_rng_state(), before), "the global random generator was used"
    assert torch.equal(runs[0].x, runs[1].x), f"two runs with one seed differ on {graph.name} of {graph.n}"
    assert runs[0].bytes_sent == runs[1].bytes_sent, "two runs with one seed send different numbers of bytes"
    assert bool(torch.isfinite(runs[0].x).all()), (
        f"diverges within {rounds} rounds on {graph.name} of {graph.n}"
    )


def _check_resumes(algorithm: Algorithm, rounds: int) -> None:
    straight, resumed = (problem(algorithm, topology.ring(4), every=2) for _ in range(2))
    for run in (straight, resumed):
        run.run(rounds + 1)
    saved = [(node.state_dict(), node.buckets[0].x.clone()) for node in resumed.nodes]
    optimizers = [copy.deepcopy(o.state_dict()) for o in resumed.optimizers]
    resumed = problem(algorithm, topology.ring(4), every=2)
    for node, optimizer, (state, x), own in zip(
        resumed.nodes, resumed.optimizers, saved, optimizers, strict=True
    ):
        node.buckets[0].x.copy_(x)
        node.load_state_dict(state)
        optimizer.load_state_dict(own)
    for run in (straight, resumed):
        run.run(rounds)
    assert torch.equal(straight.x, resumed.x), "a run resumed from its saved state gets other values"


def _check_graphs(algorithm: Algorithm) -> None:
    graphs: list[tuple[bool, Topology | Schedule]] = [
        (algorithm.varying_graphs, topology.random_matching(5)),
        (algorithm.varying_graphs and algorithm.directed_graphs, topology.one_peer_exponential(4)),
    ]
    for allowed, graph in graphs:
        try:
            problem(algorithm, graph).run(3)
        except ValueError as error:
            assert not allowed, f"says that it runs on {graph.name}, but: {error}"
        else:
            assert allowed, f"says that it cannot run on {graph.name}, but does not refuse it"


def _check_sends_before_gradient(algorithm: Algorithm) -> None:
    if not algorithm.sends_before_gradient:
        return
    run = problem(algorithm, topology.ring(4), lr=0.0)
    run.run(1)
    node = run.nodes[0]
    x, state = node.buckets[0].x.clone(), dump(node.states)

    def forbidden() -> None:
        raise AssertionError("sends_before_gradient, but steps before the first messages arrive")

    node.optimizer_step = forbidden
    advance(node.round(), None)
    assert torch.equal(x, node.buckets[0].x), (
        "sends_before_gradient, but moves x before the first messages arrive"
    )
    assert _same(state, dump(node.states)), (
        "sends_before_gradient, but changes its state before the first messages arrive"
    )


def _check_messages_stay(algorithm: Algorithm) -> None:
    run = problem(algorithm, topology.ring(2))
    for node in run.nodes:
        for bucket in node.buckets:
            bucket.set_gradient(torch.ones_like(bucket.x))
    with torch.no_grad():
        rounds = [node.round() for node in run.nodes]
        phases = [advance(r, None) for r in rounds]
        while all(phase is not None for phase in phases):
            present = [phase for phase in phases if phase is not None]
            messages = [phase.outbox()[1 - i] for i, phase in enumerate(present)]
            copies = [m.clone() for m in messages]
            inboxes = [phase.inbox({1 - i: copies[1 - i].clone()}) for i, phase in enumerate(present)]
            phases = [advance(r, inbox) for r, inbox in zip(rounds, inboxes, strict=True)]
            unchanged = all(torch.equal(a, b) for a, b in zip(messages, copies, strict=True))
            assert unchanged, "changes a message after it was sent"


def _check_refuses_nan(algorithm: Algorithm) -> None:
    run = problem(algorithm, topology.ring(4), lr=0.1)
    run.run(1)
    run.parameters(0)["bias"].data[3] = float("nan")
    try:
        run.step()
        run.step()
    except ValueError as error:
        assert "bias" in str(error), f"the error for NaN does not name the tensor: {error}"
    else:
        raise AssertionError("NaN in a parameter goes unnoticed")


def _check_steps_once(algorithm: Algorithm) -> None:
    run = problem(algorithm, topology.ring(4), every=2)
    counts = [0] * run.n
    for rank, node in enumerate(run.nodes):

        def step(rank: int = rank, optimizer_step: Callable[[], None] = node.optimizer_step) -> None:
            counts[rank] += 1
            optimizer_step()

        node.optimizer_step = step
    run.run(4)
    assert counts == [4] * run.n, (
        f"4 steps asked for {counts[0]} steps of the optimizer: a round has one `yield worker.step()`"
    )


def _same(a: Any, b: Any) -> bool:  # noqa: ANN401 - dumped states
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
