"""Key pairs: what is on the disk, who may read it, and what is said of mistakes."""

from __future__ import annotations

import os
import shlex
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gossamer._mesh.keys import (
    Key,
    check_name,
    fingerprint,
    is_public_key,
    key_folder,
    load_key,
    new_key,
    z85,
)

# From RFC 7748, section 6.1: a public key and the secret key that belongs to it.
THEIR_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
THEIR_SECRET = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"  # noqa: S105 - nobody's
BAD_NAMES = [
    "",
    ".",
    "..",
    ".hidden",
    "-x",
    "a/b",
    "../a",
    "a b",
    "a\n",
    "é",
    "a\0",
    "a" * 65,
    "a;b",
    "$HOME",
]


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def alice(tmp_path):
    return load_key("alice", new_key("alice", tmp_path).parent)


def test_only_the_owner_can_read_a_key(tmp_path, umask):
    path = new_key("alice", tmp_path / "some" / "keys")
    assert path == tmp_path / "some" / "keys" / "alice.key"
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700


def test_a_key_is_private_and_whole_before_it_is_flushed(tmp_path, monkeypatch):
    """It is never open to others, not even before a later chmod; nothing is written after the flush."""
    seen, flush = [], os.fsync

    def look(number):
        seen.append((mode(number), Path(f"/proc/self/fd/{number}").read_bytes()))
        flush(number)

    monkeypatch.setattr(os, "fsync", look)
    before = os.umask(0)
    try:
        path = new_key("alice", tmp_path)
    finally:
        os.umask(before)
    assert seen == [(0o600, path.read_bytes())]


def test_a_key_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            new_key("alice", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert load_key("alice", new_key("alice", tmp_path).parent).name == "alice"


def test_a_key_is_never_overwritten(tmp_path):
    path = new_key("alice", tmp_path)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r"there is a key 'alice' already, in .*: keys are not overwritten"):
        new_key("alice", tmp_path)
    assert path.read_bytes() == content


