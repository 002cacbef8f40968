"""Whom a member admits: the keys of the peers file, as it is now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from gossamer._mesh.peers import Peer, Peers, read_peers

log = logging.getLogger("gossamer")

PAUSE = 1.0  # seconds between two looks at the file


class Admission:
    """Answers whether a key is admitted; a peers file that is changed counts from then on.

    `on_new` is told of peers that were added to it.
    """

    def __init__(self, peers: Peers, path: Path | None = None) -> None:
        self.peers, self._path = peers, path
        self._admitted = peers.admitted()
        self._looked, self._changed = time.monotonic(), self._stamp()
        self.on_new: Callable[[Peer], None] = _ignore

    def __call__(self, key: str) -> bool:
        """Return whether the owner of this key may take part."""
        if self._path is not None and time.monotonic() - self._looked >= PAUSE:
            self._looked = time.monotonic()
            if self._stamp() != self._changed:
                self._read()
        return key in self._admitted

    def _stamp(self) -> tuple[int, int]:
        """Return what tells one version of the file from another; zeros where there is none."""
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            found = None
        return (found.st_mtime_ns, found.st_ino) if found else (0, 0)

    def _read(self) -> None:
        self._changed = self._stamp()
        assert self._path is not None, "there is a file to read"
        try:
            peers = read_peers(self._path)
        except (OSError, ValueError) as error:
            log.warning("%s; whom it admitted before is still admitted", error)
            return
        known = {peer.key for peer in self.peers.all}
        kept = [peer.key for peer in peers.all[: len(self.peers.all)]]
        if kept != [peer.key for peer in self.peers.all]:
            log.warning("%s: entries were removed or moved; only add at the end, or revoke", self._path)
            return
        self.peers, self._admitted = peers, peers.admitted()
        for peer in peers.all:
            if peer.key not in known:
                self.on_new(peer)


def _ignore(peer: Peer) -> None:
    """Do nothing about a new peer."""
