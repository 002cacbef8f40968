"""The wire format, byte by byte. The rows are worked out by hand and shown in docs/wire.md."""

import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer._random import generator
from gossamer.algorithms.edges import FACTORS, open_products
from gossamer.compress import (
    QSGD,
    Cast,
    Compressor,
    Identity,
    LowRank,
    RandomK,
    Sign,
    Split,
    TopK,
    make,
    wire,
)
from gossamer.compress.layout import Layout
from gossamer.errors import WireError
from gossamer.rounds.collectives import broadcast
from tests.support.cases import COMPRESSORS

DOC = Path(__file__).parents[2] / "docs" / "wire.md"


@dataclass
class Row:
    compressor: Compressor
    shapes: list[tuple[int, ...]]
    vector: Sequence[float]
    bytes: str
    decoded: Sequence[float] | None = None  # where it is not the vector
    dtype: torch.dtype = torch.float32
    from_us: bool = True  # the encoder's bytes are a matter of the format alone

    @property
    def layout(self):
        return Layout(tuple(f"t{i}" for i in range(len(self.shapes))), tuple(self.shapes), self.dtype)

    @property
    def message(self):
        return torch.tensor(list(bytes.fromhex(self.bytes)), dtype=torch.uint8)


HALVES = [1, -0.5, 0.25, 0]
EIGHT = dict(zip((1, 5, 6, 20, 33, 34, 50, 63), (127, -1, 2, -3, 4, -5, 6, -127), strict=True))
SIGNED, SIGNS = [1, -1, 2, -2, 0, -0.0, 3, -3], [1.5, -1.5, 1.5, -1.5, 1.5, 1.5, 1.5, -1.5]
MATRIX = [4, 0, 0, 0, 0, 0]

ROWS = {
    "identity": Row(Identity(), [(2,)], [1, -2], "47730101 562687c3 0800000000000000 0000803f 000000c0"),
    "identity-bf16": Row(
        Identity(), [(2,)], [1, -2], "47730101 3a094e78 0400000000000000 803f 00c0", dtype=torch.bfloat16
    ),
    "fp16": Row(
        Cast("fp16"), [(4,)], HALVES, "47730102 853be719 0c00000000000000 00008038 0074 00f0 006c 0000"
    ),
    "bf16": Row(
        Cast("bf16"), [(4,)], HALVES, "47730102 e47ade64 0c00000000000000 00000040 003f 80be 003e 0000"
    ),
    "fp8": Row(Cast("fp8"), [(4,)], HALVES, "47730102 cdc0c0a8 0800000000000000 0000003c 70 e8 60 00"),
    "int8": Row(
        Cast("int8"), [(4,)], [127, -64, 0, 1], "47730102 faf2178d 0800000000000000 0000803f 7f c0 00 01"
    ),
    "topk-elias-fano": Row(
        TopK(0.125, Cast("int8")),
        [(64,)],
        [EIGHT.get(i, 0) for i in range(64)],
        "47730103 141d77c6 1100000000000000 93e4 0d3144 0000803f 7fff02fd04fb0681",
    ),
    "topk-bit-map": Row(
        TopK(0.5),
        [(8,)],
        [0, 4, -3, 1, 0, 0, -2, 0.5],
        "47730103 41efab6b 1100000000000000 4e 00008040 000040c0 0000803f 000000c0",
        [0, 4, -3, 1, 0, 0, -2, 0],
    ),
    "randomk": Row(  # the seed is the generator's; should numpy ever choose otherwise, VERSION must rise
        RandomK(0.25),
        [(8,)],
        [1, 2, 3, 4, 5, 6, 7, 8],
        "47730104 a67203be 1000000000000000 11a610f4071af618 00000040 0000e040",
        [0, 2, 0, 0, 0, 0, 7, 0],
    ),
    "sign": Row(Sign(), [(2, 4)], SIGNED, "47730105 5f213e02 0500000000000000 0000c03f 8a", SIGNS),
    "sign-raw": Row(
        Sign(raw="vectors"),
        [(2, 4), (2,)],
        [*SIGNED, 0.5, -1],
        "47730105 27021a31 0d00000000000000 0000003f 000080bf 0000c03f 8a",
        [*SIGNS, 0.5, -1],
    ),
    "split": Row(
        Split({"t1": Identity(), "*": Sign()}),
        [(2, 4), (2,)],
        [*SIGNED, 0.5, -1],
        "47730109 27021a31 0d00000000000000 0000003f 000080bf 0000c03f 8a",
        [*SIGNS, 0.5, -1],
    ),
    "qsgd-3bit": Row(
        QSGD(3), [(8,)], [3, -3, 2, -2, 1, -1, 0, 0], "47730106 689686ec 0700000000000000 00004040 cc e1 15"
    ),
    "qsgd-1bit": Row(
        QSGD(1), [(8,)], [2, -2, 2, 2, -2, -2, 2, -2], "47730106 3585363e 0500000000000000 00000040 4d"
    ),
    "lowrank": Row(  # LAPACK may give P a minus sign, also one before a zero
        LowRank(1),
        [(2, 3)],
        MATRIX,
        "47730107 58ef5966 1400000000000000 0000803f 00000000 00008040 00000000 00000000",
        from_us=False,
    ),
}
OTHERS = {
    "plain-vector": "47730100 562687c3 0800000000000000 0000803f 000000c0",
    "powergossip": "47730108 19b5cd82 0c00000000000000 0000803f 00000040 0000003f",
}


