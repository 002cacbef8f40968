"""Tasks as users write them: whatever their models hold, runs end the same, and mistakes are explained."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset, TensorDataset

from gossamer.runs import Config, RunFolder, export, resume, simulate
from gossamer.tasks import Task
from tests.support.runs import break_off, final, same, without_time

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
CONFIG = Config(
    task="mine.py", workers=3, steps=9, batch_size=4, checkpoint_every=2, evaluate_every=3, algorithm="dpsgd"
)


class Odd(nn.Module):
    """Tied weights, a frozen layer, two dtypes, integer buffers, and one that a state_dict leaves out."""

    seen: torch.Tensor

    def __init__(self):
        super().__init__()
        self.a, self.b, self.frozen = (
            nn.Linear(6, 6, bias=False),
            nn.Linear(6, 6, bias=False),
            nn.Linear(6, 6),
        )
        self.b.weight = self.a.weight
        self.frozen.requires_grad_(requires_grad=False)
        self.norm, self.out = nn.BatchNorm1d(6), nn.Linear(6, 2, dtype=torch.float64)
        self.register_buffer("seen", torch.zeros(6), persistent=False)

    def forward(self, x):
        if self.training:
            self.seen.mul_(0.5).add_(x.mean(0))
        x = torch.dropout(self.norm(self.b(self.a(self.frozen(x)))), 0.5, self.training)
        return self.out((x + self.seen).double())


def noisy_loss(model, batch):
    x, y = batch
    return cross_entropy(model(x + random.random() * 0.1 + float(np.random.rand())), y)


def accuracy(model):
    return {"accuracy": (model(X).argmax(1) == Y).float().mean()}  # a tensor, and no eval()


@pytest.fixture
def use(monkeypatch):
    """Let a run use this task instead of a file's."""

    def choose(**changes):
        own: dict[str, Any] = {"name": "odd", "model": Odd, "train": TensorDataset(X, Y), "loss": noisy_loss}
        task = Task(**({**own, "evaluate": accuracy} | changes))
        monkeypatch.setattr(Config, "make_task", lambda config: task)
        return task

    return choose


def test_an_odd_model_goes_on_bit_for_bit(tmp_path, monkeypatch, use):
    use()
    whole = simulate(CONFIG, tmp_path / "whole")
    break_off(monkeypatch, CONFIG, tmp_path / "run", at=7)
    assert without_time(resume(tmp_path / "run")) == without_time(whole)
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))


def test_evaluations_leave_no_trace(tmp_path, use):
    use()
    simulate(CONFIG, tmp_path / "few")
    simulate(replace(CONFIG, evaluate_every=1), tmp_path / "many")
    few, many = final(tmp_path / "few"), final(tmp_path / "many")
    assert same([state["model"] for state in few], [state["model"] for state in many])
    assert int(few[0]["model"]["norm.num_batches_tracked"]) == 9


@pytest.mark.parametrize("buffers", ["average", "local"])
def test_the_exported_model_is_the_evaluated_one(tmp_path, use, buffers):
    from safetensors.torch import load_file

    task = use()
    summary = simulate(replace(CONFIG, buffers=buffers), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "model.safetensors")
    model = Odd()
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(model.a.weight, model.b.weight)
    model.seen.copy_(final(tmp_path / "run")[0]["unsaved buffers"]["seen"])  # not in a state_dict
    model.eval()
    assert float(task.evaluate(model)["accuracy"]) == pytest.approx(summary.reached, abs=0.02)


SHARED = Odd()


class Endless(Dataset):
    def __getitem__(self, i):
        return X[i], Y[i]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"train": (X, Y)}, r"TensorDataset\(x, y\)"),
        ({"train": Endless()}, "a length"),
        ({"labels": [0, 1]}, "tensor of integers"),
        ({"labels": Y[:5]}, "60 training examples"),
        ({"labels": Y.float()}, "tensor of integers"),
        ({"better": "more"}, "higher or a lower"),
        ({"evaluate": lambda model: {"error": 1.0}}, "its metric, 'accuracy'"),
        ({"evaluate": lambda model: 0.5}, "not float"),
        ({"model": lambda: nn.Linear(6, 2).requires_grad_(requires_grad=False)}, "no parameter to train"),
        ({"model": lambda: SHARED}, "a new model every time"),
    ],
)
def test_mistakes_are_explained(tmp_path, use, changes, complaint):
    def attempt():
        use(**changes)
        simulate(CONFIG, tmp_path / "run")

    with pytest.raises(ValueError, match=complaint):
        attempt()
    if (tmp_path / "run").exists():
        assert RunFolder(tmp_path / "run").status() == "failed"


def test_a_file_that_was_edited_is_read_again(tmp_path):
    text = "import torch\nfrom gossamer.tasks import classification\n"
    text += "X, Y = torch.randn(40, 4), torch.randint(2, (40,))\n"
    text += "def task():\n"
    text += "    return classification('mine', lambda: torch.nn.Linear(4, 2, bias=BIAS), (X, Y), (X, Y))\n"
    config = replace(CONFIG, task=str(tmp_path / "mine.py"), steps=1)
    sizes = []
    for bias in ("True", "False"):
        (tmp_path / "mine.py").write_text(f"BIAS = {bias}\n{text}")
        sizes.append(simulate(config, tmp_path / bias).parameters)
    assert sizes == [10, 8]
