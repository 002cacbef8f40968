"""Faults of networks and machines, for real: eight encrypted members of a mesh train in the lab meanwhile.

    sudo python -m benchmarks.mesh_faults
    sudo python -m benchmarks.mesh_faults --only "flapping" "clock jumps" --dry

Links are cut, flap and lose packets, the network is split into halves for a minute, a member is slow, a clock
jumps, machines sleep, a disk is full, and all are killed at once. Each fault proves that it has happened, and
its row stands beside that of an undisturbed run of the same length. Writes docs/results/mesh_faults.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import cache, partial
from statistics import mean
from typing import Any

from benchmarks.mesh_crew import HALVES, Crew, Seen, run
from benchmarks.mesh_folders import all_killed, disk_full
from benchmarks.mesh_member import DEADLINE, SILENCE, TICK
from benchmarks.mesh_soak import N
from benchmarks.record import write

LENGTH = 50.0  # seconds of most runs
FIRST = 5.0  # seconds before a fault
APART, AFTER = 60.0, 25.0  # seconds of a partition, and after it
NAME = "choco topk"  # what is trained with where nothing else is said
LINK = [(2, 3)]
PARTITIONED = ("choco topk", "choco sign", "dcd qsgd", "dpsgd")
SLOW, FACTOR, PAUSE, RACE = 3, 4.0, 0.1, 25.0

Row = dict[str, Any]


@cache
def undisturbed(seconds: float = LENGTH) -> Seen:
    """Return a run without a fault."""
    return run(NAME, seconds)


def beside(name: str, seen: Seen) -> list[Row]:
    """Return the rows of a run and of an undisturbed one."""
    return [{"run": name, **seen.row()}, {"run": "undisturbed", **undisturbed().row()}]


def cut_link() -> list[Row]:
    """Cut a link for longer than the silence, and heal it."""

    def fault(crew: Crew) -> None:
        crew.sleep(FIRST)
        crew.cut(LINK, 3 * SILENCE)

    return beside(f"link {LINK[0]} cut for {3 * SILENCE:.0f} s", run(NAME, LENGTH, fault))


def flapping() -> list[Row]:
    """Cut a link again and again, for less and for more than the silence."""
    rows: list[Row] = []
    for down, up in ((SILENCE / 3, SILENCE / 3), (1.4 * SILENCE, 0.6 * SILENCE)):

        def fault(crew: Crew, down: float = down, up: float = up) -> None:
            crew.sleep(FIRST)
            for _ in range(int((LENGTH - 4 * FIRST) / (down + up))):
                crew.cut(LINK, down)
                crew.sleep(up)

        rows.append({"run": f"down {down:.1f} s, up {up:.1f} s", **run(NAME, LENGTH, fault).row()})
    return [*rows, {"run": "undisturbed", **undisturbed().row()}]


def partition(name: str) -> list[Row]:
    """Cut the network into halves for a minute, and heal it."""

    def fault(crew: Crew) -> None:
        crew.sleep(FIRST)
        crew.mark("cut")
        crew.cut([(i, j) for i in HALVES[0] for j in HALVES[1]], APART)
        crew.mark("healed")

    length = FIRST + APART + AFTER
    seen, other = run(name, length, fault), run(name, length)
    return [{"run": "two halves", **seen.row(), **_meanwhile(seen)}, {"run": "undisturbed", **other.row()}]


def _meanwhile(seen: Seen) -> Row:
    """Return what both halves have learned while they were apart, and how they met again."""
    cut, healed = seen.times["cut"] + 1, seen.times["healed"] - 1

    def halves(tick: int, what: str) -> list[float]:
        values = seen.at(tick, what)
        return [round(mean(values[i] for i in half), 4) for half in HALVES]

    apart = [len(seen.at(healed, "sees")[i]) for i in range(N)]
    assert apart == [N // 2] * N, f"halves still see each other: {apart}"
    later = [t for t in sorted(seen.distances) if t > healed]
    together = next((t for t in later if all(len(s) == N for s in seen.at(t, "sees"))), None)
    return {
        "loss of the halves, cut and healed": [halves(cut, "loss"), halves(healed, "loss")],
        "accuracy of the halves, cut and healed": [halves(cut, "accuracy"), halves(healed, "accuracy")],
        "distance while apart": round(seen.distance(healed), 5),
        "seconds until all see all": None if together is None else TICK * (together - healed),
        "distances after, every 2 s": [round(seen.distances[t], 4) for t in later],
    }


def lossy() -> list[Row]:
    """Lose 1 % of all packets on all links."""
    seen = run(NAME, LENGTH, loss=0.01)
    share = seen.proofs["packets lost"] / (seen.proofs["packets"] + seen.proofs["packets lost"])
    assert 0.005 < share < 0.05, f"{share:.2%} of the packets were lost"
    return beside("1 % of the packets lost", seen)


def slow_member() -> list[Row]:
    """Let one member be four times slower, and see how long the others take for a hundred rounds."""
    rows = []
    for what, slow, wait in (
        ("none is slow", None, "all"),
        ("one is slow, wait=all", {SLOW: FACTOR}, "all"),
        ("one is slow, wait=quorum", {SLOW: FACTOR}, "quorum"),
    ):
        seen = run(NAME, RACE, pause=PAUSE, slow=slow, wait=wait)
        ticks = [t for t in sorted(seen.states) if len(seen.states[t]) == N]
        others = [r for r in range(N) if r != SLOW]
        steps = {r: mean(seen.states[t][r]["computing"] for t in ticks) for r in range(N)}
        ratio = steps[SLOW] / mean(steps[r] for r in others)
        assert slow is None or ratio > 0.75 * FACTOR, f"the slow one is only {ratio:.1f} times slower"
        done = [seen.at(ticks[-1], "round")[r] - seen.at(ticks[1], "round")[r] for r in others]
        each = TICK * (ticks[-1] - ticks[1]) / mean(done)
        hundred = round(100 * each, 2)
        rows.append({"run": what, "slower by": round(ratio, 2), "seconds for 100 rounds": hundred})
        rows[-1] |= {"times": round(hundred / rows[0]["seconds for 100 rounds"], 2), **seen.row()}
    return rows


def clock_jumps() -> list[Row]:
    """Let the clock of a member jump by an hour forwards, and in another run backwards."""
    rows = []
    for hours in (1, -1):
        seen = run(NAME, LENGTH / 2, jump=(5, FIRST, 3600.0 * hours))
        (jumped,) = seen.jumped
        assert 3590 < hours * (jumped["after"] - jumped["before"]) < 3610
        rows.append({"run": f"a clock jumps by {hours} h", **seen.row()})
    return [*rows, {"run": "undisturbed", **undisturbed(LENGTH / 2).row()}]


def sleep_one() -> list[Row]:
    """Stop a member for half a minute."""

    def fault(crew: Crew) -> None:
        crew.sleep(FIRST)
        crew.freeze([4], 30.0)

    return beside("one sleeps for 30 s", run(NAME, LENGTH, fault))


def sleep_all() -> list[Row]:
    """Stop all members for a quarter of a minute."""

    def fault(crew: Crew) -> None:
        crew.sleep(FIRST)
        crew.freeze(range(N), 15.0)

    return beside("all sleep for 15 s", run(NAME, LENGTH, fault))


SCENARIOS: dict[str, Callable[[], list[Row]]] = {
    "cut": cut_link,
    "flapping": flapping,
    **{f"partition, {name}": partial(partition, name) for name in PARTITIONED},
    "loss": lossy,
    "slow member": slow_member,
    "clock jumps": clock_jumps,
    "one sleeps": sleep_one,
    "all sleep": sleep_all,
    "disk full": disk_full,
    "all killed": all_killed,
}


def main() -> None:
    """Run scenarios, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--dry", action="store_true", help="print only")
    given = parser.parse_args()
    results: dict[str, list[Row]] = {}
    for name in given.only:
        results[name] = SCENARIOS[name]()
        for row in results[name]:
            print(name, json.dumps(row), flush=True)
    if not given.dry:
        about = {"members": N, "silence, s": SILENCE, "deadline, s": DEADLINE}
        write("mesh_faults", {"about": about, **results})


if __name__ == "__main__":
    main()
