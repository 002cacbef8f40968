"""All workers' rounds in one process, phase by phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gossamer.rounds.phase import Inbox, Phase, Round


def advance(r: Round, inbox: Inbox | None) -> Phase | None:
    """Deliver the inbox (None starts the round) and return the next phase, or None at the end."""
    try:
        return r.send(inbox)  # type: ignore[arg-type]  # a generator starts with None
    except StopIteration:
        return None


def run_together(
    rounds: Sequence[Round], observe: Callable[[Sequence[Phase]], None] | None = None
) -> list[int]:
    """Run one round of every worker and return the bytes each has sent.

    `observe` sees every phase, as what each worker sends and expects, before it is delivered.
    """
    sent = [0] * len(rounds)
    phases = [advance(r, None) for r in rounds]
    while any(phase is not None for phase in phases):
        present = [phase for phase in phases if phase is not None]
        assert len(present) == len(phases), "all workers' rounds have the same number of phases"
        if observe is not None:
            observe(present)
        for rank, phase in enumerate(present):
            sent[rank] += sum(message.numel() for message in phase.send.values())
        inboxes = [_inbox(rank, present) for rank in range(len(rounds))]
        phases = [advance(r, inbox) for r, inbox in zip(rounds, inboxes, strict=True)]
    return sent


def _inbox(rank: int, phases: Sequence[Phase]) -> Inbox:
    """Collect what was sent to a worker, in rank order, as copies: a network has no references."""
    inbox = {sender: phase.send[rank].clone() for sender, phase in enumerate(phases) if rank in phase.send}
    lengths = {sender: message.numel() for sender, message in inbox.items()}
    expected = phases[rank].expect
    assert lengths == expected, f"worker {rank} expects {expected} bytes, {lengths} were sent"
    return inbox
