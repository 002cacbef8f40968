"""Put the results of faults, real and rehearsed, into docs/failures.md.

    python -m benchmarks.mesh_pages

The page's text is written by hand; what stands between its markers is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.pages import fill, number, table
from benchmarks.record import ROOT, read

PAGE = ROOT / "docs" / "failures.md"
APART = "partition, "  # how scenarios begin in which the network is in halves
SLOW = "slow member"
OTHERS = (SLOW, "disk full", "all killed")  # scenarios with tables of their own

Row = Mapping[str, Any]


def page(text: str) -> str:
    """Return the page with all that was measured so far."""
    soak, faults = read("mesh_soak"), read("mesh_faults")
    joins, rehearsed = read("mesh_joiners"), read("rehearsals")
    if soak:
        text = fill(text, "soak", soak_table(soak["results"]["phases"]))
    if faults:
        named = {name: rows for name, rows in faults["results"].items() if isinstance(rows, list)}
        text = fill(text, "faults", faults_table(named))
        text = fill(text, "halves", halves_table(named))
        text = fill(text, "slow", slow_table(named[SLOW]))
        text = fill(text, "folders", folders_table(named))
    if joins:
        text = fill(text, "joins", joins_table(joins["results"]["joins"]))
    if rehearsed:
        text = fill(text, "rehearsals", rehearsals_table(rehearsed["results"]))
    return text


def soak_table(phases: Sequence[Row]) -> str:
    """Return a row for each algorithm: what was done to its workers, and what came of it."""
    pairs = list(zip(phases[::2], phases[1::2], strict=True))
    lines = [_soaked(undisturbed, disturbed) for undisturbed, disturbed in pairs]
    sums = [sum(row.get(what, 0) for _, row in pairs) for what in ("minutes", "kills", "rejoins", "freezes")]
    worst = max(row["longest wait, s"] for _, row in pairs)
    lines.append(["all", *(number(x, 4) for x in sums), number(worst), "", "", ""])
    columns = ["minutes", "kills", "came back", "freezes", "longest wait, s", "rounds left out"]
    accuracies = ["accuracy, %", "undisturbed, %"]
    return table(["", *columns, *accuracies], lines)


def _soaked(undisturbed: Row, disturbed: Row) -> list[str]:
    counts = (disturbed.get(what, 0) for what in ("minutes", "kills", "rejoins", "freezes"))
    return [
        disturbed["algorithm"],
        *(number(count, 4) for count in counts),
        number(disturbed["longest wait, s"]),
        number(disturbed["rounds repeated or left out"]),
        *(number(100 * mean(row["accuracy"])) for row in (disturbed, undisturbed)),
    ]


def faults_table(scenarios: Mapping[str, Sequence[Row]]) -> str:
    """Return a row for each run: rounds, how good and how close models are, and what was waited for."""
    lines = []
    for name, rows in scenarios.items():
        for row in rows if name not in OTHERS else ():
            well = all(row[what] for what in ("all ended well", "all see all", "edges are those of the ring"))
            values = (row["rounds"], 100 * row["lowest accuracy"], row["distance"], row["longest wait, s"])
            told = f"{name}: {row['run']}"
            lines.append([told, *(number(value) for value in values), "yes" if well else "no"])
    columns = [
        "rounds",
        "lowest accuracy, %",
        "distance at the end",
        "longest wait, s",
        "all well at the end",
    ]
    return table(["", *columns], lines)


def halves_table(scenarios: Mapping[str, Sequence[Row]]) -> str:
    """Return what the halves of a network have learned while they were apart, and how they met again."""
    lines = []
    for name, rows in scenarios.items():
        if not name.startswith(APART):
            continue
        halves = rows[0]
        before, after = halves["accuracy of the halves, cut and healed"]
        after_ten = halves["distances after, every 2 s"][
            min(5, len(halves["distances after, every 2 s"]) - 1)
        ]
        lines.append(
            [
                name.removeprefix(APART),
                " and ".join(number(100 * x) for x in before),
                " and ".join(number(100 * x) for x in after),
                number(halves["distance while apart"]),
                number(halves["seconds until all see all"]),
                number(after_ten),
                number(rows[1]["distance"]),
            ]
        )
    columns = ["accuracy when cut, %", "a minute later, %", "distance then", "s until all see all"]
    return table(["", *columns, "distance 10 s after", "undisturbed"], lines)


def slow_table(rows: Sequence[Row]) -> str:
    """Return how long the others take for a hundred rounds beside one that is slow."""
    lines = [
        [row["run"], *(number(row[what]) for what in ("slower by", "seconds for 100 rounds", "times"))]
        for row in rows
    ]
    return table(["", "its steps take, times", "seconds for 100 rounds of the others", "times"], lines)


def folders_table(scenarios: Mapping[str, Sequence[Row]]) -> str:
    """Return what became of run folders."""
    full, killed = scenarios["disk full"][0], scenarios["all killed"][0]
    rows = [
        ["a full disk: checkpoints that could not be written, and were said so", full["warnings"]],
        ["step of the newest checkpoint before it was full", full["newest checkpoints before"][0]],
        ["step of the newest sound one afterwards", full["newest sound checkpoints after"][0]],
        ["step that the resumed run has reached", full["its last checkpoints"][0]],
        ["all eight killed: workers that resumed", killed["killed"] - len(killed["missing"])],
        ["step from which they resumed", killed["resumed at"][0]],
        ["steps since then, at least", killed["steps since, of each"][0]],
    ]
    return table(["", "value"], [[what, number(value)] for what, value in rows])


def joins_table(joins: Sequence[Row]) -> str:
    """Return what a newcomer costs the others."""
    lines = []
    for row in joins:
        values = (row["seconds from start to the first round"], row["median step before, s"])
        longest = (row[f"longest step {when}, in steps more"] for when in ("before", "while it comes"))
        lines.append([row["donor"], *(number(value) for value in (*values, *longest))])
    columns = ["s until it trains", "s a step before", "longest of anybody, in steps more", "while it comes"]
    return table(["its donor", *columns], lines)


def rehearsals_table(results: Row) -> str:
    """Return how many schedules were rehearsed, and how often each thing happened in them."""
    happened = {"schedules": results["schedules"], "that broke an invariant": len(results["failed"])}
    happened |= results["happened"] | results["faults"]
    return table(["", "times"], [[name, f"{count:,}"] for name, count in happened.items()])


def main() -> None:
    PAGE.write_text(page(PAGE.read_text()))


if __name__ == "__main__":
    main()
