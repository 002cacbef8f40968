"""What the mesh needs beside torch: pyzmq, which is an extra and is loaded only when it is used."""

from __future__ import annotations

from types import ModuleType

from gossamer.errors import GossamerError


class MissingPackageError(GossamerError, ValueError):
    """A package that the mesh needs is not installed, or lacks a part; the text says what to install."""


def require_zmq() -> ModuleType:
    """Return the module zmq, or say how to install it; it must have been built with CURVE."""
    try:
        import zmq  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise MissingPackageError("the mesh needs pyzmq: pip install 'gossamer[mesh]'") from error
    if not zmq.has("curve"):
        raise MissingPackageError(
            "the mesh needs a pyzmq that can encrypt (CURVE), and this one cannot: "
            "pip install --force-reinstall --only-binary pyzmq pyzmq"
        )
    return zmq
