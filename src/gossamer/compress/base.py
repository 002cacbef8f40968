"""What a compressor is: a flat vector with its layout becomes one message, and back.

A compressor is a frozen dataclass. It treats every tensor of the layout separately (its own
scale, its own k) but writes one message. Tensors that the `raw` policy names are sent as they are,
in front:

    header (16 bytes, see gossamer.compress.wire) | raw tensors, in layout order | the packed payload

A message's length depends on the layout alone, so both ends know it beforehand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor

from gossamer._random import generator
from gossamer.compress import parts, wire
from gossamer.compress.layout import Layout
from gossamer.compress.parts import Part
from gossamer.compress.raw import RawPolicy, parts_of, require_policy
from gossamer.errors import Diverged


@dataclass(frozen=True, kw_only=True)
class Compressor(ABC):
    """Encodes vectors as messages and adds messages to vectors.

    `unbiased` promises E[C(x)] = x. `delta(layout)` promises E|C(x) - x|^2 <= (1 - delta)|x|^2;
    0 means that no contraction is promised.
    """

    code: ClassVar[int]  # names the payload's format in the header; 128 to 255 if it is not Gossamer's own
    format_name: ClassVar[str] = ""  # what errors call the format; the class in small letters if left out
    examples: ClassVar[dict[str, str]] = {}  # what people may type, and what is then sent; none: no name
    size_matters: ClassVar[bool] = False  # how much it keeps of a matrix depends on the matrix's size
    contraction_option: ClassVar[str] = ""  # the option that makes it a contraction, if it needs one
    even: ClassVar[bool] = False  # all entries get one magnitude: large ones are followed slowly
    keeps_case: ClassVar[bool] = False  # what follows its name is not lower-cased
    raw: RawPolicy = "auto"

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401 - whatever a class takes
        super().__init_subclass__(**options)
        if cls.examples:  # a class without a name may write another one's format
            owner = f"{cls.__module__}.{cls.__qualname__}"
            wire.claim(cls.code, cls.format_name or cls.__name__.lower(), owner)

    @classmethod
    def from_spec(cls, name: str, options: Sequence[str]) -> Self:
        """Return the compressor behind a name and what follows it after colons."""
        require_few(options, 0)
        return cls()

    @property
    @abstractmethod
    def unbiased(self) -> bool:
        """Whether the expectation of what is received is what was sent."""

    @abstractmethod
    def delta(self, layout: Layout) -> float:
        """Return the contraction factor promised for every vector of this layout; 0 for none."""

    @abstractmethod
    def payload_nbytes(self, layout: Layout) -> int:
        """Return the bytes that `pack` writes for this layout."""

    @abstractmethod
    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Return the payload of a finite, contiguous vector, in sections of any dtype."""

    @abstractmethod
    def accumulate(self, into: Tensor, payload: wire.Reader, layout: Layout, weight: float) -> None:
        """Do into += weight * C(v), reading the payload that `pack` wrote."""

    def shared_draws(self) -> list[Tensor]:
        """Return samples of what sender and receiver draw separately and must have alike, for comparison.

        Workers whose libraries draw something else are refused at the start. Most compressors send all
        that the receiver needs; by default it is what a compressor inside shares.
        """
        return draws_inside(self)

    def at(self, worker: int, t: int) -> Compressor:
        """Return the compressor of this worker in round t, by default the same one always.

        Override it for a budget per worker or per round; sender and receivers must get the same answer.
        """
        return self

    def alone(self) -> tuple[Compressor, ...]:
        """Return the compressors that treat tensors: this one, unless it consists of others."""
        return (self,)

    def remark(self, names: Sequence[str]) -> str:
        """Return what is odd about this compressor for a model with parameters of these names, or nothing."""
        return ""

    def divide(self, layout: Layout) -> tuple[Part, ...]:
        """Return the parts of a message in the order in which they stand in it."""
        return parts_of(layout, self.raw, self)

    @final
    def parts(self, layout: Layout) -> tuple[Part, ...]:
        """Return the same, cached."""
        return self._divided(layout)[0]

    @final
    def encode(self, vector: Tensor, layout: Layout, rng: torch.Generator | None = None) -> Tensor:
        """Return the message for a vector, sealed. A random compressor draws from `rng`."""
        return self.message(vector, layout, rng).sealed()

    @final
    def message(self, vector: Tensor, layout: Layout, rng: torch.Generator | None = None) -> wire.Message:
        """Return the message for a vector, its sections where they were made."""
        # contiguous, because how sums and products are rounded depends on where entries lie in memory
        v = vector.detach().reshape(-1).contiguous()
        if v.numel() != layout.size or v.dtype != layout.dtype:
            raise ValueError(
                f"the layout has {layout.size} entries of {layout.dtype}, not {v.numel()} of {v.dtype}"
            )
        require_finite(v, layout)
        sections = parts.pack(self.parts(layout), v, rng or generator("unseeded"))
        # copy sections that are the vector itself: the message must not change when the vector does
        return wire.Message(self.code, [s.clone() if _same_memory(s, v) else s for s in sections])

    @final
    def add(self, into: Tensor, message: wire.Message | Tensor, layout: Layout, weight: float = 1.0) -> None:
        """Do into += weight * C(v) for the vector behind the message. `into` is flat."""
        if isinstance(message, wire.Message):  # this worker's own: nothing to check
            payload = message.payload()
        else:
            payload = wire.Reader([wire.unseal(message, self.code, self.nbytes(layout))])
        parts.accumulate(self.parts(layout), into, payload, weight)

    @final
    def decode(self, message: Tensor, layout: Layout) -> Tensor:
        """Return C(v) itself."""
        out = torch.zeros(layout.size, dtype=layout.dtype)
        self.add(out, message, layout)
        return out

    @final
    def nbytes(self, layout: Layout) -> int:
        """Return the length of every message for this layout, header included."""
        return wire.HEADER.size + self._divided(layout)[1]

    def _divided(self, layout: Layout) -> tuple[tuple[Part, ...], int]:
        require_policy(self.raw)  # before the cache, which refuses a list with an error of its own
        return _divided(self, layout)


