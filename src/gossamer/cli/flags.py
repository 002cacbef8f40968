"""The settings of a run as flags, the same for every command that makes runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer._suggest import unknown_name
from gossamer.algorithms.names import NAMES as ALGORITHMS
from gossamer.compress.names import NAMES as COMPRESSORS
from gossamer.runs.config import DEFAULT_COMPRESSOR, Config
from gossamer.topology.names import NAMES as TOPOLOGIES

WHAT, WHO, HOW, LONG, KEEP, NETWORK = (
    "What is learned",
    "Who talks to whom, and what is sent",
    "How it is learned",
    "How long",
    "What is kept",
    "The network to model",
)
IF_NEEDED = f"{DEFAULT_COMPRESSOR} if one is needed."
HELP: dict[str, tuple[str, str]] = {
    "task": (WHAT, "digits, fashion, cifar10, wikitext, text, or your own Python file."),
    "model": (WHAT, "The task's network, such as mlp, cnn, resnet20; its first one if left out."),
    "data": (WHAT, "The folder with the task's data, or the text file."),
    "partition": (WHAT, "Who has which examples: iid, iid-fixed, dirichlet:0.1, sorted."),
    "seed": (WHAT, "Seeds the start values, batches and everything else that is random."),
    "workers": (WHO, "How many. Under torchrun it is torchrun's number."),
    "topology": (WHO, f"{', '.join(TOPOLOGIES.ours)}; gossamer topologies explains them."),
    "algorithm": (WHO, f"{', '.join(ALGORITHMS.ours)}; gossamer algorithms explains them."),
    "compressor": (WHO, f"{', '.join(COMPRESSORS.ours)}; gossamer compressors explains them. {IF_NEEDED}"),
    "gamma": (WHO, "The consensus step size: a number, or auto for choco and deepsqueeze."),
    "options": (WHO, "More settings of the algorithm, as name=value; may be repeated."),
    "every": (WHO, "Steps between two exchanges."),
    "overlap": (WHO, "Send while this many of the steps are computed; implies order=combine-then-adapt."),
    "buffers": (WHO, "BatchNorm statistics of the average model: average, or local (worker 0's own)."),
    "batch_size": (HOW, "Examples per worker and step."),
    "optimizer": (HOW, "sgd, adam or adamw."),
    "lr": (HOW, "The learning rate of one worker."),
    "lr_scale": (HOW, "Scale it with the number of workers: none, sqrt or linear."),
    "warmup": (HOW, "Epochs in which the learning rate grows to its full size."),
    "schedule": (HOW, "constant, step (a tenth at 1/2 and at 3/4 of the run) or cosine."),
    "momentum": (HOW, "Of sgd."),
    "nesterov": (HOW, "Nesterov's momentum."),
    "weight_decay": (HOW, "Weight decay."),
    "clip": (HOW, "Clip the gradient to this norm."),
    "epochs": (LONG, "Passes over the data; 10 if neither this nor --steps is given."),
    "steps": (LONG, "Or how many steps per worker."),
    "evaluate_every": (LONG, "Steps between two evaluations; ten evaluations in a run if left out."),
    "checkpoint_every": (
        KEEP,
        "Steps between two checkpoints; with the evaluations if left out, 0 for none.",
    ),
    "keep": (KEEP, "How many checkpoints to keep."),
    "log_every": (KEEP, "Steps between two lines of metrics."),
    "deadline": (WHO, "Seconds to wait for a silent neighbour."),
    "transport": (WHO, "torch, or mesh: without a server, encrypted, and workers may come and go."),
    "bandwidth": (NETWORK, "Of every worker, up and down: 10mbit."),
    "latency": (NETWORK, "One way, between any two: 20ms."),
    "network": (NETWORK, "Or a TOML or JSON file with what each worker and link can do."),
    "compute": (NETWORK, "The time of a step without the network; measured if left out."),
}
KINDS: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "float | str": str,
    "Mapping[str, float | str | bool]": list[str],
}
WORDS = {"true": True, "false": False}
NUMBERS = {int: "a whole number", float: "a number"}
MODELLED = tuple(name for name, (panel, _) in HELP.items() if panel == NETWORK)
PATHS = ("data", "network")


def with_settings(
    text: str, *, without: tuple[str, ...] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command its help text and a flag for every setting; it receives the given ones as `settings`."""
    flags = [_flag(f.name, str(f.type), f.default) for f in fields(Config) if f.name in HELP]
    flags = [flag for flag in flags if flag.name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [
            p
            for name, p in inspect.signature(command, eval_str=True).parameters.items()
            if name != "settings"
        ]

        def run(**arguments: Any) -> None:  # noqa: ANN401 - as typer parsed them
            given = {flag.name: arguments.pop(flag.name) for flag in flags}
            command(**arguments, settings=_cleaned(given))

        parameters = [*own, *flags]
        run.__doc__ = re.sub(r"(?<!\n)\n(?!\n)", " ", text)  # typer keeps the lines of a paragraph apart
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _flag(name: str, kind: str, default: object) -> inspect.Parameter:
    """Return a keyword that is None unless given, so that a resumed run knows which flags the user gave."""
    panel, text = HELP[name]
    if default is not None and default is not False and default not in ("", MISSING):
        text = f"{text} [default: {default}]"
    plain = kind.removesuffix(" | None")
    declaration = "--option" if name == "options" else f"--{name.replace('_', '-')}"
    option = typer.Option(
        declaration, help=text.replace("[", "\\["), rich_help_panel=panel, show_default=False
    )
    kind_or_none: Any = KINDS[plain] | None
    annotation = Annotated[kind_or_none, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _cleaned(given: dict[str, Any]) -> dict[str, Any]:
    """Return what was given, as Config takes it."""
    settings = {name: value for name, value in given.items() if value not in (None, [])}
    settings = with_absolute_paths(settings)
    if "gamma" in settings and settings["gamma"] != "auto":
        settings["gamma"] = number("gamma", settings["gamma"])
    if "options" in settings:
        settings["options"] = dict(_option(text) for text in settings["options"])
    return settings


def with_absolute_paths(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings that mean the same when a run is resumed from another folder."""
    found = dict(settings)
    for name in PATHS:
        if name in found:
            found[name] = _absolute(found[name])
    if str(found.get("task", "")).endswith(".py"):
        found["task"] = _absolute(found["task"])
    kind, _, rest = str(found.get("topology", "")).partition("file:")
    if rest and not kind:
        path, at, rule = rest.partition("@")
        found["topology"] = f"file:{_absolute(path)}{at}{rule}"
    return found


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def number(name: str, text: str) -> float:
    """Return a number that was given as text."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--{name} {text}: a number, or auto") from None


def _option(text: str) -> tuple[str, float | str | bool]:
    """Return the name and value of "sub_steps=2"."""
    name, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"--option {text}: write name=value, as in sub_steps=2")
    if value.lower() in WORDS:
        return name, WORDS[value.lower()]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def setting(name: str, value: str) -> tuple[str, Any]:
    """Return a setting given as text, such as lr=0.05 in the description of a run."""
    kinds = {f.name: str(f.type).removesuffix(" | None") for f in fields(Config) if f.name in HELP}
    plain = name.replace("-", "_")
    if plain not in kinds or plain == "options":
        raise unknown_name(
            "setting", name, [known.replace("_", "-") for known in kinds if known != "options"]
        )
    if plain == "gamma":
        return plain, value if value == "auto" else number("gamma", value)
    kind = KINDS[kinds[plain]]
    if kind is bool and value.lower() not in WORDS:
        raise ValueError(f"{name} = {value}: true or false")
    try:
        return plain, WORDS[value.lower()] if kind is bool else kind(value)
    except ValueError:
        raise ValueError(f"{name} = {value}: this must be {NUMBERS[kind]}") from None
