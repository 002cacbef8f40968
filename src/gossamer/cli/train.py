"""gossamer train, simulate and compare."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

import gossamer
from gossamer.cli.comparisons import configs_of
from gossamer.cli.flags import MODELLED, with_settings
from gossamer.cli.outcome import show_outcome, show_table
from gossamer.runs.config import Config
from gossamer.runs.system import require_unix

Out = Annotated[
    Path | None, typer.Option("--out", help="The run's folder; runs/TASK-ALGORITHM-NUMBER if left out.")
]
Resume = Annotated[Path | None, typer.Option("--resume", help="Resume the run in this folder.")]
AtStep = Annotated[
    int | None, typer.Option("--at-step", help="With --resume: from the checkpoint of this step.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Only print how it ended.")]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Write event files, too.")]
WandB = Annotated[bool, typer.Option("--wandb", help="Log to Weights & Biases.")]
MLflow = Annotated[bool, typer.Option("--mlflow", help="Log to MLflow.")]


TRAIN = """Train with real worker processes.

Started plainly, it starts --workers processes on this machine. Under torchrun, on one machine or
many, each process joins as a worker. Ctrl-C saves and stops; --resume continues bit for bit.

[bold]Examples[/bold]

gossamer train

gossamer train --task fashion --model cnn --algorithm choco --compressor sign --lr 0.05

gossamer train --resume runs/fashion-choco-1

torchrun --nnodes 4 --nproc-per-node 1 ... -m gossamer train --out runs/four --topology complete
"""
SIMULATE = """Do the same run with all workers in one process, and report how long it would take on a network.

The result is that of gossamer train with the same settings, bit for bit. The seconds are
modelled: the time of a step, and what bandwidth and latency add.

[bold]Examples[/bold]

gossamer simulate --workers 16 --topology torus --bandwidth 10mbit --latency 20ms

gossamer simulate --algorithm allreduce --network homes.toml --compute 50ms
"""


def _one_run(text: str, *, simulated: bool) -> Callable[..., None]:
    """Return the command that trains or simulates."""

    @with_settings(text, without=() if simulated else MODELLED)
    def command(
        settings: dict[str, Any],
        out: Out = None,
        resume: Resume = None,
        at_step: AtStep = None,
        quiet: Quiet = False,
        tensorboard: TensorBoard = False,
        wandb: WandB = False,
        mlflow: MLflow = False,
    ) -> None:
        loggers = _loggers(quiet=quiet, tensorboard=tensorboard, wandb=wandb, mlflow=mlflow)
        _run(settings, out, resume, at_step, loggers, simulated=simulated)

    return command


train_command = _one_run(TRAIN, simulated=False)
simulate_command = _one_run(SIMULATE, simulated=True)


COMPARE = """Compare algorithms, compressors and graphs on one task: a table, plots and a page.

Each run is "ALGORITHM COMPRESSOR TOPOLOGY setting=value ...", all but the algorithm optional; all flags
apply to all of them. A comparison that was stopped resumes when it is started again with the same --out.

[bold]Examples[/bold]

gossamer compare "choco topk:0.01" "choco sign" "dcd qsgd:8" dpsgd allreduce --epochs 5

gossamer compare "choco sign ring" "choco sign torus" --workers 16 --bandwidth 10mbit --latency 20ms

gossamer compare --file methods.toml --task fashion
"""


@with_settings(COMPARE)
def compare_command(
    settings: dict[str, Any],
    runs: Annotated[
        list[str] | None,
        typer.Argument(help='What to compare: "choco sign", "dcd qsgd:8 torus", "dpsgd lr=0.05" ...'),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Or a TOML file with the runs.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for all of them.")] = None,
    real: Annotated[bool, typer.Option("--real", help="With worker processes; otherwise simulated.")] = False,
    quiet: Quiet = False,
) -> None:
    """Compare runs; see COMPARE."""
    from gossamer.runs.folder import new_folder
    from gossamer.runs.processes.worker import make_sampler

    require_unix()
    configs = configs_of(runs or [], file, settings, simulated=not real)
    for config in configs.values():
        make_sampler(config, config.make_task())  # so that mistakes are found before the first run
    task = next(iter(configs.values())).task
    loggers = _loggers(quiet=quiet)
    folder = out or new_folder(Path("runs"), f"compare-{Path(task).stem}")
    done = gossamer.runs.compare(configs, folder, real=real, command=_command(), loggers=loggers)
    show_table(done, folder)


def _run(
    settings: dict[str, Any],
    out: Path | None,
    resumed: Path | None,
    at_step: int | None,
    loggers: tuple[str, ...],
    *,
    simulated: bool,
) -> None:
    from gossamer.runs.folder import new_folder
    from gossamer.runs.loggers.loggers import require_loggers
    from gossamer.runs.processes.worker import make_sampler

    require_unix()
    if resumed is None:
        if at_step is not None:
            raise ValueError("--at-step needs --resume")
        config = _config(settings, out, simulated=simulated)
        make_sampler(config, config.make_task())  # so that mistakes are found before a folder is made
        require_loggers(loggers)
        folder = out or new_folder(
            Path("runs"), f"{Path(config.task).stem}-{config.algorithm.partition(':')[0]}"
        )
        start = gossamer.runs.simulate if simulated else gossamer.runs.train
        summary = start(config, folder, command=_command(), loggers=loggers)
    else:
        folder = resumed
        if out is not None and out != folder:
            raise ValueError(f"--resume continues in {folder}; leave --out out")
        summary = gossamer.runs.resume(
            folder, at_step=at_step, loggers=loggers, settings=settings, simulated=simulated
        )
    if simulated or os.environ.get("RANK", "0") == "0":  # under torchrun, worker 0 prints for all
        show_outcome(folder, summary)


def _config(settings: dict[str, Any], out: Path | None, *, simulated: bool) -> Config:
    from gossamer.runs.run import under_torchrun

    if under_torchrun() and not simulated:
        if out is None:
            raise ValueError("under torchrun, name the run's folder with --out")
        settings = {"workers": int(os.environ["WORLD_SIZE"])} | settings
    return Config(**settings, simulated=simulated)


def _loggers(*, quiet: bool, **others: bool) -> tuple[str, ...]:
    names = () if quiet else ("progress",)
    return (*names, *(name for name, wanted in others.items() if wanted))


def _command() -> str:
    return shlex.join(["gossamer", *sys.argv[1:]])
