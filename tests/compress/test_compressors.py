"""What every compressor promises, measured; and which tensors are sent raw."""

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gossamer._random import generator
from gossamer.compress import QSGD, Cast, Identity, LowRank, RandomK, Sign, TopK
from gossamer.compress.layout import Layout
from gossamer.compress.sparse import PREFILTER_FROM, SAMPLE, largest
from tests.support.cases import COMPRESSORS

COPIES = 32  # tensors are compressed one by one: one message with copies is as good as many draws


def received(compressor, v, draws=1):
    """Return C(v) for a tensor v, drawn many times over, one row each, as it is to float64."""
    layout = Layout(tuple(f"t{i}" for i in range(COPIES)), (tuple(v.shape),) * COPIES, v.dtype)
    C = torch.zeros(draws, layout.size, dtype=torch.float64)
    for i, into in enumerate(C):
        compressor.add(into, compressor.encode(v.reshape(-1).repeat(COPIES), layout, generator(7, i)), layout)
    return C.view(draws * COPIES, -1)


def relative_error(compressor, v, draws=1):
    """Return E|C(v) - v|^2 / |v|^2 and its standard error."""
    x = v.double().reshape(-1)
    errors = (received(compressor, v, draws) - x).square().sum(dim=1) / x.square().sum()
    return float(errors.mean()), float(errors.std()) / len(errors) ** 0.5


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=generator("normal", seed), dtype=dtype)


HOT = torch.zeros(16, 16).index_put_((torch.tensor(3), torch.tensor(5)), torch.tensor(-2.0))
VECTORS = {
    "Gaussian": normal(16, 16),
    "one-hot": HOT,
    "constant": torch.full((16, 16), -0.3),
    "heavy-tailed": normal(16, 16, seed=1) ** 5,
}


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("name", COMPRESSORS)
def test_the_declared_contraction_holds(name, vector):
    compressor, v = COMPRESSORS[name], VECTORS[vector]
    error, deviation = relative_error(compressor, v, draws=6)
    delta = compressor.delta(Layout(("v",), ((16, 16),)))
    assert 0 <= delta <= 1
    if delta:
        assert error <= 1 - delta + 4 * deviation + 1e-6


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("name", [name for name, c in COMPRESSORS.items() if c.unbiased])
def test_unbiased_in_every_entry(name, vector):
    off = received(COMPRESSORS[name], VECTORS[vector], draws=60) - VECTORS[vector].double().reshape(-1)
    if vector == "heavy-tailed":  # a tiny entry is rounded up too rarely to be measured: sums instead
        off = off @ normal(256, 256, dtype=torch.float64).sign()
    z = off.mean(dim=0) / (off.std(dim=0) / len(off) ** 0.5 + 1e-6)
    assert z.abs().max() < 5
    assert z.square().mean() < 1.6  # many small biases would add up here: 1 by chance, give or take 0.1


def test_top_k_loses_exactly_what_it_must_where_all_entries_are_alike():
    for ratio in (0.01, 0.1, 0.25, 0.5, 1.0):
        v = normal(20, 10).sign()
        assert relative_error(TopK(ratio), v)[0] == pytest.approx(1 - ratio, abs=1e-9)
        assert TopK(ratio).delta(Layout.flat(200)) == pytest.approx(ratio)


@pytest.mark.parametrize("vector", VECTORS)
def test_sign_has_its_exact_delta(vector):
    v = VECTORS[vector].double()
    delta = v.abs().sum() ** 2 / (v.numel() * v.square().sum())
    assert relative_error(Sign(), v)[0] == pytest.approx(1 - float(delta), abs=1e-9)
    assert Sign().delta(Layout.flat(256)) <= delta + 1e-12
    assert vector != "one-hot" or Sign().delta(Layout.flat(256)) == pytest.approx(float(delta))


def test_the_sign_of_zero_is_plus():
    v = torch.tensor([0.0, -0.0, 2.0, -2.0])
    assert Sign().decode(Sign().encode(v, Layout.flat(4)), Layout.flat(4)).tolist() == [1, 1, 1, -1]


@pytest.mark.parametrize("k", [1, 8, 64, 128, 256])
def test_random_k_has_its_exact_variance(k):
    for v in VECTORS.values():
        for compressor, exact in (
            (RandomK(k / 256), 1 - k / 256),
            (RandomK(k / 256, scaled=True), 256 / k - 1),
        ):
            error, deviation = relative_error(compressor, v, draws=20)
            assert abs(error - exact) <= 5 * deviation + 1e-6


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("bits", range(1, 9))
def test_qsgd_keeps_its_bounds(bits, norm):
    qsgd = QSGD(bits, bucket=64, norm=norm)
    tau = qsgd.tau(Layout.flat(256))
    s = max(qsgd.levels, 1)
    assert tau == (64 if bits == 1 else 1 + min(64 / (4 * s**2), 8 / s))
    between = torch.full((256,), 0.5 / s).index_fill_(0, torch.arange(0, 256, 64), 1.0)  # widest rounding
    for v in (*VECTORS.values(), between):
        error, deviation = relative_error(qsgd, v, draws=4)  # E|C|^2 = |v|^2 + E|C - v|^2: unbiased
        assert 1 + error <= tau + 4 * deviation + 1e-6
        error, deviation = relative_error(replace(qsgd, scale="contraction"), v, draws=4)
        assert error <= 1 - 1 / tau + 4 * deviation + 1e-6


