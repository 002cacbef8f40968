"""A compressor per tensor: each treats its tensors as if there were no others."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer
from gossamer._random import generator
from gossamer.algorithms import Choco
from gossamer.compress import QSGD, Cast, Compressor, Identity, LowRank, Sign, Split, TopK, make
from gossamer.compress.layout import Layout
from gossamer.topology import ring
from tests.support.cases import quiet

LAYOUT = Layout(
    ("embed.weight", "body.weight", "body.bias", "head.weight", "head.bias"),
    ((6, 8), (8, 8), (8,), (4, 8), (4,)),
)
RULES = {"*.bias": Identity(), "embed.*": TopK(0.1), "head.*": Cast("fp16"), "*": Sign()}
CHOSEN = {
    "embed.weight": TopK(0.1),
    "body.weight": Sign(),
    "body.bias": Identity(),
    "head.weight": Cast("fp16"),
    "head.bias": Identity(),
}


def vector(seed=0, dtype=torch.float32):
    return torch.randn(LAYOUT.size, generator=generator(seed), dtype=dtype)


def test_every_tensor_is_treated_by_the_first_rule_that_matches():
    C, v = Split(RULES), vector()
    decoded = LAYOUT.views(C.decode(C.encode(v, LAYOUT), LAYOUT))
    for name, t in LAYOUT.views(v).items():
        alone = Layout.of({name: t})
        own = CHOSEN[name]
        assert torch.equal(decoded[name].reshape(-1), own.decode(own.encode(t.reshape(-1), alone), alone)), (
            name
        )


def test_a_message_has_one_header_and_the_payloads_end_to_end():
    shares = [
        C.nbytes(LAYOUT.pick([i for i, name in enumerate(LAYOUT.names) if CHOSEN[name] == C])) - 16
        for C in RULES.values()
    ]
    assert Split(RULES).nbytes(LAYOUT) == 16 + sum(shares)


@given(
    st.sets(st.sampled_from(LAYOUT.names)),
    st.sampled_from([Sign(), TopK(0.3), QSGD(4), LowRank(1), Cast("int8")]),
    st.sampled_from([1.0, -0.3, 1 / 3]),
)
def test_raw_is_short_for_a_split(names, compressor, weight):
    """The same payload and, up to a rounding, the same sums."""
    raw = replace(compressor, raw=tuple(names))
    split = Split({**dict.fromkeys(names, Identity(raw="never")), "*": replace(compressor, raw="never")})
    if len(names) > 1:  # one rule for all of them: their order is the layout's
        exact = {name: i for i, name in enumerate(LAYOUT.names)}
        renamed = tuple(("raw." if name in names else "") + name for name in exact)
        layout = Layout(renamed, LAYOUT.shapes)
        split = Split({"raw.*": Identity(raw="never"), "*": replace(compressor, raw="never")})
    else:
        layout = LAYOUT
    v, into = vector(1), vector(2)
    ours, theirs = split.encode(v, layout, generator(3)), raw.encode(v, LAYOUT, generator(3))
    assert torch.equal(ours[16:], theirs[16:])
    sums = into.clone(), into.clone()
    split.add(sums[0], ours, layout, weight)
    raw.add(sums[1], theirs, LAYOUT, weight)
    assert torch.allclose(*sums, rtol=1e-6, atol=1e-6)


def test_compressors_inside_have_randomness_of_their_own():
    layout = Layout(("a", "b"), ((64,), (64,)))
    C = Split({"a": QSGD(2, raw="never"), "*": QSGD(2, raw="never")})
    v = torch.full((128,), 0.4).index_fill_(0, torch.tensor([0, 64]), 1.0)
    a, b = C.decode(C.encode(v, layout, generator(5)), layout).view(2, -1)
    assert not torch.equal(a, b)


def test_promises_are_those_of_the_weakest():
    assert not Split(RULES).unbiased
    assert Split({"*.bias": Identity(), "*": QSGD(4)}).unbiased
    assert Split(RULES).delta(LAYOUT) == pytest.approx(1 / 64)  # sign, on body.weight
    only_bias = LAYOUT.pick([2, 4])
    assert Split(RULES).delta(only_bias) == 1.0


def test_gamma_is_small_enough_for_every_compressor_inside():
    graph = ring(6)
    hard = gossamer.tune_gamma(Choco(TopK(0.01)), graph)
    easy = gossamer.tune_gamma(Choco(Sign()), graph)
    assert hard < easy
    assert gossamer.tune_gamma(Choco(Split({"embed.*": TopK(0.01), "*": Sign()})), graph) == hard


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "split:*.bias=identity,*=topk:0.01:fp16",
            Split({"*.bias": Identity(), "*": TopK(0.01, Cast("fp16"))}),
        ),
        ("Split: Embed.W = top-k:10% ,*=SIGN", Split({"Embed.W": TopK(0.1), "*": Sign()})),
        ("split:*=qsgd:4:contraction", Split({"*": QSGD(4, scale="contraction")})),
    ],
)
def test_from_text(text, wanted):
    assert make(text) == wanted


@pytest.mark.parametrize(
    ("make_one", "problem"),
    [
        (lambda: Split({}), "end with"),
        (lambda: Split({"a": Sign()}), "end with"),
        (lambda: Split({"*": Sign(), "a": Sign()}), "end with"),
        (lambda: Split({"*": Sign()}, raw="auto"), "give those tensors a pattern"),
        (lambda: Split({"*": "sgn"}), "did you mean 'sign'"),
        (lambda: make("split"), "PATTERN=COMPRESSOR"),
        (lambda: make("split:sign"), "PATTERN=COMPRESSOR"),
        (lambda: make("split:a=,*=sign"), "PATTERN=COMPRESSOR"),
    ],
)
def test_mistakes(make_one, problem):
    with pytest.raises(ValueError, match=problem):
        make_one()


def test_a_pattern_that_matches_nothing_is_told(caplog):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    for pattern, warnings in (("*.biases", 1), ("*.bias", 0)):
        caplog.clear()
        gossamer.decentralize(
            torch.optim.SGD(model.parameters(), lr=0.1), model, compressor=f"split:{pattern}=identity,*=sign"
        )
        assert len(caplog.messages) == warnings
        assert all(
            f"'{pattern}' match no parameter; there are 0.weight, 0.bias" in m for m in caplog.messages
        )


@dataclass(frozen=True)
class Warming(Compressor):
    """Top-k of more and more entries: a budget that follows from the round."""

    code = TopK.code

    @property
    def unbiased(self):
        return False

    def delta(self, layout):
        return 0.0

    def payload_nbytes(self, layout):
        raise AssertionError("at() says which compressor it is")

    def pack(self, v, layout, rng):
        raise AssertionError("at() says which compressor it is")

    def accumulate(self, into, payload, layout, weight):
        raise AssertionError("at() says which compressor it is")

    def at(self, worker, t):
        return TopK(0.1 if (worker + t) % 2 else 0.5)


def test_budgets_inside_may_follow_from_worker_and_round():
    C = Split({"*.bias": Identity(), "*": Warming()})
    assert C.at(0, 0) == Split({"*.bias": Identity(), "*": TopK(0.5)})
    assert C.at(0, 1) == C.at(1, 0) == Split({"*.bias": Identity(), "*": TopK(0.1)})
    algorithm = quiet(lambda: Choco(C, 0.5))
    run = gossamer.Simulation({"w": torch.randn(4, 9), "w.bias": torch.ones(3)}, ring(2), algorithm)
    run.run(3)
    layout = Layout(("w", "w.bias"), ((4, 9), (3,)))
    lengths = [[C.at(worker, t).nbytes(layout) for t in range(3)] for worker in (0, 1)]
    assert lengths[0] != lengths[1]
    assert run.bytes_sent == [sum(sent) for sent in lengths]
