from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from gossamer.compress import Compressor
from gossamer.compress.bits import pack_planes, planes_nbytes, unpack_planes
from gossamer.testing import check_compressor
from tests.cases import COMPRESSORS


@pytest.mark.parametrize("name", COMPRESSORS)
def test_every_compressor_keeps_the_contract(name):
    check_compressor(COMPRESSORS[name])


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
