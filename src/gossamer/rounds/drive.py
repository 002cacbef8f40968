"""How rounds are advanced: one alone, several of one worker as one, and all workers' in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar

from torch import Tensor

from gossamer.rounds.phase import STEP, Inbox, Messages, Phase, Round, Step, StepsAndPhases, Traffic

Request = TypeVar("Request", Phase, Phase | Step)


def advance(r: Generator[Request, Inbox, None], inbox: Inbox | None) -> Request | None:
    """Deliver the inbox (None starts the round) and return what it asks for next, or None at the end."""
    try:
        return r.send(inbox)  # type: ignore[arg-type]  # a generator starts with None
    except StopIteration:
        return None


def with_steps(r: StepsAndPhases, step: Callable[[], None]) -> Round:
    """Take the steps that a round asks for, and pass its phases on."""
    request = advance(r, None)
    while request is not None:
        if isinstance(request, Phase):
            request = advance(r, (yield request))
        else:
            step()
            request = advance(r, {})


def side_by_side(rounds: Sequence[StepsAndPhases]) -> StepsAndPhases:
    """Run several rounds of one worker as one: a step is for all of them, and so is a phase."""
    if len(rounds) == 1:
        yield from rounds[0]
        return
    requests = [advance(r, None) for r in rounds]
    while any(request is not None for request in requests):
        phases = [request for request in requests if isinstance(request, Phase)]
        assert len(phases) in (0, len(requests)), (
            "rounds of one algorithm ask for steps and phases in one order"
        )
        if phases:
            inbox = yield _joined(phases)
            inboxes = [{j: part_of(m, i) for j, m in inbox.items()} for i in range(len(rounds))]
        else:
            yield STEP
            inboxes = [{} for _ in rounds]
        requests = [advance(r, own) for r, own in zip(rounds, inboxes, strict=True)]


def run_together(
    rounds: Sequence[Round] | Mapping[int, Round],
    observe: Callable[[Sequence[Traffic]], None] | None = None,
) -> list[Counter[int]]:
    """Run one round of every worker and return the bytes each has sent, by peer.

    Workers are known by the keys of a mapping, or by their places in a sequence. `observe` sees the
    lengths of every phase, what each worker sends and expects, before it is delivered.
    """
    by_id = rounds if isinstance(rounds, Mapping) else dict(enumerate(rounds))
    sent: dict[int, Counter[int]] = {i: Counter() for i in by_id}
    phases = {i: advance(r, None) for i, r in by_id.items()}
    while any(phase is not None for phase in phases.values()):
        present = {i: phase for i, phase in phases.items() if phase is not None}
        assert len(present) == len(phases), "all workers' rounds have the same number of phases"
        if observe is not None:
            observe([phase.traffic() for phase in present.values()])
        outboxes = {i: phase.outbox() for i, phase in present.items()}
        for i, outbox in outboxes.items():
            sent[i].update({j: data.numel() for j, data in outbox.items()})
        inboxes = {i: _inbox(i, phase, outboxes) for i, phase in present.items()}
        phases = {i: advance(r, inboxes[i]) for i, r in by_id.items()}
    return list(sent.values())


def _inbox(me: int, phase: Phase, outboxes: Mapping[int, Mapping[int, Tensor]]) -> Inbox:
    """Collect what was sent to a worker, in the order of ids, as copies: a network has no references."""
    arrived = {i: outboxes[i][me].clone() for i in sorted(outboxes) if me in outboxes[i]}
    lengths, expected = {i: data.numel() for i, data in arrived.items()}, phase.sizes()
    assert lengths == expected, f"worker {me} expects {expected} bytes, {lengths} were sent"
    return phase.inbox(arrived)


def _joined(phases: Sequence[Phase]) -> Phase:
    """Return the phases as one, the messages' names with the number of their round in front."""
    send: dict[int, Messages] = {}
    for j in phases[0].send:
        send[j] = {f"{i} {name}": m for i, phase in enumerate(phases) for name, m in phase.send[j].items()}
    expect = {
        j: {f"{i} {name}": size for i, phase in enumerate(phases) for name, size in phase.expect[j].items()}
        for j in phases[0].expect
    }
    return Phase(send, expect)


def part_of(messages: Mapping[str, Tensor], which: int) -> dict[str, Tensor]:
    """Return what a peer sent for one of several rounds that ran as one."""
    front = f"{which} "
    return {name.removeprefix(front): m for name, m in messages.items() if name.startswith(front)}
