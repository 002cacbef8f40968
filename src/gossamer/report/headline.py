"""The result of runs in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.report import format as human
from gossamer.report.table import Row, labels, rows
from gossamer.runs.record import Run

CLOSE = 0.01  # of runs this near to the best one, the one with the fewest bytes is the result
STATES = {
    "running": "is still running",
    "interrupted": "was interrupted",
    "failed": "failed",
    "diverged": "diverged",
    "finished": "has finished",
}


def headline(runs: Sequence[Run]) -> str:
    """Return the sentence above a report: how good the best run is, and with how few bytes."""
    table = rows(runs)
    best = _best(table)
    if best is None:
        return _without_result(runs, table)
    row = table[best]
    return f"{_workers(row)} reached {_value(row)}{_bytes(row)}"


def explanation(runs: Sequence[Run]) -> str:
    """Return the sentence below the headline: which run that was, and how it compares with the others."""
    table = rows(runs)
    best = _best(table)
    if len(runs) == 1:
        return saving(table[0])
    if best is None:
        return ""
    names = labels(runs)
    top = max(_finished(table), key=lambda i: table[i].goodness)
    if top == best:
        return f"That was {names[best]}, the best of {len(runs)} runs."
    value = human.measure(table[top].metric, table[top].average)
    sent = human.size(table[best].bytes_per_worker), human.size(table[top].bytes_per_worker)
    return (
        f"That was {names[best]}: a worker sent {sent[0]}. "
        f"The best of {len(runs)} runs, {names[top]}, reached {value} with {sent[1]}."
    )


def saving(row: Row) -> str:
    """Return what compression saved in a sentence; empty while it is unknown."""
    mean, full, fewer = row.bytes_per_worker, row.bytes_full, row.times_fewer
    if fewer is None or full is None or mean is None or row.status in ("diverged", "failed"):
        return f"A worker has sent {human.size(mean)} on average." if mean else ""
    if 0.95 <= fewer <= 1.05:
        return f"On average a worker sent {human.size(mean)}, which is full precision: nothing was saved."
    start = (
        f"On average a worker sent {human.size(mean)}; full precision over the same graph "
        f"would be {human.size(full)}"
    )
    if fewer > 1:
        return f"{start}. That saved {human.size(full - mean)}, {100 * (1 - 1 / fewer):.0f}{human.SPACE}%."
    return f"{start}: {human.times(1 / fewer)} times more, and nothing was saved."


def _finished(table: list[Row]) -> list[int]:
    return [i for i, row in enumerate(table) if row.status == "finished" and row.average is not None]


def _best(table: list[Row]) -> int | None:
    """Return the finished run with the fewest bytes among those about as good as the best."""
    finished = _finished(table)
    if not finished or len({(table[i].task, table[i].metric) for i in finished}) > 1:
        return None  # there are no results, or they cannot be compared
    top = max(table[i].goodness for i in finished)
    close = [i for i in finished if table[i].goodness >= top - CLOSE * max(abs(top), 1e-12)]
    return min(close, key=lambda i: (table[i].bytes_per_worker or 0, -table[i].goodness))


def _workers(row: Row) -> str:
    return "1 worker" if row.workers == 1 else f"{row.workers} workers"


def _value(row: Row) -> str:
    value = human.measure(row.metric, row.average)
    return f"{value} {row.metric}" if human.is_share(row.metric) else f"a {row.metric} of {value}"


def _bytes(row: Row) -> str:
    fewer = row.times_fewer
    if fewer is None:
        return ""
    if fewer > 1.05:
        return f" with {human.times(fewer)} times fewer bytes than in full precision"
    if fewer < 0.95:
        return f" with {human.times(1 / fewer)} times more bytes than in full precision"
    return " in full precision" if row.compressor is None else " with as many bytes as in full precision"


def _without_result(runs: Sequence[Run], table: list[Row]) -> str:
    if len(runs) == 1:
        row, steps = table[0], runs[0].summary.steps
        when = f" after {human.whole(steps)} steps" if steps else ""
        text = f"{runs[0].label} with {_workers(row)} {STATES.get(row.status, row.status)}{when}"
        return text + (f", at {_value(row)}" if row.average is not None else "")
    states = [row.status for row in table]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    tasks = len({row.task for row in table})
    return f"{len(runs)} runs" + (f" of {tasks} tasks" if tasks > 1 else "") + f": {counted}"
