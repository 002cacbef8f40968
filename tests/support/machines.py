"""Workers on machines that differ: processes of one machine with other instructions, BLAS and threads.

Run as a script, it is one such worker: it trains with every algorithm and compressor and writes down
what it saw.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import gossamer
from gossamer import topology
from gossamer.algorithms import Algorithm, PowerGossip
from gossamer.compress import Compressor, Identity
from gossamer.compress.layout import Layout
from gossamer.compress.wire import as_bytes
from gossamer.transport import Ticket, TorchTransport
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN
from tests.support.problem import advance, sgd

ROOT = Path(__file__).resolve().parents[2]
STEPS = 4
PLAIN_VECTOR, FACTORS = 0, 8  # wire codes of what no compressor wrote
NARROWER = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}
LONG = 40_000  # rows: from 32 768 on, a sum depends on the number of threads


def instruction_sets() -> tuple[str, ...]:
    """Return the names by which torch can be held to what this processor has, the widest first."""
    return NARROWER.get(torch.backends.cpu.get_cpu_capability(), ())


def run_machines(names: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """Run a worker for each of three instruction sets and return what it wrote down.

    The second one's BLAS rounds as processors without fused multiply-add do, the third has two threads.
    """
    others = [{}, {"MKL_CBWR": "COMPATIBLE"}, {"OMP_NUM_THREADS": "2"}]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.machines", str(folder), str(rank), str(len(names))],
            env={**os.environ, "OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": name, **other},
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, (name, other) in enumerate(zip(names, others, strict=True))
    ]
    complaints = [worker.communicate(timeout=500)[1] for worker in workers]
    assert not any(worker.returncode for worker in workers), "\n".join(complaints)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(len(names))]


def cases() -> dict[str, tuple[Algorithm, torch.dtype]]:
    """Return every algorithm with every compressor, and some of them in half precision."""
    all_of_them = {f"{a} {c}": make(C) for a, make in COMPRESSED.items() for c, C in COMPRESSORS.items()}
    single = {name: (a, torch.float32) for name, a in {**PLAIN, **all_of_them}.items()}
    half = {name: a for name, (a, _) in single.items() if name.startswith(("powergossip", "allreduce"))}
    return {**single, **{f"{name} bf16": (a, torch.bfloat16) for name, a in half.items()}}


class Model(nn.Module):
    """Tensors long enough that the machines would add them up in different orders."""

    def __init__(self, dtype: torch.dtype, rows: int) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        for name, shape in {"conv": (8, 3, 3, 3), "matrix": (rows, 7), "bias": (70,), "scale": ()}.items():
            value = torch.rand(shape, generator=rng) - 0.5  # torch.randn has other bits elsewhere
            self.register_parameter(name, nn.Parameter(value.to(dtype)))


class Recording(TorchTransport):
    """Keeps every message of a round, by phase, sender and receiver."""

    def __init__(self) -> None:
        super().__init__(deadline=100)
        self.messages: dict[tuple[str, int, int], Tensor] = {}

    def begin(self, outbox: Any, sizes: Any, ticket: Ticket) -> Any:
        self._keep(ticket.name, {(self.rank, j): message for j, message in outbox.items()})
        return super().begin(outbox, sizes, ticket)

    def collect(self, ticket: Ticket, need: int | None, until: float | None) -> Any:
        inbox = super().collect(ticket, need, until)
        self._keep(ticket.name, {(j, self.rank): message for j, message in inbox.items()})
        return inbox

    def _keep(self, phase: str, messages: dict[tuple[int, int], Tensor]) -> None:
        if phase.startswith("round"):
            self.messages |= {(phase, *ends): message.clone() for ends, message in messages.items()}


def train(algorithm: Algorithm, dtype: torch.dtype, n: int) -> dict[str, Any]:
    """Return digests of all that the two ends of an edge must have alike."""
    model, link = Model(dtype, LONG if isinstance(algorithm, PowerGossip) else 300), Recording()
    optimizer = gossamer.decentralize(
        sgd(list(model.parameters())), model, topology=topology.ring(n), algorithm=algorithm, transport=link
    )
    advance(model, optimizer, STEPS)
    layout = Layout.of(dict(model.named_parameters()))
    compressor = getattr(algorithm, "compressor", None) or Identity()
    state = optimizer._node.states[0]
    edges = getattr(state, "edges", {}).items()
    return {
        "x": digest(p.detach() for p in model.parameters()),
        "gradient": digest(p.grad for p in model.parameters() if p.grad is not None),
        "messages": {key: _read(m, compressor, layout) for key, m in link.messages.items()},
        "edges": {tuple(sorted((link.rank, j))): digest([*edge.P, *edge.Q]) for j, edge in edges},
    }


def _read(message: Tensor, compressor: Compressor, layout: Layout) -> tuple[str, str]:
    """Return digests of the bytes and of the numbers that this process reads from them."""
    as_it_is = int(message[3]) in (PLAIN_VECTOR, FACTORS)
    return digest([message]), "" if as_it_is else digest([compressor.decode(message, layout)])


def usual() -> dict[str, str]:
    """Return digests of what torch computes differently here and there."""
    rng = torch.Generator().manual_seed(0)
    v = torch.rand(LONG, generator=rng)
    results = {"draw": torch.randn(100, generator=rng), "sum": v.sum(), "fused": v.add(v.flip(0), alpha=0.3)}
    return {name: digest([result]) for name, result in results.items()}


def digest(tensors: Any) -> str:
    hashed = hashlib.sha256()
    for t in tensors:
        hashed.update(as_bytes(t).numpy().data)
    return hashed.hexdigest()


@contextmanager
def _group(folder: str, rank: int, n: int) -> Iterator[None]:
    store, patience = f"file://{folder}/store", timedelta(seconds=200)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=n, timeout=patience)
    yield
    dist.barrier()
    dist.destroy_process_group()


def main(folder: str, rank: int, n: int) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with _group(folder, rank, n):
        seen: dict[str, Any] = {name: train(a, dtype, n) for name, (a, dtype) in cases().items()}
        average = gossamer.average(
            torch.full((300, 70), float(rank)), algorithm="powergossip:2", deadline=100
        )
        torch.save(
            {
                "instruction set": torch.backends.cpu.get_cpu_capability(),
                "usual": usual(),
                "cases": seen,
                "average": average.rounds,
            },
            Path(folder) / f"{rank}.pt",
        )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
