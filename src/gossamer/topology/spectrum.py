"""What the eigenvalues of a mixing matrix say about how fast it mixes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Spectrum:
    """The numbers that convergence theorems ask of a mixing matrix.

    A directed W is described by its singular values instead of eigenvalues: one round then
    shrinks the disagreement by a factor of `lambda2` at least, whatever the phases do.
    One worker alone has no second eigenvalue; both are reported as 0.
    """

    gap: float  # 1 - max(|lambda2|, |lambda_min|)
    lambda2: float  # the second largest
    lambda_min: float  # the smallest
    beta: float  # ||I - W||_2


def spectrum_of(W: npt.NDArray[np.float64], *, directed: bool) -> Spectrum:
    """Compute the spectrum of a doubly stochastic matrix."""
    n = len(W)
    if n == 1:
        return Spectrum(gap=1.0, lambda2=0.0, lambda_min=0.0, beta=0.0)
    values = np.linalg.svd(W, compute_uv=False)[::-1] if directed else np.linalg.eigvalsh(W)
    lambda2, lambda_min = float(values[-2]), float(values[0])
    gap = 1.0 - max(abs(lambda2), abs(lambda_min))
    beta = float(np.linalg.norm(np.eye(n) - W, 2))
    # A graph that does not mix has gap 0; rounding must not make it negative.
    return Spectrum(max(gap, 0.0), lambda2, lambda_min, beta)
