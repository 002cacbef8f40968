"""The symmetric weights that mix fastest on a given graph.

Boyd, Diaconis, Xiao 2004, "Fastest mixing Markov chain on a graph", as their semidefinite program

    minimise s   subject to   -s I <= W - J/n <= s I,   w >= 0,   own weights >= 0

where W = I - sum over edges l of w_l a_l a_l^T, and a_l = e_i - e_j. They solve it by subgradient
steps; here Newton's method follows the log-barrier's central path. At t, the path is within
(number of barriers)/t of the optimum, so the accuracy is known instead of hoped for. The path
ends in the centre of the optimal set, so edges that look alike get equal weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.topology.graph import Links, Matrix

Vector = npt.NDArray[np.float64]

_ACCURACY = 1e-7  # of s, and so of the gap
_GROWTH = 20.0  # of t, from one point of the path to the next
_NEAR = 0.1  # squared Newton decrement at which a point is near enough to the path to continue
_CENTRED = 1e-4  # the same, to stop at the end
_NEGLIGIBLE = 1e-5  # a weight not worth a message in every round
_GRID = 2.0**24  # final weights are multiples of 1/_GRID


def fastest(links: Links) -> Matrix:
    """Weigh the edges so that max(lambda2, -lambda_n) is least; an edge may get weight 0."""
    heads, tails = np.nonzero(np.triu(links))
    degrees = links.sum(axis=1)
    program = _Program(len(links), heads, tails)
    w = 1.0 / (1 + np.maximum(degrees[heads], degrees[tails]))  # Metropolis
    if program.norm(w) > _ACCURACY:  # else one round averages already
        w = min(w, program.rounded(program.solve(w)), key=program.norm)
    W = np.zeros(links.shape)
    W[heads, tails] = W[tails, heads] = w
    return W


@dataclass(frozen=True)
class _Program:
    """The semidefinite program of one graph; a point z holds the weights w, then s."""

    n: int
    heads: npt.NDArray[np.intp]
    tails: npt.NDArray[np.intp]

    def solve(self, w: Vector) -> Vector:
        """Follow the central path from any w inside the constraints to its end."""
        barriers = 3.0 * self.n + len(w)  # n for each of the two matrices, n own weights, the w
        z, t, t_end = np.append(w, 1.1), barriers, barriers / _ACCURACY
        while True:
            near = _CENTRED if t >= t_end else _NEAR
            decrement = np.inf
            while decrement > near:
                step, decrement = self.newton(z, t)
                z = z + self.step_size(z, t, step, decrement) * step
            if t >= t_end:
                return z[:-1]
            t = min(t * _GROWTH, t_end)

    def own(self, w: Vector) -> Vector:
        """Return each worker's own weight."""
        ends = np.concatenate((self.heads, self.tails))
        return np.asarray(1.0 - np.bincount(ends, np.concatenate((w, w)), self.n))

    def disagreement(self, w: Vector) -> Matrix:
        """Return W - J/n: what a round leaves of the workers' differences."""
        D = np.diag(self.own(w)) - 1.0 / self.n
        D[self.heads, self.tails] += w
        D[self.tails, self.heads] += w
        return D

    def norm(self, w: Vector) -> float:
        """Return max(lambda2, -lambda_n)."""
        return float(np.linalg.norm(self.disagreement(w), 2))

    def rounded(self, w: Vector) -> Vector:
        """Round to a binary grid: rows then sum to exactly 1, and machines whose BLAS differs agree."""
        scaled = np.where(w < _NEGLIGIBLE, 0.0, w) * _GRID
        grid = np.rint(scaled)
        over = self.own(grid / _GRID) < 0  # of these workers, too much was rounded up
        return np.where(over[self.heads] | over[self.tails], np.floor(scaled), grid) / _GRID

    def value(self, z: Vector, t: float) -> float:
        """Return t s minus all logarithms, infinite where a constraint is broken."""
        w, s, D = z[:-1], z[-1] * np.eye(self.n), self.disagreement(z[:-1])
        linear = np.concatenate((w, self.own(w)))
        if linear.min() <= 0:
            return np.inf
        try:
            roots = [np.diag(np.linalg.cholesky(slack)) for slack in (s - D, s + D)]
        except np.linalg.LinAlgError:  # not positive definite
            return np.inf
        return float(t * z[-1] - 2 * np.log(roots).sum() - np.log(linear).sum())

    def newton(self, z: Vector, t: float) -> tuple[Vector, float]:
        """Return the Newton step and its squared decrement."""
        w, i, j, m = z[:-1], self.heads, self.tails, len(z) - 1
        D, s = self.disagreement(w), z[-1] * np.eye(self.n)
        keep = np.zeros((self.n, m))  # how own weights limit the edges that end there
        keep[i, np.arange(m)] = keep[j, np.arange(m)] = 1.0
        keep /= self.own(w)[:, None]
        gradient, hessian = np.append(keep.sum(axis=0) - 1 / w, t), np.zeros((m + 1, m + 1))
        hessian[:m, :m] = keep.T @ keep + np.diag(1 / w**2)
        for sign, slack in ((1.0, s - D), (-1.0, s + D)):  # d slack / d w_l = sign * a_l a_l^T
            inverse = np.linalg.inv(slack)
            rows = inverse[i] - inverse[j]
            G = rows[:, i] - rows[:, j]  # a_k^T inverse a_l
            gradient -= np.append(sign * np.diag(G), np.trace(inverse))
            hessian[:m, :m] += G**2
            cross = sign * np.append((rows**2).sum(axis=1), 0.0)
            hessian[m] += cross
            hessian[:, m] += cross
            hessian[m, m] += (inverse**2).sum()
        step = np.linalg.solve(hessian, -gradient)
        return step, float(-gradient @ step)

    def step_size(self, z: Vector, t: float, step: Vector, decrement: float) -> float:
        """Halve a full step until it helps.

        The barrier is self-concordant: a full step is safe once the decrement's root is below
        1/4, and one of 1/(1 + root) always is, so that nothing smaller need be tried.
        """
        size, root = 1.0, decrement**0.5
        if root < 0.25:
            return size
        before = self.value(z, t)
        while size * (1 + root) > 1 and self.value(z + size * step, t) > before - 0.1 * size * decrement:
            size /= 2
        return size
