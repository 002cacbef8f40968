"""One worker of every kind of method: torch's own ways over gloo, and Gossamer's."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

import gossamer
from gossamer.runs import Config
from gossamer.runs.training.learner import Learner
from gossamer.tasks import Sampler, Task
from gossamer.transport import Transport

PERIOD = 4  # steps between two averages, where they are not taken after every one


class Paused(Learner):
    """A session whose gradients take a pause instead of a processor, as if an accelerator made them."""

    def __init__(self, config: Config, task: Task, sampler: Sampler, rank: int, pause: float) -> None:
        super().__init__(config, task, sampler, rank)
        self._pause = pause

    def backward(self, step: int, lr: float) -> float:
        """Wait, and put something small where gradients belong."""
        time.sleep(self._pause)
        for p in self.parameters.values():
            p.grad = torch.full_like(p, 1e-3)
        return 0.0


class Trainer(ABC):
    """One worker of one method; one of `period` steps is unlike the others, and so are the first ones."""

    period = 1
    warm_up = 2  # connections are made, caches fill
    refill = 0  # steps after which messages are under way again: a barrier waits for those that were

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def step(self, step: int, lr: float) -> None:
        """Train on this worker's batch of a step, with the others."""
        self.learner.backward(step, lr)
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
        self.learner.optimizer.step()
        self.learner.optimizer.zero_grad()


class Ddp(Alone):
    """DistributedDataParallel, with or without a communication hook."""

    warm_up = 3  # PowerSGD's hook compresses nothing in two steps

    def __init__(self, learner: Learner, hook: Callable[[DistributedDataParallel], None] | None) -> None:
        super().__init__(learner)
        # All have the same start already; sending it takes minutes on the slowest networks.
        learner.model = model = DistributedDataParallel(learner.model, init_sync=False)
        if hook is not None:
            hook(model)


class Periodic(Alone):
    """Local steps and an exact average of the models now and then, as post-local SGD after its start."""

    period = PERIOD

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._averager = PeriodicModelAverager(period=PERIOD)

    def update(self) -> None:
        """Do the optimizer's step, and average when it is time."""
        self.learner.optimizer.step()
        self._averager.average_parameters(self.learner.parameters.values())  # of those with a gradient
        self.learner.optimizer.zero_grad()


class Gossamer(Trainer):
    """A decentralized optimizer, over the default process group or another transport."""

    def __init__(
        self, learner: Learner, config: Config, gamma: float | None, transport: Transport | None = None
    ) -> None:
        super().__init__(learner)
        self.period = config.every
        self.refill = config.every if config.overlap else 0
        self.optimizer = gossamer.decentralize(
            learner.optimizer,
            learner.model,
            topology=config.make_topology(),
            algorithm=gossamer.algorithms.make(
                config.algorithm, config.compressor, gamma=gamma, **config.options
            ),
            every=config.every,
            overlap=config.overlap,
            transport=transport,
        )

    def update(self) -> None:
        """Do the optimizer's step and the round."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def close(self) -> None:
        """Receive what is still under way."""
        self.optimizer.close()
