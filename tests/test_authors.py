"""Trajectories of the papers' authors' own code, reproduced; see tests/data/authors_n4.md."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from gossamer import Simulation
from gossamer.algorithms import DCD, DPSGD, ECD, Algorithm, Choco, DeepSqueeze, Order, PowerGossip
from gossamer.algorithms.edges import Edge
from gossamer.compress import Compressor, Identity, LowRank, Sign, TopK
from gossamer.compress.layout import Layout
from gossamer.compress.wire import Reader
from gossamer.topology import ring
from tests.support import oracle
from tests.support.cases import quiet

DATA = np.load(Path(__file__).parent / "data" / "authors_n4_excerpt.npz")
NAMES = {key for key in DATA if key.endswith("_n4")}
A, B, C = (torch.from_numpy(DATA[key]) for key in "ABc")
LAYOUT = Layout(("X", "b"), ((12, 8), (8,)), torch.float64)
RING, LR = ring(4), 0.05
LAST = 50  # round

ORDERS: dict[str, Order] = {
    "overlap": "combine-then-adapt",
    "sequential": "adapt-then-combine",
    "consensus": "adapt-then-combine",
}
COMPRESSORS: dict[str, Compressor] = {
    "topk25": TopK(0.25, raw="never"),
    "sign": Sign(raw="never"),
    "identity": Identity(),
}


def gradients(rank: int, X: Tensor, b: Tensor) -> dict[str, Tensor]:
    """f_i = 1/2 |A_i X + c b^T - B_i|^2."""
    R = A[rank] @ X + torch.outer(C, b) - B[rank]
    return {"X": A[rank].T @ R, "b": R.T @ C}


def gradient(rank: int, parameters, step: int) -> dict[str, Tensor]:
    return gradients(rank, parameters["X"].detach(), parameters["b"].detach())


def all_gradients(X: np.ndarray) -> np.ndarray:
    rows = [gradients(i, x[:96].view(12, 8), x[96:]) for i, x in enumerate(torch.from_numpy(X))]
    return np.stack([torch.cat([g["X"].reshape(-1), g["b"]]).numpy() for g in rows])


def simulation(name: str, algorithm: Algorithm, start: np.ndarray | None = None) -> Simulation:
    """Return a run from the recorded start, or from another; "consensus" only averages."""
    if start is None:
        start = DATA["start_consensus" if "consensus" in name else "start"]
    starts = [LAYOUT.views(torch.from_numpy(x.copy())) for x in start]
    training: dict[str, Any] = {} if "consensus" in name else {"gradient": gradient, "optimizer": sgd}
    return Simulation(starts, RING, algorithm, **training)


def sgd(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=LR)


def recorded(name: str) -> dict[int, np.ndarray]:
    return dict(
        zip(DATA["rounds_powergossip" if "powergossip" in name else "rounds"], DATA[name], strict=True)
    )


def require_same(name: str, models, tolerance=lambda t: 1e-12) -> None:
    """Compare models (n x d, from round 1 on) with what was recorded."""
    wanted = recorded(name)
    for t, X in enumerate(islice(models, LAST), start=1):
        if t in wanted:
            worst = np.abs(np.asarray(X) - wanted[t]).max()
            assert worst <= tolerance(t), f"{name}: {worst:.1e} apart at round {t}"


def stepping(run: Simulation):
    while True:
        run.step()
        yield run.x


def direct() -> dict[str, Algorithm]:
    """Return the trajectories that are a plain run of one algorithm."""
    rows: dict[str, Algorithm] = {}
    for when, order in ORDERS.items():
        rows[f"pg_dpsgd_{when}_n4"] = DPSGD(order)
        rows[f"pg_dpsgd_g05_{when}_n4"] = DPSGD(order, gamma=0.5)
        for c, gamma in (("topk25", 0.4), ("sign", 0.3), ("identity", 0.7)):
            rows[f"pg_choco_{c}_{when}_n4"] = Choco(COMPRESSORS[c], gamma, order, x_hat="zero")
        if when != "overlap":
            rows[f"pg_deepsqueeze_topk25_{when}_n4"] = DeepSqueeze(COMPRESSORS["topk25"], 0.1)
            rows[f"pg_deepsqueeze_sign_{when}_n4"] = DeepSqueeze(COMPRESSORS["sign"], 0.05)
    for c, compressor in COMPRESSORS.items():
        rows[f"chocosgd_dcd_{c}_n4"] = quiet(partial(DCD, compressor))
    for c in ("sign", "identity"):
        rows[f"chocosgd_ecd_{c}_n4"] = quiet(partial(ECD, COMPRESSORS[c]))
    rows["chocosgd_ds_topk25_n4"] = DeepSqueeze(COMPRESSORS["topk25"], 0.1)
    rows["chocosgd_ds_sign_n4"] = DeepSqueeze(COMPRESSORS["sign"], 0.05)
    return rows


DIRECT = direct()
ONE_STEP_FIRST = {"topk25": 0.4, "sign": 0.3}  # gamma of pchoco
POWER = [(r, S, when) for r in (1, 2) for S in (1, 2) for when in ORDERS]


def float32_signs(name: str):
    """The ChocoSGD repository keeps the signs of these two in float32."""
    return lambda t: 2e-7 if name in ("chocosgd_ds_sign_n4", "chocosgd_pchoco_sign_n4") else 1e-12


@pytest.mark.parametrize("name", sorted(DIRECT))
def test_direct(name):
    require_same(name, stepping(simulation(name, DIRECT[name])), float32_signs(name))


@pytest.mark.parametrize("compressor", ONE_STEP_FIRST)
def test_choco_after_one_local_step(compressor):
    """Their loop applies the consensus step before any message: its first round is a local step."""
    name = f"chocosgd_pchoco_{compressor}_n4"
    alone = DATA["start"] - LR * all_gradients(DATA["start"])
    algorithm = Choco(COMPRESSORS[compressor], ONE_STEP_FIRST[compressor], "combine-then-adapt", x_hat="zero")
    run = simulation(name, algorithm, alone)
    require_same(name, chain([alone], stepping(run)), float32_signs(name))


@dataclass(frozen=True)
class BestRank1(Compressor):
    """The exact singular vectors, in LowRank's wire format."""

    code: ClassVar[int] = LowRank.code
    unbiased: ClassVar[bool] = False

    def delta(self, layout: Layout) -> float:
        return LowRank(1).delta(layout)

    def payload_nbytes(self, layout: Layout) -> int:
        return LowRank(1).payload_nbytes(layout)

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        U, S, V = torch.linalg.svd(v.view(layout.shapes[0]), full_matrices=False)
        return [U[:, :1], S[0] * V[:1]]

    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        LowRank(1).accumulate(into, payload, layout, weight)


