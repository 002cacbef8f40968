"""Lightning with workers that gossip: two real processes, compared with loops written by hand."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from tests.support import frameworks as common

pytestmark = common.needs("lightning")

CHECKPOINTS = [
    "once/epoch=0.ckpt",
    "half/last.ckpt",
    "after.ckpt",
]  # by a callback, a link to that, after fit()


def job(rank: int, n: int, folder: Path) -> dict:
    warnings.simplefilter("ignore")  # Lightning's advice: more DataLoader workers, a logger
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return {
        "by hand": {bf16: beside_a_loop(rank, n, folder, bf16) for bf16 in (False, True)},
        "resumed": {name: resumed(folder / name, options) for name, options in common.RESUMED.items()},
        "best": best(folder / "best"),
        "fp16": fp16(rank, folder),
        "two": two_optimizers(rank, n, folder / "two"),
        "disagreement": disagreement(folder / "disagreement"),
    }


def make(net, folder, options, *, decay=lambda _: 1.0, sync=True, spoil=(), **arguments):
    """Return a module and its trainer. `spoil` are batches whose loss is made infinite."""
    import lightning

    from gossamer.integrations.lightning import GossamerStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.ends = net, []

        def configure_optimizers(self):
            optimizer = common.sgd(self)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, decay)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

        def training_step(self, batch, i):
            return self.net(**batch)["loss"] * (float("inf") if i in spoil else 1)

        def validation_step(self, batch):
            self.log("loss", self.net(**batch)["loss"], sync_dist=sync)

        def on_train_epoch_end(self):
            self.ends.append(
                common.snapshot(self.net)
            )  # this worker's own, before the average takes its place

    ordinary = {
        "default_root_dir": folder,
        "max_epochs": 1,
        "accelerator": "cpu",
        "devices": common.WORKERS,
        "logger": False,
        "enable_checkpointing": "callbacks" in arguments,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return Module(), lightning.Trainer(strategy=GossamerStrategy(**options), **ordinary | arguments)


def loader():
    return DataLoader(common.Points(common.EXAMPLES), common.BATCH)


def judge():
    return DataLoader(common.Points(16, seed=1), common.BATCH)


def batches_of(rank, n):
    examples = common.Points(common.EXAMPLES)
    # Lightning always shuffles in training.
    mine: list[int] = list(DistributedSampler(examples, n, rank, shuffle=True))
    return [examples[mine[i : i + common.BATCH]] for i in range(0, len(mine), common.BATCH)]


def beside_a_loop(rank, n, folder, bf16):
    arguments: dict[str, Any] = {
        "accumulate_grad_batches": common.ACCUMULATE,
        "gradient_clip_val": common.CLIP,
    }
    arguments |= {"precision": "bf16-mixed" if bf16 else "32-true"}
    module, trainer = make(
        common.Net(), folder, common.CHOCO, decay=lambda s: 1 - s / common.STEPS, **arguments
    )
    trainer.fit(module, loader())
    hand = common.by_hand(
        batches_of(rank, n), accumulate=common.ACCUMULATE, decay=lambda s: 1 - s / common.STEPS, bf16=bf16
    )
    found = common.outcome(module.ends[-1], trainer.optimizers[0])
    return {"found": found, "hand": hand, "left": common.snapshot(module.net)}


def resumed(folder, options):
    """Train two epochs without a stop, and the second from checkpoints, in modules that begin elsewhere."""

    def fit(part, seed, *, epochs=2, ckpt_path=None):
        from lightning.pytorch.callbacks import ModelCheckpoint

        torch.manual_seed(seed)
        saving = ModelCheckpoint(folder / part, "{epoch}", save_top_k=-1, save_last="link")
        module, trainer = make(
            common.Net(dropout=0.3, seed=seed), folder, options, max_epochs=epochs, callbacks=[saving]
        )
        trainer.fit(module, loader(), judge(), ckpt_path=ckpt_path)
        return module, trainer

    def ended(module, trainer):
        return common.outcome(module.ends[-1], trainer.optimizers[0])

    results = {"once": ended(*fit("once", 0))}
    _, trainer = fit("half", 0, epochs=1)
    trainer.save_checkpoint(folder / "after.ckpt")
    return results | {path: ended(*fit(f"from {path}", 5, ckpt_path=folder / path)) for path in CHECKPOINTS}


def best(folder):
    from lightning.pytorch.callbacks import ModelCheckpoint

    saving = ModelCheckpoint(folder, "{epoch}", monitor="loss", save_top_k=1)
    module, trainer = make(common.Net(), folder, common.CHOCO, max_epochs=3, callbacks=[saving])
    trainer.fit(module, loader(), judge())
    found = {"path": saving.best_model_path, "score": float(saving.best_model_score), "ends": module.ends}
    files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.ckpt"))
    (again,) = trainer.validate(module, judge(), ckpt_path="best", verbose=False)
    other, trainer = make(common.Net(), folder, common.CHOCO, max_epochs=1 + int(saving.best_model_path[-6]))
    trainer.fit(other, loader(), ckpt_path=saving.best_model_path)  # has nothing left to do
    return found | {"again": again["loss"], "files": files, "left": common.snapshot(other.net)}


def fp16(rank, folder):
    """Let one worker's gradients overflow in one step."""
    from lightning.pytorch.plugins import MixedPrecision

    plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=8.0))
    module, trainer = make(
        common.Net(), folder, common.CHOCO, plugins=[plugin], spoil=[3] if rank == 1 else []
    )
    trainer.fit(module, loader())
    return {
        "rounds": trainer.optimizers[0].rounds,
        "scale": plugin.scaler.get_scale(),
        "own": module.ends[-1],
    }


