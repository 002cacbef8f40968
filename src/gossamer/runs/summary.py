"""The result of a run, as summary.json holds it. docs/runs.md describes every field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar, cast

from gossamer.runs.files import json_safe

Kind = TypeVar("Kind")
Metrics = Mapping[str, float | None]  # None: it was not finite


class Link(NamedTuple):
    """The bytes that one worker has sent to another in training."""

    sender: int
    receiver: int
    sent: int


@dataclass(frozen=True)
class Partition:
    """Who had which examples; `counts` are those of every class (column) for every worker (row)."""

    kind: str | None = None
    counts: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class Graph:
    """Who could talk to whom; a graph that changes has no gap and no diameter."""

    edges: tuple[tuple[int, int], ...] = ()
    directed: bool = False
    varying: bool = False
    gap: float | None = None
    diameter: int | None = None


@dataclass(frozen=True)
class Summary:
    """A run's result as far as it is known.

    None stands for what is not known: a run that has not ended has no result yet, and a folder that an older
    version has written lacks newer fields.

    Example:
        >>> from gossamer.runs import Summary
        >>> summary = Summary(metric="accuracy", average={"accuracy": 0.97}, bytes_sent=(10, 12))
        >>> summary.reached
        0.97
        >>> Summary.from_json(summary.to_json()) == summary
        True
    """

    status: str = "running"
    error: str | None = None
    task: str | None = None
    metric: str | None = None
    better: str | None = None  # "higher" or "lower", as the task says
    workers: int | None = None
    parameters: int | None = None
    algorithm: str | None = None
    compressor: str | None = None
    topology: str | None = None
    gamma: float | None = None
    steps: int | None = None
    epochs: float | None = None
    average: Metrics | None = None
    local_mean: Metrics | None = None
    consensus_distance: float | None = None
    train_loss: float | None = None
    bytes_sent: tuple[int, ...] | None = None
    bytes_evaluating: tuple[int, ...] | None = None
    links: tuple[Link, ...] | None = None
    bytes_full: int | None = None
    seconds: float | None = None
    clock: str | None = None
    network: str | None = None
    partition: Partition | None = None
    graph: Graph | None = None

    @property
    def label(self) -> str:
        """The run in a few words: algorithm, compressor, topology."""
        return " ".join(part for part in (self.algorithm, self.compressor, self.topology) if part) or "a run"

    @property
    def reached(self) -> float | None:
        """The task's metric of the average model."""
        return (self.average or {}).get(self.metric or "")

    @property
    def reached_locally(self) -> float | None:
        """The task's metric of the local models, on average."""
        return (self.local_mean or {}).get(self.metric or "")

    @property
    def bytes_per_worker(self) -> float | None:
        """What a worker has sent in training, on average."""
        return _mean(self.bytes_sent)

    @property
    def bytes_evaluating_per_worker(self) -> float | None:
        """What a worker has sent in evaluations, on average."""
        return _mean(self.bytes_evaluating)

    @property
    def times_fewer(self) -> float | None:
        """How many times fewer bytes were sent than in full precision over the same graph."""
        sent = self.bytes_per_worker
        return self.bytes_full / sent if self.bytes_full is not None and sent else None

    def to_json(self) -> dict[str, Any]:
        """Return what summary.json holds: every field, null where it is not known."""
        return dict(json_safe(asdict(self)))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Summary:
        """Return what a file says: fields of newer versions are passed over, missing ones are None.

        A value that cannot be what its name says raises a ValueError with both.
        """
        given = _Given(content)
        return cls(
            status=given.text("status") or "running",
            error=given.text("error"),
            task=given.text("task"),
            metric=given.text("metric"),
            better=given.text("better"),
            workers=given.whole("workers"),
            parameters=given.whole("parameters"),
            algorithm=given.text("algorithm"),
            compressor=given.text("compressor"),
            topology=given.text("topology"),
            gamma=given.number("gamma"),
            steps=given.whole("steps"),
            epochs=given.number("epochs"),
            average=given.metrics("average"),
            local_mean=given.metrics("local_mean"),
            consensus_distance=given.number("consensus_distance"),
            train_loss=given.number("train_loss"),
            bytes_sent=given.wholes("bytes_sent"),
            bytes_evaluating=given.wholes("bytes_evaluating"),
            links=_links(given),
            bytes_full=given.whole("bytes_full"),
            seconds=given.number("seconds"),
            clock=given.text("clock"),
            network=given.text("network"),
            partition=_partition(given.table("partition")),
            graph=_graph(given.table("graph")),
        )

    def filled(self, other: Summary) -> Summary:
        """Return this summary with what it does not know taken from another one."""
        unknown = [field.name for field in fields(self) if getattr(self, field.name) is None]
        return replace(self, **{name: getattr(other, name) for name in unknown})


def _mean(values: tuple[int, ...] | None) -> float | None:
    return sum(values) / len(values) if values else None


class _Given:
    """The values of a JSON object, each read with the type that it must have."""

    def __init__(self, content: Mapping[str, Any], where: str = "") -> None:
        self._content, self._where = content, where

    def text(self, name: str) -> str | None:
        return self._one(name, str, "text")

    def number(self, name: str) -> float | None:
        whole = isinstance(self._content.get(name), int)
        return self._one(name, int if whole else float, "a number")

    def whole(self, name: str) -> int | None:
        return self._one(name, int, "a whole number")

    def flag(self, name: str) -> bool:
        return bool(self._content.get(name))

    def table(self, name: str) -> _Given | None:
        value = self._one(name, dict, "an object")
        return None if value is None else _Given(value, f"{self._where}{name}.")

    def metrics(self, name: str) -> Metrics | None:
        value = self._one(name, dict, "an object")
        return None if value is None else {key: _Given(value, f"{name}.").number(key) for key in value}

    def wholes(self, name: str) -> tuple[int, ...] | None:
        value = self._one(name, list, "a list")
        return None if value is None else self._numbers(name, value)

    def rows(self, name: str, width: int | None = None) -> list[tuple[int, ...]] | None:
        """Return a list of lists of whole numbers, each of this width if one is given."""
        value = self._one(name, list, "a list")
        if value is None:
            return None
        rows = [self._numbers(name, row) for row in value]
        if width is not None and any(len(row) != width for row in rows):
            raise self._wrong(name, value, f"rows of {width} numbers")
        return rows

    def _numbers(self, name: str, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(_is(entry, int) for entry in value):
            raise self._wrong(name, value, "a list of whole numbers")
        return tuple(value)

    def _one(self, name: str, kind: type[Kind], words: str) -> Kind | None:
        value = self._content.get(name)
        if value is None:
            return None
        if not _is(value, kind):
            raise self._wrong(name, value, words)
        return cast("Kind", value)

    def _wrong(self, name: str, value: object, words: str) -> ValueError:
        shown = repr(value)
        return ValueError(f"{self._where}{name} is {shown[:60]}{'...' * (len(shown) > 60)}, not {words}")


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _links(given: _Given) -> tuple[Link, ...] | None:
    rows = given.rows("links", 3)
    return None if rows is None else tuple(Link(*row) for row in rows)


def _partition(given: _Given | None) -> Partition | None:
    if given is None:
        return None
    counts = given.rows("counts")
    return Partition(given.text("kind"), None if counts is None else tuple(counts))


def _graph(given: _Given | None) -> Graph | None:
    if given is None:
        return None
    return Graph(
        edges=tuple((i, j) for i, j in given.rows("edges", 2) or []),
        directed=given.flag("directed"),
        varying=given.flag("varying"),
        gap=given.number("gap"),
        diameter=given.whole("diameter"),
    )
