"""Rehearse many schedules of faults on a simulated network, and say which of them broke an invariant.

    python -m benchmarks.rehearsals --schedules 100000 --jobs 2
    python -m benchmarks.rehearsals --schedules 100000 --jobs 2 --write    and docs/results/rehearsals.json

A schedule that fails is replayed by its number: tests/support/rehearsal.py says how.
"""

from __future__ import annotations

from typing import Any

from tests.support.rehearsal import rehearse
from tests.support.rehearsal_faults import ALL_KINDS

from benchmarks.seeds import for_all, parser, tell

TOLD = ("rounds", "exchanges", "half exchanges", "deadline", "news: suspect", "news: dead", "news: left")


def compute(seeds: range, jobs: int) -> dict[str, Any]:
    """Return the results of these schedules."""
    found = for_all(rehearse, seeds, jobs)
    return {
        "schedules": len(seeds),
        "first": seeds.start,
        "failed": found.failed,
        "schedules per second of one core": round(len(seeds) / found.seconds, 1),
        "seconds until all is well, on average": round(found.counts["seconds to settle"] / len(seeds), 1),
        "happened": {what: found.counts[what] for what in TOLD},
        "faults": {kind: found.counts[kind] for kind in ALL_KINDS},
    }


def main() -> None:
    """Rehearse, print what was found, and fail if anything was broken."""
    arguments = parser(__doc__)
    arguments.add_argument("--schedules", type=int, default=3000)
    arguments.add_argument("--first", type=int, default=0, help="the number of the first schedule")
    options = arguments.parse_args()
    results = compute(range(options.first, options.first + options.schedules), options.jobs)
    tell("rehearsals", results, results["failed"], written=options.write)


if __name__ == "__main__":
    main()
