"""One worker of a mesh that has a command and a folder of its own."""

from __future__ import annotations

from gossamer.runs.config import Config
from gossamer.runs.folder import RunFolder
from gossamer.runs.processes.meshes import Place
from gossamer.runs.processes.worker import train_worker
from gossamer.runs.summary import Summary
from gossamer.runs.training.stop import Stop, margin
from gossamer.runs.training.summarize import mark_error


def train_member(
    folder: RunFolder,
    config: Config,
    place: Place,
    *,
    resume: bool = False,
    at_step: int | None = None,
    loggers: tuple[str, ...] = (),
    command: str = "",
) -> Summary:
    """Train as one worker of a mesh; return the summary.

    A new folder holds a run as soon as training begins. If the port is taken, the others do not come, or a
    signal ends the wait for them, nothing is left, and the same command can be given again.
    """
    stop = Stop(folder.path, margin(config), begun=False)
    with stop.listening(), folder.held() if resume else folder.claimed():
        Stop.clear(folder.path)
        transport = place.join(config.label, config.deadline, folder.path)
        try:
            return train_worker(
                folder,
                config,
                transport.rank,
                resume=resume,
                at_step=at_step,
                loggers=loggers,
                command=command,
                transport=transport,
                stop=stop,
            )
        except Exception as error:
            if folder.exists():
                mark_error(folder, error)
            raise
        finally:
            transport.close()
