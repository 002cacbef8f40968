"""What the integrations have in common, without processes and without the frameworks."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import gossamer
from gossamer.integrations.shared import agreeing, copied, require_overrides

FRAMEWORKS = ["transformers", "accelerate", "lightning", "pytorch_lightning"]


def python(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def test_gossamer_itself_imports_no_framework():
    code = (
        f"import gossamer, gossamer.integrations, sys; print([m for m in {FRAMEWORKS} if m in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"


def test_a_framework_that_is_missing_is_named_with_its_extra():
    tries = "\n".join(
        f"""
try:
    import gossamer.integrations.{name}
except ImportError as error:
    print(error)
"""
        for name in FRAMEWORKS
    )
    printed = python(
        f"import sys\nfor name in {FRAMEWORKS}: sys.modules[name] = None\n{tries}"
    ).stdout.splitlines()
    extras = ["transformers", "accelerate", "lightning", "lightning"]
    assert [line.rsplit(": ", 1)[-1] for line in printed] == [f"pip install 'gossamer[{e}]'" for e in extras]


def test_a_copy_of_a_model_keeps_ties_and_shares_no_buffer():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    optimizer = gossamer.decentralize(torch.optim.SGD(model.parameters(), lr=0.1), model, algorithm="dpsgd")
    live = model.state_dict()
    copy = copied(live)
    pointers = {name: value.untyped_storage().data_ptr() for name, value in copy.items()}
    assert not set(pointers.values()) & {value.untyped_storage().data_ptr() for value in live.values()}
    assert pointers["0.weight"] == pointers["1.weight"], "tied"
    assert len(set(pointers.values())) == 3
    assert all(torch.equal(copy[name], live[name]) for name in live)
    optimizer.close()


def test_a_scaler_keeps_its_settings():
    before = torch.amp.GradScaler(
        "cpu", init_scale=32.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7
    )
    after = agreeing(before, "cpu")
    assert isinstance(after, gossamer.GradScaler)
    assert after.state_dict() == before.state_dict()
    off = torch.amp.GradScaler("cpu", enabled=False)
    assert agreeing(off, "cpu") is off
    assert agreeing(after, "cpu") is after


def test_a_method_that_a_framework_has_renamed_is_noticed():
    class Framework:
        def save(self) -> None: ...

    class Mixin:
        def save(self) -> None: ...
        def load(self) -> None: ...

    with pytest.raises(ImportError, match="has no load"):
        require_overrides(Mixin, Framework)
    require_overrides(Mixin, Framework, "load")
