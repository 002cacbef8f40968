"""A run's summary, put together from what the workers know."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from gossamer.errors import Diverged
from gossamer.runs.config import Config
from gossamer.runs.files import json_safe
from gossamer.runs.folder import RunFolder
from gossamer.runs.record import read_run
from gossamer.runs.summary import Graph, Link, Partition, Summary
from gossamer.runs.training.evaluate import evaluate
from gossamer.runs.training.local_workers import LocalWorkers
from gossamer.runs.training.loop import Loop
from gossamer.tasks import Sampler, Task
from gossamer.topology import Schedule, Topology

ROUNDS_SHOWN = 64  # of a graph that changes


def description(loop: Loop, task: Task, sampler: Sampler, clock: str, network: str | None) -> Summary:
    """Return what is known before the first step."""
    here, config = loop.here, loop.config
    return Summary(
        task=task.name,
        metric=task.metric,
        better=task.better,
        workers=config.workers,
        parameters=sum(p.numel() for p in here.learners[0].parameters.values()),
        algorithm=config.algorithm,
        compressor=config.compressor,
        topology=config.topology,
        gamma=getattr(here.algorithm, "gamma", None),
        clock=clock,
        network=network,
        partition=Partition(config.partition, _counts(sampler)),
        graph=_graph(config.make_topology()),
    )


def results(known: Summary, loop: Loop, status: str) -> Summary:
    """Return the description with the results. All workers call it together, since it asks them all.

    Only worker 0 evaluates the average model, and only it knows `average`.
    """
    here = loop.here
    if loop.evaluation is None and status != "diverged":
        loop.evaluation = evaluate(here)
    found, links = loop.evaluation, _links(here)
    pairs = zip(loop.train_losses, here.sent_evaluating, strict=True)
    rows = here.together.gather([[loss, float(sent)] for loss, sent in pairs])
    return replace(
        known,
        status=status,
        error=loop.error,
        steps=loop.step,
        epochs=loop.timetable.epoch(loop.step),
        average=json_safe(found.average) if found else None,
        local_mean=json_safe(found.local_mean) if found else None,
        consensus_distance=json_safe(found.consensus_distance) if found else None,
        train_loss=json_safe(sum(loss for loss, _ in rows) / len(rows)),
        bytes_sent=tuple(
            sum(link.sent for link in links if link.sender == rank) for rank in here.together.members
        ),
        bytes_evaluating=tuple(int(sent) for _, sent in rows),
        links=links,
        bytes_full=_full_precision(loop.config, known.parameters or 0, loop.step),
        seconds=here.seconds,
    )


def mark_failed(folder: RunFolder, status: str, error: str) -> None:
    """Write into the summary how a run failed, completed from its metrics."""
    with contextlib.suppress(OSError):  # the disk may be what has failed
        folder.write_summary(replace(read_run(folder.path).summary, status=status, error=error))


def mark_error(folder: RunFolder, error: Exception) -> None:
    """Write into the summary which error has ended the run."""
    status = "diverged" if isinstance(error, Diverged) else "failed"
    mark_failed(folder, status, f"{type(error).__name__}: {error}")


def _links(here: LocalWorkers) -> tuple[Link, ...]:
    """Return the bytes of every pair that has exchanged messages in training."""
    peers = sorted(here.sent[0]) if here.independent else list(range(here.n))
    rows = here.together.gather([[float(sent[j]) for j in peers] for sent in here.sent])
    pairs = zip(here.together.members, rows, strict=True)
    return tuple(
        Link(i, j, int(count)) for i, row in pairs for j, count in zip(peers, row, strict=True) if count
    )


def _full_precision(config: Config, parameters: int, steps: int) -> int:
    """Return what a worker would have sent, on average, as plain float32 to the same workers."""
    graph, rounds = config.make_topology(), steps // config.every
    if config.make_algorithm().reaches_all:  # around a ring, or compressed to all others
        to_each = 2 / graph.n if config.compressor is None else 1
        return round(4 * parameters * rounds * (graph.n - 1) * to_each)
    looked_at = range(min(rounds, ROUNDS_SHOWN) if graph.varying else min(rounds, 1))
    neighbours = [len(graph.receivers(rank, t)) for t in looked_at for rank in range(graph.n)]
    return round(4 * parameters * rounds * sum(neighbours) / max(1, len(neighbours)))


def _counts(sampler: Sampler) -> tuple[tuple[int, ...], ...] | None:
    counts = sampler.counts()
    return None if counts is None else tuple(tuple(row) for row in counts.tolist())


def _graph(topology: Topology | Schedule) -> Graph:
    if isinstance(topology, Topology):
        gap, diameter = topology.spectrum.gap, topology.diameter
        return Graph(tuple(sorted(topology.edges)), topology.directed, topology.varying, gap, diameter)
    edges = {edge for t in range(ROUNDS_SHOWN) for edge in topology.at(t).edges}
    return Graph(tuple(sorted(edges)), topology.directed, topology.varying)