@pytest.mark.parametrize("when", ORDERS)
def test_choco_with_the_best_rank_1(when):
    """The bias is averaged plainly beside it, with the full weight: the test carries it."""
    name = f"pg_choco_svd1_{when}_n4"
    start = torch.from_numpy(DATA["start_consensus" if when == "consensus" else "start"])
    b, g_b = start[:, 96:].clone(), torch.zeros(4, 8, dtype=torch.float64)

    def gradient_of_X(rank: int, parameters, step: int) -> dict[str, Tensor]:
        g = gradients(rank, parameters["X"].detach(), b[rank])
        g_b[rank] = g["b"]
        return {"X": g["X"]}

    algorithm = Choco(BestRank1(), 0.3, ORDERS[when], x_hat="zero")
    training: dict[str, Any] = {} if when == "consensus" else {"gradient": gradient_of_X, "optimizer": sgd}
    run = Simulation([{"X": x[:96].view(12, 8)} for x in start], RING, algorithm, **training)
    W = torch.from_numpy(RING.W.copy())

    def models():
        while True:
            run.step()
            b.copy_(W @ (b - LR * g_b) if when == "sequential" else W @ b - LR * g_b)
            yield torch.cat([run.x, b], dim=1)

    require_same(name, models())


@pytest.mark.parametrize(("compressor", "gamma"), [("topk25", 0.1), ("sign", 0.05)])
def test_deep_squeeze_with_gossip_before_the_gradient(compressor, gamma):
    """That order is not the paper's algorithm; its gossip is."""
    name = f"pg_deepsqueeze_{compressor}_overlap_n4"
    algorithm = DeepSqueeze(COMPRESSORS[compressor], gamma)
    starts = [LAYOUT.views(torch.from_numpy(x.copy())) for x in DATA["start"]]
    run = Simulation(starts, RING, algorithm)

    def models():
        while True:
            g = [gradient(rank, run.parameters(rank), 0) for rank in range(4)]
            run.step()
            with torch.no_grad():
                for rank in range(4):
                    for key, p in run.parameters(rank).items():
                        p.sub_(LR * g[rank][key])
            yield run.x

    require_same(name, models())


@pytest.mark.parametrize(("r", "S", "when"), POWER)
def test_power_gossip(r, S, when):
    """Their first call exchanges only the bias, yet counts S sub-steps but one."""
    name = f"pg_powergossip_r{r}_it{S}_{when}_n4"
    first = simulation(name, DPSGD(ORDERS[when]))
    before = first.x.numpy()
    first.step()
    after_one = recorded(name)[1]
    assert np.abs(after_one - first.x.numpy())[:, 96:].max() <= 1e-12  # b by plain gossip
    alone = before if when == "consensus" else before - LR * all_gradients(before)
    assert np.abs(after_one - alone)[:, :96].max() <= 1e-12  # X by its gradient only

    run = simulation(name, PowerGossip(rank=r, sub_steps=S, order=ORDERS[when]), after_one)
    for i in range(4):
        for j in RING.senders(i):
            P, Q = (torch.from_numpy(DATA[f"{factor}{r}"][i, j].copy()) for factor in "PQ")
            run.state(i).edges[j] = Edge([P], [Q], c=S - 1)
    require_same(name, chain([after_one], stepping(run)), lambda t: 1e-9 if t <= 20 else 1e-5)


def test_ecd_that_updates_only_what_was_sent():
    """The authors' sparse ECD is not the paper's: the mistake reproduces the file, the paper does not."""
    name = "chocosgd_ecd_topk25_n4"
    task = oracle.Task(DATA["start"], lambda t: RING.W, all_gradients, oracle.sgd(LR))
    require_same(name, oracle.ecd(task, oracle.top(0.25, LAYOUT.sizes), only_sent=True))
    ours = simulation(name, quiet(lambda: ECD(COMPRESSORS["topk25"])))
    ours.run(5)
    assert np.abs(ours.x.numpy() - recorded(name)[5]).max() > 0.1


def test_every_trajectory_is_reproduced():
    special = {f"chocosgd_pchoco_{c}_n4" for c in ONE_STEP_FIRST} | {"chocosgd_ecd_topk25_n4"}
    special |= {f"pg_choco_svd1_{when}_n4" for when in ORDERS}
    special |= {f"pg_deepsqueeze_{c}_overlap_n4" for c in ("topk25", "sign")}
    special |= {f"pg_powergossip_r{r}_it{S}_{when}_n4" for r, S, when in POWER}
    assert set(DIRECT) | special == NAMES
    assert len(NAMES) == 46
