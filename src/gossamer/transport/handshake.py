"""The comparison of settings before the first round."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from torch import Tensor

from gossamer.errors import MismatchError
from gossamer.rounds.collectives import broadcast, first_error
from gossamer.transport.base import Transport
from gossamer.transport.flight import run

COMPLAINT = 4096  # bytes, enough for three fields of 150 characters however they are escaped


def agree(transport: Transport, settings: Mapping[str, str], name: str = "handshake") -> None:
    """Compare every setting with worker 0's; on a difference all workers raise the same MismatchError."""
    rank, n = transport.rank, transport.size
    text = _bytes(json.dumps(dict(settings)))
    length = torch.tensor([text.numel()])
    run(broadcast(rank, range(n), length), transport, name)
    reference = text.clone() if rank == 0 else torch.empty(int(length), dtype=torch.uint8)
    run(broadcast(rank, range(n), reference), transport, name)
    complaint = _padded(_difference(rank, settings, json.loads(_text(reference))))
    run(first_error(rank, range(n), complaint), transport, name)
    if complaint.any():
        field, who, found, expected = json.loads(_text(complaint))
        raise MismatchError(field, who, found, expected)


def _difference(rank: int, mine: Mapping[str, str], reference: Mapping[str, str]) -> str:
    for field in [*reference, *(f for f in mine if f not in reference)]:
        found, expected = mine.get(field, "nothing"), reference.get(field, "nothing")
        if found != expected:
            return json.dumps([field[:150], rank, found[:150], expected[:150]])
    return ""


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode("ascii")), dtype=torch.uint8)  # json escapes the rest


def _padded(text: str) -> Tensor:
    padded = torch.zeros(COMPLAINT, dtype=torch.uint8)
    if text:
        encoded = _bytes(text)
        padded[: encoded.numel()] = encoded
    return padded


def _text(encoded: Tensor) -> str:
    return bytes(encoded.tolist()).rstrip(b"\0").decode("ascii")
