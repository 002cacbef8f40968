"""A LightningModule learns which of ten directions a point lies in, with workers that gossip.

    torchrun --standalone --nproc-per-node 2 examples/lightning_module.py

Without torchrun, Lightning starts the second worker itself. Started again, it goes on from the last
checkpoint in runs/lightning_module, if there is one. Beside an ordinary script, only the strategy is new.
"""

import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from gossamer.integrations.lightning import GossamerStrategy

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/lightning_module")


class Classifier(lightning.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: list[Tensor]) -> Tensor:
        x, y = batch
        return cross_entropy(self.net(x), y)

    def validation_step(self, batch: list[Tensor]) -> None:
        x, y = batch
        right = (self.net(x).argmax(1) == y).float().mean()
        self.log("accuracy", right, sync_dist=True)  # the same number on all workers: it chooses the best

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=5e-3)


def points(examples: int, seed: int) -> TensorDataset:
    directions = torch.randn(20, 10, generator=torch.Generator().manual_seed(0))
    x = torch.randn(examples, 20, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x @ directions).argmax(1))


def main() -> None:
    torch.set_num_threads(1)  # workers that share a machine's cores must not fight for them
    lightning.seed_everything(0, verbose=False)
    best = ModelCheckpoint(FOLDER, monitor="accuracy", mode="max", save_last=True)
    trainer = lightning.Trainer(
        strategy=GossamerStrategy(topology="ring", algorithm="choco", compressor="topk:0.1"),
        devices=2,
        accelerator="cpu",
        max_epochs=5,
        gradient_clip_val=1.0,
        callbacks=[best],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    train, test = DataLoader(points(4096, 1), 32, shuffle=True), DataLoader(points(512, 2), 64)
    trainer.fit(Classifier(), train, test, ckpt_path="last")
    (metrics,) = trainer.validate(dataloaders=test, ckpt_path="best", verbose=False)
    if trainer.is_global_zero:
        print(f"average model {metrics['accuracy']:.1%}, saved in {best.best_model_path}")


if __name__ == "__main__":
    main()
