"""Packing small integers and sorted positions into bits.

Two wire pieces, both written with numpy because its bit packing is the fastest at hand:

planes      `width` bits a value, least significant plane first; plane p holds bit p of every
            value, eight values a byte, first value in the lowest bit, padded to a whole byte.
positions   an increasing list of k positions below d. Elias-Fano (Elias 1974, Fano 1971): the
            low l bits of each as planes, then a bit map with bit (high_i + i) set for the i-th
            position's remaining high bits. l is the width that makes it shortest. Where a bare
            bit map of d bits is no longer, that is used instead (about one entry in four).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[Any]


def planes_nbytes(count: int, width: int) -> int:
    """Return the bytes of `count` values of `width` bits."""
    return width * _bytes_for(count)


def pack_planes(values: Ints, width: int) -> Tensor:
    """Pack non-negative integers below 2**width."""
    if width == 0 or values.size == 0:
        return torch.empty(0, dtype=torch.uint8)
    planes = [np.packbits((values & values.dtype.type(1 << p)) != 0, bitorder="little") for p in range(width)]
    return torch.from_numpy(np.concatenate(planes))


def unpack_planes(section: Tensor, count: int, width: int) -> Ints:
    """Return what `pack_planes` packed: uint8 up to 8 bits, int64 above."""
    values: Ints = np.zeros(count, dtype=np.uint8 if width <= 8 else np.int64)
    for p, plane in enumerate(section.numpy().reshape(width, -1) if width else ()):
        bits = np.unpackbits(plane, count=count, bitorder="little").astype(values.dtype, copy=False)
        values |= bits << values.dtype.type(p)
    return values


@lru_cache(maxsize=4096)
def _low_width(k: int, d: int) -> int:
    """Return the number of low bits that makes Elias-Fano shortest; -1 where a bare bit map is."""
    widths = range(max(1, (d // max(k, 1)).bit_length() + 1))
    best = min(widths, key=lambda width: _elias_fano_nbytes(k, d, width))
    return -1 if _bytes_for(d) <= _elias_fano_nbytes(k, d, best) else best


def positions_nbytes(k: int, d: int) -> int:
    """Return the bytes of k positions below d."""
    width = _low_width(k, d)
    return _bytes_for(d) if width < 0 else _elias_fano_nbytes(k, d, width)


def pack_positions(positions: Ints, d: int) -> Tensor:
    """Pack strictly increasing int64 positions below d."""
    k = len(positions)
    width = _low_width(k, d)
    if width < 0:
        return _bitmap(positions, d)
    low = pack_planes(positions & ((1 << width) - 1), width)
    high = _bitmap((positions >> width) + np.arange(k), _high_bits(k, d, width))
    return torch.cat([low, high])


def unpack_positions(section: Tensor, k: int, d: int) -> Ints:
    """Return the k positions, increasing, as int64."""
    width = _low_width(k, d)
    if width < 0:
        return _set_bits(section, d)
    split = planes_nbytes(k, width)
    high = _set_bits(section[split:], _high_bits(k, d, width)) - np.arange(k)
    low: Ints = unpack_planes(section[:split], k, width)
    return (high << width) | low


def _bitmap(positions: Ints, d: int) -> Tensor:
    bits = np.zeros(d, dtype=bool)
    bits[positions] = True
    return torch.from_numpy(np.packbits(bits, bitorder="little"))


def _set_bits(section: Tensor, d: int) -> Ints:
    return np.flatnonzero(np.unpackbits(section.numpy(), count=d, bitorder="little"))


def _elias_fano_nbytes(k: int, d: int, width: int) -> int:
    return planes_nbytes(k, width) + _bytes_for(_high_bits(k, d, width))


def _high_bits(k: int, d: int, width: int) -> int:
    return k + (max(d - 1, 0) >> width)  # the last set bit is at most (high of d-1) + k-1


def _bytes_for(bits: int) -> int:
    return (bits + 7) // 8
