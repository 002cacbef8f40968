"""The rows of the comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from benchmarks.peers.trainers import PERIOD, Alone, Ddp, Gossamer, Periodic, Trainer
from gossamer.runs import Config
from gossamer.runs.training.learner import Learner
from gossamer.transport import Transport

FIRST_LOW_RANK = 2  # the first step that PowerSGD compresses; torch allows no earlier one


@dataclass(frozen=True)
class Method:
    """A row. `settings` are a Config's, for Gossamer's own; `hook` is DDP's."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    hook: Callable[[DistributedDataParallel], None] | None = None
    kind: type[Trainer] = Gossamer

    @property
    def ours(self) -> bool:
        """Return whether it is one of Gossamer's."""
        return self.kind is Gossamer

    def trainer(
        self, learner: Learner, config: Config, gamma: float | None, transport: Transport | None = None
    ) -> Trainer:
        """Return one worker of it; the transport is for Gossamer's own."""
        if self.kind is Gossamer:
            return Gossamer(learner, config, gamma, transport)
        return Ddp(learner, self.hook) if self.kind is Ddp else self.kind(learner)


def _fp16(model: DistributedDataParallel) -> None:
    model.register_comm_hook(dist.group.WORLD, fp16_compress_hook)


def _powersgd(rank: int) -> Callable[[DistributedDataParallel], None]:
    def register(model: DistributedDataParallel) -> None:
        state = PowerSGDState(
            dist.group.WORLD, matrix_approximation_rank=rank, start_powerSGD_iter=FIRST_LOW_RANK
        )
        model.register_comm_hook(state, powerSGD_hook)

    return register


def _ours(algorithm: str, compressor: str | None = None, **settings: Any) -> Method:  # noqa: ANN401
    return Method({"algorithm": algorithm, "compressor": compressor, **settings})


ALONE = "no communication"
METHODS: dict[str, Method] = {
    ALONE: Method(kind=Alone),
    "DDP": Method(kind=Ddp),
    "DDP, fp16 hook": Method(kind=Ddp, hook=_fp16),
    "DDP, PowerSGD hook, rank 1": Method(kind=Ddp, hook=_powersgd(1)),
    "DDP, PowerSGD hook, rank 2": Method(kind=Ddp, hook=_powersgd(2)),
    f"averaging every {PERIOD} steps": Method(kind=Periodic),
    "all-reduce": _ours("allreduce"),
    "all-reduce, 8 bits": _ours("allreduce", "qsgd:8"),
    "D-PSGD": _ours("dpsgd"),
    "D-PSGD, overlap 1": _ours("dpsgd", overlap=1),
    "DCD, 8 bits": _ours("dcd", "qsgd:8"),
    "CHOCO, sign": _ours("choco", "sign"),
    "CHOCO, sign, overlap 1": _ours("choco", "sign", overlap=1),
    "CHOCO, top 1 %": _ours("choco", "topk:0.01"),
    "CHOCO, top 1 %, overlap 1": _ours("choco", "topk:0.01", overlap=1),
    "DeepSqueeze, sign": _ours("deepsqueeze", "sign"),
    "PowerGossip, rank 1": _ours("powergossip:1"),
    "PowerGossip, rank 1, overlap 1": _ours("powergossip:1", overlap=1),
    "PowerGossip, rank 2": _ours("powergossip:2"),
    "PowerGossip, rank 2, overlap 1": _ours("powergossip:2", overlap=1),
    "CHOCO, sign, every 2 steps": _ours("choco", "sign", every=2),
    "CHOCO, sign, every 4 steps": _ours("choco", "sign", every=4),
    "PowerGossip, rank 2, every 2 steps": _ours("powergossip:2", every=2),
    "PowerGossip, rank 2, every 4 steps": _ours("powergossip:2", every=4),
    "CHOCO, sign, overlap 1, every 2 steps": _ours("choco", "sign", overlap=1, every=2),
    "CHOCO, sign, overlap 1, every 4 steps": _ours("choco", "sign", overlap=1, every=4),
    "PowerGossip, rank 2, overlap 1, every 2 steps": _ours("powergossip:2", overlap=1, every=2),
    "PowerGossip, rank 2, overlap 1, every 4 steps": _ours("powergossip:2", overlap=1, every=4),
    "CHOCO, sign, overlap 2, every 2 steps": _ours("choco", "sign", overlap=2, every=2),
    "CHOCO, sign, overlap 2, every 4 steps": _ours("choco", "sign", overlap=2, every=4),
    "PowerGossip, rank 2, overlap 2, every 2 steps": _ours("powergossip:2", overlap=2, every=2),
    "PowerGossip, rank 2, overlap 2, every 4 steps": _ours("powergossip:2", overlap=2, every=4),
}
if find_spec("hivemind"):
    from benchmarks.peers.hivemind_row import Hivemind

    METHODS[f"hivemind, fp16, averaging every {PERIOD} steps"] = Method(kind=Hivemind)
