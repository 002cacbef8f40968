"""Tasks: models, data and how to judge them; the built-in ones and people's own."""

from gossamer.tasks import files, models
from gossamer.tasks.base import Batch, Task, classification
from gossamer.tasks.builtin import TASKS
from gossamer.tasks.load import load_task
from gossamer.tasks.partition import KINDS, Sampler

__all__ = ["KINDS", "TASKS", "Batch", "Sampler", "Task", "classification", "files", "load_task", "models"]
