"""Packets as a TUN device hands them over: a small header, then one IP packet.

The kernel hands over many segments of a TCP stream as one large packet, as it does to network cards that
cut it themselves. On a wire each segment is a packet with its own headers.
"""

from __future__ import annotations

import struct

# Bytes of virtio_net_hdr: flags, gso_type, hdr_len (2), gso_size (2), csum_start (2), csum_offset (2).
VNET = 10
FIN, PSH, CWR = 0x01, 0x08, 0x80


def measure(packet: bytes) -> tuple[int, int]:
    """Return how many bytes a packet has on a wire, all segments with their headers, and its segments."""
    if not packet[1]:
        return len(packet) - VNET, 1
    headers, _, count = _parts(packet)
    return len(packet) - VNET + headers * (count - 1), count


def survivors(packet: bytes, lost: list[int]) -> list[bytes]:
    """Return what is left of a packet that loses the segments with these numbers."""
    if not lost:
        return [packet]
    _, count = measure(packet)
    runs = zip([0, *(k + 1 for k in lost)], [*lost, count], strict=True)
    return [_piece(packet, start, stop) for start, stop in runs if start < stop]


def _parts(packet: bytes) -> tuple[int, int, int]:
    """Return the length of the headers, of a segment's payload, and the number of segments."""
    payload = packet[4] | packet[5] << 8
    ip = (packet[VNET] & 15) * 4
    headers = ip + (packet[VNET + ip + 12] >> 4) * 4
    return headers, payload, (len(packet) - VNET - headers - 1) // payload + 1


def _piece(packet: bytes, start: int, stop: int) -> bytes:
    """Cut some segments out of a large packet, as if only these had been sent."""
    headers, payload, count = _parts(packet)
    ip, tcp, body = VNET, VNET + (packet[VNET] & 15) * 4, VNET + headers
    data = packet[body + start * payload : body + stop * payload]
    head = bytearray(packet[:body])
    if len(data) <= payload:
        head[1] = head[4] = head[5] = 0  # no longer several segments
    number = struct.unpack_from(">H", head, ip + 4)[0] + start
    struct.pack_into(">HH", head, ip + 2, headers + len(data), number & 0xFFFF)
    sequence = struct.unpack_from(">I", head, tcp + 4)[0] + start * payload
    struct.pack_into(">I", head, tcp + 4, sequence & 0xFFFFFFFF)
    if stop < count:
        head[tcp + 13] &= ~(FIN | PSH)
    if start > 0:
        head[tcp + 13] &= ~CWR
    struct.pack_into(">H", head, ip + 10, 0)
    struct.pack_into(">H", head, ip + 10, _checksum(head[ip:tcp]))
    # The sending kernel leaves TCP's checksum to the device, and the receiving one does not check it.
    return bytes(head) + data


def _checksum(header: bytearray) -> int:
    """Return the checksum of an IP header in which that field is 0."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
