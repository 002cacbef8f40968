"""From a torch optimizer and a model to a decentralized optimizer."""

from __future__ import annotations

import hashlib
import logging
import os
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from gossamer import algorithms
from gossamer.algorithms import Algorithm
from gossamer.buffers import BufferPolicy, Buffers, saved_buffers
from gossamer.collectives import broadcast, one_complaint
from gossamer.compress import Compressor
from gossamer.flat import FlatParameters, by_kind, flatten, joined, spread
from gossamer.optimizer import DecentralizedOptimizer
from gossamer.settings import settings
from gossamer.topology import Schedule, Topology
from gossamer.topology import make as make_topology
from gossamer.transport import START_UP, Transport, agree, connect, run
from gossamer.tuning import with_common_gamma
from gossamer.wire import as_bytes

log = logging.getLogger("gossamer")


def decentralize(
    optimizer: Optimizer,
    model: Module,
    *,
    topology: str | Topology | Schedule = "ring",
    algorithm: str | Algorithm = "choco",
    compressor: str | Compressor | None = None,
    gamma: float | Literal["auto"] | None = None,
    every: int = 1,
    overlap: int = 0,
    buffers: BufferPolicy = "average",
    seed: int = 0,
    deadline: float = 300.0,
    group: dist.ProcessGroup | None = None,
    transport: Transport | None = None,
    **options: float | str | bool | None,
) -> DecentralizedOptimizer:
    """Wrap any torch optimizer so that `step()` trains with the neighbours.

    `options` go to an algorithm given by its name: order="combine-then-adapt", sub_steps=2, ...

    Joins the given or the default process group, or torchrun's environment; without either it
    trains alone. Parameters and buffers become those of worker 0. `every=H` exchanges once in
    H steps. For algorithms in the order combine-then-adapt, `overlap=1` (or True) lets messages fly
    while the next gradient is computed, with the same result; `overlap=k` while the last k of the H
    gradients are, so that a round tells of the model from k steps before its end.
    `buffers` says what `consensus()` does with BatchNorm statistics: "average" or "local". Workers
    that differ in a setting all stop with a MismatchError; a peer silent for `deadline` seconds
    raises a PeerTimeout.
    """
    if not isinstance(optimizer, Optimizer) or not isinstance(model, Module):
        raise ValueError("decentralize(optimizer, model): a torch optimizer first, then the model it trains")
    if isinstance(optimizer, DecentralizedOptimizer):
        raise ValueError("this optimizer is decentralized already")
    chosen = algorithms.make(algorithm, compressor, gamma=gamma, **options)
    chosen.require_period(every, overlap)
    trained, frozen = _trained_and_frozen(optimizer, model)
    kept = Buffers(model, buffers)
    link = transport or connect(group, deadline)
    graph = make_topology(topology, link.size, seed)
    chosen.require(graph)
    flats = flatten(trained)
    others = {name: p for name, p in model.named_parameters() if name not in trained} | saved_buffers(model)
    untrained = {f"state.{name}": f"{tuple(t.shape)} {t.dtype}" for name, t in others.items()}
    common = settings(chosen, graph, [flat.layout for flat in flats], every, seed)
    common |= {"overlap": str(int(overlap)), "buffers": buffers}
    own_deadline, link.deadline = link.deadline, max(link.deadline, START_UP.total_seconds())
    agree(link, common | untrained | _describe_optimizer(optimizer))
    _broadcast_start(flats, others, link)
    tuned = with_common_gamma(chosen, graph, [p.shape for p in trained.values()], link, seed)
    link.deadline = own_deadline
    _warn_of_threads(link)
    return DecentralizedOptimizer(
        optimizer,
        flats,
        frozen,
        kept,
        tuned,
        graph,
        link,
        every=every,
        seed=seed,
        overlap=overlap,
        settings=common,
    )


def _trained_and_frozen(
    optimizer: Optimizer, model: Module
) -> tuple[dict[str, Parameter], dict[str, Parameter]]:
    """Return the model's parameters that the optimizer trains, each once, and those that are frozen."""
    in_optimizer = {p for g in optimizer.param_groups for p in g["params"]}
    named = dict(model.named_parameters())
    strangers = len(in_optimizer - set(named.values()))
    if strangers:
        raise ValueError(
            f"the optimizer trains {strangers} parameters that are not in the model; pass their model"
        )
    trained = {name: p for name, p in named.items() if p in in_optimizer and p.requires_grad}
    if not trained:
        raise ValueError("the optimizer trains no parameter of this model")
    forgotten = [name for name, p in named.items() if p.requires_grad and p not in in_optimizer]
    if forgotten:
        log.info("not trained, hence not exchanged: %s", ", ".join(forgotten))
    return trained, {name: p for name, p in named.items() if not p.requires_grad}


@torch.no_grad()
def _broadcast_start(flats: list[FlatParameters], others: dict[str, Tensor], link: Transport) -> None:
    """Give every worker the values of worker 0: what is trained, what is frozen, and buffers.

    Where all have them already, as from one seed or one file, only a digest is sent.
    """
    groups = by_kind(others)
    vectors = joined(groups)
    everything = [*(flat.x for flat in flats), *vectors]
    if not _differ(everything, link):
        return
    for v in everything:
        run(broadcast(link.rank, link.size, v), link, "broadcast of the start values")
    spread(groups, vectors)


def _differ(vectors: list[Tensor], link: Transport) -> bool:
    """Return whether anybody has other bits than worker 0, the same answer everywhere."""
    digest = hashlib.sha256()
    for v in vectors:
        digest.update(as_bytes(v).numpy().data)
    own = torch.tensor(list(digest.digest()), dtype=torch.uint8)
    reference = own.clone()
    run(broadcast(link.rank, link.size, reference), link, "comparison of the start values")
    complaint = (own != reference).any().to(torch.uint8).reshape(1)
    run(one_complaint(link.rank, link.size, complaint), link, "comparison of the start values")
    return bool(complaint)


def _describe_optimizer(optimizer: Optimizer) -> dict[str, str]:
    """Return the optimizer's kind, settings and state as text, since a difference would grow in silence."""
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    state = optimizer.state_dict()["state"]
    return {
        "optimizer": type(optimizer).__name__,
        "optimizer.groups": repr(groups),
        "optimizer.state": _digest(state) if state else "none",
    }


def _digest(state: dict[int, dict[str, Any]]) -> str:
    """Return a short hash of an optimizer's state: of the tensors' bytes, which may be many."""
    digest = hashlib.sha256()
    for index, values in sorted(state.items()):
        for name, value in values.items():
            digest.update(f"{index} {name} ".encode())
            digest.update(as_bytes(value).numpy().data if isinstance(value, Tensor) else repr(value).encode())
    return digest.hexdigest()[:16]


def _warn_of_threads(link: Transport) -> None:
    """Several threads in each of several workers on one machine fight for its cores."""
    workers, threads = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.get_num_threads()
    if link.rank == 0 and workers > 1 < threads and workers * threads > (os.cpu_count() or 1):
        log.warning(
            "%d workers of %d torch threads share this machine; set OMP_NUM_THREADS=1", workers, threads
        )
