"""A task by its name, or from the user's own file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from gossamer._suggest import unknown_name
from gossamer.tasks.base import Task
from gossamer.tasks.builtin import TASKS


def load_task(spec: str, model: str = "", data: str | Path | None = None) -> Task:
    """Return a built-in task, or the one that the function `task()` of a Python file returns."""
    if spec in TASKS:
        return TASKS[spec](model, Path(data).expanduser() if data else None)
    path = Path(spec).expanduser()
    if path.suffix != ".py":
        raise ValueError(f"{unknown_name('task', spec, TASKS)}; or name a Python file of your own")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return _from_file(path)


def _from_file(path: Path) -> Task:
    description = importlib.util.spec_from_file_location(f"gossamer_task_{path.stem}", path)
    assert description is not None
    assert description.loader is not None
    module = importlib.util.module_from_spec(description)
    sys.modules[description.name] = module  # dataclasses and pickling look a module up by its name
    description.loader.exec_module(module)
    if not callable(getattr(module, "task", None)):
        raise ValueError(f"{path} has no function task() that returns a gossamer.tasks.Task")
    made = module.task()
    if not isinstance(made, Task):
        raise ValueError(f"task() in {path} returns a {type(made).__name__}, not a gossamer.tasks.Task")
    return made
