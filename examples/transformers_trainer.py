"""A small GPT learns which number follows which, with Hugging Face's Trainer and workers that gossip.

    torchrun --standalone --nproc-per-node 2 examples/transformers_trainer.py

Started again, it goes on from the last checkpoint in runs/transformers_trainer, if there is one.
Beside an ordinary script with the Trainer, the lines that mention Gossamer are all that is new.
"""

import os
import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from gossamer.integrations.transformers import GossamerTrainer

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/transformers_trainer")


class Walks(Dataset[dict[str, torch.Tensor]]):
    """Sequences of numbers below 16, where each number tells the next one."""

    def __init__(self, examples: int, seed: int) -> None:
        follows = torch.randperm(16, generator=torch.Generator().manual_seed(0))
        numbers = [torch.randint(16, (examples,), generator=torch.Generator().manual_seed(seed))]
        for _ in range(11):
            numbers.append(follows[numbers[-1]])
        self.numbers = torch.stack(numbers, 1)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.numbers[i], "labels": self.numbers[i]}


def main() -> None:
    torch.set_num_threads(1)  # workers that share a machine's cores must not fight for them
    set_seed(0)
    shape = GPT2Config(
        vocab_size=16, n_positions=12, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(shape)
    args = TrainingArguments(
        output_dir=str(FOLDER),
        per_device_train_batch_size=32,
        num_train_epochs=4,
        learning_rate=3e-3,
        warmup_steps=20,
        max_grad_norm=1.0,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        logging_steps=20,
        report_to="none",
        use_cpu=True,
    )
    trainer = GossamerTrainer(
        model=model,
        args=args,
        train_dataset=Walks(1024, seed=1),
        eval_dataset=Walks(128, seed=2),
        decentralize={"topology": "ring", "algorithm": "choco", "compressor": "sign"},
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(FOLDER)) if FOLDER.exists() else None)
    trainer.save_model()
    metrics = trainer.evaluate()
    sent = trainer.decentralized.bytes_sent
    if os.environ.get("RANK", "0") == "0":
        print(f"average model: loss {metrics['eval_loss']:.3f}, sent {sent / 1e6:.2f} MB per worker")


if __name__ == "__main__":
    main()
