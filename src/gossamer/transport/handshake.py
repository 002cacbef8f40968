"""The comparison of settings before the first round."""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch

from gossamer.errors import MismatchError
from gossamer.rounds.collectives import broadcast, first_error, text_as_tensor, text_of
from gossamer.transport.base import Transport
from gossamer.transport.flight import run

LONGEST = 150  # characters of a field, so that three fit into an error text however they are escaped


def agree(transport: Transport, settings: Mapping[str, str], name: str = "handshake") -> None:
    """Compare every setting with worker 0's; on a difference all workers raise the same MismatchError."""
    rank, everybody = transport.rank, transport.everybody
    text = torch.frombuffer(bytearray(json.dumps(dict(settings)).encode()), dtype=torch.uint8)
    length = torch.tensor([text.numel()])
    run(broadcast(rank, everybody, length), transport, name)
    reference = text.clone() if rank == everybody[0] else torch.empty(int(length), dtype=torch.uint8)
    run(broadcast(rank, everybody, reference), transport, name)
    complaint = text_as_tensor(_difference(rank, settings, json.loads(bytes(reference.tolist()))))
    run(first_error(rank, everybody, complaint), transport, name)
    if complaint.any():
        field, who, found, expected = json.loads(text_of(complaint))
        raise MismatchError(field, who, found, expected)


def _difference(rank: int, mine: Mapping[str, str], reference: Mapping[str, str]) -> str:
    for field in [*reference, *(f for f in mine if f not in reference)]:
        found, expected = mine.get(field, "nothing"), reference.get(field, "nothing")
        if found != expected:
            return json.dumps([field[:LONGEST], rank, found[:LONGEST], expected[:LONGEST]])
    return ""
