"""Everything that decides what a run computes, in one frozen object that a file can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gossamer
from gossamer._suggest import unknown_name
from gossamer.network import Network, seconds

if TYPE_CHECKING:  # settings can be read and shown without torch
    from torch.nn import Parameter
    from torch.optim import Optimizer

    from gossamer.algorithms import Algorithm
    from gossamer.tasks import Task
    from gossamer.topology import Schedule, Topology

OPTIMIZERS = ("sgd", "adam", "adamw")
LR_SCALES = ("none", "sqrt", "linear")
SCHEDULES = ("constant", "step", "cosine")
BUFFERS = ("average", "local")
TRANSPORTS = ("torch", "mesh")
CHOICES = {"optimizer": OPTIMIZERS, "lr_scale": LR_SCALES, "schedule": SCHEDULES, "buffers": BUFFERS}
CHOICES |= {"transport": TRANSPORTS}
DEFAULT_COMPRESSOR = "topk:0.01"
DEFAULT_EPOCHS = 10.0
MAY_CHANGE_ON_RESUME = ("deadline", "keep")  # they do not influence the result


@dataclass(frozen=True)
class Config:
    """A run's settings, checked when they are put together. Names are those of the command line.

    Where None is allowed it means: chosen for you.

    Args:
        task: A built-in task's name, or a file with a function `task()`.
        model: Which of the task's models, if it has several.
        data: Where the task's files are.
        workers: How many.
        topology: Who talks to whom, such as "ring" or "torus:2x4".
        algorithm: Such as "choco" or "powergossip:2".
        compressor: Such as "topk:0.01", for algorithms that take one.
        gamma: The consensus step size.
        options: More settings of the algorithm.
        every: Optimizer steps per round.
        overlap: Gradients computed while messages fly.
        buffers: "average" or "local": BatchNorm statistics of the average model.
        epochs: How long; or say `steps`.
        steps: How long; or say `epochs`.
        batch_size: Examples per worker and step.
        lr: The learning rate.
        lr_scale: "none", "sqrt" or "linear": how `lr` grows with the number of workers.
        warmup: Epochs in which the learning rate rises.
        schedule: "constant", "step" or "cosine".
        optimizer: "sgd", "adam" or "adamw".
        momentum: Of SGD.
        nesterov: Of SGD.
        weight_decay: Of every optimizer.
        clip: The largest norm of a gradient.
        partition: How examples are dealt to workers, such as "iid", "dirichlet:0.1" or "sorted".
        seed: Of everything random.
        evaluate_every: Steps between two evaluations.
        checkpoint_every: Steps between two checkpoints.
        log_every: Steps between two lines of metrics.
        keep: How many checkpoints are kept.
        deadline: Seconds for which a silent peer is waited for.
        transport: "torch", or "mesh" for workers that come and go.
        simulated: Whether all workers are in one process.
        bandwidth: Of all links of a modelled network, such as "10mbit".
        latency: Of all links of a modelled network, such as "20ms".
        network: A file that describes a modelled network link by link.
        compute: The time of a step on a modelled clock, such as "50ms"; measured if left out.

    Raises:
        ValueError: Settings that do not go together, or a name that does not exist.

    Example:
        >>> from gossamer.runs import Config
        >>> config = Config(workers=16, topology="torus", algorithm="choco", compressor="sign", epochs=5)
        >>> config.label
        'choco sign torus'
        >>> config.make_topology().n
        16
    """

    task: str = "digits"
    model: str = ""
    data: str | None = None
    workers: int = 8
    topology: str = "ring"
    algorithm: str = "choco"
    compressor: str | None = None
    gamma: float | str | None = None
    options: Mapping[str, float | str | bool] = field(default_factory=dict)
    every: int = 1
    overlap: int = 0
    buffers: str = "average"
    epochs: float | None = None
    steps: int | None = None
    batch_size: int = 16
    lr: float = 0.1
    lr_scale: str = "none"
    warmup: float = 0.0
    schedule: str = "constant"
    optimizer: str = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    clip: float | None = None
    partition: str = "iid"
    seed: int = 0
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    log_every: int | None = None
    keep: int = 2
    deadline: float = 300.0
    transport: str = "torch"
    simulated: bool = False
    bandwidth: str | None = None
    latency: str | None = None
    network: str | None = None
    compute: str | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give --epochs or --steps, not both")
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", DEFAULT_EPOCHS)
        if self.compressor is None and gossamer.algorithms.needs_compressor(self.algorithm):
            object.__setattr__(self, "compressor", DEFAULT_COMPRESSOR)
        takes_order = gossamer.algorithms.takes(self.algorithm, "order")
        if self.overlap and takes_order and "order" not in self.options:
            object.__setattr__(self, "options", {**self.options, "order": "combine-then-adapt"})
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise unknown_name(name.replace("_", "-"), getattr(self, name), allowed)
        _require_numbers(self)
        self.make_network()
        if self.optimizer == "sgd" and self.nesterov and not self.momentum:
            raise ValueError("--nesterov: Nesterov's momentum needs a --momentum above 0")
        if self.compute is not None:
            seconds(self.compute)
        self.make_algorithm().require(self.make_topology())

    def make_topology(self) -> Topology | Schedule:
        """Return the graph of the workers."""
        return gossamer.topology.make(self.topology, self.workers, self.seed)

    def make_algorithm(self) -> Algorithm:
        """Return the algorithm with its compressor; its gamma may still be "auto"."""
        made = gossamer.algorithms.make(self.algorithm, self.compressor, gamma=self.gamma, **self.options)
        made.require_period(self.every, self.overlap)
        return made if self.transport == "torch" else made.where_edges_change()

    def make_network(self) -> Network | None:
        """Return the network whose time a simulation reports, if one was named."""
        given = (self.bandwidth, self.latency, self.network)
        if given == (None, None, None):
            return None
        if self.network is None:
            return Network.uniform(self.workers, self.bandwidth or "unlimited", self.latency or "0s")
        if self.bandwidth is not None or self.latency is not None:
            raise ValueError("--network FILE has the bandwidths and latencies; leave the other flags out")
        return Network.from_file(self.network, self.workers)

    def make_optimizer(self, parameters: list[Parameter]) -> Optimizer:
        """Return the torch optimizer inside; the loop sets its learning rate at every step."""
        from torch.optim import SGD, Adam, AdamW  # noqa: PLC0415 - only here is torch needed

        kinds: dict[str, Callable[[], Optimizer]] = {
            "sgd": lambda: SGD(
                parameters,
                lr=self.lr,
                momentum=self.momentum,
                nesterov=self.nesterov,
                weight_decay=self.weight_decay,
            ),
            "adam": lambda: Adam(parameters, lr=self.lr, weight_decay=self.weight_decay),
            "adamw": lambda: AdamW(parameters, lr=self.lr, weight_decay=self.weight_decay),
        }
        return kinds[self.optimizer]()

    def make_task(self) -> Task:
        """Return the task with its data, which are kept for the next run of the same task."""
        own = Path(self.task)
        edited = own.stat().st_mtime_ns if own.suffix == ".py" and own.is_file() else 0
        return _load_task(self.task, self.model, self.data, edited)

    @cached_property
    def label(self) -> str:
        """Algorithm, compressor and topology in a few words."""
        return " ".join(part for part in (self.algorithm, self.compressor, self.topology) if part)

    def to_json(self) -> str:
        """Return all settings as text."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def require_unchanged(self, settings: Mapping[str, Any]) -> None:
        """Raise a ValueError that names a setting that differs, where that would change the result."""
        for name, now in settings.items():
            was = getattr(self, name)
            if was != now and name not in MAY_CHANGE_ON_RESUME:
                raise ValueError(
                    f"the run was started with {name.replace('_', '-')} = {was}, not {now}; leave the flag "
                    f"out to resume as before, or start another run with another --out"
                )


