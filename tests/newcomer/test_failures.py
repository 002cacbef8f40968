"""Rows that end a worker or an exchange, each with processes of its own: who is told what."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gossamer
from gossamer._processes import free_port
from gossamer.errors import Diverged, PeerError, PeerLost, PeerTimeout
from gossamer.transport import farewell
from tests.support.problem import flat
from tests.support.processes import run_processes
from tests.support.single_process import fit, same, sgd, together, wrap
from tests.support.training import batch, small
from tests.support.waiting import LIMIT, wait_for
from tests.support.workers import Heard

NO_WORD = 0.0  # seconds that need not be waited for somebody who cannot tell
SHORT = 0.5  # seconds that are waited for a worker that cannot answer, by one who waits for nobody else


def began(rank: int, moment: float = LIMIT) -> tuple[nn.Module, gossamer.DecentralizedOptimizer]:
    """Return a worker that has all the patience there is; rows make one of them impatient afterwards.

    `moment` is what word of a broken connection's reason may take: on a busy machine, long.
    """
    farewell.MOMENT = moment
    model = small()
    optimizer = wrap(model, deadline=LIMIT)
    fit(model, optimizer, 2, rank)
    return model, optimizer


def consensus_on_rank_0(rank: int, n: int, folder: Path) -> str:
    """The others go on to their next step, and wait for worker 0 there."""
    model, optimizer = began(rank)
    if rank == 0:
        optimizer.transport.deadline = SHORT
        with optimizer.consensus():
            return "went on"
    fit(model, optimizer, 1, rank, 2)
    return "went on"


def long_evaluation(rank: int, n: int, folder: Path) -> str:
    """Worker 0 evaluates until worker 1, which waits for it first of all, has lost its patience."""
    model, optimizer = began(rank)
    if rank == 0:
        wait_for([folder / "1"])
    if rank == 1:
        optimizer.transport.deadline = SHORT
    try:
        fit(model, optimizer, 1, rank, 2)
    finally:
        (folder / str(rank)).touch()
    return "went on"


def fewer_batches(rank: int, n: int, folder: Path) -> str:
    """Worker 1 has one batch less, and stays until the others have told of it, one after the other."""
    model, optimizer = began(rank)
    if rank == 1:
        wait_for([folder / "0", folder / "2"])
        return "done"
    if rank == 2:
        wait_for([folder / "0"])
    optimizer.transport.deadline = SHORT
    try:
        fit(model, optimizer, 1, rank, 2)
    finally:
        (folder / str(rank)).touch()
    return "went on"


def ended(rank: int, n: int, folder: Path) -> str:
    """Worker 1 has one batch less and its process ends; the others stay until both have told."""
    model, optimizer = began(rank, NO_WORD)
    if rank == 1:
        wait_for([folder / "sent-0", folder / "sent-2"])
        os._exit(0)
    return until_both_have_told(rank, folder, (0, 2), model, optimizer)


def killed(rank: int, n: int, folder: Path) -> str:
    model, optimizer = began(rank, NO_WORD)
    if rank == 2:
        wait_for([folder / "sent-0", folder / "sent-1"])
        os.kill(os.getpid(), 9)
    return until_both_have_told(rank, folder, (0, 1), model, optimizer)


def until_both_have_told(rank, folder, both, model, optimizer) -> str:
    """Do a step; the lost worker waits for the file that says that its messages have been sent.

    Otherwise one of both could fail before it has sent anything, and the other would wait for it in vain.
    """
    begin = optimizer.transport.begin

    def begin_and_say_so(*arguments):
        found = begin(*arguments)
        (folder / f"sent-{rank}").touch()
        return found

    optimizer.transport.begin = begin_and_say_so
    try:
        fit(model, optimizer, 1, rank, 2)
    finally:
        (folder / str(rank)).touch()
        wait_for(folder / str(r) for r in both)
    return "went on"


def nan_on_one_worker(rank: int, n: int, folder: Path) -> str:
    model, optimizer = began(rank)
    x, y = batch(rank, 2)
    optimizer.zero_grad()
    (nn.functional.cross_entropy(model(x), y) * (float("nan") if rank == 1 else 1.0)).backward()
    g = model.get_parameter("0.weight").grad
    assert g is not None
    assert bool(g.isnan().any()) == (rank == 1), "the fault"
    optimizer.step()
    return "went on"


@dataclass(frozen=True)
class Case:
    """What each worker's error is and says; None for one that is gone, a text for one that returns it."""

    do: Callable[[int, int, Path], Any]
    says: dict[int, tuple[type[Exception], str] | str | None] = field(default_factory=dict)


TOGETHER = r"call them on every worker, not under `if rank == 0`"
PATIENCE = (
    r"an evaluation on one worker only, is waited for until .* decentralize\(\.\.\., deadline=seconds\)"
)
BATCHES = r"the same number of batches"
ALONE = r"killed, .*fewer batches"
NAN = r"The first to fail was worker 1 with Diverged: .*nan"

