"""Clouds of points told apart in a loop of one's own, with Accelerate and workers that gossip.

    torchrun --standalone --nproc-per-node 2 examples/accelerate_loop.py

Started again, it goes on from the last checkpoint in runs/accelerate_loop, if there is one.
Beside an ordinary script with Accelerate, the lines that mention Gossamer or consensus are all that is new.
"""

import sys
from pathlib import Path

import torch
from accelerate.utils import set_seed
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from gossamer.integrations.accelerate import GossamerAccelerator

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/accelerate_loop")
EPOCHS = 5


def clouds(examples: int, seed: int) -> TensorDataset:
    centres = 0.8 * torch.randn(10, 20, generator=torch.Generator().manual_seed(0))
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(10, (examples,), generator=rng)
    return TensorDataset(centres[y] + torch.randn(examples, 20, generator=rng), y)


def main() -> None:
    torch.set_num_threads(1)  # workers that share a machine's cores must not fight for them
    set_seed(0)
    accelerator = GossamerAccelerator(
        cpu=True,
        mixed_precision="bf16",
        gradient_accumulation_steps=2,
        decentralize={"topology": "ring", "algorithm": "choco", "compressor": "topk:0.1"},
    )
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    train, test = DataLoader(clouds(4096, 1), 32, shuffle=True), DataLoader(clouds(512, 2), 64)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(train))
    model, optimizer, train, test, schedule = accelerator.prepare(model, optimizer, train, test, schedule)
    saved = sorted(FOLDER.glob("epoch-*"))
    if saved:
        accelerator.load_state(str(saved[-1]))
    accelerator.wait_for_everyone()  # before anybody saves more

    for epoch in range(len(saved), EPOCHS):
        train.set_epoch(epoch)
        for x, y in train:
            with accelerator.accumulate(model):
                accelerator.backward(cross_entropy(model(x), y))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        with accelerator.consensus(), torch.no_grad():
            right = [accelerator.gather_for_metrics(model(x).argmax(1) == y) for x, y in test]
        accuracy = torch.cat(right).float().mean()
        accelerator.print(f"epoch {epoch + 1}  average model {accuracy:.1%}")
        accelerator.save_state(str(FOLDER / f"epoch-{epoch + 1}"))
    accelerator.save_model(model, FOLDER)
    accelerator.print(f"sent {optimizer.optimizer.bytes_sent / 1e6:.2f} MB per worker")


if __name__ == "__main__":
    main()
