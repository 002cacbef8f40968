"""Every compressor keeps the contract, the checks notice who does not, and texts name the compressors."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from gossamer._random import generator
from gossamer.compress import QSGD, Cast, Compressor, Identity, LowRank, RandomK, Sign, TopK, make
from gossamer.compress.bits import pack_planes, planes_nbytes, unpack_planes
from gossamer.compress.layout import Layout
from gossamer.testing import check_compressor
from tests.support.cases import COMPRESSORS


@pytest.mark.parametrize("name", COMPRESSORS)
def test_every_compressor_keeps_the_contract(name):
    check_compressor(COMPRESSORS[name])


def numpy_state() -> np.ndarray:
    return np.random.get_state(legacy=False)["state"]["key"]


@pytest.mark.parametrize("name", COMPRESSORS)
def test_no_global_randomness(name):
    layout, v = Layout(("w",), ((30, 20),)), torch.randn(600, generator=generator(0))
    before, numpy_before = torch.get_rng_state(), numpy_state().copy()
    for rng in (generator(1), None):
        COMPRESSORS[name].decode(COMPRESSORS[name].encode(v, layout, rng), layout)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(numpy_state(), numpy_before)


@dataclass(frozen=True)
class Ternary(Compressor):
    """What somebody else might write: -1, 0 or +1 times the largest entry, at random. TernGrad,
    Wen et al. 2017, arXiv:1705.07878. Payload: the largest entry a tensor, then two bits an entry.
    """

    code: ClassVar[int] = 200

    @property
    def unbiased(self):
        return True

    def delta(self, layout):
        return 0.0

    def payload_nbytes(self, layout):
        return len(layout.sizes) * 8 + planes_nbytes(layout.size, 2)

    def largest(self, v, layout):
        return torch.stack(
            [t.abs().amax() if t.numel() else t.new_zeros(()) for t in layout.split(v.double())]
        )

    def pack(self, v, layout, rng):
        largest = self.largest(v, layout)
        keep = v.double().abs() > torch.rand(v.shape, generator=rng, dtype=torch.float64) * self.each(
            largest, layout
        )
        return [largest, pack_planes((keep * v.sign() + 1).to(torch.uint8).numpy(), 2)]

    def accumulate(self, into, payload, layout, weight):
        largest = payload.values(len(layout.sizes), torch.float64)
        codes = unpack_planes(payload.bytes(planes_nbytes(layout.size, 2)), layout.size, 2)
        into.add_((torch.from_numpy(codes).double() - 1) * self.each(largest, layout), alpha=weight)

    def each(self, values, layout):
        return values.repeat_interleave(torch.tensor(layout.sizes))


def test_a_class_from_outside_passes():
    check_compressor(Ternary())
    check_compressor(Ternary(raw=("tensor1", "bias*")))


class Changeable(Ternary):
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)


class ForgetsARestart(Ternary):
    def __reduce__(self):
        return Ternary, ()


class WrongLength(Ternary):
    def payload_nbytes(self, layout):
        return super().payload_nbytes(layout) + 1


class GlobalNoise(Ternary):
    def pack(self, v, layout, rng):
        return super().pack(v, layout, torch.default_generator)


class ChangesItsInput(Ternary):
    def pack(self, v, layout, rng):
        return super().pack(v.abs_(), layout, rng)


class IgnoresTheWeight(Ternary):
    def accumulate(self, into, payload, layout, weight):
        super().accumulate(into, payload, layout, 1.0)


class Overwrites(Ternary):
    def accumulate(self, into, payload, layout, weight):
        into.zero_()
        super().accumulate(into, payload, layout, weight)


class Shrinks(Ternary):
    def accumulate(self, into, payload, layout, weight):
        super().accumulate(into, payload, layout, 0.9 * weight)


class NotForZeros(Ternary):
    def largest(self, v, layout):
        return super().largest(v, layout).reciprocal().reciprocal().nan_to_num() * float("nan")


class PromisesMuch(Ternary):
    def delta(self, layout):
        return 0.5


class PromisesNonsense(Ternary):
    def delta(self, layout):
        return 2.0


class NoDeltaForNothing(Ternary):
    def delta(self, layout):
        return 0.0 / max(layout.sizes)


BROKEN = {
    Changeable: "can be changed",
    ForgetsARestart: "after pickling",
    WrongLength: "payload_nbytes must count",
    GlobalNoise: "the same generator gives another message",
    ChangesItsInput: "changed its input",
    IgnoresTheWeight: r"add with weight 0\.5",
    Overwrites: "add with weight",
    Shrinks: "unbiased is promised",
    NotForZeros: "finite",
    PromisesMuch: "promises",
    PromisesNonsense: "between 0 and 1",
    NoDeltaForNothing: "delta fails for the layout",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_promise_is_named(kind):
    with pytest.raises(AssertionError, match=BROKEN[kind]):
        check_compressor(kind())


TEXTS = {
    "identity": Identity(),
    "fp16": Cast("fp16"),
    "bf16": Cast("bf16"),
    "fp8": Cast("fp8"),
    "int8": Cast("int8"),
    "sign": Sign(),
    "topk:0.01": TopK(0.01),
    "topk:0.01:fp16": TopK(0.01, Cast("fp16")),
    " Top-K:0.5:QSGD:3 ": TopK(0.5, QSGD(3)),
    "randomk:0.1": RandomK(0.1),
    "random_k:0.1:scaled": RandomK(0.1, scaled=True),
    "randomk:0.1:qsgd:4": RandomK(0.1, QSGD(4)),
    "randomk:0.1:qsgd:4:scaled": RandomK(0.1, QSGD(4), scaled=True),
    "qsgd:4": QSGD(4),
    "qsgd:4:contraction": QSGD(4, scale="contraction"),
    "lowrank": LowRank(1),
    "lowrank:2": LowRank(2),
}
WRONG = {
    "tpok:0.1": "unknown compressor 'tpok': did you mean 'topk'",
    "sing": "did you mean 'sign'",
    "zzz": "unknown compressor 'zzz': there are identity, fp16",
    "": "unknown compressor ''",
    "topk": "compressor 'topk': give the ratio of entries to send, as in topk:0.01",
    "topk:": "give the ratio",
    "topk:0": "ratio=0: the part of the entries to send, above 0 and at most 1",
    "topk:1.5": "ratio=1.5",
    "topk:nan": "ratio=nan",
    "topk:many": "'many' is no ratio; write 0.01 or 1%",
    "topk:1": "1 would send all entries; write 0.01 or 1%",
    "topk:0.1:scaled": "compressor 'topk:0.1:scaled': unknown compressor 'scaled'",
    "topk:0.1:fp61": "did you mean 'fp16'",
    "qsgd": "give the number of bits, as in qsgd:4",
    "qsgd:0": "bits=0: QSGD takes 1 to 8 bits, the sign included",
    "qsgd:9": "bits=9",
    "qsgd:4:shrunk": "'shrunk' is unknown after the bits; 'contraction' is known",
    "lowrank:0": "rank=0, iterations=1: both are at least 1",
    "lowrank:1:2": "'2' is one option too many",
    "sign:2": "'2' is one option too many",
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_names_a_compressor(text):
    assert make(text) == TEXTS[text]
    assert make(TEXTS[text]) is TEXTS[text]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_text_is_answered_with_help(text):
    with pytest.raises(ValueError, match=WRONG[text]):
        make(text)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Cast("fp4"),  # type: ignore[arg-type]
        lambda: QSGD(4, bucket=0),
        lambda: QSGD(4, norm="l1"),  # type: ignore[arg-type]
        lambda: LowRank(1, 0),
    ],
)
def test_impossible_settings_are_refused_at_once(build):
    with pytest.raises(ValueError, match=r"choose one of|at least|'max' or 'l2'"):
        build()