@pytest.mark.parametrize("bits", range(1, 9))
def test_qsgd_bits_include_the_sign(bits):
    v, layout = torch.linspace(-1, 1, 4096), Layout.flat(4096)
    message = QSGD(bits, bucket=4096).encode(v, layout, generator(1))
    values = QSGD(bits, bucket=4096).decode(message, layout).unique()
    assert len(values) <= 2**bits
    assert len(values) == (2 if bits == 1 else 2**bits - 1)
    assert torch.equal(values, -values.flip(0))  # as many below 0 as above
    assert message.numel() == 16 + 4 + bits * 4096 // 8


def test_low_rank_is_exact_where_all_directions_are_alike():
    orthogonal = torch.linalg.qr(normal(16, 16, dtype=torch.float64)).Q
    for rank in (1, 2, 4, 7):
        assert relative_error(LowRank(rank), orthogonal)[0] == pytest.approx(1 - rank / 16, abs=1e-9)
        assert LowRank(rank).delta(Layout(("v",), ((16, 16),))) == rank / 16


@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (12, 5, 3, 3)])
def test_low_rank_comes_to_the_best_approximation(shape):
    v = normal(*shape, dtype=torch.float64)
    spectrum = torch.linalg.svdvals(v.reshape(shape[0], -1)).square()
    for rank in (1, 3):
        best = float(spectrum[rank:].sum() / spectrum.sum())
        errors = [relative_error(LowRank(rank, iterations=n), v)[0] for n in (1, 4, 100)]
        assert errors == sorted(errors, reverse=True)
        assert best - 1e-9 <= errors[-1] <= best * 1.005


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_low_rank_is_never_longer_than_the_tensors(dtype):
    for shape in ((3, 4), (4, 4), (8, 6), (7,), ()):
        layout = Layout(("v",), (shape,), dtype)
        assert LowRank(1, raw="never").nbytes(layout) <= Identity().nbytes(layout)


