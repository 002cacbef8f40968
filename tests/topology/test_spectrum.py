import math

import numpy as np
import pytest

from gossamer import topology as tp
from gossamer.topology.spectrum import spectrum_of


@pytest.mark.parametrize(
    ("n", "lambda2", "lambda_min", "gap", "gamma"),
    [
        (4, 0.3333, -0.3333, 0.6667, 1.000),
        (8, 0.8047, -0.3333, 0.1953, 1.308),
        (16, 0.9493, -0.3333, 0.0507, 1.445),
        (32, 0.9872, -0.3333, 0.0128, 1.486),
        (64, 0.9968, -0.3333, 0.0032, 1.496),
    ],
)
def test_rings_of_the_guide(n, lambda2, lambda_min, gap, gamma):
    found = tp.ring(n).spectrum
    assert (found.lambda2, found.lambda_min, found.gap) == pytest.approx((lambda2, lambda_min, gap), abs=6e-5)
    assert 2 / ((1 - found.lambda2) + (1 - found.lambda_min)) == pytest.approx(gamma, abs=6e-4)


def test_the_social_graph_of_the_guide():
    found = tp.social().spectrum
    assert (found.lambda2, found.lambda_min) == pytest.approx((0.9179, -0.4343), abs=6e-5)


@pytest.mark.parametrize(
    ("build", "gaps"),
    [(tp.ring, (0.67, 0.05, 0.01)), (tp.torus, (0.67, 0.4, 0.2)), (tp.complete, (1, 1, 1))],
)
def test_gaps_of_chocos_table_2(build, gaps):
    """Koloskova, Stich, Jaggi 2019, arXiv:1902.00340, Table 2."""
    assert [round(build(n).spectrum.gap, 2) for n in (4, 16, 36)] == list(gaps)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 13, 40])
def test_ring_in_closed_form(n):
    values = sorted(1 / 3 + 2 / 3 * math.cos(2 * math.pi * k / n) for k in range(n))
    found = tp.ring(n).spectrum
    assert (found.lambda2, found.lambda_min) == pytest.approx((values[-2], values[0]))
    assert found.beta == pytest.approx(1 - values[0])
    assert np.linalg.eigvalsh(tp.ring(n).W) == pytest.approx(values)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 5])
def test_hypercube_in_closed_form(dimensions):
    found, d = tp.hypercube(2**dimensions).spectrum, dimensions
    assert (found.lambda2, found.lambda_min) == pytest.approx(((d - 1) / (d + 1), (1 - d) / (d + 1)))


@pytest.mark.parametrize("n", [3, 7, 30])
def test_star_in_closed_form(n):
    found = tp.star(n).spectrum
    assert (found.lambda2, found.lambda_min, found.gap) == pytest.approx((1 - 1 / n, 0, 1 / n))


@pytest.mark.parametrize("n", [2, 5, 20])
def test_complete_in_closed_form(n):
    found = tp.complete(n).spectrum
    assert (found.lambda2, found.lambda_min, found.gap, found.beta) == pytest.approx((0, 0, 1, 1))


def test_one_worker_has_the_best_gap_there_is():
    assert tp.ring(1).spectrum == tp.Spectrum(gap=1.0, lambda2=0.0, lambda_min=0.0, beta=0.0)


def test_a_directed_graph_is_measured_by_how_much_it_shrinks_disagreement():
    n = 5
    step = np.roll(np.eye(n), 1, axis=0)
    found = spectrum_of((np.eye(n) + step) / 2, directed=True)
    values = [abs(1 + np.exp(2j * math.pi * k / n)) / 2 for k in range(n)]
    assert (found.lambda2, found.lambda_min) == pytest.approx((values[1], min(values)))
    assert found.gap == pytest.approx(1 - values[1])
    assert found.beta == pytest.approx(max(abs(1 - np.exp(2j * math.pi * k / n)) / 2 for k in range(n)))
    assert spectrum_of(step, directed=True).gap == pytest.approx(0, abs=1e-12)


def test_a_round_that_leaves_workers_alone_has_no_gap():
    assert tp.from_edges([(0, 1)], n=3, partial=True).spectrum.gap == pytest.approx(0, abs=1e-12)


def test_the_spectrum_is_computed_once():
    graph = tp.ring(5)
    assert graph.spectrum is graph.spectrum
