"""What goes wrong in a rehearsal: each kind of fault is a function that does it, if it can be done now."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.support.rehearsal_network import OF_FRAMES

if TYPE_CHECKING:
    from tests.support.rehearsal import Stage
    from tests.support.rehearsal_worker import Actor

Fault = Callable[["Stage"], bool]  # returns whether it has happened

GENTLE = (
    "leave",
    "return",
    "stranger",
    "slow",
    "clock",
)  # after these nothing is lost, and nobody is doubted


def inject(stage: Stage) -> None:
    """Do something bad, of the kinds that this schedule has."""
    kinds = [kind for kind in stage.plot.kinds if kind in FAULTS]
    if not stage.there():
        kinds = ["restart", "return"]
    if kinds:
        happen(stage, stage.random.choice(kinds))


def happen(stage: Stage, kind: str) -> None:
    """Do one kind of fault, and count it if it could be done."""
    if FAULTS[kind](stage):
        stage.counts[kind] += 1


def _victim(stage: Stage) -> Actor | None:
    there = stage.there()
    return stage.random.choice(there) if there else None


def _pair(stage: Stage) -> tuple[Actor, Actor] | None:
    there = stage.there()
    if len(there) < 2:
        return None
    one, other = stage.random.sample(there, 2)
    return one, other


def _break(stage: Stage) -> bool:
    """A connection breaks; the other direction does not."""
    pair = _pair(stage)
    if pair:
        stage.break_line(pair[0].id, pair[1].id)
    return pair is not None


def _heals(stage: Stage) -> float:
    return min(stage.now + stage.random.uniform(0.5, 25.0), stage.plot.length)


def _cut(stage: Stage) -> bool:
    """Two members cannot reach each other."""
    pair, until = _pair(stage), _heals(stage)
    if pair:
        stage.cut(pair[0].id, pair[1].id, until)
        stage.cut(pair[1].id, pair[0].id, until)
    return pair is not None


def _one_way(stage: Stage) -> bool:
    """One member cannot reach another, which can reach it."""
    pair = _pair(stage)
    if pair:
        stage.cut(pair[0].id, pair[1].id, _heals(stage))
    return pair is not None


def _partition(stage: Stage) -> bool:
    """Two groups of members cannot reach each other."""
    everybody, until = list(stage.actors), _heals(stage)
    if len(everybody) < 2:
        return False
    group = set(stage.random.sample(everybody, stage.random.randint(1, len(everybody) - 1)))
    for one in group:
        for other in set(everybody) - group:
            stage.cut(one, other, until)
            stage.cut(other, one, until)
    return True


def _kill(stage: Stage) -> bool:
    """A process is killed, or its machine is, which nobody notices."""
    victim = _victim(stage)
    if victim:
        stage.end(victim, silent=stage.random.random() < 0.5)
    return victim is not None


def _restart(stage: Stage) -> bool:
    """A process that was killed comes back, without what it knew."""
    return _come_back(stage, lambda actor: not actor.leaving)


def _return(stage: Stage) -> bool:
    """A member that has left comes back, without what it knew."""
    return _come_back(stage, lambda actor: actor.leaving)


def _come_back(stage: Stage, can: Callable[[Actor], bool]) -> bool:
    gone = [i for i, actor in stage.actors.items() if not actor.alive and can(actor)]
    if gone:
        stage.come_back(stage.random.choice(gone))
    return bool(gone)


def _blackout(stage: Stage) -> bool:
    """All processes are killed; most come back."""
    victims = stage.there()
    for victim in victims:
        stage.end(victim, silent=stage.random.random() < 0.5)
        if stage.random.random() < 0.8:
            back = min(stage.now + stage.random.uniform(0.1, 10.0), stage.plot.length)
            stage.at(back, stage.come_back, victim.id)
    return bool(victims)


def _freeze(stage: Stage) -> bool:
    """A process is stopped for a while, and its machine answers for it."""
    victim = _victim(stage)
    if victim:
        victim.sleep(until=min(stage.now + stage.random.uniform(0.5, 15.0), stage.plot.length))
    return victim is not None


def _clock(stage: Stage) -> bool:
    """The clock on the wall jumps, by which the next process that starts numbers its incarnation."""
    stage.wall += stage.random.choice((-3600.0, 3600.0))
    return True


def _slow(stage: Stage) -> bool:
    """A worker computes slowly, or fast again."""
    victim = _victim(stage)
    if victim:
        victim.pace = stage.random.choice((1.0, 2.0, 3.0))
    return victim is not None


def _hang(stage: Stage) -> bool:
    """A worker hangs in a step, while its process gives signs of life."""
    victim = _victim(stage)
    if victim:
        victim.hangs = stage.random.uniform(5.0, 20.0)
    return victim is not None


def _leave(stage: Stage) -> bool:
    """A worker leaves at the end of its round."""
    victim = _victim(stage)
    if victim is None or victim.leaving:
        return False
    victim.leaving = True
    return True


def _stranger(stage: Stage) -> bool:
    """Somebody comes whom nobody has heard of, and who knows only one member."""
    contact = _victim(stage)
    if contact is None or contact.leaving or len(stage.actors) >= stage.plot.n + 2:
        return False
    stage.welcome(contact)
    return True


def _spoil(stage: Stage) -> bool:
    """What a worker knows of a neighbour is changed by a fault of its memory."""
    victim = _victim(stage)
    known = [j for j, edge in victim.hood.edges.items() if edge.known] if victim else []
    if victim is None or not known or not stage.plot.copies or stage.plot.lags:
        return False  # where messages may be late, nobody compares what is believed
    peer = stage.random.choice(known)
    victim.model.spoil(peer)
    stage.truth.spoilt.add(victim.hood.edges[peer].epoch)
    return True


def _slow_copies(stage: Stage) -> bool:
    """Copies for new neighbours take long; all else is as fast as ever."""
    stage.copies_slow_until = _heals(stage)
    return True


def _storm(stage: Stage) -> bool:
    """Several things go wrong at once."""
    kinds = sorted(FAULTS.keys() - {"storm", "blackout"})
    for kind in stage.random.sample(kinds, 4):
        stage.later(stage.random.uniform(0.0, 0.5), happen, stage, kind)
    return True


FAULTS: dict[str, Fault] = {
    "blackout": _blackout,
    "break": _break,
    "clock": _clock,
    "cut": _cut,
    "freeze": _freeze,
    "hang": _hang,
    "kill": _kill,
    "leave": _leave,
    "one way": _one_way,
    "partition": _partition,
    "restart": _restart,
    "return": _return,
    "slow": _slow,
    "slow copies": _slow_copies,
    "spoil": _spoil,
    "storm": _storm,
    "stranger": _stranger,
}
ALL_KINDS = tuple(sorted({*FAULTS, *OF_FRAMES}))