def two_optimizers(rank, n, folder):
    """Train two equal models in one module, each with an optimizer of its own that is stepped by hand."""
    module, trainer = make(torch.nn.ModuleList([common.Net(), common.Net()]), folder, common.CHOCO)
    module.automatic_optimization = False
    module.configure_optimizers = lambda: [common.sgd(part) for part in module.net]

    def step(batch):
        for part, optimizer in zip(module.net, module.optimizers(), strict=True):
            optimizer.zero_grad()
            module.manual_backward(part(**batch)["loss"])
            module.clip_gradients(optimizer, common.CLIP)
            optimizer.step()

    module.training_step = step
    trainer.fit(module, loader())
    trainer.save_checkpoint(folder / "two.ckpt")
    hand = common.by_hand(batches_of(rank, n), accumulate=1, decay=lambda _: 1.0)
    return {
        "own": module.ends[-1],
        "hand": hand["model"],
        "left": common.snapshot(module.net),
        "path": folder / "two.ckpt",
    }


def disagreement(folder):
    """Choose the best checkpoint by a metric that every worker has of its own."""
    from lightning.pytorch.callbacks import ModelCheckpoint

    saving = ModelCheckpoint(folder, "{epoch}", monitor="loss")
    module, trainer = make(common.Net(), folder, common.CHOCO, callbacks=[saving], sync=False)
    with pytest.raises(ValueError, match="sync_dist=True"):
        trainer.fit(module, loader(), judge())
    return True


@pytest.mark.parametrize("bf16", [False, True])
def test_clipping_accumulation_and_schedule_are_as_by_hand(workers, bf16):
    common.require_as_by_hand([worker["by hand"][bf16] for worker in workers])


def test_training_leaves_the_average(workers):
    common.require_average_left([worker["by hand"][False] for worker in workers])


@pytest.mark.parametrize("path", CHECKPOINTS)
@pytest.mark.parametrize("name", common.RESUMED)
def test_a_resumed_run_ends_with_the_same_bits(workers, name, path):
    for worker in workers:
        common.require_same_end(worker["resumed"][name]["once"], worker["resumed"][name][path])


def test_the_best_checkpoint_is_chosen_by_all_and_is_an_average(workers):
    ran = [worker["best"] for worker in workers]
    assert ran[0]["path"] == ran[1]["path"]
    assert ran[0]["score"] == ran[1]["score"] == ran[0]["again"] == ran[1]["again"]
    path = Path(ran[0]["path"])
    assert ran[0]["files"] == [path.name, f"workers/1/{path.name}"], "what is no longer the best was removed"
    saved = torch.load(path, weights_only=True)
    own = [worker["ends"][saved["epoch"]] for worker in ran]
    state = {name.removeprefix("net."): value for name, value in saved["state_dict"].items()}
    assert not common.same(*own)
    assert common.same(state, common.mean(*own))
    for worker in ran:
        assert common.same(worker["left"], common.mean(*own)), (
            "fit() leaves the average, also if it has nothing left to do"
        )


def test_validation_is_about_the_average_model(workers):
    ran = [worker["best"] for worker in workers]
    net = common.Net().eval()
    epoch = int(Path(ran[0]["path"]).stem.removeprefix("epoch="))
    net.load_state_dict(common.mean(*(worker["ends"][epoch] for worker in ran)))
    loss = net(**common.Points(16, seed=1)[:])["loss"].detach()
    assert ran[0]["score"] == pytest.approx(float(loss), rel=1e-5)


def test_a_step_that_overflows_on_one_worker_is_skipped_by_all(workers):
    for worker in workers:
        assert worker["fp16"]["rounds"] == common.BATCHES - 1
        assert worker["fp16"]["scale"] == 4.0
        assert all(value.isfinite().all() for value in worker["fp16"]["own"].values())


def test_workers_that_would_choose_different_checkpoints_are_told(workers):
    assert all(worker["disagreement"] for worker in workers)


def test_two_optimizers_gossip_each_for_its_part(workers):
    ran = [worker["two"] for worker in workers]
    for worker in ran:
        for part in "01":
            own = {k.removeprefix(f"{part}."): v for k, v in worker["own"].items() if k.startswith(part)}
            assert common.same(own, worker["hand"])
        assert common.same(worker["left"], common.mean(*(other["own"] for other in ran)))
    saved = torch.load(ran[0]["path"], weights_only=True)["state_dict"]
    assert common.same({name.removeprefix("net."): value for name, value in saved.items()}, ran[0]["left"])
