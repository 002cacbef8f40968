"""The peers file: what it says, every mistake in one line, and that what is written is read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer._mesh.peers import Peer, Peers, is_loopback, parse_address, read_peers, write_peers
from tests.support.processes import run_python

A, B, C = ("0" * 63 + digit for digit in "abc")
ALICE = f'[[peer]]\nname = "alice"\naddress = "198.51.100.7:7000"\nkey = "{A}"\n'
BOB = f'[[peer]]\nname = "bob"\naddress = "bob.example.org:7000"\nkey = "{B}"\n'
CAROL = f'[[peer]]\nname = "carol"\naddress = "[2001:db8::7]:7001"\nkey = "{C}"\nrevoked = true\n'


def read(folder, text):
    path = folder / "peers.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_peers(path)


@pytest.fixture
def peers(tmp_path):
    return read(tmp_path, ALICE + BOB + CAROL)


def test_a_file_is_read(peers):
    assert peers == Peers(
        (
            Peer(0, "alice", "198.51.100.7:7000", A),
            Peer(1, "bob", "bob.example.org:7000", B),
            Peer(2, "carol", "[2001:db8::7]:7001", C, revoked=True),
        )
    )
    assert peers.by_key(B) is peers.all[1]
    assert peers.by_key(C) is peers.all[2]
    assert peers.by_key("0" * 64) is None
    assert peers.by_name("carol") is peers.all[2]
    assert peers.admitted() == {A, B}


def test_an_unknown_name_gets_the_nearest(peers):
    with pytest.raises(ValueError, match="unknown peer 'alcie': did you mean 'alice'"):
        peers.by_name("alcie")


def test_revoked_false_is_as_nothing(tmp_path):
    assert not read(tmp_path, ALICE + "revoked = false\n").all[0].revoked


def test_the_digest_is_of_places_and_keys(tmp_path, peers):
    def same(text):
        return read(tmp_path, text).digest() == peers.digest()

    assert same(ALICE + BOB + CAROL + "# a comment\n")
    assert same(ALICE.replace("alice", "eve").replace("7000", "7009") + BOB + "revoked = true\n" + CAROL)
    assert not same(ALICE + BOB)
    assert not same(BOB + ALICE + CAROL)
    assert not same(ALICE.replace(A, "f" * 64) + BOB + CAROL)
    assert len(peers.digest()) == 64


def test_who_was_revoked_may_come_back_with_a_new_key_at_the_same_address(tmp_path):
    again = ALICE.replace('"alice"', '"alice-2"').replace(A, B)
    assert read(tmp_path, ALICE + "revoked = true\n" + again).admitted() == {B}
    with pytest.raises(ValueError, match=r"1 \(alice\) and 2 \(bob\) have the same key"):
        read(tmp_path, ALICE + "revoked = true\n" + BOB.replace(B, A))


ONE = r"\[\[peer\]\] 1: "
BOTH = r"\[\[peer\]\] 1 \(alice\) and 2 \(bob\) have the same"
MISTAKES = {
    "no peers": ("", "there are no peers in it: write a "),
    "an empty list": ("peer = []", "there are no peers in it"),
    "only comments": ("# later\n", "there are no peers in it"),
    "not TOML": (ALICE + "oops\n", r"this is not TOML: .*line 5"),
    "an open quote": (ALICE + '\n[[peer]]\nname = "bob', r"this is not TOML: .*line 7, the end of the file"),
    "not UTF-8": (ALICE.encode() + b"# \xff\n", "this is not text in UTF-8, at line 5"),
    "another table": (ALICE.replace("[[peer]]", "[[peers]]"), "'peers' has no place here: .*nothing but"),
    "a setting on top": ("port = 7000\n" + ALICE, "'port' has no place here"),
    "one bracket": (ALICE.replace("[[peer]]", "[peer]"), r"peer: write each .* under \[\[peer\]\]"),
    "a number": ("peer = 5", r"peer: write each .* under \[\[peer\]\]"),
    "numbers": ("peer = [5]", ONE + "a peer must be a table"),
    "an unknown field": (ALICE + "revoke = true", ONE + "unknown field 'revoke': did you mean 'revoked'"),
    "no name": (ALICE.replace("name", "#"), ONE + "it has no name: each .* needs name, address, key"),
    "no address": (ALICE.replace("address", "#"), ONE + "it has no address"),
    "no key": (ALICE.replace("key", "#"), ONE + "it has no key"),
    "equal names": (
        ALICE + BOB.replace("bob", "alice"),
        r"2 \(alice\) have the same name: give each its own",
    ),
    "equal keys": (ALICE + BOB.replace(B, A), f"{BOTH} key"),
    "equal addresses": (ALICE + BOB.replace("bob.example.org", "198.51.100.7"), f"{BOTH} address"),
    "the second is wrong": (ALICE + BOB.replace("name", "#"), r"\[\[peer\]\] 2: it has no name"),
    "a short key": (ALICE.replace(A, A[1:]), ONE + "key: .* this is 63 characters; gossamer keys show alice"),
    "a long key": (ALICE.replace(A, A + "0"), ONE + "key: a public key has 64 digits"),
    "a key in large letters": (ALICE.replace(A, A.upper()), ONE + "key: .* 0-9 and a-f"),
    "a key that is no text": (ALICE.replace(f'"{A}"', "5"), ONE + "key: .* this is no text"),
    "an address that is no text": (
        ALICE.replace('"198.51.100.7:7000"', "7000"),
        ONE + "address = 7000: write",
    ),
    "a bad address": (ALICE.replace(":7000", ""), ONE + "the address '198.51.100.7' must be HOST:PORT"),
    "revoked is no flag": (ALICE + 'revoked = "yes"', ONE + "revoked = 'yes': it is true or false"),
    "a name that is no text": (ALICE.replace('"alice"', "5"), ONE + "the name 5 cannot be used"),
}
BAD_NAMES = ["", ".a", "-a", "a b", "a/b", r"a\n", r"a\u001b[31m", "é", "a" * 65]


@pytest.mark.parametrize(("text", "said"), MISTAKES.values(), ids=MISTAKES)
def test_every_mistake_gets_its_line(tmp_path, text, said):
    with pytest.raises(ValueError, match=rf"^{tmp_path}/peers\.toml: .*{said}") as caught:
        read(tmp_path, text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="cannot be used: take 1 to 64 letters") as caught:
        read(tmp_path, ALICE.replace("alice", name))
    assert str(caught.value).isprintable()


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"there is no peers file .*nothing\.toml: is the path right"):
        read_peers(tmp_path / "nothing.toml")


ADDRESSES = {
    "198.51.100.7:7000": ("198.51.100.7", 7000),
    "127.0.0.1:1": ("127.0.0.1", 1),
    "localhost:65535": ("localhost", 65535),
    "Host-1.Example.ORG:80": ("host-1.example.org", 80),
    "my_service:80": ("my_service", 80),
    "3com.example:80": ("3com.example", 80),
    "[::1]:7000": ("::1", 7000),
    "[2001:DB8:0:0::7]:7000": ("2001:db8::7", 7000),
}
BAD_ADDRESSES = {
    "": "must be HOST:PORT",
    "host": "must be HOST:PORT",
    ":7000": "must be HOST:PORT",
    "HOST:PORT": "needs a port from 1 to 65535 at its end, as 198",
    "host:": "needs a port from 1 to 65535",
    "host:0": "needs a port",
    "host:65536": "needs a port",
    "host:99999999999999999999": "needs a port",
    "host:-1": "needs a port",
    "host:+1": "needs a port",
    "host: 1": "needs a port",
    "host:1 ": "needs a port",
    "host:1\n": "needs a port",
    "host:07": "needs a port",
    "host:٧": "needs a port",
    "host:http": "needs a port",
    "tcp://host:7000": "colons in its host",
    "::1:7000": r"colons in its host: write \[IPv6\]:PORT",
    "2001:db8::7:7000": "colons in its host",
    "[::1]7000": "needs a port",
    "[::1:7000": "colons in its host",
    "[]:7000": "no IPv6 address",
    "[host]:7000": "no IPv6 address",
    "[127.0.0.1]:7000": "no IPv6 address",
    "[fe80::1%eth0]:7000": "names an interface of one machine",
    "256.1.1.1:7000": "no IPv4 address",
    "1.2.3:7000": "no IPv4 address",
    "127.0.0.01:7000": "no IPv4 address",
    "2130706433:7000": "no IPv4 address",
    "0x7f000001:7000": "no IPv4 address",
    "*:7000": "no host",
    "a b:7000": "no host",
    "a..b:7000": "no host",
    "-a.b:7000": "no host",
    "a-.b:7000": "no host",
    "host.:7000": "no host",
    "a@b:7000": "no host",
    "a/b:7000": "no host",
    "a\nb:7000": "no host",
    f"{'a' * 64}:7000": "no host",
    f"{'a.' * 127}a:7000": "no host",
}


@pytest.mark.parametrize(("text", "found"), ADDRESSES.items())
def test_addresses(text, found):
    assert parse_address(text) == found


@pytest.mark.parametrize(("text", "said"), BAD_ADDRESSES.items())
def test_addresses_that_are_refused(text, said):
    with pytest.raises(ValueError, match=said) as caught:
        parse_address(text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("one", "other"),
    [("Bob.example:7000", "bob.EXAMPLE:7000"), ("[2001:db8::7]:7000", "[2001:DB8:0::7]:7000")],
)
def test_an_address_written_in_two_ways_is_one(tmp_path, one, other):
    first, second = (text.replace("198.51.100.7:7000", one) for text in (ALICE, BOB))
    with pytest.raises(ValueError, match=f"{BOTH} address"):
        read(tmp_path, first + second.replace("bob.example.org:7000", other))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.255.0.3", "::1", "0:0:0:0:0:0:0:1", "localhost", "LocalHost"]
)
def test_hosts_that_are_this_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "128.0.0.1",
        "198.51.100.7",
        "::2",
        "::",
        "0.0.0.0",  # noqa: S104 - nothing is bound
        "::ffff:127.0.0.1",
        "localhost.example.org",
        "",
        "127.1",
    ],
)
def test_hosts_that_may_be_another_machine(host):
    assert not is_loopback(host)


NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", fullmatch=True)
HOSTS = (
    st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6).map("[{}]".format)
    | st.from_regex(r"[a-z]([a-z0-9-]{0,9}[a-z0-9])?(\.[a-z]{1,9}){0,3}", fullmatch=True)
)
ADDRESS = st.tuples(HOSTS, st.integers(1, 65535)).map(lambda pair: f"{pair[0]}:{pair[1]}")
KEYS = st.binary(min_size=32, max_size=32).map(bytes.hex)
ENTRIES = st.lists(
    st.tuples(NAMES, ADDRESS, KEYS, st.booleans()),
    min_size=1,
    unique_by=(lambda e: e[0], lambda e: e[1], lambda e: e[2]),
)


@given(ENTRIES)
def test_what_is_written_is_read_back(entries):
    peers = Peers(tuple(Peer(place, *entry) for place, entry in enumerate(entries)))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "peers.toml"
        write_peers(path, peers)
        assert read_peers(path) == peers
        assert [each.name for each in Path(folder).iterdir()] == ["peers.toml"]


@pytest.mark.parametrize(
    "wrong",
    [{"name": 'a"\nrevoked = true\n#'}, {"address": "nowhere"}, {"key": "0"}, {"id": 1}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, peers, wrong):
    path = tmp_path / "peers.toml"
    content = path.read_bytes()
    with pytest.raises(ValueError, match=r".+"):
        write_peers(path, Peers((replace(peers.all[0], **wrong),)))
    assert path.read_bytes() == content


def test_reading_needs_neither_zmq_nor_torch(tmp_path):
    read(tmp_path, ALICE)
    code = (
        "import sys; from pathlib import Path; sys.modules['zmq'] = None\n"
        "from gossamer._mesh.peers import read_peers\n"
        "print(read_peers(Path(sys.argv[1])).all[0].name, 'torch' in sys.modules)"
    )
    assert run_python("-c", code, str(tmp_path / "peers.toml")) == "alice False\n"
