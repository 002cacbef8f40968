"""What all workers do together, as rounds over point-to-point messages.

Written like an algorithm, so that every transport and the simulation have them for free:
an exact average, rows gathered from all, a broadcast from worker 0, and agreement on one complaint.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer import wire
from gossamer.worker import Mail, Post, Round, blame

PLAIN = 0  # the wire code of a bare vector


def exact_mean(rank: int, n: int, v: Tensor) -> Round:
    """Replace v by the exact average over all workers, the same bits everywhere.

    Each worker adds up one of n pieces, which comes to it the way of `gather` backwards, and then
    they gather what they have: 2 (n-1)/n of the vector a worker in all.
    """
    pieces = v.tensor_split(n)
    for hop in reversed(_hops(rank, n)):
        kept = [pieces[i] for i in hop.known]
        arrived = yield from _swap(hop.sender, [pieces[i] for i in hop.missing], hop.receiver, kept)
        for piece, theirs in zip(kept, arrived, strict=True):
            piece.add_(theirs)
    pieces[rank].div_(n)
    yield from gather(rank, n, pieces)


def summable(v: Tensor) -> Tensor:
    """Return a copy to be averaged: in float32 at least, since many are added up."""
    return v.to(torch.promote_types(v.dtype, torch.float32), copy=True)


def gather(rank: int, n: int, rows: Sequence[Tensor]) -> Round:
    """Fill in all rows, of which each worker brings its own; rows[i] has the same length everywhere."""
    for hop in _hops(rank, n):
        missing = [rows[i] for i in hop.missing]
        arrived = yield from _swap(hop.receiver, [rows[i] for i in hop.known], hop.sender, missing)
        for row, theirs in zip(missing, arrived, strict=True):
            row.copy_(theirs)


def broadcast(rank: int, n: int, v: Tensor) -> Round:
    """Replace v by worker 0's, along a binomial tree."""
    for k in range((n - 1).bit_length()):
        source, target = rank - (1 << k), rank + (1 << k)
        if rank < 1 << k and target < n:
            yield _post({target: [v]}, {})
        elif 0 <= source < 1 << k:
            inbox = yield _post({}, {source: [v]})
            v.copy_(_open(inbox, source, [v])[0])
        else:
            yield Post({}, {})


def one_complaint(rank: int, n: int, complaint: Tensor) -> Round:
    """Replace a uint8 text, zeros for none, by that of one worker that has one, the same for all."""
    for k in reversed(range((n - 1).bit_length())):
        source, target = rank + (1 << k), rank - (1 << k)
        if rank < 1 << k and source < n:
            inbox = yield _post({}, {source: [complaint]})
            (theirs,) = _open(inbox, source, [complaint])
            if not complaint.any():
                complaint.copy_(theirs)
        elif 0 <= target < 1 << k:
            yield _post({target: [complaint]}, {})
        else:
            yield Post({}, {})
    yield from broadcast(rank, n, complaint)


@dataclass(frozen=True)
class _Hop:
    """A phase of gathering: whose rows are sent to whom, and whose come from whom."""

    receiver: int
    known: Sequence[int]
    sender: int
    missing: Sequence[int]


def _hops(rank: int, n: int) -> list[_Hop]:
    """Return by which phases a worker gathers all rows, each of them once.

    If n is a power of two, log2(n) phases in which pairs swap all they know (recursive doubling, Thakur,
    Rabenseifner and Gropp 2005); else n-1 around a ring (Patarasuk and Yuan 2009).
    """
    if n & (n - 1):
        right, left = (rank + 1) % n, (rank - 1) % n
        return [_Hop(right, [(rank - p) % n], left, [(rank - p - 1) % n]) for p in range(n - 1)]
    return [
        _Hop(rank ^ half, _block(rank, half), rank ^ half, _block(rank ^ half, half))
        for half in (1 << k for k in range(n.bit_length() - 1))
    ]


def _block(rank: int, size: int) -> range:
    """Return the block of so many neighbouring workers that this one is in."""
    first = rank // size * size
    return range(first, first + size)


def _swap(
    receiver: int, given: Sequence[Tensor], sender: int, like: Sequence[Tensor]
) -> Generator[Post, Mail, list[Tensor]]:
    """Send vectors to one worker and return those of another, which are shaped like these."""
    inbox = yield _post({receiver: given}, {sender: like})
    return _open(inbox, sender, like)


def _post(send: Mapping[int, Sequence[Tensor]], like: Mapping[int, Sequence[Tensor]]) -> Post:
    sealed = {peer: wire.seal(PLAIN, vectors) for peer, vectors in send.items()}
    return Post(sealed, {peer: _nbytes(vectors) for peer, vectors in like.items()})


def _open(inbox: Mail, peer: int, like: Sequence[Tensor]) -> list[Tensor]:
    with blame(peer):
        payload = wire.Reader(wire.unseal(inbox[peer], PLAIN, _nbytes(like)))
    return [payload.values(v.numel(), v.dtype).view(v.shape).to(v.device) for v in like]


def _nbytes(vectors: Sequence[Tensor]) -> int:
    return wire.HEADER.size + sum(v.numel() * v.dtype.itemsize for v in vectors)
