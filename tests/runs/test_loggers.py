"""Those who watch a run get every number under its name; what is not installed is named."""

from __future__ import annotations

import importlib.util
import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from gossamer.runs import simulate
from gossamer.runs.loggers.loggers import require_loggers
from gossamer.runs.loggers.progress import ProgressLine
from gossamer.runs.record import read_run
from gossamer.runs.training.timetable import Timetable
from tests.support.small import small, task


def test_curve_keepers_get_what_the_metrics_say(tmp_path, monkeypatch):
    logged: list[Any] = []
    run = SimpleNamespace(
        log=lambda values, step: logged.append((step, values)), finish=lambda: logged.append("end")
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **about: run))
    simulate(small(), tmp_path / "run", loggers=("wandb",))
    seen = {(step, name): value for step, values in logged[:-1] for name, value in values.items()}
    line = read_run(tmp_path / "run").evaluations[-1]
    assert logged[-1] == "end"
    assert seen[12, "average/accuracy"] == line["average"]["accuracy"]
    assert seen[12, "evaluation/consensus_distance"] == line["consensus_distance"]
    assert seen[3, "train/lr"] == 0.1


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"gossamer\[mlflow\]"):
        require_loggers(("mlflow",))
    with pytest.raises(ValueError, match="did you mean 'wandb'"):
        require_loggers(("wandbb",))


@pytest.mark.parametrize("terminal", [False, True])
def test_the_progress_line(terminal):
    screen = io.StringIO()
    logger = ProgressLine(small(), task(), Console(file=screen, force_terminal=terminal, width=100))
    logger.start(0, Timetable(small(), 10))
    logger.line(
        {"kind": "train", "step": 3, "epoch": 0.3, "loss": 1.5, "bytes_sent": 2_000_000, "seconds": 1.0}
    )
    found = {"average": {"accuracy": 0.75}, "local_mean": {"accuracy": 0.5}, "consensus_distance": 0.25}
    logger.line(
        {"kind": "evaluation", "step": 6, "epoch": 0.6, "bytes_sent": 4_000_000, "seconds": 2.0} | found
    )
    logger.line({"kind": "diverged", "step": 7, "error": "the loss is [nan]"})
    logger.end("diverged")
    said = screen.getvalue()
    assert (
        "step 6/12  loss 1.500  accuracy 0.75 (local 0.5)  consensus distance 0.25  4.00 MB sent per worker"
        in said
    )
    assert "diverged after step 7: the loss is [nan]" in said
    assert ("\x1b" in said) == terminal
    assert ("s left" in said) != terminal