@pytest.mark.parametrize("name", ROWS)
def test_encoding_writes_these_bytes(name):
    row = ROWS[name]
    vector = torch.tensor(row.vector, dtype=row.dtype)
    message = row.compressor.encode(vector, row.layout, generator(1))
    assert row.compressor.nbytes(row.layout) == message.numel() == row.message.numel()
    if row.from_us:
        assert bytes(message.tolist()).hex() == row.bytes.replace(" ", "")
    else:
        assert torch.equal(row.compressor.decode(message, row.layout), vector)


@pytest.mark.parametrize("name", ROWS)
def test_decoding_reads_these_bytes(name):
    row = ROWS[name]
    expected = torch.tensor(row.decoded or row.vector, dtype=row.dtype)
    assert torch.equal(row.compressor.decode(row.message, row.layout), expected)


def test_plain_vectors_and_factors():
    v = torch.tensor([1.0, -2.0])
    sent = next(broadcast(0, range(2), v)).outbox()[1]
    assert bytes(sent.tolist()).hex() == OTHERS["plain-vector"].replace(" ", "")
    products = [torch.tensor([[1.0], [2.0]]), torch.tensor([0.5])]
    message = wire.seal(FACTORS, products)
    assert bytes(message.tolist()).hex() == OTHERS["powergossip"].replace(" ", "")
    assert all(map(torch.equal, open_products(message, products, 3), products))
    with pytest.raises(WireError, match="message from worker 3: truncated"):
        open_products(message[:-1], products, 3)


