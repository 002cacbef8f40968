"""One worker of a run over a network."""

from __future__ import annotations

import os

from gossamer.lab.namespaces import LAB
from gossamer.runs.config import Config
from gossamer.runs.folder import RunFolder
from gossamer.runs.loggers.loggers import make_loggers
from gossamer.runs.summary import Summary
from gossamer.runs.training.local_workers import OneWorker
from gossamer.runs.training.loop import Logger, Loop
from gossamer.runs.training.stop import Stop, margin
from gossamer.runs.training.summarize import description, results
from gossamer.runs.training.timetable import Timetable
from gossamer.tasks import Sampler, Task
from gossamer.transport import Transport


def train_worker(
    folder: RunFolder,
    config: Config,
    rank: int,
    *,
    resume: bool = False,
    at_step: int | None = None,
    loggers: tuple[str, ...] = (),
    command: str = "",
    transport: Transport | None = None,
    stop: Stop | None = None,
) -> Summary:
    """Train as one of the run's workers; return the summary.

    Worker 0 writes it and tells loggers, and so does one with a command of its own, which brings its `stop`.
    """
    speaks = rank == 0 or stop is not None
    stop = stop or Stop(folder.path, margin(config))
    with stop.listening():
        task = config.make_task()
        sampler = make_sampler(config, task)
        alone = resume and config.transport == "mesh" and _needs_nobody(folder, config, rank, at_step)
        here = OneWorker(config, task, sampler, rank, transport, broadcast=not alone)
        stop.begun = True
        folder.fill(config, command)
        loop = Loop(here, config, Timetable.of(config, sampler), folder)
        if resume:
            loop.resume(at_step)
        known = description(loop, task, sampler, "measured", os.environ.get(LAB))
        made: list[Logger] = []
        if speaks:
            folder.write_summary(known)
            made = make_loggers(loggers, folder.path, config, task)
        status = loop.run(made, stop.at)
        known = results(known, loop, status)
        if speaks:
            folder.write_summary(known)
            Stop.clear(folder.path)
        here.optimizer.close()
    return known


def _needs_nobody(folder: RunFolder, config: Config, rank: int, at_step: int | None) -> bool:
    """Return whether a worker of a mesh that resumes can do so whoever else is there.

    From its own checkpoint it can; without one it begins with the others, or joins them, as if it were new.
    Where a round is with all workers, they look together for a step to resume from.
    """
    has_own = at_step is not None or bool(folder.checkpoints.steps(rank))
    return has_own or config.make_algorithm().reaches_all


def make_sampler(config: Config, task: Task) -> Sampler:
    """Return who trains on what."""
    return Sampler(
        config.partition, len(task.train), config.workers, config.batch_size, config.seed, task.labels
    )