CASES = {
    "consensus() on rank 0 only": Case(
        consensus_on_rank_0,
        {0: (PeerTimeout, TOGETHER)}
        | dict.fromkeys((1, 2), (PeerError, rf"first to fail was worker 0.*{TOGETHER}")),
    ),
    "an evaluation longer than the deadline": Case(
        long_evaluation,
        {1: (PeerTimeout, rf"worker 0 did not answer in round 3.*{PATIENCE}")}
        | dict.fromkeys((0, 2), (PeerError, rf"first to fail was worker 1.*{PATIENCE}")),
    ),
    "different numbers of batches": Case(
        fewer_batches,
        {
            0: (PeerTimeout, rf"worker 1 did not answer in round 3.*{BATCHES}"),
            1: "done",
            2: (PeerError, rf"first to fail was worker 0.*{BATCHES}"),
        },
    ),
    "a worker that has ended with fewer batches": Case(
        ended,
        {
            0: (PeerLost, rf"worker 1 was lost.*{ALONE}"),
            1: None,
            2: (PeerLost, rf"worker 1 was lost.*{ALONE}"),
        },
    ),
    "a worker killed with -9": Case(
        killed,
        {
            0: (PeerLost, rf"worker 2 was lost.*{ALONE}"),
            1: (PeerLost, rf"worker 2 was lost.*{ALONE}"),
            2: None,
        },
    ),
    "NaN on one worker": Case(
        nan_on_one_worker, {0: (PeerError, NAN), 1: (Diverged, r"nan; nothing was sent"), 2: (PeerError, NAN)}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_row(name, tmp_path):
    case = CASES[name]
    results = run_processes(3, case.do, tmp_path)
    for rank, expected in case.says.items():
        if not isinstance(expected, tuple):
            assert results[rank] == expected, results
            continue
        kind, text = expected
        assert isinstance(results[rank], kind), f"worker {rank}: {results[rank]!r}"
        assert re.search(text, str(results[rank])), f"worker {rank}: {results[rank]}"


def torus_of_five(rank: int, n: int) -> tuple[float, list[str]]:
    """Average 0, 10, ..., 40 once."""
    heard = Heard()
    logging.getLogger("gossamer").addHandler(heard)
    model = nn.Linear(1, 1, bias=False)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.0), topology="torus")
    nn.init.constant_(model.weight, 10.0 * rank)
    optimizer.step()
    return model.weight.item(), heard.lines


def test_a_torus_of_five_is_a_ring_and_says_so():
    values, logs = zip(*run_processes(5, torus_of_five), strict=True)
    around = [10.0 * i for i in range(5)]
    assert values == pytest.approx([(around[i - 1] + around[i] + around[(i + 1) % 5]) / 3 for i in range(5)])
    assert "a torus of 5 workers has one row and is a ring" in logs[0][0]
    assert logs[1:] == ([],) * 4, "worker 0 tells it for all"


def ddp_inside_sites(rank: int, n: int) -> torch.Tensor:
    """Sites of workers 0 and 1, 2 and 3 average gradients; 0 gossips with 2, and 1 with 3."""
    sites = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    between = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    model = small()
    inside = DistributedDataParallel(model, process_group=sites[rank // 2])
    optimizer = wrap(model, group=between[rank % 2])
    fit(inside, optimizer, 4, rank)
    return flat(model)


def test_ddp_inside_sites_and_gossip_between_is_training_with_all_batches():
    results = run_processes(4, ddp_inside_sites)
    alone = small()
    expected = together(alone, sgd(alone), 4, workers=4)
    assert all(same(x, expected) for x in results), results


def alone(rank: int, n: int) -> tuple[torch.Tensor, int, int]:
    assert "RANK" not in os.environ
    model = small()
    optimizer = wrap(model)
    fit(model, optimizer, 4, 0)
    with optimizer.consensus():
        return flat(model), optimizer.bytes_sent, optimizer.consensus_bytes_sent


def test_one_worker_without_torchrun_is_plain_torch():
    ((x, *sent),) = run_processes(1, alone, group=False)
    plain = small()
    fit(plain, sgd(plain), 4, 0)
    assert same(x, flat(plain), 1e-7)
    assert sent == [0, 0]


def group_after_the_wrap(rank: int, n: int, port: int) -> str:
    variables = {"RANK": rank, "WORLD_SIZE": n, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in variables.items()}
    wrap(small())
    dist.init_process_group("gloo")
    return "went on"


def test_a_process_group_made_after_the_wrap_is_refused_by_torch_and_the_page_tells_the_order():
    for error in run_processes(2, group_after_the_wrap, free_port(), group=False):
        assert "initialize the default process group twice" in str(error), error
    page = (Path(__file__).parents[2] / "docs" / "from_ddp.md").read_text()
    assert "calls `init_process_group` itself, let it do so before" in " ".join(page.split())
