"""Feed members with frames that nobody should send, and say whether any has done harm.

    python -m benchmarks.hostile_frames --frames 1000000 --jobs 2
    python -m benchmarks.hostile_frames --frames 1000000 --write    and docs/results/hostile_frames.json

tests/support/hostile_frames.py says what counts as harm.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.support.hostile_frames import Target

from benchmarks.seeds import for_all, parser, tell

EACH = 250  # frames for a target: after them, many of its links have been ended by valid goodbyes


def attack(seed: int) -> Counter[str]:
    """Attack one target."""
    return Target(seed).attack(EACH)


def compute(frames: int, jobs: int) -> dict[str, Any]:
    """Return the results of so many frames."""
    targets = -(-frames // EACH)
    found = for_all(attack, range(targets), jobs)
    return {
        "frames": targets * EACH,
        "targets": targets,
        "harmed": found.failed,
        "frames per second of one core": round(targets * EACH / found.seconds),
        "stored, as their senders may": found.counts["stored"],
        "tried": _those(found.counts, "tried: "),
        "refused": _those(found.counts, "refused: "),
    }


def _those(counts: Counter[str], kind: str) -> dict[str, int]:
    return {what.removeprefix(kind): often for what, often in sorted(counts.items()) if what.startswith(kind)}


def main() -> None:
    """Attack, print what came of it, and fail if any target was harmed."""
    arguments = parser(__doc__)
    arguments.add_argument("--frames", type=int, default=20_000)
    options = arguments.parse_args()
    results = compute(options.frames, options.jobs)
    tell("hostile_frames", results, results["harmed"], written=options.write)


if __name__ == "__main__":
    main()
