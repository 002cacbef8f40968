"""The other package of Lightning has the same strategy: one process is enough to see that they fit."""

from __future__ import annotations

import subprocess
import sys

from tests.support import frameworks

ALONE = """
import sys, pytorch_lightning, torch
from gossamer.integrations.pytorch_lightning import GossamerStrategy
from pytorch_lightning.demos.boring_classes import BoringModel

module = BoringModel()
strategy = GossamerStrategy(algorithm="dpsgd")
trainer = pytorch_lightning.Trainer(
    strategy=strategy, devices=1, accelerator="cpu", max_steps=3, logger=False, default_root_dir=sys.argv[1],
    enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(module)
print(trainer.optimizers[0].rounds, type(trainer.optimizers[0]).__name__)
"""


@frameworks.needs("pytorch_lightning", extra="lightning")
def test_the_strategy_trains(tmp_path):
    command = [sys.executable, "-c", ALONE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.split()[-2:] == ["3", "DecentralizedOptimizer"], done.stderr
