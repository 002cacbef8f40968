"""What all workers do together, as rounds over point-to-point messages.

Written like an algorithm, so that every transport and the simulation have them for free:
an exact average, rows gathered from all, a broadcast from the first member, a few numbers combined, and
agreement on one error text.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import torch
from torch import Tensor

from gossamer.compress import wire
from gossamer.rounds.phase import Inbox, Phase, Round, blame

MAX_ERROR_BYTES = 4096
PLAIN = wire.claim(0, "plain vector", __name__)


def all_mean(me: int, members: Sequence[int], v: Tensor) -> Round:
    """Replace v by the exact average over all workers, the same bits everywhere.

    Ring all-reduce (Patarasuk and Yuan 2009): each of n pieces travels once around to be summed
    and once more to be shared; every worker sends 2 (n-1)/n of the vector.
    """
    rank, n = members.index(me), len(members)
    right, left = members[(rank + 1) % n], members[rank - 1]
    pieces = list(v.tensor_split(n))
    for p in range(n - 1):
        arriving = pieces[(rank - p - 1) % n]
        arriving.add_((yield from _pass_on(pieces[(rank - p) % n], right, left, arriving)))
    pieces[(rank + 1) % n].div_(n)
    yield from all_gather(me, members, [*pieces[1:], pieces[0]])  # worker i has completed piece i + 1


def as_accumulator(v: Tensor) -> Tensor:
    """Return a copy to be averaged: in float32 at least, since many are added up."""
    return v.to(torch.promote_types(v.dtype, torch.float32), copy=True)


def all_gather(me: int, members: Sequence[int], rows: Sequence[Tensor]) -> Round:
    """Fill in all rows: worker i provides rows[i], which has the same length everywhere."""
    rank, n = members.index(me), len(members)
    right, left = members[(rank + 1) % n], members[rank - 1]
    for p in range(n - 1):
        arriving = rows[(rank - p - 1) % n]
        arriving.copy_((yield from _pass_on(rows[(rank - p) % n], right, left, arriving)))


def broadcast(me: int, members: Sequence[int], v: Tensor) -> Round:
    """Replace v by the first member's, along a binomial tree."""
    rank, n = members.index(me), len(members)
    for k in range((n - 1).bit_length()):
        source, target = rank - (1 << k), rank + (1 << k)
        if rank < 1 << k and target < n:
            yield _post({members[target]: v}, {})
        elif 0 <= source < 1 << k:
            inbox = yield _post({}, {members[source]: v})
            v.copy_(_open(inbox, members[source], v))
        else:
            yield Phase({}, {})


def combine(me: int, members: Sequence[int], v: Tensor, into: Callable[[Tensor, Tensor], Tensor]) -> Round:
    """Replace a short v by what `into(mine, theirs)` makes of all workers', the same bits everywhere.

    Along a binomial tree to the first member and back: few phases, with all of v in each.
    """
    rank, n = members.index(me), len(members)
    for k in reversed(range((n - 1).bit_length())):
        source, target = rank + (1 << k), rank - (1 << k)
        if rank < 1 << k and source < n:
            inbox = yield _post({}, {members[source]: v})
            v.copy_(into(v, _open(inbox, members[source], v)))
        elif 0 <= target < 1 << k:
            yield _post({members[target]: v}, {})
        else:
            yield Phase({}, {})
    yield from broadcast(me, members, v)


def text_as_tensor(text: str) -> Tensor:
    """Return an error text as `first_error` takes it: bytes, padded with zeros."""
    encoded = text.encode()[:MAX_ERROR_BYTES]
    return torch.tensor([*encoded, *bytes(MAX_ERROR_BYTES - len(encoded))], dtype=torch.uint8)


def text_of(complaint: Tensor) -> str:
    """Return what `text_as_tensor` was given, as far as there was room for it."""
    return bytes(complaint.tolist()).rstrip(b"\0").decode(errors="replace")


def first_error(me: int, members: Sequence[int], complaint: Tensor) -> Round:
    """Replace a uint8 text, all zeros for none, by the text of one worker that has one, the same for all."""
    yield from combine(me, members, complaint, lambda mine, theirs: mine if mine.any() else theirs)


def _pass_on(piece: Tensor, right: int, left: int, like: Tensor) -> Generator[Phase, Inbox, Tensor]:
    inbox = yield _post({right: piece}, {left: like})
    return _open(inbox, left, like)


def _post(send: Mapping[int, Tensor], like: Mapping[int, Tensor]) -> Phase:
    sealed = {peer: wire.seal(PLAIN, [v]) for peer, v in send.items()}
    return Phase.of(sealed, {peer: _nbytes(v) for peer, v in like.items()})


def _open(inbox: Inbox, peer: int, like: Tensor) -> Tensor:
    with blame(peer):
        payload = wire.unseal(inbox[peer][""], PLAIN, _nbytes(like))
    return wire.from_bytes(payload, like.dtype).view(like.shape).to(like.device)


def _nbytes(v: Tensor) -> int:
    return wire.HEADER.size + v.numel() * v.dtype.itemsize
