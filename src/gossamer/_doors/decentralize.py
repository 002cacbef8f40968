"""From a torch optimizer and a model to a decentralized optimizer."""

from __future__ import annotations

import inspect
import logging
import os
from functools import partial
from typing import Literal

import networkx as nx
import torch
import torch.distributed as dist
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from gossamer import algorithms
from gossamer._doors.on_mesh import mesh_rounds
from gossamer._doors.optimizer import DecentralizedOptimizer
from gossamer._doors.starting import Start
from gossamer._mesh.transport import MeshTransport
from gossamer._node.buckets import make_buckets
from gossamer._node.buffers import BufferPolicy, Buffers, saved_buffers
from gossamer._node.guards import ModelGuard, holds_data_parallel, require_initialized
from gossamer._node.knowledge import for_mesh
from gossamer._node.settings import run_settings
from gossamer._node.sharded import require_whole
from gossamer._node.whole import WholeModel
from gossamer._suggest import refuse_misspelt
from gossamer.algorithms import Algorithm
from gossamer.compress import Compressor
from gossamer.topology import Schedule, Topology, remark
from gossamer.topology import make as make_topology
from gossamer.transport import Transport, connect

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

    All workers call it with the same settings. It joins the given or the default process group, or
    torchrun's environment; without either, the one worker trains alone.

    Args:
        optimizer: Any torch optimizer. It must train parameters of `model` only.
        model: The bare model, not in DDP or FSDP; on its device, with weights loaded and layers frozen.
        topology: Who talks to whom: a name such as "ring" or "torus:2x4", a `Topology`, a `Schedule` or a
            networkx graph.
        algorithm: A name such as "choco" or "powergossip:2", or an `Algorithm`.
        compressor: A name such as "topk:0.01" or "sign", or a `Compressor`, for algorithms that take one.
        gamma: The consensus step size. If it is left out, algorithms that need one find it by gossiping
            random vectors before training.
        every: Optimizer steps per round: `every=H` takes H - 1 local steps between two rounds.
        overlap: How many gradients are computed while messages fly, from 0 to `every`. 1 (or True) gives
            the same result as 0; with k > 1 a round mixes the models of k steps before its end. It needs an
            algorithm in the order "combine-then-adapt".
        buffers: What `consensus()` does with BatchNorm statistics: "average" them, or leave them "local".
        broadcast: Give all workers the parameters and buffers of worker 0. With False every worker keeps its
            own, for a resume over a slow network.
        seed: Seeds all random draws of compressors, topologies and the search for `gamma`.
        deadline: Seconds for which a silent peer is waited for.
        group: The processes that gossip with each other; the default process group if left out.
        transport: How messages travel; made from `group` if left out.
        options: More settings of an algorithm given by its name, such as order="combine-then-adapt".

    Returns:
        The optimizer to use in place of the one given.

    Raises:
        ValueError: Settings that do not go together; the text says what to do instead.
        MismatchError: Workers were started with different settings. All of them raise it.
        PeerTimeout: A peer stayed silent for `deadline` seconds.

    Example:
        Under torchrun this trains with the neighbours; started plainly, as here, alone.

        >>> import torch, gossamer
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> optimizer = gossamer.decentralize(optimizer, model, topology="ring", compressor="sign")
        >>> for x, y in [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(3)]:
        ...     optimizer.zero_grad()
        ...     torch.nn.functional.cross_entropy(model(x), y).backward()
        ...     _ = optimizer.step()
        >>> optimizer.rounds
        3
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
    guard.check(first=holds_data_parallel(model))  # DDP around the model is looked for at the first step
    graph = make_topology(topology, transport.size, seed)
    chosen.require(graph)
    if isinstance(transport, MeshTransport):
        chosen = for_mesh(chosen, graph, lags=not transport.wait_for.for_all)
    buckets = make_buckets(trained)
    others = {name: p for name, p in model.named_parameters() if name not in trained} | saved_buffers(model)
    common = run_settings(chosen, graph, [bucket.layout for bucket in buckets], every, overlap, buffers, seed)
    graphs = partial(_graph_of, topology, graph, seed)
    kind = topology if isinstance(topology, str) else common["topology"]
    start = Start(
        optimizer, trained, others, buckets, chosen, graph, graphs, kind, common, bool(broadcast), seed
    )
    started = start.over(transport)
    _warn(transport, graph, chosen, list(trained))
    return DecentralizedOptimizer(
        optimizer,
        buckets,
        guard,
        kept,
        started.algorithm,
        graph,
        transport,
        common_start=started.common,
        every=every,
        seed=seed,
        overlap=overlap,
        settings=common,
        mesh=mesh_rounds(transport, started, WholeModel(trained, others), graphs),
    )


def _graph_of(
    topology: str | Topology | Schedule | nx.Graph, graph: Topology | Schedule, seed: int, n: int
) -> Topology | Schedule:
    """Return the graph of n workers: the given one, or one of the same kind for others that have come."""
    if n == graph.n:
        return graph
    try:
        return make_topology(topology if isinstance(topology, str) else "ring", n, seed)
    except ValueError:  # such as a torus of a prime number
        return make_topology("ring", n, seed)


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


def _warn(transport: Transport, graph: Topology | Schedule, algorithm: Algorithm, names: list[str]) -> None:
    """Let worker 0 warn of likely mistakes: too many threads, a torus that is a ring, a misspelt pattern."""
    if transport.rank != 0:
        return
    workers, threads = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.get_num_threads()
    if workers > 1 < threads and workers * threads > (os.cpu_count() or 1):
        log.warning(
            "%d workers of %d torch threads share this machine; set OMP_NUM_THREADS=1", workers, threads
        )
    compressor = getattr(algorithm, "compressor", None)
    warnings = [remark(graph) if isinstance(graph, Topology) else None]
    warnings += [compressor.remark(names) if isinstance(compressor, Compressor) else None]
    for warning in filter(None, warnings):
        log.warning(warning)