@lru_cache(maxsize=1)
def _load_task(task: str, model: str, data: str | None, edited: int) -> Task:
    return gossamer.tasks.load_task(task, model, data)


def read_config(path: Path) -> Config:
    """Return the settings that a file holds.

    Args:
        path: A run's config.json.

    Returns:
        The settings, checked.

    Raises:
        ValueError: The file holds something else.

    Example:
        >>> import pathlib, tempfile
        >>> from gossamer.runs import Config, read_config
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "config.json")
        ...     _ = file.write_text(Config(workers=4).to_json())
        ...     read_config(file).workers
        4
    """
    try:
        saved = json.loads(path.read_text())
        return Config(**saved)
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"{path} does not hold the settings of a run: {error}") from error


def _require_numbers(config: Config) -> None:
    """Raise a ValueError for a number out of range."""
    at_least = {"workers": 1, "every": 1, "steps": 1, "batch_size": 1, "keep": 1, "log_every": 1}
    at_least |= {"evaluate_every": 1, "checkpoint_every": 0, "warmup": 0, "momentum": 0, "weight_decay": 0}
    for name, least in at_least.items():
        value = getattr(config, name)
        if value is not None and not least <= value < math.inf:
            raise ValueError(f"--{name.replace('_', '-')} {value}: at least {least}")
    for name in ("epochs", "lr", "clip", "deadline"):
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"--{name} {value}: a number above 0")
    if config.compressor is not None:
        gossamer.compress.make(config.compressor)
