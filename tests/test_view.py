"""Members by id, edges that come and go between rounds, and both forms of what is known of neighbours."""

from __future__ import annotations

from functools import partial
from itertools import islice

import numpy as np
import pytest
import torch

from gossamer import Simulation
from gossamer.algorithms import DCD, DPSGD, ECD, Algorithm, Choco, DeepSqueeze, PowerGossip
from gossamer.compress import QSGD, Compressor, Identity
from gossamer.compress.layout import Layout
from gossamer.rounds import View
from gossamer.rounds.drive import run_together
from gossamer.topology import complete, from_edges, ring, star
from tests.support import oracle
from tests.support.cases import quiet

LAYOUT = Layout(("matrix", "bias"), ((4, 3), (5,)), torch.float64)
LR, SEED, ROUNDS = 0.05, 3, 12
FIRST = ring(5)
LATER = View((0, 2, 3, 4), from_edges([(0, 1), (1, 2), (1, 3), (2, 3)]))  # worker 1 is gone; other edges


def targets(n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, LAYOUT.size))


def simulation(algorithm: Algorithm) -> Simulation:
    a = targets(5)

    def gradient(rank, parameters, step):
        x = np.concatenate([p.detach().numpy().ravel() for p in parameters.values()])
        return LAYOUT.views(torch.from_numpy(x - a[rank]))

    return Simulation(
        LAYOUT.views(torch.zeros(LAYOUT.size, dtype=torch.float64)),
        FIRST,
        algorithm,
        gradient=gradient,
        optimizer=lambda p: torch.optim.SGD(p, lr=LR),
        seed=SEED,
    )


def run_rounds(run: Simulation, members: tuple[int, ...], rounds: int) -> np.ndarray:
    """Do rounds of some of a simulation's workers, and return their rows of X."""
    gradient = run._gradient
    assert gradient is not None
    for _ in range(rounds):
        for i in members:
            parameters = run.parameters(i)
            for name, g in (gradient(i, parameters, 0) or {}).items():
                parameters[name].grad = g.clone()
        with torch.no_grad():
            run_together({i: run.nodes[i].round() for i in members})
    return run.x.numpy()[list(members)]


def rewired(run: Simulation, view: View) -> list[int]:
    with torch.no_grad():
        sent = run_together({i: run.nodes[i].rewire(view) for i in view.members})
    return [by_peer.total() for by_peer in sent]


def own_noise(compressor: Compressor, members: tuple[int, ...], first_round: int) -> oracle.Compress:
    from gossamer._random import generator

    def C(i: int, t: int, v: np.ndarray) -> np.ndarray:
        rng = generator(SEED, "noise", first_round + t, members[i])
        return compressor.decode(compressor.encode(torch.from_numpy(v), LAYOUT, rng), LAYOUT).numpy()

    return C


def task(X: np.ndarray, graph, members: tuple[int, ...]) -> oracle.Task:
    a = targets(5)[list(members)]
    return oracle.Task(X, lambda t: graph.W, lambda Y: Y - a, oracle.sgd(LR))


C8 = QSGD(8)
FORMS = {
    "choco sum": Choco(C8, gamma=0.4),
    "choco replicas": Choco(C8, gamma=0.4, memory="replicas"),
    "dcd sum": DCD(C8),
    "dcd replicas": DCD(C8, memory="replicas"),
    "ecd replicas": ECD(C8, memory="replicas"),
}


def choco_from(task, C, X_hat):
    """CHOCO from given replicas: tests.support.oracle begins with all equal."""
    X = task.X
    t = 0
    while True:
        X = X + task.u(X)
        X_hat = X_hat + oracle.rows(C, t, X - X_hat)
        X = X + 0.4 * (task.W(t) @ X_hat - X_hat)
        t += 1
        yield X


def dcd_from(task, C, X_hat):
    yield from oracle.dcd(task, C)  # x_hat = x after every round


def ecd_from(task, C, X_tilde, first_round):
    X = task.X
    for k in range(10**6):
        t = first_round + k + 1
        X_plus = task.W(k) @ X_tilde + task.u(X)
        Z = oracle.rows(C, k, (1 - t / 2) * X + (t / 2) * X_plus)
        X, X_tilde = X_plus, (1 - 2 / t) * X_tilde + (2 / t) * Z
        yield X


