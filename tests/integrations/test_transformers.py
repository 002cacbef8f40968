"""Hugging Face's Trainer with workers that gossip: two processes, compared with loops written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support import frameworks as common

pytestmark = common.needs("transformers")

SCORES = {0: [0.0, 2.0, 3.0, 0.0], 1: [0.0, 2.0, 0.0, 3.0]}  # what the two workers think of the model


def job(rank: int, n: int, folder: Path) -> dict:
    from transformers.utils import logging

    logging.set_verbosity_error()
    return {
        "by hand": {bf16: beside_a_loop(rank, n, folder / "plain", bf16) for bf16 in (False, True)},
        "resumed": {name: resumed(folder / name, options) for name, options in common.RESUMED.items()},
        "best": best(rank, folder / "best"),
        "twice": twice(rank, n, folder),
    }


def make(model, folder, decentralize, **arguments):
    from transformers import TrainerCallback, TrainingArguments

    from gossamer.integrations.transformers import GossamerTrainer

    class Keep(TrainerCallback):
        """Keeps every worker's own model, before the average takes its place."""

        def on_save(self, args, state, control, model, **_):
            self.saved = common.snapshot(model)

        def on_train_end(self, args, state, control, model, **_):
            self.ended = common.snapshot(model)

    ordinary = {
        "per_device_train_batch_size": common.BATCH,
        "per_device_eval_batch_size": common.BATCH,
        "train_sampling_strategy": "sequential",
        "learning_rate": common.LR,
        "max_steps": common.STEPS,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "remove_unused_columns": False,
    }
    keep = Keep()
    trainer = GossamerTrainer(
        model=model,
        args=TrainingArguments(str(folder), **ordinary | arguments),
        train_dataset=common.Points(common.EXAMPLES),
        eval_dataset=common.Points(16, seed=1),
        optimizers=(common.sgd(model), None),
        callbacks=[keep],
        decentralize=decentralize,
    )
    return trainer, keep


def beside_a_loop(rank, n, folder, bf16):
    accumulation = {
        "gradient_accumulation_steps": common.ACCUMULATE,
        "max_grad_norm": common.CLIP,
        "bf16": bf16,
    }
    trainer, keep = make(common.Net(), folder, common.CHOCO, **accumulation)
    trainer.train()
    return {
        "found": common.outcome(keep.ended, trainer.decentralized),
        "hand": common.by_hand(
            common.in_turn(rank, n),
            accumulate=common.ACCUMULATE,
            decay=lambda s: (common.STEPS - s) / common.STEPS,
            bf16=bf16,
        ),
        "left": common.snapshot(trainer.model),
    }


def resumed(folder, options):
    """Train without a stop, and again from a checkpoint in the middle, in a trainer that starts elsewhere."""
    saving = {"save_strategy": "steps", "save_steps": common.STEPS // 2, "train_sampling_strategy": "random"}
    trainer, keep = make(common.Net(dropout=0.3), folder / "once", options, **saving)
    trainer.train()
    once = common.outcome(keep.ended, trainer.decentralized)
    torch.manual_seed(7)
    trainer, keep = make(common.Net(dropout=0.3, seed=5), folder / "again", options, **saving)
    trainer.train(resume_from_checkpoint=str(folder / "once" / f"checkpoint-{common.STEPS // 2}"))
    again = common.outcome(keep.ended, trainer.decentralized)
    with pytest.raises(ValueError, match=r"worker-\d.pt is missing"):
        trainer._load_optimizer_and_scheduler(str(folder))
    return {"once": once, "again": again}


def twice(rank, n, folder):
    """Call train() again, after the average has taken the place of this worker's model."""
    trainer, keep = make(
        common.Net(), folder, common.CHOCO, lr_scheduler_type="constant", max_grad_norm=common.CLIP
    )
    trainer.train()
    trainer.train()
    hand = common.by_hand(2 * common.in_turn(rank, n)[: common.STEPS], accumulate=1, decay=lambda _: 1.0)
    return {"found": common.outcome(keep.ended, trainer.decentralized), "hand": hand}


def best(rank, folder):
    """Let workers judge the model differently, and save it if it is the best."""
    scores = iter(SCORES[rank])
    arguments = {
        "save_strategy": "best",
        "eval_strategy": "steps",
        "eval_steps": 1,
        "max_steps": len(SCORES[0]),
    }
    arguments |= {"load_best_model_at_end": True, "metric_for_best_model": "score", "greater_is_better": True}
    trainer, keep = make(common.Net(), folder, common.CHOCO, **arguments)
    trainer.compute_metrics = lambda _: {"score": next(scores)}
    trainer.train()
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    trainer.save_model(folder / "final")
    return {
        "saved": keep.saved,
        "left": common.snapshot(trainer.model),
        "step": trainer.state.best_global_step,
        "losses": losses,
        "folder": folder,
    }


@pytest.mark.parametrize("bf16", [False, True])
def test_clipping_accumulation_and_schedule_are_as_by_hand(workers, bf16):
    common.require_as_by_hand([worker["by hand"][bf16] for worker in workers])


def test_training_leaves_the_average(workers):
    common.require_average_left([worker["by hand"][False] for worker in workers])


@pytest.mark.parametrize("name", common.RESUMED)
def test_a_resumed_run_ends_with_the_same_bits(workers, name):
    for worker in workers:
        common.require_same_end(**worker["resumed"][name])


def test_the_best_model_is_chosen_by_all_and_is_an_average(workers):
    ran = [worker["best"] for worker in workers]
    total = [sum(scores) for scores in zip(*SCORES.values(), strict=True)]
    wanted = 1 + total.index(max(total))
    assert {worker["step"] for worker in ran} == {wanted}, "neither worker would choose it alone"
    folder = ran[0]["folder"] / f"checkpoint-{wanted}"
    model = load_file(folder / "model.safetensors")
    for worker in ran:
        assert common.same(model, worker["left"]), "load_best_model_at_end"
    assert common.same(model, load_file(ran[0]["folder"] / "final" / "model.safetensors"))
    assert json.loads((folder / "trainer_state.json").read_text())["best_metric"] == max(total) / 2
    assert sorted(p.name for p in folder.glob("worker-*")) == ["worker-0.pt", "worker-1.pt"]


def test_evaluation_is_about_the_average_model(workers):
    ran = [worker["best"] for worker in workers]
    assert ran[0]["losses"] == ran[1]["losses"]
    net = common.Net().eval()
    net.load_state_dict(ran[0]["left"])
    loss = net(**common.Points(16, seed=1)[:])["loss"].detach()
    assert ran[0]["losses"][ran[0]["step"] - 1] == pytest.approx(float(loss), rel=1e-5)


def test_training_again_goes_on_from_the_workers_own_models(workers):
    for worker in workers:
        found, hand = worker["twice"].values()
        assert common.same(found["model"], hand["model"])
        assert found["rounds"] == hand["rounds"] == 2 * common.STEPS