def test_a_key_does_not_follow_a_link(tmp_path):
    (tmp_path / "alice.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="already"):
        new_key("alice", tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_of_many_at_once_one_makes_the_key(tmp_path):
    def attempt(_):
        try:
            return new_key("alice", tmp_path)
        except ValueError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(attempt, range(16)))
    assert sum(isinstance(result, Path) for result in results) == 1
    assert load_key("alice", tmp_path).name == "alice"


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_refused(tmp_path, name):
    for attempt in (check_name, lambda name: new_key(name, tmp_path / "keys")):
        with pytest.raises(ValueError, match="cannot be used: take 1 to 64 letters, digits") as caught:
            attempt(name)
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a", "Alice", "_", "7", "a.b-c_d", "alice.key", "a" * 64])
def test_names_that_are_taken(tmp_path, name):
    path = new_key(name, tmp_path)
    assert path.parent == tmp_path
    assert load_key(name, tmp_path).name == name


def test_a_key_is_found_by_its_path(tmp_path, monkeypatch):
    key = load_key(str(new_key("alice", tmp_path / "keys")), tmp_path / "elsewhere")
    assert key == load_key("alice", tmp_path / "keys")
    monkeypatch.chdir(tmp_path / "keys")
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in ("alice.key", "./alice.key", "~/keys/alice.key"):
        assert load_key(text, tmp_path / "elsewhere") == key


def test_a_name_is_not_a_file_that_lies_around(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alice").write_text("hello")
    with pytest.raises(
        ValueError, match=r"there is no key 'alice' in .*keys: make it with gossamer keys new"
    ):
        load_key("alice", tmp_path / "keys")


def test_where_keys_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GOSSAMER_KEYS", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert key_folder() == tmp_path / ".config" / "gossamer" / "keys"
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CONFIG_HOME", ignored)
        assert key_folder() == tmp_path / ".config" / "gossamer" / "keys"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert key_folder() == tmp_path / "xdg" / "gossamer" / "keys"
    monkeypatch.setenv("GOSSAMER_KEYS", "")
    assert key_folder() == tmp_path / "xdg" / "gossamer" / "keys"
    monkeypatch.setenv("GOSSAMER_KEYS", "~/own")
    assert new_key("alice") == tmp_path / "own" / "alice.key"
    assert load_key("alice").name == "alice"


@pytest.mark.parametrize("bits", [0o644, 0o640, 0o620, 0o601, 0o660, 0o777])
def test_a_key_that_others_can_read_is_not_used(tmp_path, bits):
    path = new_key("alice", tmp_path / "the keys")
    path.chmod(bits)
    with pytest.raises(ValueError, match=rf"open to other users \(mode {bits:04o}\)") as caught:
        load_key("alice", path.parent)
    command = shlex.split(str(caught.value).rpartition(": ")[2])
    assert command == ["chmod", "600", str(path)]
    path.chmod(int(command[1], 8))
    assert load_key("alice", path.parent).name == "alice"


@pytest.mark.parametrize("bits", [0o600, 0o400, 0o700])
def test_a_key_of_ones_own_is_used(tmp_path, bits):
    new_key("alice", tmp_path).chmod(bits)
    assert load_key("alice", tmp_path).name == "alice"


DAMAGE = {
    "empty": lambda text: b"",
    "cut off": lambda text: text[:-10],
    "not text": lambda text: b"\xff\xfe" + text,
    "not TOML": lambda text: text.replace(b"=", b":"),
    "no secret": lambda text: text[: text.index(b"secret =")],
    "no public key": lambda text: text.replace(b"public =", b"pubic ="),
    "a digit short": lambda text: text.replace(b'"\n', b'0"\n'),
    "large letters": lambda text: (
        text.upper().replace(b"PUBLIC =", b"public =").replace(b"SECRET =", b"secret =")
    ),
    "numbers": lambda text: b"public = 1\nsecret = 2\n",
    "a table": lambda text: b"[public]\n[secret]\n",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_key_is_explained_without_its_secret(tmp_path, damage):
    path = new_key("alice", tmp_path)
    secret = load_key("alice", tmp_path).secret
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"alice\.key is damaged, or is no key file: restore it") as caught:
        load_key("alice", tmp_path)
    assert secret[:16] not in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_a_secret_of_another_pair_is_noticed(tmp_path, alice):
    path = new_key("bob", tmp_path)
    bob = load_key("bob", tmp_path)
    path.write_text(path.read_text().replace(bob.secret, alice.secret))
    with pytest.raises(ValueError, match="the secret key does not belong to the public key: restore it"):
        load_key("bob", tmp_path)


def test_the_pair_of_the_specification_belongs_together(tmp_path):
    path = tmp_path / "their.key"
    path.touch(0o600)
    path.write_text(f'public = "{THEIR_PUBLIC}"\nsecret = "{THEIR_SECRET}"\n')
    assert load_key("their", tmp_path) == Key("their", THEIR_PUBLIC, THEIR_SECRET)


def test_other_mistakes_with_paths(tmp_path):
    with pytest.raises(ValueError, match=r"there is no key file .*nothing\.key: is the path right"):
        load_key(str(tmp_path / "nothing.key"))
    with pytest.raises(ValueError, match="there is no key file"):
        load_key(str(tmp_path))
    new_key("alice", tmp_path).rename(tmp_path / "my key.key")
    with pytest.raises(ValueError, match="a key is called as its file, so rename it"):
        load_key(str(tmp_path / "my key.key"))
    with pytest.raises(ValueError, match="cannot be used"):
        load_key("my key", tmp_path)


def test_the_secret_is_not_shown_and_is_nowhere_else(tmp_path, alice):
    assert alice.secret not in f"{alice} {alice!r} {[alice]} {alice.public}"
    assert repr(alice) == f"Key(name='alice', public='{alice.public}')"
    forms = (alice.secret.encode(), bytes.fromhex(alice.secret), z85(alice.secret))
    holders = {p.name for p in tmp_path.rglob("*") if p.is_file() and any(f in p.read_bytes() for f in forms)}
    assert holders == {"alice.key"}


def test_every_pair_is_another(tmp_path):
    keys = [load_key(name, new_key(name, tmp_path).parent) for name in ("a", "b", "c")]
    assert len({half for key in keys for half in (key.public, key.secret)}) == 6
    assert all(is_public_key(key.public) for key in keys)
    assert len({fingerprint(key.public) for key in keys}) == 3
    assert all(key.public.startswith(fingerprint(key.public)) for key in keys)
    assert len(fingerprint(keys[0].public)) == 16


@pytest.mark.parametrize(
    "text", ["", "0" * 63, "0" * 65, "A" * 64, "g" * 64, "0" * 64 + "\n", None, 5, b"0" * 64]
)
def test_what_is_no_public_key(text):
    assert not is_public_key(text)