def on_the_stride(d, value):
    """Return a vector whose strided sample is all alike, unlike the rest."""
    return normal(d).index_fill_(0, torch.arange(0, d, max(1, d // SAMPLE)), value)


MISLEADING: dict[str, Callable[[int], Tensor]] = {
    "Gaussian": normal,
    "constant": lambda d: torch.full((d,), -1.0),
    "zeros": torch.zeros,
    "rising": lambda d: torch.linspace(-2, 1, d),
    "falling": lambda d: torch.linspace(3, 0, d),
    "large on the stride": lambda d: on_the_stride(d, 9.0),
    "small on the stride": lambda d: on_the_stride(d, 0.0),
    "periodic": lambda d: torch.arange(d).remainder(max(1, d // SAMPLE)).float(),
    "few": lambda d: torch.zeros(d).index_fill_(0, torch.arange(7, d, 50_001), -5.0),
}


@pytest.mark.parametrize("kind", MISLEADING)
def test_top_k_equals_a_full_sort(kind):
    for d in (1000, PREFILTER_FROM, 100_000, 1_000_000):
        v = MISLEADING[kind](d)
        magnitudes = v.abs().sort(descending=True).values
        for k in {1, d // 1000, d // 100, d // 3, d}:
            chosen = largest(v, k)
            assert len(chosen.unique()) == k
            assert torch.equal(v[chosen].abs().sort(descending=True).values, magnitudes[:k])


def test_random_k_sends_no_positions_and_both_ends_choose_alike():
    layout, v = Layout(("w", "b"), ((50, 20), (100,))), torch.arange(1.0, 1101)
    message = RandomK(0.1).encode(v, layout, generator(3))
    assert message.numel() == RandomK(0.1).nbytes(layout) == 16 + 8 + 4 * (100 + 10)
    decoded = RandomK(0.1).decode(message, layout)
    assert decoded.count_nonzero() == 110  # 100 of the matrix, 10 of the vector
    assert decoded[:1000].count_nonzero() == 100
    assert torch.equal(decoded[decoded != 0], v[decoded != 0])


def test_random_k_chooses_every_entry_equally_often():
    draws, d, p = 3200, 64, 0.125
    counts = (received(RandomK(p), torch.ones(d), draws // COPIES) != 0).sum(dim=0).double()
    assert float(counts.sum()) == draws * d * p
    chi_square = float((counts - draws * p).square().sum() / (draws * p * (1 - p)))
    assert 30 < chi_square < 110  # 64 by chance, give or take 11


def test_positions_above_2_to_the_24():
    d = 2**24 + 100
    v = torch.rand(d, generator=generator(1))
    far = torch.tensor([0, 2**24 - 1, 2**24 + 1, 2**24 + 3, d - 2, d - 1])  # float32 rounds the odd ones
    v[far] = torch.tensor([5.0, -6.0, 7.0, -8.0, 9.0, -10.0])
    compressor = TopK(6 / d)
    decoded = compressor.decode(compressor.encode(v, Layout.flat(d)), Layout.flat(d))
    assert torch.equal(decoded.nonzero().view(-1), far)
    assert torch.equal(decoded[far], v[far])


shapes = st.lists(st.lists(st.integers(0, 5), max_size=4).map(tuple), max_size=5).map(tuple)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16])


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(COMPRESSORS)), shapes, dtypes, st.integers(0, 9))
@example("lowrank-1", ((), (4, 2, 3)), torch.float32, 1)  # a matrix that begins at an odd place
def test_any_shape_any_dtype_any_stride(name, shapes, dtype, seed):
    compressor = COMPRESSORS[name]
    layout = Layout(tuple(f"t{i}" for i in range(len(shapes))), shapes, dtype)
    v = normal(layout.size, seed=seed).to(dtype)
    strided = torch.stack([v, torch.zeros_like(v)], dim=1)[:, 0]
    message = compressor.encode(strided, layout, generator(seed))
    assert torch.equal(message, compressor.encode(v, layout, generator(seed)))
    assert message.numel() == compressor.nbytes(layout)
    decoded = compressor.decode(message, layout)
    assert decoded.isfinite().all()
    if isinstance(compressor, Identity):
        assert torch.equal(decoded, v)


LAYER = Layout(("0.weight", "0.bias", "1.weight", "1.bias"), ((6, 10), (6,), (4, 6), (4,)))
POLICIES = {  # the tensors that must arrive as they are
    "vectors": {"0.bias", "1.bias"},
    "never": set(),
    6: {"0.bias", "1.bias"},
    4: {"1.bias"},
    10**6: set(LAYER.names),
    ("*.bias",): {"0.bias", "1.bias"},
    ("0.*", "1.bias"): {"0.weight", "0.bias", "1.bias"},
    (lambda name, shape: shape[0] == 4): {"1.weight", "1.bias"},
}


@pytest.mark.parametrize("policy", POLICIES)
def test_raw_tensors_ride_in_front_as_they_are(policy):
    v = normal(LAYER.size)
    compressor = Sign(raw=policy)
    message = compressor.encode(v, LAYER)
    sent, arrived = LAYER.views(v), LAYER.views(compressor.decode(message, LAYER))
    assert {name for name in LAYER.names if torch.equal(sent[name], arrived[name])} == POLICIES[policy]
    front = [sent[name].reshape(-1) for name in LAYER.names if name in POLICIES[policy]]
    raw = torch.cat([torch.zeros(0), *front])
    assert torch.equal(message[16 : 16 + 4 * raw.numel()].clone().view(torch.float32), raw)
    packed = [
        size for name, size in zip(LAYER.names, LAYER.sizes, strict=True) if name not in POLICIES[policy]
    ]
    assert message.numel() == 16 + 4 * raw.numel() + 4 * len(packed) + (sum(packed) + 7) // 8


@pytest.mark.parametrize("compressor", [Sign(), QSGD(4), TopK(0.01), Cast("fp16"), LowRank(2), Identity()])
def test_auto_pays_two_percent_for_raw_vectors_and_no_more(compressor):
    chosen = set()
    for size in (1, 5, 20, 100, 1000):
        layout = Layout(("weight", "bias"), ((100, 200), (size,)))
        never, vectors = (replace(compressor, raw=p).nbytes(layout) - 16 for p in ("never", "vectors"))
        is_raw = vectors <= 1.02 * never
        assert compressor.nbytes(layout) - 16 == (vectors if is_raw else never)
        chosen.add(is_raw)
    assert True in chosen


@pytest.mark.parametrize("policy", ["biases", 1.5, None, ["*.bias"], {"*.bias"}])
def test_a_policy_that_is_none_is_refused(policy):
    with pytest.raises(ValueError, match=r"raw=.*use 'auto', 'vectors', 'never', a size"):
        Sign(raw=policy).nbytes(LAYER)


def test_a_layout_forgets_its_hash_when_it_leaves_the_process():
    hash(LAYER)  # kept in the object; the hash of a text is another one in another process
    assert "_hash" not in vars(pickle.loads(pickle.dumps(LAYER)))  # noqa: S301


@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_a_half_precision_infinity_is_refused(bad):
    v = torch.tensor([1.0, bad], dtype=torch.float16)  # in float16 the limit itself is infinite
    with pytest.raises(ValueError, match="tensor 'x' holds"):
        Identity().encode(v, Layout.flat(2, torch.float16))
