"""The algorithms once more, as matrix equations in numpy, written from the papers and not from `src`.

Row i of X is worker i's vector. Each algorithm is an endless generator that yields X after every
round. `C(i, t, v)` compresses worker i's vector of round t; t counts from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

Matrix = np.ndarray
Compress = Callable[[int, int, Matrix], Matrix]
Edge = tuple[int, int]
Factors = list[tuple[Matrix, Matrix]]

ADAPT_FIRST: Final = "adapt-then-combine"
COMBINE_FIRST: Final = "combine-then-adapt"


@dataclass(frozen=True)
class Task:
    """What is optimized, from where, over which graph."""

    X: Matrix  # n x d, the start
    W: Callable[[int], Matrix]  # the mixing matrix of a round
    G: Callable[[Matrix], Matrix]  # all workers' gradients
    displace: Callable[[Matrix, Matrix], Matrix]  # u from X and gradients: -lr g for plain SGD
    every: int = 1  # optimizer steps a round
    overlap: int = 1  # how many of them come after what a message of combine-then-adapt tells of

    def u(self, X: Matrix) -> Matrix:
        """Return what the optimizers would do at X."""
        return self.displace(X, self.G(X))

    def local(self, X: Matrix) -> Matrix:
        """Return X after the steps of a round that come before a message of combine-then-adapt."""
        return X + self.U(X, self.every - self.overlap)

    def U(self, X: Matrix, steps: int) -> Matrix:
        """Return what so many steps do from X on."""
        start = X
        for _ in range(steps):
            X = X + self.u(X)
        return X - start


def sgd(lr: float) -> Callable[[Matrix, Matrix], Matrix]:
    return lambda X, g: -lr * g


def exact(i: int, t: int, v: Matrix) -> Matrix:
    return v


def top(ratio: float, sizes: tuple[int, ...]) -> Compress:
    """The largest max(1, int(ratio * size)) magnitudes of every tensor."""

    def C(i: int, t: int, v: Matrix) -> Matrix:
        out, at = np.zeros_like(v), 0
        for size in sizes:
            chosen = at + np.argsort(-np.abs(v[at : at + size]))[: max(1, int(ratio * size))]
            out[chosen] = v[chosen]
            at += size
        return out

    return C


def sign(sizes: tuple[int, ...]) -> Compress:
    """|v|_1 / d times the sign of every entry, tensor by tensor; 0 counts as positive."""

    def C(i: int, t: int, v: Matrix) -> Matrix:
        parts = np.split(v, np.cumsum(sizes)[:-1])
        return np.concatenate([np.abs(p).mean() * np.where(p < 0, -1.0, 1.0) for p in parts])

    return C


def rows(C: Compress, t: int, V: Matrix) -> Matrix:
    return np.stack([C(i, t, v) for i, v in enumerate(V)])


def allreduce(task: Task, C: Compress = exact) -> Iterator[Matrix]:
    """Average gradients, or with local steps the displacements since the last round."""
    X = task.X
    for t in count():
        if task.every == 1:
            mean = rows(C, t, task.G(X)).mean(0)
            X = X + task.displace(X, np.tile(mean, (len(X), 1)))
        else:
            X = X + rows(C, t, task.U(X, task.every)).mean(0)
        yield X


def dpsgd(task: Task, order: str = COMBINE_FIRST, gamma: float = 1.0) -> Iterator[Matrix]:
    X = task.X
    for t in count():
        W = task.W(t)
        if order == ADAPT_FIRST:
            X = X + task.U(X, task.every)
            X = (1 - gamma) * X + gamma * W @ X
        else:
            X = task.local(X)
            X = (1 - gamma) * X + gamma * W @ X + task.U(X, task.overlap)
        yield X


def naive(task: Task, C: Compress) -> Iterator[Matrix]:
    X = task.X
    for t in count():
        X = task.local(X)
        X = task.W(t) @ rows(C, t, X) + task.U(X, task.overlap)
        yield X


def dcd(task: Task, C: Compress) -> Iterator[Matrix]:
    """x̂ = x after every round: with local steps, u is all that the optimizer did since then."""
    X = task.X
    for t in count():
        X = X + rows(C, t, task.W(t) @ X + task.U(X, task.every) - X)
        yield X


def ecd(task: Task, C: Compress, *, only_sent: bool = False) -> Iterator[Matrix]:
    """`only_sent` makes a public implementation's mistake: other coordinates of x̃ stay as they are."""
    X, X_tilde = task.X, task.X
    for t in count(1):
        X_plus = task.W(t - 1) @ X_tilde + task.U(X, task.every)
        Z = rows(C, t - 1, (1 - t / 2) * X + (t / 2) * X_plus)
        moved = (1 - 2 / t) * X_tilde + (2 / t) * Z
        X, X_tilde = X_plus, np.where(Z == 0, X_tilde, moved) if only_sent else moved
        yield X