@pytest.mark.parametrize("form", FORMS)
def test_edges_come_and_go_between_rounds(form):
    """A worker leaves and others meet: from there on it is the matrix equation of the new graph."""
    run = simulation(quiet(lambda: FORMS[form]))
    run_rounds(run, (0, 1, 2, 3, 4), ROUNDS)
    before = {i: run.state(i) for i in LATER.members}
    known = [before[i].x_hat if hasattr(before[i], "x_hat") else before[i].x_tilde[i] for i in LATER.members]
    replicas = np.stack([v.numpy().copy() for v in known])
    rewired(run, LATER)
    X = run.x.numpy()[list(LATER.members)].copy()
    given = task(X, LATER.graph, LATER.members), own_noise(C8, LATER.members, ROUNDS), replicas
    start = {"choco": choco_from, "dcd": dcd_from}.get(form.split()[0])
    expected = start(*given) if start else ecd_from(*given, ROUNDS)
    for X in islice(expected, ROUNDS):
        worst = np.abs(run_rounds(run, LATER.members, 1) - X).max()
        assert worst <= 1e-10, f"{worst:.1e} apart"


@pytest.mark.parametrize("graph", [ring(5), star(5), complete(4)])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("choco", lambda m: Choco(C8, 0.3, memory=m)),
        ("dcd", lambda m: DCD(C8, memory=m)),
        ("ecd", lambda m: ECD(C8, memory=m)),
    ],
)
def test_both_forms_equal_the_same_oracle(name, make, graph):
    a = targets(graph.n)
    equations = {
        "choco": lambda t, C: oracle.choco(t, C, 0.3),
        "dcd": oracle.dcd,
        "ecd": oracle.ecd,
    }[name]
    members = tuple(range(graph.n))
    start = np.zeros((graph.n, LAYOUT.size))
    wanted = oracle.Task(start, lambda t: graph.W, lambda Y: Y - a, oracle.sgd(LR))
    expected = list(islice(equations(wanted, own_noise(C8, members, 0)), ROUNDS))
    for memory in ("sum", "replicas"):
        run = Simulation(
            LAYOUT.views(torch.zeros(LAYOUT.size, dtype=torch.float64)),
            graph,
            quiet(partial(make, memory)),
            gradient=lambda rank, p, step: {
                n: p[n].detach() - v for n, v in LAYOUT.views(torch.from_numpy(a[rank])).items()
            },
            optimizer=lambda p: torch.optim.SGD(p, lr=LR),
            seed=SEED,
        )
        for X in expected:
            run.step()
            assert np.abs(run.x.numpy() - X).max() <= 1e-10


def test_only_a_new_edge_costs_a_copy_in_full():
    run = simulation(Choco(C8, gamma=0.4, memory="replicas"))
    run_rounds(run, (0, 1, 2, 3, 4), 2)
    assert rewired(run, View(tuple(range(5)), FIRST)) == [0] * 5, "the same edges"
    wanted = View((0, 1, 2, 3, 4), from_edges([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)]))
    full = Identity(raw="never").nbytes(LAYOUT)
    assert rewired(run, wanted) == [full, 0, full, 0, 0]
    assert set(run.state(0).others) == {1, 2, 4}


@pytest.mark.parametrize("algorithm", [DPSGD(), quiet(lambda: DeepSqueeze(C8, 0.2)), PowerGossip()])
def test_who_knows_nothing_of_neighbours_exchanges_nothing(algorithm):
    run = simulation(algorithm)
    run_rounds(run, (0, 1, 2, 3, 4), 2)
    assert rewired(run, LATER) == [0] * 4
    average = run_rounds(run, LATER.members, 3).mean(0)
    assert np.isfinite(average).all()
    if isinstance(algorithm, PowerGossip):
        assert all(1 not in run.state(i).edges for i in LATER.members)


def test_a_sum_of_estimates_cannot_be_rewired():
    run = simulation(quiet(lambda: ECD(C8)))
    with pytest.raises(ValueError, match="memory='replicas'"):
        rewired(run, LATER)


def test_noise_and_edges_belong_to_ids():
    """Whoever stays keeps its randomness when another leaves: ids are not places in a list."""
    view = View((3, 8), complete(2))
    assert view.weights(8, 0) == {3: 0.5, 8: 0.5}
    assert view.senders(3, 0) == view.receivers(3, 0) == (8,)


@pytest.mark.parametrize(
    ("members", "problem"),
    [((0, 1, 2), "3 members for complete of 2"), ((1, 0), "increasing"), ((1, 1), "increasing")],
)
def test_views_that_make_no_sense(members, problem):
    with pytest.raises(ValueError, match=problem):
        View(members, complete(2))


def test_a_stranger_has_no_place():
    with pytest.raises(ValueError, match="worker 5 is not among"):
        View((0, 1), complete(2)).weights(5, 0)


def test_an_unknown_memory():
    with pytest.raises(ValueError, match="'sum' or 'replicas'"):
        Choco(C8, memory="all")  # type: ignore[arg-type]
