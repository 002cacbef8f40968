"""Gram-Schmidt with the same bits on every machine.

Both ends of an edge compute it separately and must get the same numbers, whatever their processors.
A library adds up in an order that suits the processor, and floating-point sums depend on it. So
there are only element-wise operations here, which IEEE 754 defines to the bit, and sums in a fixed order.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import torch
from torch import Tensor

SHORTEST = 256


def orthonormal(matrices: list[Tensor]) -> list[Tensor]:
    """Return the matrices with orthonormal columns (Gram-Schmidt, in order, eps 1e-8).

    Those of similar height are treated at once, padded with zeros, which change no sum.
    """
    similar: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, v in enumerate(matrices):
        similar[_padded(v.shape[0]), v.shape[1], v.dtype, v.device].append(i)
    done: dict[int, Tensor] = {}
    for which in similar.values():
        first = matrices[which[0]]
        dtype = torch.promote_types(first.dtype, torch.float32)  # eps would vanish in half precision
        columns = first.new_zeros(first.shape[1], len(which), _padded(first.shape[0]), dtype=dtype)
        for k, i in enumerate(which):
            columns[:, k, : len(matrices[i])] = matrices[i].T
        _gram_schmidt(columns)
        for k, i in enumerate(which):
            done[i] = torch.empty_like(matrices[i], memory_format=torch.contiguous_format)
            done[i].copy_(columns[:, k, : len(matrices[i])].T)
    return [done[i] for i in range(len(matrices))]


def _gram_schmidt(columns: Tensor) -> None:
    """Make the columns (first dimension) of many matrices (second) orthonormal, in place."""
    for i, column in enumerate(columns):
        column /= _root(_sum(column * column)) + 1e-8  # noqa: PLW2901 - in place
        rest = columns[i + 1 :]
        if len(rest):
            rest -= column * _sum(column * rest)


def _sum(terms: Tensor) -> Tensor:
    """Add up along the last dimension, a power of two long: the second half to the first, and so on."""
    while (half := terms.shape[-1] // 2) > 0:
        terms = terms[..., :half] + terms[..., half:]
    return terms


def _root(squares: Tensor) -> Tensor:
    """Return the square roots as IEEE 754 rounds them.

    On a CPU torch may use MKL's, a fifth of which differ in the last bit by processor and version.
    """
    if squares.device.type != "cpu":
        return squares.sqrt()
    return torch.from_numpy(np.sqrt(squares.numpy()))


def _padded(length: int) -> int:
    """Return the next power of two, at least SHORTEST: few padded groups are faster than many short ones."""
    return max(SHORTEST, 1 << max(length - 1, 0).bit_length())
