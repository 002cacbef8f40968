"""What must be true of one member in a rehearsal, each time that it looks around."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossamer._mesh.contacts import News, Timing
from gossamer._mesh.link import Link
from tests.support.rehearsal_truth import check_arrived, require

if TYPE_CHECKING:
    from tests.support.rehearsal_worker import Actor

TIMING = Timing()
TICK = 0.25
HEARD_BY_ALL = {"kill", "restart", "blackout", "clock", "slow"}  # faults after which news still go round


def check_founding(actor: Actor) -> None:
    """Check that nobody trains already, where nothing keeps members from knowing that."""
    if set(actor.stage.plot.kinds) <= HEARD_BY_ALL:
        old = [other.id for other in actor.stage.there() if other.is_old and other.trains]
        require(not old, f"worker {actor.id} founds a run, and workers {old} train")


def check_messages(actor: Actor, link: Link) -> None:
    """Check that no message was lost on the way here without notice, unless the network loses frames."""
    sender = actor.stage.actors[link.peer]
    there = sender.protocol.links.get(actor.id)
    if actor.stage.plot.lossy or not sender.alive or sender.nap is not None or there is None:
        return
    if link.parting or there.parting or link.last or there.last:
        return  # who has said goodbye does not need all of it
    if actor.stage.now > max(actor.stage.last_message(sender.id, actor.id), actor.woke, sender.woke) + TICK:
        check_arrived(there, link)


def check_patience(actor: Actor, link: Link) -> None:
    """Check that the silence of a peer ends its link."""
    silence = actor.awake - actor.heard[link.peer] if link.up and not link.over else 0.0
    require(
        silence <= TIMING.silence + TICK,
        f"worker {actor.id} bears the silence of worker {link.peer} too long",
    )


def check_judgement(actor: Actor, news: News) -> None:
    """Check that a member, awake, has waited long enough before it judged another by its silence."""
    if news.reason == "silence":
        silence = actor.awake - actor.heard.get(news.peer, -1e9)
        require(silence > TIMING.silence - TICK, f"worker {actor.id} bore a silence for {silence} s only")
    if news.what == "dead":
        doubt = actor.awake - actor.suspected.get(news.peer, actor.awake)
        require(doubt > TIMING.suspicion - TICK, f"worker {actor.id} doubted for {doubt} s only")