def choco(
    task: Task, C: Compress, gamma: float, order: str = ADAPT_FIRST, x_hat: str = "start"
) -> Iterator[Matrix]:
    """Overlapped, a round ends with the consensus step that the paper puts first in the next one."""
    X = task.X
    X_hat = X if x_hat == "start" else np.zeros_like(X)
    for t in count():
        W = task.W(t)
        if order == ADAPT_FIRST:
            X = X + task.U(X, task.every)
            X_hat = X_hat + rows(C, t, X - X_hat)
            X = X + gamma * (W @ X_hat - X_hat)
        else:
            X = task.local(X)
            X_hat = X_hat + rows(C, t, X - X_hat)
            X = X + task.U(X, task.overlap)
            X = X + gamma * (W @ X_hat - X_hat)
        yield X


def deep_squeeze(task: Task, C: Compress, gamma: float) -> Iterator[Matrix]:
    X, delta = task.X, np.zeros_like(task.X)
    for t in count():
        X = X + task.U(X, task.every)
        V = X + delta
        CV = rows(C, t, V)
        delta = V - CV
        X = X + gamma * (task.W(t) @ CV - CV)
        yield X


def power_gossip(
    task: Task,
    shapes: tuple[tuple[int, ...], ...],
    draw: Callable[[Edge, int], Factors],
    *,
    sub_steps: int = 1,
    gamma: float = 1.0,
    warm: bool = True,
    order: str = ADAPT_FIRST,
) -> Generator[Matrix, tuple[Matrix, dict[Edge, Factors]] | None, None]:
    """`draw((lo, hi), c)` gives P and Q of every matrix before sub-step c + 1 of an edge.

    Send X and the edges' factors to go on from there instead.
    """
    X = task.X
    factors: dict[Edge, Factors] = {}
    done: dict[Edge, int] = {}
    for t in count():
        X, W = task.local(X), task.W(t)
        U = task.U(X, task.overlap)
        X = X + U if order == ADAPT_FIRST else X.copy()
        edges = [(lo, hi) for hi in range(len(W)) for lo in range(hi) if W[lo, hi] > 0]
        for sub_step in range(sub_steps):
            move = np.zeros_like(X)  # all edges look at the same X
            for lo, hi in edges:
                c = done.get((lo, hi), 0)
                drawn = factors.get((lo, hi)) if warm else None
                D = X[hi] - X[lo]
                step, factors[lo, hi] = _edge_step(D, shapes, drawn or draw((lo, hi), c), c, sub_step)
                done[lo, hi] = c + 1
                move[hi] -= gamma * W[lo, hi] * step
                move[lo] += gamma * W[lo, hi] * step
            X = X + move
        X = X if order == ADAPT_FIRST else X + U
        X, factors = (yield X) or (X, factors)


def _edge_step(
    D: Matrix, shapes: tuple[tuple[int, ...], ...], factors: Factors, c: int, sub_step: int
) -> tuple[Matrix, Factors]:
    """Return what is seen of the difference D of two ends, and the new P and Q."""
    seen, new, at = np.zeros_like(D), [], 0
    matrices = iter(factors)
    for shape in shapes:
        size = int(np.prod(shape))
        part = slice(at, at + size)
        at += size
        if len(shape) < 2:
            seen[part] = D[part] if sub_step == 0 else 0.0  # vectors go whole, once a round
            continue
        M = D[part].reshape(shape[0], -1)
        P, Q = next(matrices)
        if c % 2 == 0:
            Q = orthonormal(Q)
            P = M @ Q
        else:
            P = orthonormal(P)
            Q = M.T @ P
        seen[part] = (P @ Q.T).ravel()
        new.append((P, Q))
    return seen, new


def orthonormal(A: Matrix) -> Matrix:
    """Modified Gram-Schmidt, column by column."""
    A = A.copy()
    for i in range(A.shape[1]):
        A[:, i] = A[:, i] / (np.linalg.norm(A[:, i]) + 1e-8)
        for j in range(i + 1, A.shape[1]):
            A[:, j] = A[:, j] - A[:, i] * (A[:, i] @ A[:, j])
    return A
