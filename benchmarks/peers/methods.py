"""The rows of the comparison: torch's own ways over gloo, and Gossamer's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

import gossamer
from gossamer.runs import Config
from gossamer.runs.session import Session

PERIOD = 4  # steps between two averages, where they are not taken after every one
FIRST_LOW_RANK = 2  # the first step that PowerSGD compresses; torch allows no earlier one


class Trainer(ABC):
    """One worker of one method."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def step(self, step: int, lr: float) -> None:
        """Train on this worker's batch of a step, with the others."""
        self.session.backward(step, lr)
        self.update()

    @abstractmethod
    def update(self) -> None:
        """Use the gradients."""

    def close(self) -> None:
        """Leave nothing under way."""
        return


class Alone(Trainer):
    """No communication: what the computation takes on cores that are shared."""

    def update(self) -> None:
        """Do the optimizer's step."""
        self.session.optimizer.step()
        self.session.optimizer.zero_grad()


class Ddp(Alone):
    """DistributedDataParallel, with or without a communication hook."""

    def __init__(self, session: Session, hook: Callable[[DistributedDataParallel], None] | None) -> None:
        super().__init__(session)
        session.model = model = DistributedDataParallel(session.model)
        if hook is not None:
            hook(model)


class Periodic(Alone):
    """Local steps and an exact average of the models now and then, as post-local SGD after its start."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._averager = PeriodicModelAverager(period=PERIOD)

    def update(self) -> None:
        """Do the optimizer's step, and average when it is time."""
        self.session.optimizer.step()
        self._averager.average_parameters(self.session.parameters.values())  # of those with a gradient
        self.session.optimizer.zero_grad()


class Gossamer(Trainer):
    """A decentralized optimizer."""

    def __init__(self, session: Session, config: Config, gamma: float | None) -> None:
        super().__init__(session)
        self.optimizer = gossamer.decentralize(
            session.optimizer,
            session.model,
            topology=config.make_topology(),
            algorithm=gossamer.algorithms.make(
                config.algorithm, config.compressor, gamma=gamma, **config.options
            ),
            every=config.every,
            overlap=config.overlap,
        )

    def update(self) -> None:
        """Do the optimizer's step and the round."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def close(self) -> None:
        """Receive what is still under way."""
        self.optimizer.close()


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

    def trainer(self, session: Session, config: Config, gamma: float | None) -> Trainer:
        """Return one worker of it."""
        if self.kind is Gossamer:
            return Gossamer(session, config, gamma)
        return Ddp(session, self.hook) if self.kind is Ddp else self.kind(session)


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
    "D-PSGD, late": _ours("dpsgd", overlap=True),
    "DCD, 8 bits": _ours("dcd", "qsgd:8"),
    "CHOCO, sign": _ours("choco", "sign"),
    "CHOCO, sign, late": _ours("choco", "sign", overlap=True),
    "CHOCO, top 1 %": _ours("choco", "topk:0.01"),
    "CHOCO, top 1 %, late": _ours("choco", "topk:0.01", overlap=True),
    "DeepSqueeze, sign": _ours("deepsqueeze", "sign"),
    "PowerGossip, rank 1": _ours("powergossip:1"),
    "PowerGossip, rank 1, late": _ours("powergossip:1", overlap=True),
    "PowerGossip, rank 2": _ours("powergossip:2"),
    "PowerGossip, rank 2, late": _ours("powergossip:2", overlap=True),
    f"CHOCO, sign, late, every {PERIOD} steps": _ours("choco", "sign", overlap=True, every=PERIOD),
    f"PowerGossip, rank 1, late, every {PERIOD} steps": _ours("powergossip:1", overlap=True, every=PERIOD),
}