def test_the_document_shows_the_same_bytes():
    blocks = re.findall(
        r"^```hex ([\w-]+)\n(.*?)^```", DOC.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    shown = {name: "".join(line.split("#")[0] for line in block.splitlines()) for name, block in blocks}
    tested = {name: row.bytes for name, row in ROWS.items()} | OTHERS
    assert {name: bytes.fromhex(text).hex(" ") for name, text in shown.items()} == {
        name: bytes.fromhex(text).hex(" ") for name, text in tested.items()
    }
    assert {int(bytes.fromhex(text)[3]) for text in tested.values()} == {
        code for code in wire.FORMATS if code < wire.OTHERS_FROM
    }


@pytest.mark.parametrize("text", [*(row.bytes for row in ROWS.values()), *OTHERS.values()])
def test_the_header_says_what_follows(text):
    message = bytes.fromhex(text)
    magic, version, code, checksum, length = struct.unpack("<2sBBIQ", message[:16])
    assert (magic, version) == (b"Gs", 1)
    assert code in wire.FORMATS
    assert checksum == zlib.crc32(message[16:])
    assert length == len(message) - 16


def changed(at, value):
    message = ROWS["sign"].message
    message[at] = value
    return message


SOUND = ROWS["sign"].message
BROKEN = {
    "empty": (SOUND[:0], "truncated: 0 bytes do not even hold the 16-byte header"),
    "half a header": (SOUND[:15], "truncated: 15 bytes do not even hold"),
    "header alone": (SOUND[:16], "21 bytes announced, 16 received, 21 expected"),
    "cut": (SOUND[:-1], "truncated or of another model: 21 bytes announced, 20 received, 21 expected"),
    "too long": (torch.cat([SOUND, SOUND[:1]]), "21 bytes announced, 22 received, 21 expected"),
    "another model": (ROWS["sign-raw"].message, "29 bytes announced, 29 received, 21 expected"),
    "foreign": (changed(0, 0x48), r"foreign: it starts with b'Hs', not with b'Gs'"),
    "later version": (changed(2, 2), "wire format 2, this worker speaks 1; install one Gossamer everywhere"),
    "other format": (changed(3, 6), "it holds qsgd where sign was expected"),
    "unknown format": (changed(3, 99), "it holds unknown format 99 where sign was expected"),
    "other length": (changed(8, 6), "22 bytes announced, 21 received, 21 expected"),
    "other checksum": (changed(4, 0x5E), "corrupted: the checksum does not match"),
    "other payload": (changed(20, 0x8B), "corrupted: the checksum does not match"),
    "signed bytes": (SOUND.to(torch.int8), r"a message is a flat uint8 tensor, not \(21,\) of torch.int8"),
    "matrix": (SOUND[None], r"a message is a flat uint8 tensor, not \(1, 21\) of torch.uint8"),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_a_broken_message_is_an_error_that_says_so(problem):
    message, text = BROKEN[problem]
    into = torch.ones(8)
    with pytest.raises(WireError, match=text):
        Sign().add(into, message, Layout.flat(8))
    assert torch.equal(into, torch.ones(8))


def test_messages_need_not_lie_in_one_piece():
    strided = torch.stack([SOUND, torch.zeros_like(SOUND)], dim=1)[:, 0]
    assert not strided.is_contiguous()
    assert Sign().decode(strided, Layout.flat(8)).tolist() == SIGNS


LAYOUT = Layout(("weight", "bias", "scale"), ((7, 5), (7,), ()))
# the table's ratios make bit maps, TopK(0.05) Elias-Fano; a raw part must not be added before an error
ANY = {**COMPRESSORS, "topk-sparse": TopK(0.05), "topk-raw": TopK(0.25, raw="vectors")}
rows = st.sampled_from(sorted(ANY))


@settings(deadline=None, max_examples=300)
@given(rows, st.integers(0, 99), st.data())
def test_corruption_is_noticed_or_harmless(name, seed, data):
    compressor = ANY[name]
    sound = compressor.encode(torch.randn(LAYOUT.size, generator=generator(seed)), LAYOUT, generator(seed))
    expected = compressor.decode(sound, LAYOUT)
    start = data.draw(st.integers(0, sound.numel()))
    stop = data.draw(st.integers(start, min(start + 24, sound.numel())))
    noise = torch.tensor(list(data.draw(st.binary(max_size=24))), dtype=torch.uint8)
    message = torch.cat([sound[:start], noise, sound[stop:]])  # overwritten, cut or stretched
    try:
        decoded = compressor.decode(message, LAYOUT)
    except WireError:
        return
    assert torch.equal(decoded, expected)


@pytest.mark.parametrize("name", ANY)
def test_nonsense_in_a_sound_frame_crashes_nobody(name):
    compressor = ANY[name]
    length = compressor.nbytes(LAYOUT) - wire.HEADER.size
    for seed in range(50):
        payload = torch.randint(256, (length,), generator=generator(seed), dtype=torch.uint8)
        into = torch.ones(LAYOUT.size, dtype=torch.float64)
        try:
            compressor.add(into, wire.seal(compressor.code, [payload]), LAYOUT)
        except WireError:
            assert torch.equal(into, torch.ones_like(into))


def resnet20():
    """Return the layout of the ResNet-20 for CIFAR-10 with convolutions where the shape changes."""
    tensors = {"conv1.weight": (16, 3, 3, 3), "bn1.weight": (16,), "bn1.bias": (16,)}
    before = 16
    for stage, width in enumerate((16, 32, 64), start=1):
        for block in range(3):
            layers = {"conv1": (width, before, 3, 3), "conv2": (width, width, 3, 3)}
            if before != width:
                layers["downsample"] = (width, before, 1, 1)
            for name, shape in layers.items():
                at = f"layer{stage}.{block}.{name}"
                tensors |= {f"{at}.weight": shape, f"{at}.bn.weight": (width,), f"{at}.bn.bias": (width,)}
            before = width
    tensors |= {"fc.weight": (10, 64), "fc.bias": (10,)}
    return Layout(tuple(tensors), tuple(tensors.values()))


def test_a_resnet_20_costs_what_the_document_says():
    layout = resnet20()
    assert (len(layout.names), layout.size) == (65, 272_474)
    table = re.findall(r"^\| `([\w:.]+)` \| ([\d ]+) \|", DOC.read_text(encoding="utf-8"), re.MULTILINE)
    sizes = {text: int(size.replace(" ", "")) for text, size in table}
    v = torch.randn(layout.size, generator=generator(1))
    for text, size in sizes.items():
        assert make(text).nbytes(layout) == make(text).encode(v, layout, generator(1)).numel() == size, text
    most = {"sign": 34_600, "qsgd:4": 140_000, "topk:0.01": 14_200, "topk:0.01:fp16": 8_800}
    assert all(sizes[text] <= limit for text, limit in most.items())
