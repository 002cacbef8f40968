"""What members of a mesh have answered, compared: in what they differ that should be the same everywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import gossamer
from gossamer.report import format as human

if TYPE_CHECKING:  # they load zmq and graphs, for which the command's help has no time
    from gossamer._mesh.ask import Answer
    from gossamer._mesh.peers import Peers
    from gossamer._mesh.status import MemberStatus

CLOCKS = 60.0  # seconds by which clocks may differ


class Remark(NamedTuple):
    """Something about one member that people should know."""

    what: str  # peers, run, settings, version or clock
    member: str
    text: str


def remarks(answers: Sequence[Answer], everybody: Peers) -> list[Remark]:
    """Return in what members differ from the others, or from this machine."""
    told = {answer.peer.name: answer.told for answer in answers if answer.told is not None}
    runs = _apart({name: one.run for name, one in told.items() if one.run})
    same_run = {name: one.settings for name, one in told.items() if one.settings and name not in runs}
    return [
        *(
            Remark("peers", name, f"{name} has another peers file than this one: all must have the same")
            for name, one in told.items()
            if _has_other_peers(one, everybody)
        ),
        *(
            Remark("run", name, f"{name} is in another run than {others}: same task, algorithm, topology?")
            for name, others in runs.items()
        ),
        *(
            Remark("settings", name, f"{name} trains with other settings than {others}")
            for name, others in _apart(same_run).items()
        ),
        *(
            Remark("version", name, f"{name} has gossamer {one.version}, and here is {gossamer.__version__}")
            for name, one in told.items()
            if one.version != gossamer.__version__
        ),
        *(_clock(answer) for answer in answers if answer.told is not None and abs(answer.ahead) > CLOCKS),
    ]


def said_of(answer: Answer, answers: Sequence[Answer]) -> str:
    """Return what most of the others say of a member: alive, suspect, dead, left; "" if they say nothing."""
    others = [a.told for a in answers if a.told is not None and a is not answer]
    said = Counter(m.status for told in others for m in told.members if answer.peer.key.startswith(m.key))
    return said.most_common(1)[0][0] if said else ""


def _apart(values: Mapping[str, str]) -> dict[str, str]:
    """Return who differs from most of them, and from whom."""
    usual = Counter(values.values()).most_common(1)
    most = [name for name, value in values.items() if value == usual[0][0]]
    return {name: ", ".join(most) for name, value in values.items() if name not in most}


def _has_other_peers(told: MemberStatus, everybody: Peers) -> bool:
    """Return whether a member knows another under a number of this file."""
    own = {peer.id: peer.key for peer in everybody.all}
    return any(not own[seen.id].startswith(seen.key) for seen in told.members if seen.id in own)


def _clock(answer: Answer) -> Remark:
    name, way = answer.peer.name, "ahead of" if answer.ahead > 0 else "behind"
    by = human.duration(abs(answer.ahead)).replace(human.SPACE, " ")
    text = f"the clock of {name} is {by} {way} this one: that matters for logs only, not for training"
    return Remark("clock", name, text)
