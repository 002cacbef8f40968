"""Fashion-MNIST with a million parameters: a task file, as anybody could write one."""

from dataclasses import replace

from gossamer.tasks import Task, load_task
from gossamer.tasks.models import mlp


def task() -> Task:
    """Return the fashion task with a wider network."""
    return replace(load_task("fashion"), name="fashion, wide", model=lambda: mlp(784, 1000, 256, 10))
