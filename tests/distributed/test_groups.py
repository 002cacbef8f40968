"""Gossip inside the user's process groups, over connections of its own."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import gossamer
from gossamer import topology
from gossamer._processes import free_port
from gossamer.errors import PeerError, PeerTimeout
from gossamer.transport import own_group
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN
from tests.support.problem import LR, MOMENTUM, Model, advance, flat, simulated, trained
from tests.support.processes import run_processes, torchrun
from tests.support.waiting import wait_for

CHOCO = COMPRESSED["choco"](COMPRESSORS["topk"])
STEPS = 3


def two_halves(rank: int, n: int) -> torch.Tensor:
    halves = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    return trained(CHOCO, "ring", STEPS, group=halves[rank % 2])[0]


def test_disjoint_groups_train_apart():
    """As if each were alone: the ranks are those in the group."""
    results = run_processes(4, two_halves)
    expected = simulated(CHOCO, topology.ring(2), STEPS)
    for rank, x in enumerate(results):
        assert torch.equal(x, expected.x[rank // 2]), rank


def a_few(rank: int, n: int) -> torch.Tensor | str:
    few = dist.new_group([0, 1, 3])
    if rank == 2:
        return "does something else"
    return trained(CHOCO, "ring", STEPS, group=few)[0]


def test_a_group_trains_without_the_others():
    results = run_processes(4, a_few)
    assert results.pop(2) == "does something else"
    expected = simulated(CHOCO, topology.ring(3), STEPS)
    for x, wanted in zip(results, expected.x, strict=True):
        assert torch.equal(x, wanted)


def not_a_member(rank: int, n: int) -> str:
    pair = dist.new_group([0, 1])
    if rank < 2:
        trained(CHOCO, "ring", 1, group=pair)
        return "trained"
    with pytest.raises(ValueError, match="not in the process group"):
        trained(CHOCO, "ring", 1, group=pair)
    with pytest.raises(ValueError, match="not in the process group"):
        gossamer.average(torch.ones(3), group=pair)
    return "refused"


def test_a_process_that_is_not_in_the_group_is_told_so():
    assert run_processes(3, not_a_member) == ["trained", "trained", "refused"]


def many_groups(rank: int, n: int) -> torch.Tensor:
    """Workers 1 and 2 know one group more than worker 0, by which torch numbers some of its groups."""
    dist.new_group([1, 2])
    return trained(CHOCO, "ring", STEPS, deadline=20)[0]


def test_workers_may_be_in_different_numbers_of_groups():
    expected = simulated(CHOCO, topology.ring(3), STEPS)
    for rank, x in enumerate(run_processes(3, many_groups)):
        assert torch.equal(x, expected.x[rank]), x


def collectives_between(rank: int, n: int) -> tuple[torch.Tensor, list[float]]:
    """The user's own all-reduce runs while messages fly, and worker 1 is late with it."""
    sums = []

    class Summing(torch.optim.SGD):
        def step(self, closure=None):
            total = torch.full((100_000,), float(rank + 1))
            if rank == 1:
                time.sleep(0.05)
            work = dist.all_reduce(total, async_op=True)
            super().step(closure)
            work.wait()
            sums.append(float(total[0]))

    model = Model()
    inner = Summing(model.parameters(), lr=LR, momentum=MOMENTUM)
    optimizer = gossamer.decentralize(inner, model, algorithm=PLAIN["dpsgd"], overlap=1)
    advance(model, optimizer, STEPS)
    optimizer.close()
    return flat(model), sums


def test_the_users_collectives_do_not_meet_ours():
    expected = simulated(PLAIN["dpsgd"], topology.ring(3), STEPS)
    for rank, (x, sums) in enumerate(run_processes(3, collectives_between)):
        assert torch.equal(x, expected.x[rank])
        assert sums == [6.0] * STEPS


