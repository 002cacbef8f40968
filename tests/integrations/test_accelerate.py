"""Accelerate with workers that gossip: two real processes, compared with loops written by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader

from tests.support import frameworks as common

pytestmark = common.needs("accelerate")


def job(rank: int, n: int, folder: Path) -> dict:
    return {
        "by hand": {bf16: beside_a_loop(rank, n, bf16) for bf16 in (False, True)},
        "resumed": {name: resumed(folder / name, options) for name, options in common.RESUMED.items()},
        "average": average(folder / "average"),
        "fp16": fp16(rank),
        "incomplete": incomplete(folder / "average" / "state"),
        "ready": ready(),
    }


class Loop:
    """A training loop as people write it with Accelerate."""

    def __init__(self, model, options, scaler=None, **arguments):
        from accelerate.state import AcceleratorState, GradientState

        from gossamer.integrations.accelerate import GossamerAccelerator

        AcceleratorState._reset_state()
        GradientState._reset_state()
        self.accelerator = GossamerAccelerator(
            cpu=True, gradient_accumulation_steps=common.ACCUMULATE, decentralize=options, **arguments
        )
        self.accelerator.scaler = scaler  # Accelerate itself has none on a CPU
        data = DataLoader(common.Points(common.EXAMPLES), common.BATCH)
        optimizer = common.sgd(model)
        # Accelerate makes a schedule's steps once for every worker.
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda s: 1 - s / common.WORKERS / common.STEPS
        )
        prepared = self.accelerator.prepare(optimizer, model, data, schedule)
        self.optimizer, self.model, self.data, self.schedule = prepared

    def run(self, skip=0, stop=common.BATCHES, spoil=()):
        """Train, with an infinite loss for the batches in `spoil`; return those whose step was skipped."""
        skipped = []
        data = self.accelerator.skip_first_batches(self.data, skip)
        for i, batch in zip(range(skip, stop), data, strict=False):
            with self.accelerator.accumulate(self.model):
                self.accelerator.backward(self.model(**batch)["loss"] * (float("inf") if i in spoil else 1))
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), common.CLIP)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
            if self.accelerator.sync_gradients and self.accelerator.optimizer_step_was_skipped:
                skipped.append(i)
        return skipped

    @property
    def outcome(self):
        return common.outcome(common.snapshot(self.model), self.accelerator.decentralized[0])


def beside_a_loop(rank, n, bf16):
    loop = Loop(common.Net(), common.CHOCO, mixed_precision="bf16" if bf16 else "no")
    loop.run()
    hand = common.by_hand(
        common.in_turn(rank, n), accumulate=common.ACCUMULATE, decay=lambda s: 1 - s / common.STEPS, bf16=bf16
    )
    return {"found": loop.outcome, "hand": hand}


def resumed(folder, options):
    """Train without a stop, and again from a checkpoint in the middle, in a loop that starts elsewhere."""
    from accelerate.utils import ProjectConfiguration

    half = common.BATCHES // 2
    naming = ProjectConfiguration(str(folder), automatic_checkpoint_naming=True)
    loop = Loop(common.Net(dropout=0.3), options, project_config=naming)
    loop.run(stop=half)
    loop.accelerator.save_state()
    loop.run(skip=half)
    once = loop.outcome
    torch.manual_seed(7)
    loop = Loop(common.Net(dropout=0.3, seed=5), options, project_config=naming)
    loop.accelerator.load_state()
    loop.run(skip=half)
    return {"once": once, "again": loop.outcome}


def average(folder):
    """Save all that there is to save."""
    loop = Loop(common.Net(), common.CHOCO)
    loop.run(stop=4)
    loop.accelerator.save_state(str(folder / "state"))
    loop.accelerator.save_model(loop.model, str(folder / "model"))
    with loop.accelerator.consensus():
        shown = common.snapshot(loop.model)
    dictionary = loop.accelerator.get_state_dict(loop.model)
    return {"own": common.snapshot(loop.model), "shown": shown, "dictionary": dictionary, "folder": folder}


def fp16(rank):
    """Let one worker's gradients overflow in one step."""
    import gossamer

    loop = Loop(common.Net(), common.CHOCO, scaler=gossamer.GradScaler("cpu", init_scale=8.0))
    skipped = loop.run(spoil=[3] if rank == 1 else [])
    return {"skipped": skipped, "scale": loop.accelerator.scaler.get_scale(), **loop.outcome}


def incomplete(folder):
    """Load a checkpoint that lacks the workers' own files."""
    loop = Loop(common.Net(), common.CHOCO)
    loop.accelerator.wait_for_everyone()
    (folder / f"worker-{loop.accelerator.process_index}.pt").unlink()
    with pytest.raises(ValueError, match="is missing") as error:
        loop.accelerator.load_state(str(folder))
    return str(error.value)


def ready():
    """Meet an Accelerator for fp16 and one that shards the model: neither is to be had on a CPU."""
    from accelerate.utils import DistributedType

    from gossamer.integrations.accelerate import make_ready

    scaler = torch.amp.GradScaler("cpu")
    half = SimpleNamespace(
        distributed_type=DistributedType.MULTI_GPU, scaler=scaler, device=torch.device("cpu")
    )
    make_ready(half)
    with pytest.raises(ValueError, match="FSDP shards the model"):
        make_ready(SimpleNamespace(distributed_type=DistributedType.FSDP))
    return type(half.scaler).__module__


@pytest.mark.parametrize("bf16", [False, True])
def test_clipping_accumulation_and_schedule_are_as_by_hand(workers, bf16):
    common.require_as_by_hand([worker["by hand"][bf16] for worker in workers])


@pytest.mark.parametrize("name", common.RESUMED)
def test_a_resumed_run_ends_with_the_same_bits(workers, name):
    for worker in workers:
        common.require_same_end(**worker["resumed"][name])


def test_the_average_is_what_is_saved(workers):
    ran = [worker["average"] for worker in workers]
    own = [worker["own"] for worker in ran]
    assert not common.same(*own), "workers are apart in training"
    for worker in ran:
        assert common.same(worker["shown"], common.mean(*own))
        assert common.same(worker["dictionary"], common.mean(*own))
    for kind in ("state", "model"):
        assert common.same(load_file(ran[0]["folder"] / kind / "model.safetensors"), common.mean(*own))


def test_a_step_that_overflows_on_one_worker_is_skipped_by_all(workers):
    for worker in workers:
        assert worker["fp16"]["skipped"] == [3]
        assert worker["fp16"]["rounds"] == common.STEPS - 1
        assert worker["fp16"]["scale"] == 4.0
        assert all(value.isfinite().all() for value in worker["fp16"]["model"].values())


def test_a_checkpoint_without_a_workers_own_file_is_refused(workers):
    for rank, worker in enumerate(workers):
        assert f"worker-{rank}.pt" in worker["incomplete"]


def test_an_accelerator_for_fp16_gets_gossamers_scaler_and_sharding_is_refused(workers):
    assert {worker["ready"] for worker in workers} == {"gossamer._doors.scaler"}
