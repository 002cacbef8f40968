"""Different compressors for different tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar, Self, cast

import torch
from torch import Tensor

from gossamer.compress import parts
from gossamer.compress.base import Compressor
from gossamer.compress.layout import Layout
from gossamer.compress.parts import Part
from gossamer.compress.raw import RawPolicy
from gossamer.compress.specs import make
from gossamer.compress.wire import Reader

Rules = tuple[tuple[str, Compressor], ...]


@dataclass(frozen=True)
class Split(Compressor):
    """One compressor per tensor, chosen by the tensor's name: the first pattern that matches.

    Split({"*.bias": Identity(), "embed.*": TopK(0.001), "*": Sign()}). The last pattern is "*", for
    all others. Payload: what the first pattern's compressor sends of its tensors, its raw part
    included, then the second's, and so on.
    """

    rules: Mapping[str, Compressor | str] | Rules = ()
    raw: RawPolicy = field(default="never", kw_only=True)
    code: ClassVar[int] = 9
    examples: ClassVar[dict[str, str]] = {"split:a*=fp16,*=sign": "by the tensor's name"}
    keeps_case: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pairs = self.rules.items() if isinstance(self.rules, Mapping) else self.rules
        rules = tuple((pattern, make(compressor)) for pattern, compressor in pairs)
        patterns = [pattern for pattern, _ in rules]
        if "*" not in patterns or patterns.index("*") != len(patterns) - 1:
            raise ValueError(
                f"patterns {patterns}: end with '*', the compressor of all tensors that match none before it"
            )
        if self.raw != "never":
            raise ValueError(f"raw={self.raw!r}: give those tensors a pattern with Identity() in front")
        object.__setattr__(self, "rules", rules)  # the dataclass is frozen from here on

    @classmethod
    def from_spec(cls, name: str, options: Sequence[str]) -> Self:
        """Read "*.bias=identity,*=topk:0.01", which was cut at its colons."""
        rules = [rule.partition("=") for rule in ":".join(options).split(",")]
        if any(not compressor for _, _, compressor in rules):
            raise ValueError("write PATTERN=COMPRESSOR,...,*=COMPRESSOR")
        return cls(tuple((pattern.strip(), make(compressor)) for pattern, _, compressor in rules))

    @property
    def unbiased(self) -> bool:
        """If all are."""
        return all(compressor.unbiased for compressor in self._compressors)

    def delta(self, layout: Layout) -> float:
        """Return the smallest, each for its own tensors: the squared errors of tensors add up."""
        return min((C.delta(layout.pick(which)) for C, which in self._chosen(layout)), default=1.0)

    def divide(self, layout: Layout) -> tuple[Part, ...]:
        """Return every compressor's own parts, raw ones included, of the tensors that it has."""
        return tuple(
            Part.of(layout, [which[i] for i in part.which], part.packer)
            for compressor, which in self._chosen(layout)
            for part in compressor.parts(layout.pick(which))
        )

    def payload_nbytes(self, layout: Layout) -> int:
        """Add up."""
        return parts.nbytes(self.parts(layout))

    def pack(self, v: Tensor, layout: Layout, rng: torch.Generator) -> list[Tensor]:
        """Write the parts one after the other."""
        return parts.pack(self.parts(layout), v, rng)

    def accumulate(self, into: Tensor, payload: Reader, layout: Layout, weight: float) -> None:
        """Read the parts one after the other."""
        parts.accumulate(self.parts(layout), into, payload, weight)

    def shared_draws(self) -> list[Tensor]:
        """Return what the compressors inside share."""
        return [draw for compressor in self._compressors for draw in compressor.shared_draws()]

    def at(self, worker: int, t: int) -> Compressor:
        """Ask the compressors inside."""
        now = tuple(compressor.at(worker, t) for compressor in self._compressors)
        return self if now == self._compressors else Split(tuple(zip(self._patterns, now, strict=True)))

    def remark(self, names: Sequence[str]) -> str:
        """Name the patterns that match no parameter: misspelt, most likely."""
        unused = [p for p in self._patterns[:-1] if not any(fnmatchcase(name, p) for name in names)]
        if not unused:
            return ""
        shown = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
        return f"split: {' and '.join(map(repr, unused))} match no parameter; there are {shown}"

    def alone(self) -> tuple[Compressor, ...]:
        """Return the compressors inside."""
        return tuple(leaf for compressor in self._compressors for leaf in compressor.alone())

    @property
    def _patterns(self) -> tuple[str, ...]:
        return tuple(pattern for pattern, _ in cast("Rules", self.rules))

    @property
    def _compressors(self) -> tuple[Compressor, ...]:
        return tuple(compressor for _, compressor in cast("Rules", self.rules))

    def _chosen(self, layout: Layout) -> list[tuple[Compressor, list[int]]]:
        """Return the compressors that have tensors of this layout, and which."""
        first = [next(k for k, p in enumerate(self._patterns) if fnmatchcase(n, p)) for n in layout.names]
        which = [[i for i, k in enumerate(first) if k == rule] for rule in range(len(self._compressors))]
        return [(C, those) for C, those in zip(self._compressors, which, strict=True) if those]
