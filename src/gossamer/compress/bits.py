"""Packing small integers and sorted positions into bits.

Two wire pieces, both written with numpy because its bit packing is the fastest at hand:

planes      `width` bits per value, least significant plane first; plane p holds bit p of every
            value, first value in the lowest bit; one plane follows the other, eight bits per
            byte, padded to a whole byte at the end.
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

from gossamer.errors import WireError

Ints = npt.NDArray[Any]


def planes_nbytes(count: int, width: int) -> int:
    """Return the bytes of `count` values of `width` bits."""
    return _bytes_for(width * count)


def pack_planes(values: Ints, width: int) -> Tensor:
    """Pack non-negative integers below 2**width."""
    if width == 0 or values.size == 0:
        return torch.empty(0, dtype=torch.uint8)
    count, columns = values.size, _byte_columns(values)
    packed = np.empty(planes_nbytes(count, width), dtype=np.uint8)
    bits = np.empty(count + 7, dtype=np.uint8)  # one plane, behind the bits that share its first byte
    at = shared = 0
    for p in range(width):
        end = shared + count
        np.bitwise_and(columns[:, p // 8], 1 << p % 8, out=bits[shared:end])  # packbits: nonzero is 1
        whole = end // 8
        packed[at : at + whole] = np.packbits(bits[: 8 * whole], bitorder="little")
        at, shared = at + whole, end % 8
        bits[:shared] = bits[8 * whole : end]
    if shared:
        packed[at:] = np.packbits(bits[:shared], bitorder="little")
    return torch.from_numpy(packed)


def unpack_planes(section: Tensor, count: int, width: int) -> Ints:
    """Return what `pack_planes` packed: uint8 up to 8 bits, int64 above."""
    values: Ints = np.zeros(count, dtype=np.uint8 if width <= 8 else np.int64)
    packed, columns = section.numpy(), _byte_columns(values)
    # Highest plane first, and doubling instead of shifting: numpy shifts bytes one by one, adds many at once.
    for p in reversed(range(width)):
        first, skip = divmod(p * count, 8)
        plane = np.unpackbits(packed[first : first + _bytes_for(skip + count)], bitorder="little")
        column = columns[:, p // 8]
        np.add(column, column, out=column)
        np.bitwise_or(column, plane[skip : skip + count], out=column)
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
    low = pack_planes(positions, width)
    high = _bitmap((positions >> width) + np.arange(k), _high_bits(k, d, width))
    return torch.cat([low, high])


def unpack_positions(section: Tensor, k: int, d: int) -> Ints:
    """Return the k positions, increasing, as int64."""
    width = _low_width(k, d)
    if width < 0:
        return _set_bits(section, k, d)
    split = planes_nbytes(k, width)
    positions = _set_bits(section[split:], k, _high_bits(k, d, width))
    positions -= np.arange(k)
    positions <<= width
    positions |= unpack_planes(section[:split], k, width)
    if k and (positions[-1] >= d or not bool(np.all(positions[1:] > positions[:-1]))):
        raise WireError("corrupted: positions out of order")
    return positions


def _byte_columns(values: Ints) -> Ints:
    """Return a view with one row per value and one column per byte, the lowest first."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(values.size, values.itemsize)


def _bitmap(positions: Ints, d: int) -> Tensor:
    bits = np.zeros(d, dtype=bool)
    bits[positions] = True
    return torch.from_numpy(np.packbits(bits, bitorder="little"))


def _set_bits(section: Tensor, k: int, d: int) -> Ints:
    bits = np.unpackbits(section.numpy(), count=d, bitorder="little")
    positions: Ints = np.flatnonzero(bits.view(bool))  # twice as fast as on bytes
    if len(positions) != k:
        raise WireError(f"corrupted: {len(positions)} positions where {k} were expected")
    return positions


def _elias_fano_nbytes(k: int, d: int, width: int) -> int:
    return planes_nbytes(k, width) + _bytes_for(_high_bits(k, d, width))


def _high_bits(k: int, d: int, width: int) -> int:
    return k + (max(d - 1, 0) >> width)  # the last set bit is at most (high of d-1) + k-1


def _bytes_for(bits: int) -> int:
    return (bits + 7) // 8
