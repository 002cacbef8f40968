"""One worker's part of a run, the same in the simulation and over a network.

It holds the flat parameters, the torch optimizer and the algorithm's state, and hands out
rounds; it does not know how messages travel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from gossamer._node import state as tree
from gossamer._node.buckets import Bucket, joined, spread, without_gradients
from gossamer.algorithms import Algorithm
from gossamer.rounds.drive import advance
from gossamer.rounds.phase import Phase, Round
from gossamer.rounds.worker import Worker
from gossamer.topology import Schedule, Topology


class Node:
    """A worker's parameters, optimizer step and algorithm state.

    Without a common start some algorithms cannot begin; with `may_resume` that is an error of the first
    step only, since a checkpoint may be loaded before it.

    `groups` are the parameters by dtype and device; `flats`, `workers` and `states` are about those
    of each group that take part at present: all, but for layers that rest.
    """

    def __init__(
        self,
        rank: int,
        buckets: list[Bucket],
        step: Callable[[], None],
        algorithm: Algorithm,
        topology: Topology | Schedule,
        *,
        common_start: bool,
        may_resume: bool = False,
        every: int = 1,
        overlap: int = 0,
        seed: int = 0,
    ) -> None:
        algorithm.require(topology)
        algorithm.require_period(every, overlap)
        self.rank, self.algorithm, self.every, self.overlap = rank, algorithm, every, int(overlap)
        self.steps = 0  # optimizer steps done
        self.resting: frozenset[str] = frozenset()  # names of parameters that are left alone for now
        self._told: list[Tensor] = []  # the x that messages under way tell of, if steps were done since
        self._reached: list[Tensor] = []  # and where those steps led, while the round is at work on it
        self._step = step
        self._new_worker = partial(Worker, rank, topology, common_start=common_start, seed=seed, every=every)
        self.groups: list[dict[str, Parameter]] = [bucket.parameters for bucket in buckets]
        self._layouts = [bucket.layout for bucket in buckets]
        self.buckets = buckets
        self.workers = self._workers()
        self._left: list[Any] = []  # the groups' whole states from when layers were last laid to rest
        self._without_start = ""  # why nothing can be done before a checkpoint is loaded
        try:
            self.states = [algorithm.start(worker) for worker in self.workers]
        except ValueError as error:
            if common_start or not may_resume:
                raise
            self._without_start = str(error)
            self.states = [algorithm.start(replace(worker, common_start=True)) for worker in self.workers]

    @property
    def rounds(self) -> int:
        """Return the number of rounds done."""
        return self.steps // self.every

    @property
    def next_step_exchanges(self) -> bool:
        """Return whether the step to come is the one in `every` that has a round."""
        return (self.steps + 1) % self.every == 0

    @property
    def next_round_may_begin(self) -> bool:
        """Return whether the x that the next round tells of is known, so that its messages may fly."""
        return self.steps % self.every >= self.every - self.overlap

    def require_start(self) -> None:
        """Raise a ValueError where workers have different values that a checkpoint should have brought."""
        if self._without_start:
            raise ValueError(
                f"{self._without_start}, and broadcast=False has left every worker its own: load each "
                f"worker's checkpoint with optimizer.load_state_dict(), or wrap without broadcast=False"
            )

    def round(self) -> Round:
        """Return this step: a round, or a local step as a round without phases."""
        if self.next_step_exchanges:
            yield from self.exchange()
        else:
            self.local_step()

    def local_step(self) -> None:
        """Do a step that is not the last before a round."""
        self.take_back()
        if self.steps % self.every == self.every - self.overlap:
            self._told = [bucket.x.clone() for bucket in self.buckets]
        self._step()
        self.steps += 1

    def exchange(self) -> Round:
        """Return the next round, which ends with the step to come.

        With `overlap` it tells of x as it was that many steps before its end, so that it may begin
        there; local steps done since then are, with the last one, the round's one step.
        """
        self.take_back()
        rounds = zip(self.workers, self.states, strict=True)
        r = side_by_side([self.algorithm.round(worker, state) for worker, state in rounds])
        self._back()
        phase = advance(r, None)
        if phase is not None:
            self._forth()
            inbox = yield phase
            self._back()
            while (phase := advance(r, inbox)) is not None:
                inbox = yield phase
        self._told, self._reached = [], []
        for worker in self.workers:
            worker.t += 1
        self.steps += 1

    def read(self) -> list[Tensor]:
        """Return copies of all parameters, a flat vector a group."""
        return joined(self.groups)

    def put(self, xs: list[Tensor]) -> None:
        """Give all parameters other values."""
        spread(self.groups, xs)

    def take_back(self) -> None:
        """Take parameters that were copied elsewhere back into the flat vectors, or raise a ValueError."""
        for bucket in self.buckets:
            bucket.take_back()

    def let_rest(self, names: frozenset[str]) -> None:
        """Leave these parameters alone from now on: no messages about them, and no other values.

        All workers do it after the same step. What was known of them is kept for when they wake.
        """
        if all(names.issuperset(group) for group in self.groups):
            raise ValueError("all parameters are frozen: there is nothing left to train")
        whole, told = self._whole_states(), self._told_by_name()
        self.resting, self._left = names, whole
        awake = [{n: p for n, p in group.items() if n not in names} for group in self.groups]
        for p in (p for group in self.groups for n, p in group.items() if n in names):
            p.data = p.data.clone()  # so that the buffer it was part of can go
        self.buckets = [Bucket(group) for group in awake if group]
        self.workers = self._workers()
        self.states = [tree.cut(whole[g], self._layouts[g], which) for g, which in self._awake()]
        if told:
            self._told = [
                torch.cat([told[n].reshape(-1) for n in bucket.parameters]) for bucket in self.buckets
            ]

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside the optimizer: copies, of the parameters too."""
        told = self._told_by_name()
        told_groups = [torch.cat([told[n].reshape(-1) for n in group]) for group in self.groups if told]
        return {
            "rank": self.rank,
            "steps": self.steps,
            "parameters": self.read(),
            "states": [tree.dump(state) for state in self._whole_states()],
            "told": told_groups,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take up a saved state, parameters included."""
        if saved["rank"] != self.rank:
            raise ValueError(
                f"this is worker {self.rank}, the checkpoint was saved by worker {saved['rank']}; "
                f"every worker loads its own"
            )
        if self.resting:
            self.let_rest(frozenset())
        self.take_back()
        if "parameters" in saved:  # an older version's checkpoint has none
            self.put(saved["parameters"])
        parts = zip(self.states, saved["states"], self.buckets, strict=True)
        self.states = [tree.load(type(state), dumped, bucket.x.device) for state, dumped, bucket in parts]
        self.steps = saved["steps"]
        told = saved.get("told", [])  # an older version's checkpoint has none
        self._told = [x.to(bucket.x) for x, bucket in zip(told, self.buckets, strict=bool(told))]
        self._reached, self._without_start = [], ""
        for worker in self.workers:
            worker.t = self.rounds

    def _workers(self) -> list[Worker]:
        return [
            self._new_worker(
                layout=bucket.layout,
                x=bucket.x,
                step=partial(self._step_only, i),
                gradient=bucket.gradient,
                set_gradient=bucket.set_gradient,
                t=self.rounds,
            )
            for i, bucket in enumerate(self.buckets)
        ]

    def _awake(self) -> list[tuple[int, list[int]]]:
        """Return, for every flat, the group it belongs to and which of the group's tensors it holds."""
        which = [[i for i, n in enumerate(group) if n not in self.resting] for group in self.groups]
        return [(g, those) for g, those in enumerate(which) if those]

    def _whole_states(self) -> list[Any]:
        """Return the groups' states, of resting layers too."""
        if not self.resting:
            return self.states
        whole = list(self._left)
        for (g, which), state in zip(self._awake(), self.states, strict=True):
            whole[g] = tree.paste(whole[g], state, self._layouts[g], which)
        return whole

    def _told_by_name(self) -> dict[str, Tensor]:
        """Return the x that messages under way tell of, by name; nothing if it is the present one."""
        if not self._told:
            return {}
        told = {n: p.detach() for group in self.groups for n, p in group.items()}
        for bucket, x in zip(self.buckets, self._told, strict=True):
            told |= bucket.layout.views(x)
        return told

    def _step_only(self, which: int) -> None:
        """Step one dtype's parameters: the others' gradients are hidden from the optimizer meanwhile."""
        others = [p for i, f in enumerate(self.buckets) if i != which for p in f.parameters.values()]
        hidden = without_gradients(others)
        if self._reached:
            self.buckets[which].x.add_(self._reached[which] - self._told[which])
        self._step()
        for p, grad in hidden.items():
            p.grad = grad

    def _back(self) -> None:
        """Put x back to what messages tell of, if steps were done since."""
        if self._told:
            self._reached = [bucket.x.clone() for bucket in self.buckets]
            self._write(self._told)

    def _forth(self) -> None:
        """Undo that."""
        if self._reached:
            self._write(self._reached)
            self._reached = []

    def _write(self, xs: list[Tensor]) -> None:
        for bucket, x in zip(self.buckets, xs, strict=True):
            bucket.x.copy_(x)


def side_by_side(rounds: list[Round]) -> Round:
    """Run rounds side by side: each phase sends one message a peer, the rounds' messages end to end."""
    if len(rounds) == 1:
        yield from rounds[0]
        return
    phases = [advance(r, None) for r in rounds]
    while any(phase is not None for phase in phases):
        present = [phase for phase in phases if phase is not None]
        assert len(present) == len(phases), "rounds of one algorithm have the same number of phases"
        inbox = yield _joined(present)
        cuts = {j: torch.split_with_sizes(inbox[j], [phase.expect[j] for phase in present]) for j in inbox}
        phases = [advance(r, {j: cuts[j][i].clone() for j in inbox}) for i, r in enumerate(rounds)]


def _joined(phases: list[Phase]) -> Phase:
    send = {j: torch.cat([phase.send[j] for phase in phases]) for j in phases[0].send}
    return Phase(send, {j: sum(phase.expect[j] for phase in phases) for j in phases[0].expect})
