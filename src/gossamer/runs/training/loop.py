"""The training loop: the same for one worker among many and for all of them simulated."""

from __future__ import annotations

import logging
import math
import shlex
from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch

from gossamer.errors import Diverged, GossamerError
from gossamer.rounds.collectives import broadcast
from gossamer.runs.config import Config
from gossamer.runs.files import MetricsFile, free_space
from gossamer.runs.folder import RunFolder
from gossamer.runs.training.checkpoint import DamagedCheckpoint
from gossamer.runs.training.evaluate import Evaluation, evaluate
from gossamer.runs.training.local_workers import LocalWorkers
from gossamer.runs.training.timetable import Timetable

log = logging.getLogger("gossamer")

CANDIDATES = 64  # checkpoints that worker 0 offers to resume from
Status = Literal["finished", "interrupted", "diverged", "failed"]


class Logger(Protocol):
    """Follows a run: a progress bar, TensorBoard, ..."""

    def start(self, step: int, timetable: Timetable) -> None:
        """Begin at this step."""

    def line(self, line: dict[str, Any]) -> None:
        """Log a line of the first worker's metrics."""

    def end(self, status: str) -> None:
        """Finish; `status` says how the run has ended."""


class Loop:
    """The workers of this process, their timetable, and the folder they write to; `run` trains."""

    def __init__(self, here: LocalWorkers, config: Config, timetable: Timetable, folder: RunFolder) -> None:
        self.here, self.config, self.timetable, self.folder = here, config, timetable, folder
        self.step = here.first_step
        self.evaluation: Evaluation | None = None
        self.error: str | None = None
        self.train_losses = [math.nan] * len(here.learners)  # at the last line
        self._files: list[MetricsFile] = []
        self._losses: list[list[float]] = []

    def run(self, loggers: list[Logger], stop_at: Callable[[int], int | None]) -> Status:
        """Train until the end, or until the step that `stop_at(step)` names; return how it ended."""
        ranks = [learner.rank for learner in self.here.learners]
        self._files = [MetricsFile(self.folder.path, rank, self.step) for rank in ranks]
        for logger in loggers:
            logger.start(self.step, self.timetable)
        status: Status = "failed"
        try:
            status = self._train(loggers, stop_at)
        except Diverged as error:
            status, self.error = "diverged", str(error)
            lines = [{"kind": "diverged", **self._when(i), "error": str(error)} for i in range(len(ranks))]
            self._log(loggers, lines)
            if len(ranks) < self.config.workers:  # the others must not wait for this worker
                raise
        finally:
            for file in self._files:
                file.close()
            for logger in loggers:
                logger.end(status)
        return status

    def _train(self, loggers: list[Logger], stop_at: Callable[[int], int | None]) -> Status:
        while self.step < self.timetable.steps:
            lr = self.timetable.lr(self.step)
            self._losses.append(self.here.step(self.step, lr))
            self.step += 1
            if self.timetable.logs(self.step):
                self._log(loggers, self._train_lines(lr))
            if self.timetable.evaluates(self.step):
                self.evaluation = evaluate(self.here)
                self._log(loggers, self._evaluation_lines(self.evaluation))
            wanted = stop_at(self.step)
            last = wanted is not None and self.step >= wanted
            if last or self.timetable.saves(self.step):
                self.save()
            if last and self.step < self.timetable.steps:
                return "interrupted"
        return "finished"

    def save(self) -> None:
        """Write a checkpoint on every worker; if one cannot, all stop with its error."""
        complaints = [self._save_one(index) for index in range(len(self.here.learners))]
        complaint = self.here.together.first_error(complaints)
        if complaint and self.here.independent:
            log.warning("%s; it trains on, and tries again at the next checkpoint", complaint)
            return
        if complaint:
            raise GossamerError(f"{complaint}; {self._remedy}")
        for learner in self.here.learners:  # only now that all workers have saved
            self.folder.checkpoints.prune(learner.rank, self.config.keep)

    def resume(self, at_step: int | None = None) -> None:
        """Resume from the newest step that all workers hold, or the given one; from 0 if there is none."""
        common = self._common_steps()
        if at_step is not None:
            if at_step not in common:
                raise ValueError(f"not all workers hold a checkpoint of step {at_step}; they hold {common}")
            common = [step for step in common if step <= at_step]
        if not common:
            self._forget_later()
            return
        complaints, states = [], []
        for learner in self.here.learners:
            try:
                states.append(self.folder.checkpoints.load(common[0], learner.rank))
                complaints.append("")
            except DamagedCheckpoint as error:
                complaints.append(str(error))
        complaint = self.here.together.first_error(complaints)
        if complaint:
            raise DamagedCheckpoint(self._offer(complaint, common[1:]))
        for index, state in enumerate(states):
            self._load_one(index, state)
        self.step = common[0]
        self._forget_later()

    def _forget_later(self) -> None:
        """Remove checkpoints that not all workers have, so that they are never taken for the newest."""
        for learner in self.here.learners:
            self.folder.checkpoints.forget_after(self.step, learner.rank)

    @property
    def _remedy(self) -> str:
        return f"earlier checkpoints are untouched: make room and resume with {self._resume_command}"

    @property
    def _resume_command(self) -> str:
        command = "simulate" if self.config.simulated else "train"
        return f"gossamer {command} --resume {shlex.quote(str(self.folder.path))}"

    def _offer(self, complaint: str, older: list[int]) -> str:
        if not older:
            return f"{complaint}; there is no older one: start again with another --out"
        more = f"use that of step {older[0]} instead"
        return f"{complaint}; {more}: {self._resume_command} --at-step {older[0]}"

    def _save_one(self, index: int) -> str:
        """Write a worker's checkpoint; return an error text, or ""."""
        learner = self.here.learners[index]
        state = {
            "model": dict(learner.model.state_dict()),
            "unsaved buffers": learner.unsaved_buffers,
            "trained": [name for name, _ in learner.model.named_parameters(remove_duplicate=False)],
            "optimizer": self.here.state_of(index),
            "first loss": learner.first_loss,
            "train loss": self.train_losses[index],
            "time": self.here.time_state(),
            "sent": dict(self.here.sent[index]),
            "sent evaluating": self.here.sent_evaluating[index],
            "losses": [losses[index] for losses in self._losses],
        }
        try:
            self.folder.checkpoints.save(self.step, learner.rank, state)
        except OSError as error:
            where = self.folder.path
            return f"worker {learner.rank} could not save step {self.step}: {error} ({free_space(where)})"
        return ""

    def _load_one(self, index: int, state: dict[str, Any]) -> None:
        learner = self.here.learners[index]
        learner.model.load_state_dict(state["model"])
        self.here.load_state_of(index, state["optimizer"])
        for name, buffer in learner.unsaved_buffers.items():
            buffer.copy_(state["unsaved buffers"][name])
        learner.first_loss, self.train_losses[index] = state["first loss"], state["train loss"]
        self.here.load_time_state(state["time"])
        self.here.sent[index].clear()
        self.here.sent[index].update(state["sent"])
        self.here.sent_evaluating[index] = state.get("sent evaluating", 0)  # older ones have none
        losses = [[loss] for loss in state["losses"]]
        before = self._losses or [[] for _ in losses]
        self._losses = [a + b for a, b in zip(before, losses, strict=True)]

    def _common_steps(self) -> list[int]:
        """Return the steps that all workers hold, newest first: all say which of worker 0's they hold."""
        offers, held = [], []
        for learner in self.here.learners:
            own = self.folder.checkpoints.steps(learner.rank)
            held.append(set(own))
            offer = torch.full((CANDIDATES,), -1, dtype=torch.int64)
            offer[: len(own)] = torch.tensor(own[:CANDIDATES], dtype=torch.int64)
            offers.append(offer)
        pairs = zip(self.here.learners, offers, strict=True)
        rounds = [broadcast(s.rank, self.here.together.members, offer) for s, offer in pairs]
        self.here.together.ask(rounds, "steps to resume from")
        steps = [int(step) for step in offers[0]]
        table = self.here.together.gather([[float(step in mine) for step in steps] for mine in held])
        return [step for i, step in enumerate(steps) if step >= 0 and all(row[i] for row in table)]

    def _log(self, loggers: list[Logger], lines: list[dict[str, Any]]) -> None:
        try:
            for file, line in zip(self._files, lines, strict=True):
                file.write(line)
        except OSError as error:
            if not self.here.independent:
                raise GossamerError(f"the metrics could not be written: {error}; {self._remedy}") from error
            log.warning("the metrics could not be written: %s; it trains on", error)
        for logger in loggers:
            logger.line(lines[0])

    def _train_lines(self, lr: float) -> list[dict[str, Any]]:
        self.train_losses = [sum(losses) / len(losses) for losses in zip(*self._losses, strict=True)]
        self._losses = []
        return [
            {"kind": "train", **self._when(index), "loss": loss, "lr": lr}
            for index, loss in enumerate(self.train_losses)
        ]

    def _evaluation_lines(self, found: Evaluation) -> list[dict[str, Any]]:
        lines = [
            {"kind": "evaluation", **self._when(index), "local": local}
            for index, local in enumerate(found.local)
        ]
        if found.average is not None:
            lines[0] |= {
                "average": found.average,
                "local_mean": found.local_mean,
                "consensus_distance": found.consensus_distance,
            }
        return lines

    def _when(self, index: int) -> dict[str, Any]:
        return {
            "step": self.step,
            "epoch": self.timetable.epoch(self.step),
            "seconds": self.here.seconds,
            "bytes_sent": self.here.sent[index].total(),
        }
