"""One round of every algorithm, driven by hand: two workers with two numbers each.

A round is a generator. It yields what it asks for, and goes on when it is sent the answer:

- a `Step`: the user's optimizer does x += u, and an empty inbox is sent;
- a `Phase`: its messages go to the neighbours, and the inbox with those that have arrived is sent.

Whoever drives rounds, a simulation or a process group, does this for all workers until the rounds end. Here
the test does it. The two workers are neighbours, all weights w_ij are 1/2, and the optimizer is SGD with
eta = 1/2, so that u = -g/2. All numbers are sums of a few powers of two: nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from gossamer.algorithms import DCD, DPSGD, ECD, AllReduce, Choco, DeepSqueeze, NaiveQuantized, PowerGossip
from gossamer.algorithms.edges import Edge, PowerGossipState
from gossamer.algorithms.estimates import ECDReplicas
from gossamer.algorithms.replicas import Replicas
from gossamer.compress import Compressor, Identity, TopK
from gossamer.compress.layout import Layout
from gossamer.rounds import Inbox, Phase, Step, StepsAndPhases, View, Worker
from gossamer.topology import complete
from tests.support.cases import quiet

Vectors = Sequence[Sequence[float]]  # one for each worker
EXACT = Identity(raw="never")
LARGER = TopK(0.5, raw="never")  # C([4, 1]) = [4, 0]
HEADER = 16  # bytes


def pair(x: Vectors, g: Vectors, shape: tuple[int, ...] = (2,)) -> list[Worker]:
    """Return two workers with these parameters and gradients."""

    def worker(i: int) -> Worker:
        gradient = torch.tensor(g[i], dtype=torch.float32)

        def set_gradient(new: Tensor) -> None:
            gradient.copy_(new)

        return Worker(
            id=i,
            view=View.of(complete(2)),
            layout=Layout(("w",), (shape,)),
            x=torch.tensor(x[i], dtype=torch.float32),
            gradient=gradient.clone,
            set_gradient=set_gradient,
            common_start=x[0] == x[1],
        )

    return [worker(0), worker(1)]


def step(workers: list[Worker]) -> None:
    """Do what the user's optimizer does: x += u, u = -eta g."""
    for worker in workers:
        worker.x.sub_(worker.gradient(), alpha=0.5)


def phases(asked: list[Phase | Step]) -> list[Phase]:
    return [wish for wish in asked if isinstance(wish, Phase)]


def deliver(asked: list[Phase | Step]) -> list[Inbox]:
    """Do what a network does: bring each worker's message to the other."""
    a, b = phases(asked)
    return [a.inbox({1: b.outbox()[0]}), b.inbox({0: a.outbox()[1]})]


def told(asked: list[Phase | Step], C: Compressor) -> list[list[float]]:
    """Return what each worker tells the other, as the other reads it."""
    return [
        C.decode(message, Layout.flat(2)).tolist() for a in phases(asked) for message in a.outbox().values()
    ]


def send(rounds: list[StepsAndPhases], inboxes: Sequence[Inbox] = ({}, {})) -> list[Phase | Step]:
    """Send each round its inbox; return what it asks for next."""
    return [r.send(inbox) for r, inbox in zip(rounds, inboxes, strict=True)]


def end(rounds: list[StepsAndPhases], inboxes: Sequence[Inbox] = ({}, {})) -> None:
    """Send each round its inbox; it asks for nothing more."""
    for r, inbox in zip(rounds, inboxes, strict=True):
        with pytest.raises(StopIteration):
            r.send(inbox)


def kinds(asked: list[Phase | Step]) -> list[type]:
    return [type(wish) for wish in asked]


def values(tensors: Sequence[Tensor]) -> list[list[float]]:
    return [t.tolist() for t in tensors]


def models(workers: list[Worker]) -> list[list[float]]:
    return values([worker.x for worker in workers])


def test_dpsgd():
    """Lian et al. 2017, Algorithm 1.

    x_i = sum_j w_ij x_j + u_i, with the gradient at the old x_i.
    """
    workers = pair(x=[[4, 0], [0, 8]], g=[[2, 0], [0, 4]])
    rounds = [DPSGD().round(worker, None) for worker in workers]
    asked = [next(r) for r in rounds]
    assert kinds(asked) == [Phase, Phase], "the models leave while gradients are computed"
    assert told(asked, EXACT) == [[4, 0], [0, 8]]
    asked = send(rounds, deliver(asked))
    assert kinds(asked) == [Step, Step]
    step(workers)
    end(rounds)
    # The average is [2, 4] for both, u = [-1, 0] and [0, -2].
    assert models(workers) == [[1, 4], [2, 2]]


