"""Checkpoints: whole or not there, checked by their checksums, kept N."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.runs.training.checkpoint import Checkpoints, DamagedCheckpoint
from tests.support.runs import same

STATE: dict[str, Any] = {
    "model": {"w": torch.randn(4, 3), "half": torch.randn(5).half(), "count": torch.tensor(7)},
    "optimizer": {"state": {0: {"step": 3, "momentum": torch.randn(4, 3)}}, "betas": (0.9, 0.99)},
    "edges": [{"p": torch.zeros(0)}, None, True, 1.5, "text", -0.1],
    "view": torch.arange(12.0)[2:8:2],
}


def test_a_state_comes_back_as_it_was(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, 2, STATE)
    assert same(checkpoints.load(5, 2), STATE)
    assert checkpoints.steps(2) == [5]
    assert checkpoints.steps(0) == []


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.integers() | st.text(), inner)
    ),
    max_leaves=10,
)


@given(trees)
def test_any_tree_comes_back(tmp_path_factory, tree):
    checkpoints = Checkpoints(tmp_path_factory.mktemp("tree"))
    checkpoints.save(0, 0, {"tree": tree})
    assert same(checkpoints.load(0, 0), {"tree": tree})


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_changed_byte_is_noticed(tmp_path, suffix):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, 0, STATE)
    path = tmp_path / "step-00000001" / f"worker-0.{suffix}"
    whole = path.read_bytes()
    rng = random.Random(0)
    for position in [0, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(30))]:
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(DamagedCheckpoint, match="step 1"):
            checkpoints.load(1, 0)
    for length in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedCheckpoint):
            checkpoints.load(1, 0)
    path.unlink()
    with pytest.raises(DamagedCheckpoint):
        checkpoints.load(1, 0)


def test_only_the_newest_are_kept_and_each_worker_minds_its_own(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2, 3, 4):
        for rank in (0, 1):
            checkpoints.save(step, rank, STATE)
    checkpoints.prune(0, keep=2)
    assert (checkpoints.steps(0), checkpoints.steps(1)) == ([4, 3], [4, 3, 2, 1])
    checkpoints.prune(1, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]
    checkpoints.forget_after(3, 0)
    assert (checkpoints.steps(0), checkpoints.steps(1)) == ([3], [4, 3])


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_nothing_and_harms_nothing(tmp_path, monkeypatch, call):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, 0, STATE)

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, 0, STATE)
    monkeypatch.undo()
    assert checkpoints.steps(0) == [1]
    assert not list(tmp_path.rglob("*.part"))
    assert same(checkpoints.load(1, 0), STATE)


WRITER = """
import sys, torch
from pathlib import Path
from gossamer.runs.training.checkpoint import Checkpoints
checkpoints = Checkpoints(Path(sys.argv[1]))
for step in range(10**6):
    checkpoints.save(step, 0, {"x": torch.full((50_000,), float(step)), "step": step})
    checkpoints.prune(0, 2)
    print(step, flush=True)
"""


def test_a_killed_writer_leaves_only_whole_checkpoints(tmp_path):
    rng, checkpoints, seen = random.Random(1), Checkpoints(tmp_path), set()
    for _ in range(4):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(1, 6)):
                process.stdout.readline()
            time.sleep(rng.uniform(0, 0.1))  # into the middle of whatever it does next
            process.send_signal(signal.SIGKILL)
        for step in checkpoints.steps(0):
            state = checkpoints.load(step, 0)
            assert state["step"] == step
            assert torch.equal(state["x"], torch.full((50_000,), float(step)))
            seen.add(step)
        assert checkpoints.steps(0)
    assert len(seen) > 1


def test_the_files_are_standard(tmp_path):
    from safetensors.torch import load_file

    Checkpoints(tmp_path).save(3, 1, STATE)
    tensors = load_file(tmp_path / "step-00000003" / "worker-1.safetensors")
    assert torch.equal(tensors["/model/w"], STATE["model"]["w"])
    assert json.loads((tmp_path / "step-00000003" / "worker-1.json").read_text())["step"] == 3
