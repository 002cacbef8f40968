"""`gossamer train` and `gossamer simulate` as Python functions."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gossamer.network import seconds
from gossamer.network.clock import Clock
from gossamer.runs.config import Config
from gossamer.runs.folder import RunFolder
from gossamer.runs.loggers.loggers import make_loggers, require_loggers
from gossamer.runs.processes.launch import launch
from gossamer.runs.processes.member import train_member
from gossamer.runs.processes.meshes import Place
from gossamer.runs.processes.worker import make_sampler, train_worker
from gossamer.runs.summary import Summary
from gossamer.runs.system import require_unix
from gossamer.runs.training.learner import own_randomness
from gossamer.runs.training.local_workers import AllWorkers
from gossamer.runs.training.loop import Loop
from gossamer.runs.training.stop import Stop
from gossamer.runs.training.summarize import description, mark_error, mark_failed, results
from gossamer.runs.training.timetable import Timetable


def train(
    config: Config,
    out: str | Path,
    *,
    command: str | None = None,
    loggers: tuple[str, ...] = (),
    place: Place | None = None,
) -> Summary:
    """Train with real worker processes; return the summary.

    Under torchrun, or with a place in a mesh, this process is one of the workers; otherwise it starts them
    all, here.

    Args:
        config: The run's settings.
        out: The run's folder, which must not exist or be empty.
        command: How to repeat the run, for its report; this process's command line if left out.
        loggers: Where metrics go as well: "tensorboard", "wandb" or "mlflow".
        place: This worker's place in a mesh over many machines.

    Returns:
        What is in summary.json; under torchrun, only worker 0 knows `summary.average`.

    Raises:
        ValueError: A modelled network, which only `simulate` has, or a folder that holds another run.

    Example:
        >>> import tempfile
        >>> from gossamer.runs import Config, train
        >>> config = Config(task="digits", workers=2, algorithm="choco", compressor="sign", steps=4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     summary = train(config, f"{folder}/mine")
        >>> summary.status, summary.steps, summary.workers
        ('finished', 4, 2)
    """
    require_unix()
    _require_real_network(config)
    require_loggers(loggers)
    _require_workers(config)
    folder, command = RunFolder(Path(out)), command or shlex.join(sys.argv)
    if place is not None:
        return train_member(folder, config, place, loggers=loggers, command=command)
    if not under_torchrun() or os.environ["RANK"] == "0":
        folder.create(config, command)
    return _train(folder, config, loggers, command, resume=False, at_step=None)


def simulate(
    config: Config, out: str | Path, *, command: str | None = None, loggers: tuple[str, ...] = ()
) -> Summary:
    """Train with all workers in this process, on a modelled network if one is given; return the summary.

    Args:
        config: The run's settings.
        out: The run's folder, which must not exist or be empty.
        command: How to repeat the run, for its report; this process's command line if left out.
        loggers: Where metrics go as well: "tensorboard", "wandb" or "mlflow".

    Returns:
        What is in summary.json.

    Raises:
        ValueError: A folder that holds another run.

    Example:
        >>> import tempfile
        >>> from gossamer.runs import Config, simulate
        >>> config = Config(task="digits", workers=4, compressor="sign", steps=4, bandwidth="10mbit")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     summary = simulate(config, f"{folder}/mine")
        >>> summary.status, summary.steps, summary.clock
        ('finished', 4, 'modelled')
    """
    require_unix()
    require_loggers(loggers)
    folder = RunFolder(Path(out))
    config = replace(config, simulated=True)
    folder.create(config, command or shlex.join(sys.argv))
    return _simulate(folder, config, loggers, resume=False, at_step=None)


def resume(
    out: str | Path,
    *,
    at_step: int | None = None,
    loggers: tuple[str, ...] = (),
    settings: Mapping[str, Any] | None = None,
    simulated: bool | None = None,
    place: Place | None = None,
) -> Summary:
    """Resume a run that was stopped, or killed, where it was; return the summary.

    Args:
        out: The run's folder.
        at_step: Resume from this checkpoint; from the newest whole one if left out.
        loggers: Where metrics go as well: "tensorboard", "wandb" or "mlflow".
        settings: Settings that the run must have; only `keep` and `deadline` may differ from its own.
        simulated: Resume in this process, or with worker processes if False; as before if left out. A
            run may change from one to the other, with the same bits.
        place: This worker's place in a mesh over many machines.

    Returns:
        What is in summary.json.

    Raises:
        ValueError: No run in this folder, other settings, a run that has ended and an `at_step`, or
            worker processes for a run on a modelled network.

    Example:
        A run that has finished is not done again:

        >>> import tempfile
        >>> from gossamer.runs import Config, resume, simulate
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = simulate(Config(workers=2, compressor="sign", steps=2), f"{folder}/mine")
        ...     again = resume(f"{folder}/mine")
        >>> again.steps, again.bytes_sent == done.bytes_sent
        (2, True)
    """
    require_unix()
    folder = RunFolder(Path(out))
    config = folder.config()
    config.require_unchanged(settings or {})
    config = replace(config, **(settings or {}))
    if simulated is not None:
        config = replace(config, simulated=simulated)
    require_loggers(loggers)
    if not config.simulated:
        _require_real_network(config)
        _require_workers(config)
    if folder.status() in ("finished", "diverged"):  # it would end the same way
        if at_step is not None:
            raise ValueError(f"the run in {folder.path} has {folder.status()}: there is nothing to resume")
        return folder.summary()
    if not under_torchrun() or os.environ["RANK"] == "0":
        folder.write_config(config)
    if place is not None:
        return train_member(folder, config, place, resume=True, at_step=at_step, loggers=loggers)
    if config.simulated:
        return _simulate(folder, config, loggers, resume=True, at_step=at_step)
    return _train(folder, config, loggers, "", resume=True, at_step=at_step)


def _require_real_network(config: Config) -> None:
    if config.make_network() is not None:
        raise ValueError(
            "this run has a bandwidth, latency or network, which can only be modelled: use gossamer simulate"
        )


def _require_workers(config: Config) -> None:
    size = int(os.environ["WORLD_SIZE"]) if under_torchrun() else config.workers
    if size != config.workers:
        raise ValueError(
            f"torchrun has started {size} workers, the run has {config.workers}: start as many, or leave "
            f"--workers out"
        )


def under_torchrun() -> bool:
    """Return whether this process is one of several that a launcher has started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def _train(
    folder: RunFolder,
    config: Config,
    loggers: tuple[str, ...],
    command: str,
    *,
    resume: bool,
    at_step: int | None,
) -> Summary:
    if not under_torchrun():
        with folder.held():
            launch(folder, resume=resume, at_step=at_step, loggers=loggers)
        return folder.summary()
    rank = int(os.environ["RANK"])
    if rank == 0:
        Stop.clear(folder.path)
    try:
        return train_worker(
            folder, config, rank, resume=resume, at_step=at_step, loggers=loggers, command=command
        )
    except Exception as error:
        if rank == 0:
            mark_error(folder, error)
        raise


def _simulate(
    folder: RunFolder, config: Config, loggers: tuple[str, ...], *, resume: bool, at_step: int | None
) -> Summary:
    with folder.held():
        try:
            with own_randomness():
                return _simulated(folder, config, loggers, resume=resume, at_step=at_step)
        except BaseException as error:
            mark_failed(folder, "failed", f"{type(error).__name__}: {error}")
            raise


def _simulated(
    folder: RunFolder, config: Config, loggers: tuple[str, ...], *, resume: bool, at_step: int | None
) -> Summary:
    links = config.make_network()
    compute = None if config.compute is None else seconds(config.compute)
    task = config.make_task()
    sampler = make_sampler(config, task)
    here = AllWorkers(config, task, sampler, Clock(links) if links else None, compute)
    loop = Loop(here, config, Timetable.of(config, sampler), folder)
    if resume:
        loop.resume(at_step)
    known = description(loop, task, sampler, "modelled", str(links) if links else None)
    folder.write_summary(known)
    Stop.clear(folder.path)
    stop = Stop(folder.path, margin=0)
    with stop.listening():
        status = loop.run(make_loggers(loggers, folder.path, config, task), stop.at)
    Stop.clear(folder.path)
    known = results(known, loop, status)
    folder.write_summary(known)
    return known
