"""What is measured: the tasks, the networks and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.record import ROOT
from gossamer.runs import Config

N = 8
CORES = 2  # of the machine on which all of this was measured
REPETITIONS = 3
BUDGET = 2.0  # seconds of one measurement
LOOPBACK = "loopback"  # no lab: this machine as it is
FREE = "no limit"
NETWORKS = {
    FREE: ("unlimited", "0ms"),
    "1 Gbit/s, 1 ms": ("1gbit", "1ms"),
    "100 Mbit/s, 5 ms": ("100mbit", "5ms"),
    "10 Mbit/s, 20 ms": ("10mbit", "20ms"),
    "5 Mbit/s, 50 ms": ("5mbit", "50ms"),
}
SLOW = [name for name in NETWORKS if name != FREE]

CORNERS = {
    "5 Mbit/s, 1 ms": ("5mbit", "1ms"),
    "5 Mbit/s, 50 ms": ("5mbit", "50ms"),
    "1 Gbit/s, 1 ms": ("1gbit", "1ms"),
    "1 Gbit/s, 50 ms": ("1gbit", "50ms"),
}
BANDWIDTHS, LATENCIES = ("5mbit", "10mbit", "100mbit", "1gbit"), ("1ms", "5ms", "20ms", "50ms")
HEAT = (
    "all-reduce",
    "all-reduce, 8 bits",
    "D-PSGD",
    "DCD, 8 bits",
    "CHOCO, sign",
    "CHOCO, top 1 %",
    "PowerGossip, rank 1",
)

PAUSE = 0.05  # seconds
CLOCKED = ("all-reduce", "D-PSGD", "CHOCO, sign", "CHOCO, top 1 %", "PowerGossip, rank 1")
CLOCKED_ON = SLOW[:3]

WHOLE = (
    "DDP",
    "DDP, fp16 hook",
    "averaging every 4 steps",
    "CHOCO, sign, every 4 steps",
    "CHOCO, sign, overlap 1, every 2 steps",
    "CHOCO, sign, overlap 2, every 2 steps",
)
WHOLE_ON = "10 Mbit/s, 20 ms"

# How good the average model is when it has learned for a while as a DDP script would: docs/from_ddp.md.
EARLY = 100  # steps
EARLY_AT = (("CNN", 0.03), ("CNN", 0.1), ("wide MLP", 0.03))  # learning rates
EARLY_OF = ("DDP", "D-PSGD", "CHOCO, sign", "PowerGossip, rank 2", "CHOCO, top 1 %")


@dataclass(frozen=True)
class Goal:
    """The metric to reach."""

    target: float
    better: str  # higher or lower

    def reached(self, metric: float) -> bool:
        """Return whether this is good enough."""
        return metric >= self.target if self.better == "higher" else metric <= self.target

    def steps(self, curve: list[dict[str, float]]) -> int | None:
        """Return the first step at which the average model was good enough."""
        reached = [at["step"] for at in curve if self.reached(at["metric"])]
        return int(reached[0]) if reached else None


@dataclass(frozen=True)
class Problem:
    """A task with its settings and what is to be reached."""

    config: Config
    grid: tuple[float, ...]  # learning rates
    goal: Goal
    snapshots: int  # steps between two looks at the average model


FASHION = Config(task="fashion", workers=N, batch_size=32, steps=250, momentum=0.9)
WIDE = replace(FASHION, task=str(ROOT / "benchmarks/peers/wide_mlp.py"), steps=160)
TEXT = Config(task="text", model="gpt-tiny", workers=N, batch_size=8, steps=120, optimizer="adamw")
PROBLEMS = {
    "CNN": Problem(replace(FASHION, model="cnn"), (0.03, 0.1, 0.3), Goal(0.80, "higher"), 10),
    "wide MLP": Problem(WIDE, (0.03, 0.1, 0.3), Goal(0.80, "higher"), 10),
    "GPT": Problem(TEXT, (0.001, 0.003, 0.01), Goal(15.0, "lower"), 10),
}
