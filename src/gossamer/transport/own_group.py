"""A gloo group of Gossamer's own, beside a process group that belongs to the user.

It has the same workers and needs nothing of the user's group but its ranks and torch's store. It is not one
of torch's registered groups: torch numbers those by how many a process has made, and members that have made
different numbers of groups would wait for each other for ever.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch import Tensor

from gossamer.errors import GossamerError, PeerTimeout
from gossamer.transport.farewell import Farewell

if TYPE_CHECKING:  # some builds of torch have no distributed part
    from torch._C._distributed_c10d import Store

START_UP = timedelta(seconds=300)  # eight cold interpreters on a busy machine take a minute


@dataclass(eq=False)
class OwnGroup:
    """Connections between the workers of a group, and a store for reports when these are broken."""

    rank: int
    size: int
    gloo: Any  # a ProcessGroupGloo, whose send and recv torch's stubs leave out
    store: Store
    broken: bool = False  # gloo closes all connections after a failure

    def __post_init__(self) -> None:
        self.farewell = Farewell(self.rank, self.store)

    def send(self, message: Tensor, peer: int, tag: int) -> dist.Work:
        """Begin to send."""
        work: dist.Work = self.gloo.send([message], peer, tag)
        return work

    def receive(self, buffer: Tensor, peer: int, tag: int) -> dist.Work:
        """Begin to receive a message of this length."""
        work: dist.Work = self.gloo.recv([buffer], peer, tag)
        return work


# One per group of the user, so that connections and threads are made once. It is dropped with that group.
_OWN: WeakKeyDictionary[dist.ProcessGroup, OwnGroup] = WeakKeyDictionary()
# How many were made, by the name of the user's group, so that the store's keys are never used twice.
_MADE: Counter[str] = Counter()


def own_group(group: dist.ProcessGroup | None = None) -> OwnGroup:
    """Return the group of our own for the given or the default group; all its workers call this together.

    One that failed is replaced by a new one. Raises a ValueError on a process that is not in the group,
    and a PeerTimeout that names a worker that did not call it.
    """
    if not dist.is_gloo_available():
        raise ValueError("workers need gloo, which this torch lacks; install a wheel from pytorch.org")
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is not in the process group; call it on the group's members only")
    given = group or dist.group.WORLD
    assert given is not None, "get_rank has found the default group"
    if given not in _OWN or _OWN[given].broken:
        _OWN[given] = _meet(given.group_name, rank, dist.get_world_size(group))
    return _OWN[given]


def _meet(name: str, rank: int, size: int) -> OwnGroup:
    prefix = f"gossamer/{name}/{_MADE[name]}"
    _MADE[name] += 1
    common = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - old versions have no other way
    store = dist.PrefixStore(prefix, common)  # type: ignore[attr-defined]
    began = time.monotonic()
    store.set(_present(rank), "")
    try:
        gloo = dist.ProcessGroupGloo(store, rank, size, START_UP)
    except RuntimeError as error:
        age = time.monotonic() - began
        missing = [peer for peer in range(size) if not store.check([_present(peer)])]
        if missing:
            cause = "did not call decentralize or average with this process group"
            raise PeerTimeout(missing[0], "start-up", age, cause) from error
        raise GossamerError(
            f"the workers could not connect to each other within {age:.0f} s ({error}); "
            f"GLOO_SOCKET_IFNAME names the network interface to use"
        ) from error
    return OwnGroup(rank, size, gloo, store)


def _present(rank: int) -> str:
    return f"present/{rank}"