def without_cpu(rank: int, n: int, folder: str) -> torch.Tensor:
    store = f"file://{folder}/store"
    dist.init_process_group("cuda:gloo", init_method=store, rank=rank, world_size=n)
    with pytest.raises(RuntimeError, match=r"No backend|no NVIDIA driver"):
        dist.barrier()
    return trained(CHOCO, "ring", STEPS)[0]


def test_the_users_group_needs_no_cpu_backend(tmp_path):
    expected = simulated(CHOCO, topology.ring(2), STEPS)
    for rank, x in enumerate(run_processes(2, without_cpu, str(tmp_path), group=False)):
        assert torch.equal(x, expected.x[rank]), x


def with_a_gpu(rank: int, n: int, port: int, folder: str) -> str:
    torch.cuda.is_available = lambda: True
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(n)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    link = gossamer.transport.connect()
    assert (link.rank, link.size) == (rank, n)
    Path(folder, str(rank)).touch()
    wait_for(Path(folder, str(peer)) for peer in range(n))  # worker 0 holds the store that all need to meet
    return dist.get_backend()


def test_connect_asks_for_gloo_alone(tmp_path):
    assert run_processes(2, with_a_gpu, free_port(), str(tmp_path), group=False) == ["gloo"] * 2


def resources() -> tuple[int, int]:
    """Return how many files and threads this process has open."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def again_and_again(rank: int, n: int) -> list[tuple[int, int]]:
    seen = []
    for _ in range(50):
        gossamer.average(torch.ones(10) * rank, algorithm="dpsgd", max_rounds=2)
        seen.append(resources())
    return seen


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts files and threads in /proc (Linux)")
def test_many_averages_use_the_same_connections():
    for seen in run_processes(3, again_and_again):
        assert seen[-1] == seen[0]


def wait_for_failures(ranks: list[int]) -> None:
    dist.distributed_c10d._get_default_store().wait([f"worker {rank} failed" for rank in ranks])


def tell_of_failure(rank: int) -> None:
    dist.distributed_c10d._get_default_store().set(f"worker {rank} failed", "")


def one_stays_away(rank: int, n: int) -> PeerTimeout | None:
    own_group.START_UP = timedelta(seconds=4)
    dist.barrier()
    if rank == 2:
        wait_for_failures([0, 1])
        return None
    with pytest.raises(PeerTimeout) as caught:
        trained(CHOCO, "ring", 1)
    tell_of_failure(rank)
    return caught.value


def test_a_worker_that_does_not_come_is_named():
    for error in run_processes(3, one_stays_away)[:2]:
        assert error.peer == 2, error
        assert "did not call decentralize or average with this process group" in str(error)


def once_more(rank: int, n: int) -> torch.Tensor:
    """Worker 1 comes to the second exchange after the others' deadline; then all start again."""
    _, optimizer = trained(CHOCO, "ring", 1)
    if rank == 1:
        wait_for_failures([0, 2])
    else:
        optimizer.transport.deadline = 1
    with pytest.raises(PeerError), optimizer.consensus():
        pass
    tell_of_failure(rank)
    dist.barrier()  # the user's own group has not suffered
    return trained(CHOCO, "ring", STEPS)[0]


def test_after_a_failure_the_process_group_can_be_used_again():
    expected = simulated(CHOCO, topology.ring(3), STEPS)
    for rank, x in enumerate(run_processes(3, once_more)):
        assert torch.equal(x, expected.x[rank]), x


LEFT_OPEN = """
import atexit
import os
import torch
import torch.distributed as dist
import gossamer

atexit.register(lambda: os.write(1, b"still open\\n" if dist.is_initialized() else b"left\\n"))  # runs last
dist.init_process_group("gloo")
gossamer.average(torch.ones(3), algorithm="dpsgd")
dist.all_reduce(torch.ones(1000))
"""


def test_a_group_that_is_left_open_is_left_before_python_ends(tmp_path):
    """Else a thread of gloo that still holds the last collective's tensors may abort the process."""
    (tmp_path / "script.py").write_text(LEFT_OPEN)
    assert torchrun(tmp_path / "script.py", tmp_path).split("\n")[:2] == ["left", "left"]
