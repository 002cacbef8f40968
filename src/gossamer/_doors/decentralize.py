"""From a torch optimizer and a model to a decentralized optimizer."""

from __future__ import annotations

import inspect
import logging
import os
from typing import Literal

import networkx as nx
import torch
import torch.distributed as dist
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from gossamer import algorithms
from gossamer._doors.optimizer import DecentralizedOptimizer
from gossamer._node.agreement import common_start, describe_optimizer
from gossamer._node.buckets import make_buckets
from gossamer._node.buffers import BufferPolicy, Buffers, saved_buffers
from gossamer._node.gamma import with_common_gamma
from gossamer._node.guards import ModelGuard, holds_data_parallel, require_initialized
from gossamer._node.settings import settings
from gossamer._node.sharded import require_whole
from gossamer._suggest import refuse_misspelt
from gossamer.algorithms import Algorithm
from gossamer.compress import Compressor
from gossamer.topology import Schedule, Topology, remark
from gossamer.topology import make as make_topology
from gossamer.transport import START_UP, Transport, agree, connect

log = logging.getLogger("gossamer")


def decentralize(
    optimizer: Optimizer,
    model: Module,
    *,
    topology: str | Topology | Schedule | nx.Graph = "ring",
    algorithm: str | Algorithm = "choco",
    compressor: str | Compressor | None = None,
    gamma: float | Literal["auto"] | None = None,
    every: int = 1,
    overlap: int = 0,
    buffers: BufferPolicy = "average",
    broadcast: bool = True,
    seed: int = 0,
    deadline: float = 300.0,
    group: dist.ProcessGroup | None = None,
    transport: Transport | None = None,
    **options: float | str | bool | None,
) -> DecentralizedOptimizer:
    """Wrap any torch optimizer so that `step()` trains with the neighbours.

    `options` go to an algorithm given by its name: order="combine-then-adapt", sub_steps=2, ...

    Joins the given or the default process group, or torchrun's environment; without either it
    trains alone. Parameters and buffers become those of worker 0; with `broadcast=False` every worker
    keeps its own, for a resume over a slow network. `every=H` exchanges once in H steps. For algorithms
    in the order combine-then-adapt, `overlap=1` (or True) lets messages fly while the next gradient is
    computed, with the same result; `overlap=k` while the last k of the H gradients are, so that a round
    tells of the model from k steps before its end.
    `buffers` says what `consensus()` does with BatchNorm statistics: "average" or "local". Workers
    that differ in a setting all stop with a MismatchError; a peer silent for `deadline` seconds
    raises a PeerTimeout.
    """
    if not isinstance(optimizer, Optimizer) or not isinstance(model, Module):
        raise ValueError("decentralize(optimizer, model): a torch optimizer first, then the model it trains")
    if isinstance(optimizer, DecentralizedOptimizer):
        raise ValueError("this optimizer is decentralized already")
    refuse_misspelt(options, inspect.signature(decentralize).parameters)
    chosen = algorithms.make(algorithm, compressor, gamma=gamma, **options)
    chosen.require_period(every, overlap)
    require_whole(dict(model.named_parameters()))
    trained, frozen = _trained_and_frozen(optimizer, model)
    kept = Buffers(model, buffers)
    transport = transport or connect(group, deadline)
    guard = ModelGuard(model, trained, frozen, getattr(transport, "ranks", None))
    guard.check(first=holds_data_parallel(model))  # one around it is looked for at the first step
    graph = make_topology(topology, transport.size, seed)
    chosen.require(graph)
    buckets = make_buckets(trained)
    others = {name: p for name, p in model.named_parameters() if name not in trained} | saved_buffers(model)
    untrained = {f"state.{name}": f"{tuple(t.shape)} {t.dtype}" for name, t in others.items()}
    common = settings(chosen, graph, [bucket.layout for bucket in buckets], every, seed)
    common |= {"overlap": str(int(overlap)), "buffers": buffers}
    own_deadline, transport.deadline = transport.deadline, max(transport.deadline, START_UP.total_seconds())
    agree(transport, common | untrained | describe_optimizer(optimizer) | {"broadcast": str(bool(broadcast))})
    same = common_start(buckets, others, transport, broadcasts=broadcast)
    tuned = with_common_gamma(chosen, graph, [p.shape for p in trained.values()], transport, seed)
    transport.deadline = own_deadline
    _warn(transport, graph)
    return DecentralizedOptimizer(
        optimizer,
        buckets,
        guard,
        kept,
        tuned,
        graph,
        transport,
        common_start=same,
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
    require_initialized(named)
    forgotten = [name for name, p in named.items() if p.requires_grad and p not in in_optimizer]
    if forgotten:
        log.info("not trained, hence not exchanged: %s", ", ".join(forgotten))
    return trained, {name: p for name, p in named.items() if not p.requires_grad}


def _warn(transport: Transport, graph: Topology | Schedule) -> None:
    """Let worker 0 tell of what is hardly meant: threads that fight for cores, a torus that is a ring."""
    if transport.rank != 0:
        return
    workers, threads = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.get_num_threads()
    if workers > 1 < threads and workers * threads > (os.cpu_count() or 1):
        log.warning(
            "%d workers of %d torch threads share this machine; set OMP_NUM_THREADS=1", workers, threads
        )
    told = remark(graph) if isinstance(graph, Topology) else None
    if told:
        log.warning(told)
