"""Three real workers that stay for many rows of a table: each row is done by all of them together.

A row that kills a worker or breaks off an exchange needs processes of its own: tests/support/processes.py.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.support.processes import PRELOADED, START_UP
from tests.support.waiting import LIMIT

N = 3


@dataclass(frozen=True)
class Row:
    """What a worker does, and what must come of it: a result that is right, or an error with the remedy."""

    do: Callable[[int], Any]  # by rank; asserts that the mistake was really made
    refused: str = ""  # what every worker's error says
    error: type[Exception] = ValueError
    fine: Callable[[list[Any]], bool] | None = None  # of all workers' results; by default each is True
    warned: str = ""  # what at least one worker's log says


@dataclass(frozen=True)
class Outcome:
    result: Any = None
    error: type[Exception] | None = None
    text: str = ""
    where: str = ""
    log: list[str] = field(default_factory=list)


class Workers:
    """The workers of one process group, at the other ends of pipes."""

    def __init__(self) -> None:
        self.sound = True  # no row has gone wrong, which may have left messages behind
        self._folder = TemporaryDirectory()
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        pipes = [context.Pipe() for _ in range(N)]
        self._pipes = [mine for mine, _ in pipes]
        self._processes = [
            context.Process(target=_serve, args=(rank, self._folder.name, theirs))
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self._processes:
            process.start()

    def check(self, module: str, name: str, row: Row) -> None:
        """Let all workers do a row of a module's table, and compare what comes with what it promises."""
        self.sound = False
        for pipe in self._pipes:
            pipe.send((module, name))
        _compare(row, [self._answer(rank) for rank in range(N)])
        self.sound = True

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()

    def _answer(self, rank: int) -> Outcome:
        assert self._pipes[rank].poll(LIMIT), f"worker {rank} has not come back"
        try:
            answer: Outcome = self._pipes[rank].recv()
        except EOFError:
            self._processes[rank].join()
            raise AssertionError(f"worker {rank} died: {self._processes[rank].exitcode}") from None
        return answer


def _compare(row: Row, outcomes: list[Outcome]) -> None:
    for rank, outcome in enumerate(outcomes):
        if row.refused:
            assert outcome.error is not None, f"worker {rank} was not stopped"
            assert issubclass(outcome.error, row.error), outcome.where
            assert re.search(row.refused, outcome.text), outcome.text
        else:
            assert outcome.error is None, f"worker {rank}: {outcome.where}"
    log = [line for outcome in outcomes for line in outcome.log]
    if row.warned:
        assert any(re.search(row.warned, line) for line in log), log
    else:
        assert not log, log
    if not row.refused:
        results = [outcome.result for outcome in outcomes]
        assert row.fine(results) if row.fine else results == [True] * N, results


def _serve(rank: int, folder: str, pipe: Connection) -> None:
    """Be a worker: do rows until nobody asks for more."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=N, timeout=START_UP
    )
    heard = Heard()
    logging.getLogger("gossamer").addHandler(heard)
    try:
        while True:
            module, name = pipe.recv()
            pipe.send(_outcome(module, name, rank, heard))
    except EOFError:  # the tests are over
        os._exit(0)


def _outcome(module: str, name: str, rank: int, heard: Heard) -> Outcome:
    heard.lines = []
    torch.manual_seed(0)
    try:
        row = importlib.import_module(module).ROWS[name]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = row.do(rank)
    except Exception as error:  # noqa: BLE001 - handed to the test
        return Outcome(None, type(error), str(error), traceback.format_exc(), heard.lines)
    return Outcome(result, log=heard.lines)


class Heard(logging.Handler):
    """Keeps what a worker is warned of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
