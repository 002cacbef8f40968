"""gossamer train, simulate and compare."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gossamer
from gossamer.cli.comparisons import configs_of
from gossamer.cli.flags import MODELLED, with_settings
from gossamer.cli.outcome import INTERRUPTED, quoted, show_outcome, show_table
from gossamer.runs.config import Config
from gossamer.runs.system import require_unix

if TYPE_CHECKING:  # what a command does not need is loaded by those that do
    from gossamer.runs import Place, Summary

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


MESH = "One worker of a mesh"
Listen = Annotated[
    str | None,
    typer.Option("--listen", help="This worker's address and port: 0.0.0.0:7000.", rich_help_panel=MESH),
]
PeersFile = Annotated[
    Path | None,
    typer.Option("--peers", help="The peers file: name, address and key of each.", rich_help_panel=MESH),
]
KeyName = Annotated[
    str | None, typer.Option("--key", help="This worker's key: gossamer keys new NAME.", rich_help_panel=MESH)
]
Join = Annotated[
    list[str] | None,
    typer.Option(
        "--join",
        help="In place of --peers: KEY@HOST:PORT of a running worker, who tells of the others. Repeatable.",
        rich_help_panel=MESH,
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Do not encrypt.", rich_help_panel=MESH)]


TRAIN = """Train with real worker processes.

Started plainly, it starts --workers processes on this machine. Under torchrun, on one machine or
many, each process joins as a worker. With --transport mesh, --listen and --peers it is one worker of a
mesh, which may come and go. Ctrl-C saves and stops; --resume continues bit for bit.

[bold]Examples[/bold]

gossamer train

gossamer train --task fashion --model cnn --algorithm choco --compressor sign --lr 0.05

gossamer train --resume runs/fashion-choco-1

torchrun --nnodes 4 --nproc-per-node 1 ... -m gossamer train --out runs/four --topology complete

gossamer train --transport mesh --listen 0.0.0.0:7000 --peers peers.toml --key alice

gossamer train --transport mesh --listen 0.0.0.0:7000 --join KEY@alice.example.org:7000 --key dave
"""
SIMULATE = """Do the same run with all workers in one process, and report how long it would take on a network.

The result is that of gossamer train with the same settings, bit for bit. The seconds are
modelled: the time of a step, and what bandwidth and latency add.

[bold]Examples[/bold]

gossamer simulate --workers 16 --topology torus --bandwidth 10mbit --latency 20ms

gossamer simulate --algorithm allreduce --network homes.toml --compute 50ms
"""


@with_settings(TRAIN, without=MODELLED)
def train_command(
    settings: dict[str, Any],
    out: Out = None,
    resume: Resume = None,
    at_step: AtStep = None,
    quiet: Quiet = False,
    tensorboard: TensorBoard = False,
    wandb: WandB = False,
    mlflow: MLflow = False,
    listen: Listen = None,
    peers: PeersFile = None,
    key: KeyName = None,
    plain: Plain = False,
    join: Join = None,
) -> None:
    """Train; see TRAIN."""
    loggers = _loggers(quiet=quiet, tensorboard=tensorboard, wandb=wandb, mlflow=mlflow)
    place = _place(settings, listen, peers, key, tuple(join or ()), plain=plain)
    _run(settings, out, resume, at_step, loggers, simulated=False, place=place)


@with_settings(SIMULATE)
def simulate_command(
    settings: dict[str, Any],
    out: Out = None,
    resume: Resume = None,
    at_step: AtStep = None,
    quiet: Quiet = False,
    tensorboard: TensorBoard = False,
    wandb: WandB = False,
    mlflow: MLflow = False,
) -> None:
    """Simulate; see SIMULATE."""
    loggers = _loggers(quiet=quiet, tensorboard=tensorboard, wandb=wandb, mlflow=mlflow)
    _run(settings, out, resume, at_step, loggers, simulated=True)


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
    place: Place | None = None,
) -> None:
    require_unix()
    if resumed is None:
        if at_step is not None:
            raise ValueError("--at-step needs --resume")
        folder, summary = _begin(settings, out, loggers, simulated=simulated, place=place)
    else:
        folder = resumed
        if out is not None and out != folder:
            raise ValueError(f"--resume continues in {folder}; leave --out out")
        if place is not None:  # the peers file may have grown since
            settings = {name: value for name, value in settings.items() if name != "workers"}
        with _telling_of_a_stop(folder, place):
            summary = gossamer.runs.resume(
                folder, at_step=at_step, loggers=loggers, settings=settings, simulated=simulated, place=place
            )
    if simulated or os.environ.get("RANK", "0") == "0":  # under torchrun, worker 0 prints for all
        show_outcome(folder, summary)


def _begin(
    settings: dict[str, Any],
    out: Path | None,
    loggers: tuple[str, ...],
    *,
    simulated: bool,
    place: Place | None,
) -> tuple[Path, Summary]:
    """Do a new run; return its folder as well."""
    from gossamer.runs.folder import next_folder
    from gossamer.runs.loggers.loggers import require_loggers
    from gossamer.runs.processes.worker import make_sampler

    config = _config(settings, out, simulated=simulated)
    make_sampler(config, config.make_task())  # so that mistakes are found before a folder is made
    require_loggers(loggers)
    name = f"{Path(config.task).stem}-{config.algorithm.partition(':')[0]}"
    made = nullcontext(out) if out is not None else next_folder(Path("runs"), name)
    with made as folder, _telling_of_a_stop(folder, place):
        if simulated:
            return folder, gossamer.runs.simulate(config, folder, command=_command(), loggers=loggers)
        return folder, gossamer.runs.train(config, folder, command=_command(), loggers=loggers, place=place)


@contextmanager
def _telling_of_a_stop(folder: Path, place: Place | None) -> Iterator[None]:
    """Say how to go on if a signal has ended one worker of a mesh at once, as while it waits for others."""
    from gossamer.runs.folder import RunFolder

    try:
        yield
    except KeyboardInterrupt:
        if place is None:
            raise
        if RunFolder(folder).exists():
            typer.echo(f"Stopped. Resume with: gossamer train --resume {quoted(folder)}")
        else:
            typer.echo("Stopped before the first step. The same command starts again.")
        raise typer.Exit(INTERRUPTED) from None


def _place(
    settings: dict[str, Any],
    listen: str | None,
    peers: Path | None,
    key: str | None,
    join: tuple[str, ...],
    *,
    plain: bool,
) -> Place | None:
    """Return this worker's place in a mesh, if one is given; the peers tell the number of workers."""
    if listen is None and peers is None and not join:
        if key is not None or plain:
            raise ValueError("--key and --plain are for one worker of a mesh: give --listen and --peers, too")
        return None
    if peers is not None and join:
        raise ValueError("--join asks a running worker for the peers: leave --peers out, or --join")
    if listen is None or (peers is None and not join):
        raise ValueError("one worker of a mesh needs both --listen HOST:PORT and --peers FILE (or --join)")
    if settings.setdefault("transport", "mesh") != "mesh":
        raise ValueError("--listen, --peers and --join are for --transport mesh")
    from gossamer.runs import Place

    place = Place(listen, peers, key, plain, join)
    count, who = place.roster.workers, peers or "the run"
    if settings.setdefault("workers", count) != count:
        raise ValueError(f"{who} has {count} peers, not {settings['workers']}: leave --workers out")
    return place


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
