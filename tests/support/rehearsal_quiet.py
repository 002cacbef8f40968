"""What must be true of a rehearsal when its faults are over: all find each other; then nothing changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gossamer._mesh.members import UNSEEN, Member, Status
from gossamer._mesh.neighbourhood import DRIFT, WRONG, Edge
from tests.support.rehearsal_faults import GENTLE
from tests.support.rehearsal_truth import require
from tests.support.rehearsal_worker import DEADLINE

if TYPE_CHECKING:
    from tests.support.rehearsal import Stage
    from tests.support.rehearsal_worker import Actor

PATIENCE = 90.0  # seconds after the last fault in which all must be well
STEP = 3.0
CALM = 12.0  # seconds in which nothing may change after that: longer than any silence or suspicion lasts
DISTURBANCES = ("deadline", "news: down", "news: suspect", "news: dead", "news: left", "news: alive")


def settle(stage: Stage) -> None:
    """Let time pass until all is well, and check that it stays so."""
    for actor in stage.there():
        actor.pace, actor.hangs = 2.0, 0.0
        actor.still_to_do = actor.rounds + 2  # after these, it has noticed every message that was lost
    began = stage.now
    stage.run_until(stage.under_way_until)  # the last of what the faults have delayed
    if stage.plot.lags:  # rounds go on without a message that was lost, which is noticed by and by
        _wait(stage, began + PATIENCE)
        stage.run_until(stage.now + DEADLINE + 1.0)
    while not _stays_well(stage, began + PATIENCE):
        stage.counts["circles"] += 1
    stage.counts["seconds to settle"] += int(stage.now - began - CALM)


def _stays_well(stage: Stage, end: float) -> bool:
    """Wait until all is well; return whether it stayed so, or raise Broken if there is no excuse."""
    trouble = _wait(stage, end)
    require(not trouble, f"{PATIENCE} s after the last fault, {trouble}")
    stage.run_until(stage.now + 1.0)  # what is under way, such as a goodbye of both ends at once
    before = _disturbances(stage)
    stage.run_until(stage.now + CALM)
    after, trouble = _disturbances(stage), _trouble(stage)
    # Rounds of several phases may wait for each other in a circle when edges come, until the deadline.
    if stage.plot.phases > 1 and after[0] > before[0] and stage.now < end:
        return False
    require(not trouble, f"all was well, and now {trouble}")
    require(before == after, f"all was well, and was then disturbed: {before} became {after}")
    return True


def _wait(stage: Stage, end: float) -> str:
    """Wait until all is well, but not for ever; return what is not."""
    while (trouble := _trouble(stage)) and stage.now < end:
        stage.run_until(stage.now + STEP)
    return trouble


def check_end(stage: Stage) -> None:
    """Check what must be true of the whole schedule."""
    stage.truth.check_sum([actor.model.x for actor in stage.processes])
    if not stage.truth.spoilt:
        require(not stage.counts[f"down: {DRIFT}"], "what is believed was found wrong, and was not")
    require(not stage.counts[f"down: {WRONG}"], "a message was taken for another one")
    if set(stage.plot.kinds) <= set(GENTLE):
        _check_gentle(stage)


def _check_gentle(stage: Stage) -> None:
    """Check that nothing is lost where members only come and go as they should."""
    never, excuses = ["deadline"], {"not wanted"}
    if stage.plot.phases > 1:  # circles
        never, excuses = [], {"not wanted", "deadline"}
    if "leave" not in stage.plot.kinds:  # a connection that closes may be noticed before the goodbye
        never += ["news: suspect", "news: dead"]
    live = {edge.epoch for actor in stage.there() for edge in actor.hood.edges.values()}
    for epoch in stage.truth.halves().keys() - live:
        why = stage.truth.ended[epoch]
        require(why & excuses, f"without any loss, an exchange was done by half: {why}")
    for what in never:
        require(not stage.counts[what], f"{what}, without any cause")
    for actor in stage.there():
        members = actor.protocol.members.by_id
        wrong = [i for i in stage.said_goodbye if i in members and _is_seen_dead(members[i])]
        require(not wrong, f"worker {actor.id} believes {wrong} to be dead, which have left")


def _is_seen_dead(member: Member) -> bool:
    return member.status == Status.DEAD and member.incarnation > UNSEEN


def _disturbances(stage: Stage) -> list[int]:
    refused = sum(sum(actor.protocol.refused.values()) for actor in stage.there())
    return [*(stage.counts[name] for name in DISTURBANCES), refused]


def _trouble(stage: Stage) -> str:
    """Return what is not as it should be when all is quiet; nothing if all is well."""
    there = {actor.id: actor for actor in stage.there()}
    if any(actor.leaving for actor in there.values()):
        return "somebody is still leaving"
    if any(actor.rounds < actor.still_to_do for actor in there.values()):
        return "somebody is still in a round from before"
    for group in _components(
        {i: set(actor.protocol.members.by_id) & set(there) for i, actor in there.items()}
    ):
        trouble = _trouble_of_group([there[i] for i in group], group)
        if trouble:
            return trouble
    return ""


def _trouble_of_group(actors: list[Actor], group: frozenset[int]) -> str:
    """Return what is not as it should be among members that know of each other."""
    for actor in actors:
        believed = actor.protocol.members.alive()
        if believed != group:
            return f"worker {actor.id} believes that {sorted(believed)} are there, and it is {sorted(group)}"
        trouble = _trouble_of_edges(actor)
        if trouble:
            return trouble
    if len({actor.protocol.members.digest() for actor in actors}) > 1:
        return "the lists of members differ"
    if len(_components({actor.id: set(actor.hood.edges) for actor in actors})) > 1:
        return "the graph has fallen apart"
    return ""


def _trouble_of_edges(actor: Actor) -> str:
    wanted, edges, links = actor.protocol.wanted, actor.hood.edges, actor.protocol.links
    if set(wanted) != set(edges):
        return f"worker {actor.id} wants edges to {sorted(wanted)} and has them to {sorted(edges)}"
    if set(links) != set(wanted):
        return f"worker {actor.id} keeps links to {sorted(links)} and wants {sorted(wanted)}"
    for peer, edge in edges.items():
        trouble = _trouble_between(edge, actor.stage.actors[peer].hood.edges.get(actor.id), actor.stage)
        if trouble:
            return f"between {actor.id} and {peer}: {trouble}"
    return ""


def _trouble_between(edge: Edge, other: Edge | None, stage: Stage) -> str:
    if edge.epoch in stage.truth.spoilt:
        return "nobody has noticed that one is wrong about the other"
    if not edge.known or not edge.weight:
        return "the edge does not count"
    if other is None or other.epoch != edge.epoch:
        return "they do not mean the same edge"
    if other.number == edge.number and other.weight != edge.weight:
        return f"they have the weights {edge.weight} and {other.weight}"
    return ""


def _components(neighbours: dict[int, set[int]]) -> list[frozenset[int]]:
    """Return the connected parts of a graph; an edge may be given by either end."""
    left, parts = set(neighbours), []
    while left:
        part, new = set(), {next(iter(left))}
        while new:
            part |= new
            new = _around(neighbours, part) - part
        parts.append(frozenset(part))
        left -= part
    return parts


def _around(neighbours: dict[int, set[int]], part: Iterable[int]) -> set[int]:
    part = set(part)
    out = {j for i in part for j in neighbours[i]}
    return out | {i for i, reached in neighbours.items() if reached & part}