def test_naive():
    """Tang et al. 2018, section 3.

    x_i = sum_j w_ij C(x_j) + u_i: what C leaves out of a model is lost.
    """
    workers = pair(x=[[4, 1], [2, 8]], g=[[2, 0], [0, 4]])
    rounds = [NaiveQuantized(LARGER).round(worker, None) for worker in workers]
    asked = [next(r) for r in rounds]
    assert kinds(asked) == [Phase, Phase]
    assert told(asked, LARGER) == [[4, 0], [0, 8]]
    asked = send(rounds, deliver(asked))
    assert kinds(asked) == [Step, Step]
    step(workers)
    end(rounds)
    # ([4, 0] + [0, 8])/2 = [2, 4], where the true average is [3, 4.5]; u = [-1, 0] and [0, -2].
    assert models(workers) == [[1, 4], [2, 2]]


def test_allreduce():
    """x += u(g) with g = 1/2 (g_0 + g_1): first each worker sums up one half of g, then both share halves."""
    workers = pair(x=[[4, 4], [4, 4]], g=[[2, 0], [4, 8]])
    rounds = [AllReduce().round(worker, AllReduce().start(worker)) for worker in workers]
    asked = [next(r) for r in rounds]
    for _ in ("sum up", "share"):
        assert kinds(asked) == [Phase, Phase]
        assert [phase.sent() for phase in phases(asked)] == [{1: HEADER + 4}, {0: HEADER + 4}]  # one float32
        asked = send(rounds, deliver(asked))
    assert kinds(asked) == [Step, Step]
    assert values([worker.gradient() for worker in workers]) == [[3, 4], [3, 4]]
    step(workers)
    end(rounds)
    # Both: [4, 4] - 1/2 [3, 4].
    assert models(workers) == [[2.5, 2], [2.5, 2]]


def test_choco():
    """Koloskova et al. 2019, Algorithm 2.

    x_i += u_i; x^_i += C(x_i - x^_i); x_i += gamma (sum_j w_ij x^_j - x^_i), all from the common start.
    """
    choco = Choco(LARGER, gamma=0.5)
    workers = pair(x=[[0, 0], [0, 0]], g=[[-8, -2], [-4, -16]])
    states = [choco.start(worker) for worker in workers]
    rounds = [choco.round(worker, state) for worker, state in zip(workers, states, strict=True)]
    asked = [next(r) for r in rounds]
    assert kinds(asked) == [Step, Step]
    step(workers)  # x = [4, 1] and [2, 8]
    asked = send(rounds)
    assert kinds(asked) == [Phase, Phase]
    assert told(asked, LARGER) == [[4, 0], [0, 8]], "C(x - x^), where x^ is 0 so far"
    end(rounds, deliver(asked))
    assert values([state.x_hat for state in states]) == [[4, 0], [0, 8]]
    # The average of x^ is [2, 4]: [4, 1] + 1/2 [-2, 4] and [2, 8] + 1/2 [2, -4]. That of x stays [3, 4.5].
    assert models(workers) == [[3, 3], [3, 6]]


def test_deep_squeeze():
    """Tang et al. 2019, Algorithm 1.

    x_i += u_i; v_i = x_i + delta_i; delta_i = v_i - C(v_i); x_i += gamma (sum_j w_ij C(v_j) - C(v_i)).
    """
    squeeze = DeepSqueeze(LARGER, gamma=0.5)
    workers = pair(x=[[2, 2], [4, 4]], g=[[-4, 2], [4, -8]])
    states = [squeeze.start(worker) for worker in workers]
    rounds = [squeeze.round(worker, state) for worker, state in zip(workers, states, strict=True)]
    asked = [next(r) for r in rounds]
    assert kinds(asked) == [Step, Step]
    step(workers)  # x = [4, 1] and [2, 8]
    asked = send(rounds)
    assert kinds(asked) == [Phase, Phase]
    assert told(asked, LARGER) == [[4, 0], [0, 8]], "C(v), where delta is 0 so far"
    end(rounds, deliver(asked))
    assert values([state.delta for state in states]) == [[0, 1], [2, 0]], "to be told in a later round"
    # The average of C(v) is [2, 4]: [4, 1] + 1/2 [-2, 4] and [2, 8] + 1/2 [2, -4].
    assert models(workers) == [[3, 3], [3, 6]]


