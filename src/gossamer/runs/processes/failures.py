"""Which errors need no traceback, and which do."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path

import gossamer
from gossamer.errors import GossamerError

PACKAGE = str(Path(gossamer.__file__).parent)
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def is_explained(error: BaseException) -> bool:
    """Return whether an error is ours, or of the disk, and its message is enough.

    A mistake in somebody's code needs a traceback. An error inside a library counts as its caller's.
    GOSSAMER_DEBUG=1 asks for all tracebacks.
    """
    if os.environ.get("GOSSAMER_DEBUG"):
        return False
    if isinstance(error, GossamerError):
        return True
    return isinstance(error, ValueError | OSError) and _is_ours(error)


def message(error: BaseException) -> str:
    """Return the message of an error, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error)


def _is_ours(error: BaseException) -> bool:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(PACKAGE):
            return True
        if not frame.filename.startswith((*LIBRARIES, "<frozen")):
            return False
    return False
