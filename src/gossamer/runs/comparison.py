"""Several runs of one task, side by side."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gossamer.runs.config import Config
from gossamer.runs.folder import RunFolder
from gossamer.runs.run import resume, simulate, train
from gossamer.runs.summary import Summary

log = logging.getLogger("gossamer")


def compare(
    configs: Mapping[str, Config],
    out: str | Path,
    *,
    real: bool = False,
    command: str | None = None,
    loggers: tuple[str, ...] = (),
) -> list[Path]:
    """Do runs one after another, each in its own folder; return the folders.

    A run that exists already is kept if it has finished, or resumed; so a comparison that was stopped can be
    started again, or be extended. One that fails leaves its summary, and the next ones are done.

    Args:
        configs: The runs' settings by name, all of one task, model and data.
        out: The folder that will hold the runs' folders.
        real: With worker processes. Otherwise the runs are simulated.
        command: How to repeat it, for the reports; this process's command line if left out.
        loggers: Where metrics go as well: "tensorboard", "wandb" or "mlflow".

    Returns:
        The runs' folders.

    Raises:
        ValueError: Two runs of one name, several tasks, or a run that exists with other settings.

    Example:
        >>> import tempfile
        >>> from gossamer.runs import Config, compare
        >>> methods = {"sign": Config(workers=2, compressor="sign", steps=2)}
        >>> methods["full"] = Config(workers=2, algorithm="dpsgd", steps=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [path.name for path in compare(methods, folder)]
        ['sign', 'full']
    """
    folders = {name: Path(out) / slug(name) for name in configs}
    if len(set(folders.values())) < len(folders):
        raise ValueError(f"two of the runs have the same name: {', '.join(configs)}")
    if len({(config.task, config.model, config.data) for config in configs.values()}) > 1:
        raise ValueError("runs that are compared must have one task, model and data")
    for name, config in configs.items():
        if RunFolder(folders[name]).exists():
            RunFolder(folders[name]).config().require_unchanged(vars(_as_run(config, real=real)))
    for name, config in configs.items():
        summary = _one(_as_run(config, real=real), folders[name], command, loggers)
        if summary.status == "interrupted":
            break
    return [folder for folder in folders.values() if RunFolder(folder).exists()]


def slug(name: str) -> str:
    """Return a name that a folder can have."""
    return re.sub(r"[^\w.=-]+", "-", name).strip("-.") or "run"


def _as_run(config: Config, *, real: bool) -> Config:
    return replace(config, simulated=not real)


def _one(config: Config, folder: Path, command: str | None, loggers: tuple[str, ...]) -> Summary:
    start = simulate if config.simulated else train
    try:
        if RunFolder(folder).exists():
            return resume(folder, loggers=loggers)
        return start(config, folder, command=command, loggers=loggers)
    except Exception as error:
        if RunFolder(folder).status() != "failed":  # not the run itself has failed
            raise
        log.warning("%s failed: %s", folder.name, error)
        return RunFolder(folder).summary()
