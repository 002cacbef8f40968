"""What workers draw or compute apart and must have alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gossamer._node.settings import fingerprint
from gossamer._random import bell_shaped, seed_of
from gossamer.algorithms import DPSGD, Choco, PowerGossip
from gossamer.algorithms.orthonormal import orthonormal
from gossamer.compress import RandomK, Sign, TopK
from tests.support import oracle


def test_a_draw_is_the_sum_of_the_four_parts_of_a_raw_number():
    raw = np.random.PCG64(seed_of(3, "here")).random_raw(5)
    parts = [[int(number) >> shift & 0xFFFF for shift in (0, 16, 32, 48)] for number in raw]
    assert bell_shaped(5, 3, "here").tolist() == [(sum(four) - 131070) / 32768 for four in parts]


def test_the_draws_of_a_key_never_change():
    assert bell_shaped(3, "probe").mul(2**15).tolist() == [-42985.0, 27974.0, -14385.0]


def test_draws_are_nearly_normal():
    n = 200_000
    v = bell_shaped(n, "moments").double() / (4 / 3) ** 0.5
    error = n**-0.5
    assert abs(v.mean()) < 5 * error
    assert abs(v.square().mean() - 1) < 5 * 1.31 * error  # E v^4 = 3 - 6/5/4 = 2.7
    assert abs(v.pow(4).mean() - 2.7) < 5 * 8 * error
    within = (v.abs() < 1).double().mean()  # (4a - 2a^3 + 3a^4/4)/3 with a^2 = 1/3
    assert abs(within - 0.6693) < 5 * 0.5 * error


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gram_schmidt_of_many_matrices_at_once(dtype):
    rng = np.random.default_rng(0)
    shapes = [(5, 2), (300, 3), (257, 1), (256, 3), (1, 1), (4, 4), (600, 2), (0, 0), (7, 0)]
    matrices = [rng.normal(size=shape) for shape in shapes]
    found = orthonormal([torch.from_numpy(A).to(dtype) for A in matrices])
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    for A, Q in zip(matrices, found, strict=True):
        assert Q.dtype == dtype
        assert Q.is_contiguous()
        np.testing.assert_allclose(Q.numpy(), oracle.orthonormal(A), atol=tolerance)


def test_gram_schmidt_leaves_zeros_and_its_input_alone():
    v = torch.zeros(10, 2)
    v[:, 1] = 1.0
    before = v.clone()
    (Q,) = orthonormal([v])
    assert torch.equal(v, before)
    assert torch.equal(Q[:, 0], torch.zeros(10))
    assert torch.allclose(Q[:, 1], torch.full((10,), 0.1**0.5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_is_made_of_halves_and_a_root_is_correctly_rounded(dtype):
    """The arithmetic written down for everybody who implements the other end.

    Fifty vectors: a square root that is not rounded as IEEE 754 says is right most of the time.
    """
    for seed in range(50):
        v = np.random.default_rng(seed).normal(size=300).astype(dtype)
        terms = np.zeros(512, dtype=dtype)
        terms[:300] = v * v
        while len(terms) > 1:
            terms = terms[: len(terms) // 2] + terms[len(terms) // 2 :]
        root = dtype(math.sqrt(terms[0]))  # correctly rounded in float64, and so to float32
        (Q,) = orthonormal([torch.from_numpy(v).view(-1, 1)])
        assert np.array_equal(Q.numpy().ravel(), v / (root + dtype(1e-8))), seed


def test_what_is_compared_follows_from_what_is_shared():
    nothing = [DPSGD(), Choco(Sign()), Choco(TopK(0.1)), Choco(TopK(0.1, values=Sign()))]
    assert {fingerprint(algorithm.shared_draws()) for algorithm in nothing} == {"none"}
    something = [PowerGossip(), Choco(RandomK(0.1)), Choco(RandomK(0.2)), Choco(TopK(0.5, RandomK(0.1)))]
    found = [fingerprint(algorithm.shared_draws()) for algorithm in something]
    assert "none" not in found
    assert found[1] == found[3]  # the random-k inside
    assert len({*found}) == 3