@lru_cache(maxsize=1024)
def _divided(compressor: Compressor, layout: Layout) -> tuple[tuple[Part, ...], int]:
    """Return the parts of a message and their bytes, which are asked for several times per message."""
    divided = compressor.divide(layout)
    return divided, parts.nbytes(divided)


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def require_few(options: Sequence[str], most: int) -> None:
    """Raise a ValueError if more than `most` options follow a name."""
    if len(options) > most:
        raise ValueError(f"'{':'.join(options[most:])}' is one option too many")


def draws_inside(settings: object) -> list[Tensor]:
    """Return the shared draws of all compressors among the fields of a dataclass."""
    values = [getattr(settings, f.name) for f in fields(settings)] if is_dataclass(settings) else []
    return [draw for c in values if isinstance(c, Compressor) for draw in c.shared_draws()]


def require_finite(v: Tensor, layout: Layout) -> None:
    """Raise a Diverged that names the tensor if an entry is NaN, infinite or too large to be summed.

    Sums and norms of a vector that passes are finite, in every format.
    """
    limit = 1e150 if v.dtype == torch.float64 else 1e18  # squares, and sums of 1e8 of them, stay finite
    if not v.numel():
        return
    low, high = torch.aminmax(v)
    if -limit <= low.item() and high.item() <= limit:  # false for NaN
        return
    position = int((~(v.double().abs() <= limit)).nonzero()[0])  # in float16 the limit would be infinite
    raise Diverged(
        f"tensor '{layout.tensor_at(position)}' holds {float(v[position])}; nothing was sent. "
        f"Look at this worker's loss and data; if the run has diverged, lower the learning rate or gamma, "
        f"or compress less."
    )
