"""Key pairs: a worker proves with its secret key that it is the one whose public key others were given.

A pair is the file NAME.key, which only its owner may read:

    public = "…"            # 64 hex digits, for everybody's peers file
    secret = "…"            # 64 hex digits, for nobody

The keys are those of CURVE, ZeroMQ's encryption: 32 bytes each. ZeroMQ itself writes them in Z85, which has
quotes and brackets in it; people and files have hex digits instead.
"""

from __future__ import annotations

import os
import re
import shlex
import struct
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from gossamer._mesh.needs import require_zmq

ENDING = ".key"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
NAME_RULE = "1 to 64 letters, digits, dots, - and _, with neither . nor - at the beginning"
HEX = re.compile(r"[0-9a-f]{64}")
LARGEST = 4096  # bytes that are read of a key file; it has about 200


@dataclass(frozen=True)
class Key:
    """A key pair, in hex digits; the secret is never shown."""

    name: str
    public: str
    secret: str = field(repr=False)


def new_key(name: str, folder: Path | None = None) -> Path:
    """Make a key pair of this name and return its file; one that exists is never overwritten."""
    check_name(name)
    zmq = require_zmq()
    folder = key_folder() if folder is None else folder
    path = folder / f"{name}{ENDING}"
    public, secret = (from_z85(encoded) for encoded in zmq.curve_keypair())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = f"# The key pair {name}: keep this file secret. The public key is for the peers file."
    _write_once(path, f'{about}\npublic = "{public}"\nsecret = "{secret}"\n')
    return path


def load_key(name_or_path: str, folder: Path | None = None) -> Key:
    """Read a key pair by its name in the folder, or by the path of its file.

    What has a slash in it, or ends in .key, is a path, unless the folder has a key of that name.
    """
    path = _find(name_or_path, folder)
    name = path.name.removesuffix(ENDING)
    if not is_name(name):
        raise ValueError(f"{path}: a key is called as its file, so rename it: {NAME_RULE}")
    remedy = f"restore it from a copy, or remove it and type: gossamer keys new {name}"
    pair = _read(path)
    if pair is None:
        raise ValueError(f"{path} is damaged, or is no key file: {remedy}")
    public, secret = pair
    if from_z85(require_zmq().curve_public(z85(secret))) != public:
        raise ValueError(f"{path}: the secret key does not belong to the public key: {remedy}")
    return Key(name, public, secret)


def key_folder() -> Path:
    """Return where keys are unless somebody says otherwise: $GOSSAMER_KEYS or ~/.config/gossamer/keys."""
    if chosen := os.environ.get("GOSSAMER_KEYS"):
        return Path(chosen).expanduser()
    config = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if not config.is_absolute():  # unset, empty or relative: its specification asks to ignore it
        config = Path.home() / ".config"
    return config / "gossamer" / "keys"


def is_name(text: object) -> bool:
    """Return whether this can be the name of a key or a peer: it goes into file names and logs."""
    return isinstance(text, str) and NAME.fullmatch(text) is not None


def check_name(text: object) -> str:
    """Return the name of a key or a peer, or say what one may be."""
    if not is_name(text):
        raise ValueError(f"the name {text!r} cannot be used: take {NAME_RULE}")
    return str(text)


def is_public_key(text: object) -> bool:
    """Return whether this has the form of a public key: 64 hex digits, in small letters."""
    return isinstance(text, str) and HEX.fullmatch(text) is not None


def fingerprint(public: str) -> str:
    """Return the short form of a public key, for logs."""
    return public[:16]


def z85(hex_text: str) -> bytes:
    """Return a key as ZeroMQ takes it."""
    require_zmq()
    from zmq.utils import z85 as coding  # noqa: PLC0415 - an optional dependency

    return coding.encode(bytes.fromhex(hex_text))


def from_z85(encoded: bytes) -> str:
    """Return a key of ZeroMQ's in hex digits."""
    require_zmq()
    from zmq.utils import z85 as coding  # noqa: PLC0415 - an optional dependency

    try:
        return coding.decode(encoded).hex()
    except (KeyError, struct.error):  # a letter that Z85 has not, or five that are too large for 32 bits
        raise ValueError("this is not Z85, as ZeroMQ writes keys") from None


def _write_once(path: Path, text: str) -> None:
    """Write a new file that nobody else could read at any time, and have it on the disk."""
    try:
        number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise ValueError(
            f"there is a key {path.stem!r} already, in {path}: keys are not overwritten, choose another name"
        ) from None
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)  # a part of a key is of no use, and would be in the way of the next try
        raise


def _find(name_or_path: str, folder: Path | None) -> Path:
    folder = key_folder() if folder is None else folder
    named = folder / f"{name_or_path}{ENDING}"
    if is_name(name_or_path) and named.is_file():
        return named
    path = Path(name_or_path).expanduser()
    is_path = len(path.parts) > 1 or name_or_path.endswith(ENDING)
    if is_path and path.is_file():
        return path
    if is_path:
        raise ValueError(
            f"there is no key file {path}: is the path right? To make a key: gossamer keys new NAME"
        )
    check_name(name_or_path)
    raise ValueError(
        f"there is no key {name_or_path!r} in {folder}: make it with gossamer keys new {name_or_path}"
    )


def _read(path: Path) -> tuple[str, str] | None:
    """Return the public and the secret key of a file, or None; no error may repeat what is in it."""
    with path.open("rb") as file:
        # Asked of the open file: another could have taken its path since.
        mode = os.fstat(file.fileno()).st_mode & 0o777
        content = file.read(LARGEST)
    if os.name == "posix" and mode & 0o077:  # elsewhere the bits say nothing
        raise ValueError(
            f"{path} is open to other users (mode {mode:04o}), and a secret key is not used then: "
            f"chmod 600 {shlex.quote(str(path))}"
        )
    try:
        table = tomllib.loads(content.decode())
    except ValueError:
        return None
    public, secret = table.get("public"), table.get("secret")
    whole = is_public_key(public) and is_public_key(secret)  # both have the same form
    return (str(public), str(secret)) if whole else None