def test_dcd():
    """Tang et al. 2018, Algorithm 1.

    z_i = sum_j w_ij x_j + u_i - x_i; x_i += C(z_i), and the neighbours' replicas of x_i move alike.
    """
    dcd = quiet(lambda: DCD(LARGER, memory="replicas"))  # arithmetic needs no theorem
    workers = pair(x=[[4, 0], [0, 8]], g=[[-4, -2], [-4, 8]])
    a, b = (worker.x for worker in workers)
    states = [Replicas(a.clone(), {1: b.clone()}), Replicas(b.clone(), {0: a.clone()})]  # in mid-run
    rounds = [dcd.round(worker, state) for worker, state in zip(workers, states, strict=True)]
    asked = [next(r) for r in rounds]
    assert kinds(asked) == [Step, Step]
    step(workers)  # u = [2, 1] and [2, -4]
    asked = send(rounds)
    assert kinds(asked) == [Phase, Phase]
    # The average is [2, 4]: z = [2, 4] + [2, 1] - [4, 0] = [0, 5] and [2, 4] + [2, -4] - [0, 8] = [4, -8].
    assert told(asked, LARGER) == [[0, 5], [0, -8]]
    end(rounds, deliver(asked))
    assert values([a, b]) == [[4, 5], [0, 0]]
    assert values([states[1].others[0], states[0].others[1]]) == [[4, 5], [0, 0]], "each knows the other"


def test_ecd():
    """Tang et al. 2018, Algorithm 2.

    x_i' = sum_j w_ij x~_j + u_i; z_i = (1 - t/2) x_i + t/2 x_i'; x~_i = (1 - 2/t) x~_i + 2/t C(z_i).
    """
    ecd = quiet(lambda: ECD(LARGER, memory="replicas"))
    workers = pair(x=[[4, 0], [0, 8]], g=[[2, 0], [0, 8]])
    a, b = (worker.x for worker in workers)
    states = [ECDReplicas(x.clone(), {0: a.double(), 1: b.double()}) for x in (a, b)]  # x~ = x so far
    for worker in workers:
        worker.t = 3  # rounds done; the paper's t is 4
    rounds = [ecd.round(worker, state) for worker, state in zip(workers, states, strict=True)]
    asked = [next(r) for r in rounds]
    assert kinds(asked) == [Step, Step]
    step(workers)  # u = [-1, 0] and [0, -4]
    asked = send(rounds)
    assert kinds(asked) == [Phase, Phase]
    assert values([a, b]) == [[1, 4], [2, 0]], "the average of x~, [2, 4], and u"
    # z = 2 [1, 4] - [4, 0] = [-2, 8] and 2 [2, 0] - [0, 8] = [4, -8].
    assert told(asked, LARGER) == [[0, 8], [0, -8]]
    end(rounds, deliver(asked))
    for state in states:  # 1/2 [4, 0] + 1/2 [0, 8] and 1/2 [0, 8] + 1/2 [0, -8]: the same on both workers
        assert values([state.x_tilde[0], state.x_tilde[1]]) == [[2, 4], [0, 0]]


def test_power_gossip():
    """Vogels et al. 2020, Algorithm 2.

    P = (X_1 - X_0) Q for an edge; X_0 += w P Q^T and X_1 -= w P Q^T: one direction is averaged.
    """
    gossip = PowerGossip(rank=1)
    workers = pair(x=[[0, 0, 0, 0], [4, 8, 2, 0]], g=[[0] * 4] * 2, shape=(2, 2))  # X row by row
    Q = torch.tensor([[1.0], [0.0]])  # looks at the first column; P would be used in the next sub-step
    states = [PowerGossipState({j: Edge([torch.zeros(2, 1)], [Q], c=0)}) for j in (1, 0)]
    rounds = [gossip.round(worker, state) for worker, state in zip(workers, states, strict=True)]
    asked = [next(r) for r in rounds]
    assert kinds(asked) == [Step, Step]
    asked = send(rounds)
    assert kinds(asked) == [Phase, Phase]
    assert [phase.sent() for phase in phases(asked)] == [{1: HEADER + 8}, {0: HEADER + 8}]  # two, not four
    end(rounds, deliver(asked))
    # X_0 Q = [0, 0], X_1 Q = [4, 2], P = [4, 2]: the first columns become their average, [2, 1].
    assert models(workers) == [[2, 0, 1, 0], [2, 8, 1, 0]]
    assert (
        values([state.edges[j].P[0].flatten() for state, j in zip(states, (1, 0), strict=True)])
        == [[4, 2]] * 2
    )
