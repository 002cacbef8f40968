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
from gossamer._node.buckets import Bucket, joined, spread
from gossamer.algorithms import Algorithm
from gossamer.rounds.cadence import Cadence
from gossamer.rounds.drive import side_by_side, with_steps
from gossamer.rounds.phase import Round
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker
from gossamer.topology import Schedule, Topology


class Node:
    """A worker's parameters, optimizer step and algorithm state.

    Without a common start some algorithms cannot begin; with `may_resume` the error is raised at the first
    step, since a checkpoint may be loaded before it.

    `groups` are all parameters by dtype and device; `buckets`, `workers` and `states` cover those of them
    that are not frozen at present, and leave out groups that are frozen altogether.
    """

    def __init__(
        self,
        rank: int,
        buckets: list[Bucket],
        step: Callable[[], None],
        algorithm: Algorithm,
        topology: Topology | Schedule | View,
        *,
        common_start: bool,
        may_resume: bool = False,
        every: int = 1,
        overlap: int = 0,
        seed: int = 0,
    ) -> None:
        self.view = topology if isinstance(topology, View) else View.of(topology)
        algorithm.require(self.view.graph)
        algorithm.require_period(every, overlap)
        self.rank, self.algorithm, self.cadence = rank, algorithm, Cadence(every, int(overlap))
        self.steps = 0  # optimizer steps done
        self.frozen: frozenset[str] = frozenset()  # names of parameters that are not exchanged at present
        self._in_round: list[Worker] = []  # copies of the workers, for a round during which x itself moves
        self._published: list[Tensor] = []  # x when the round began, if local steps follow before its end
        self.optimizer_step = step
        self._new_worker = partial(Worker, rank, common_start=common_start, seed=seed, every=every)
        self.groups: list[dict[str, Parameter]] = [bucket.parameters for bucket in buckets]
        self._layouts = [bucket.layout for bucket in buckets]
        self.buckets = buckets
        self.workers = self._workers()
        self._left: list[Any] = []  # the groups' whole states when layers were last frozen
        self._without_start = ""  # why training cannot begin before a checkpoint is loaded
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
        return self.cadence.rounds(self.steps)

    def require_start(self) -> None:
        """Raise a ValueError where workers start with different values and no checkpoint was loaded."""
        if self._without_start:
            raise ValueError(
                f"{self._without_start}, and broadcast=False has left every worker its own: load each "
                f"worker's checkpoint with optimizer.load_state_dict(), or wrap without broadcast=False"
            )

    def round(self) -> Round:
        """Return this step: a round, or a local step as a round without phases."""
        if self.cadence.exchanges(self.steps):
            yield from self.exchange()
        else:
            self.local_step()

    def local_step(self) -> None:
        """Do a step that is not the last of a round."""
        self.take_back()
        self._publish()
        pairs = zip(self.workers, self.states, strict=True)
        asked = side_by_side([self.algorithm.local(worker, state) for worker, state in pairs])
        for _ in with_steps(asked, self._step_live):
            raise AssertionError("an algorithm exchanges in its rounds, not in local steps")
        self._give()
        self.steps += 1

    def exchange(self) -> Round:
        """Return the next round, which ends with the step to come.

        With `overlap` it may begin that many steps before its end. It then works on a copy of the x of its
        beginning, while local steps change x itself; its own step adds to the copy what all of them changed.
        """
        self.take_back()
        self._publish()
        copies = [x.clone() for x in self._published]
        workers = [replace(worker, x=x) for worker, x in zip(self.workers, copies, strict=bool(copies))]
        self._in_round = workers
        pairs = zip(workers or self.workers, self.states, strict=True)
        asked = side_by_side([self.algorithm.round(worker, state) for worker, state in pairs])
        yield from with_steps(asked, partial(self._step_with, copies))
        for bucket, x in zip(self.buckets, copies, strict=bool(copies)):
            bucket.x.copy_(x)
        self._give()
        self._published = []
        self.steps += 1
        for worker in self.workers:
            worker.t = self.rounds

    def rewire(self, view: View) -> Round:
        """Return the exchange after which the next rounds are with other members or along other edges.

        All members of the new view run it, between the same two rounds. A worker that has left does not.
        """
        self.algorithm.require(view.graph)
        before = self.view
        self.see(view)
        pairs = zip(self.workers, self.states, strict=True)
        asked = side_by_side([self.algorithm.rewire(worker, state, before) for worker, state in pairs])
        yield from with_steps(asked, self._step_live)

    def see(self, view: View) -> None:
        """Take part with other members or along other edges from now on; states are someone else's matter."""
        self.view = view
        for worker in (*self.workers, *self._in_round):
            worker.view = view

    def catch_up_to(self, rounds: int) -> None:
        """Go on with the others, if they are ahead."""
        if rounds > self.rounds:
            self.skip_to(rounds * self.cadence.every)

    def skip_to(self, steps: int) -> None:
        """Go on where others are after so many steps: at the beginning of a round."""
        self.steps = steps - steps % self.cadence.every
        for worker in self.workers:
            worker.t = self.rounds

    def read(self) -> list[Tensor]:
        """Return copies of all parameters, one flat vector per group."""
        return joined(self.groups)

    def put(self, xs: list[Tensor]) -> None:
        """Write vectors in the format of `read()` into the parameters."""
        spread(self.groups, xs)

    def take_back(self) -> None:
        """Take parameters that were copied elsewhere back into the flat vectors, or raise a ValueError."""
        for bucket in self.buckets:
            bucket.take_back()

    def freeze(self, names: frozenset[str]) -> None:
        """Freeze these parameters and no others: no messages about them, and no changes to them.

        All workers do it after the same step. Their part of the states is kept for when they are unfrozen.
        """
        if all(names.issuperset(group) for group in self.groups):
            raise ValueError("all parameters are frozen: there is nothing left to train")
        whole, published = self._whole_states(), self._published_by_name()
        self.frozen, self._left = names, whole
        trained = [{n: p for n, p in group.items() if n not in names} for group in self.groups]
        for p in (p for group in self.groups for n, p in group.items() if n in names):
            p.data = p.data.clone()  # so that the memory of its old bucket can be freed
        self.buckets = [Bucket(group) for group in trained if group]
        self.workers = self._workers()
        self.states = [tree.cut(whole[g], self._layouts[g], which) for g, which in self._trained()]
        if published:
            names_of = [bucket.parameters for bucket in self.buckets]
            self._published = [torch.cat([published[n].reshape(-1) for n in those]) for those in names_of]

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside the optimizer: copies, of the parameters too."""
        known = self._published_by_name()
        published = [torch.cat([known[n].reshape(-1) for n in group]) for group in self.groups if known]
        return {
            "rank": self.rank,
            "steps": self.steps,
            "parameters": self.read(),
            "states": [tree.dump(state) for state in self._whole_states()],
            "published": published,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Load a saved state, parameters included."""
        if saved["rank"] != self.rank:
            raise ValueError(
                f"this is worker {self.rank}, the checkpoint was saved by worker {saved['rank']}; "
                f"every worker loads its own"
            )
        if self.frozen:
            self.freeze(frozenset())
        self.take_back()
        if "parameters" in saved:  # an older version's checkpoint has none
            self.put(saved["parameters"])
        parts = zip(self.states, saved["states"], self.buckets, strict=True)
        self.states = [tree.load(type(state), dumped, bucket.x.device) for state, dumped, bucket in parts]
        self.steps = saved["steps"]
        xs = saved.get("published", [])
        self._published = [x.to(bucket.x) for x, bucket in zip(xs, self.buckets, strict=bool(xs))]
        self._without_start = ""
        for worker in self.workers:
            worker.t = self.rounds

    def _workers(self) -> list[Worker]:
        return [
            self._new_worker(
                view=self.view,
                layout=bucket.layout,
                x=bucket.x,
                gradient=bucket.gradient,
                set_gradient=bucket.set_gradient,
                t=self.rounds,
                bucket=g,
            )
            for bucket, (g, _) in zip(self.buckets, self._trained(), strict=True)
        ]

    def _trained(self) -> list[tuple[int, list[int]]]:
        """Return, for every bucket, the group it belongs to and which of the group's tensors it holds."""
        which = [[i for i, n in enumerate(group) if n not in self.frozen] for group in self.groups]
        return [(g, those) for g, those in enumerate(which) if those]

    def _whole_states(self) -> list[Any]:
        """Return the groups' states, frozen layers included."""
        if not self.frozen:
            return self.states
        whole = list(self._left)
        for (g, which), state in zip(self._trained(), self.states, strict=True):
            whole[g] = tree.paste(whole[g], state, self._layouts[g], which)
        return whole

    def _published_by_name(self) -> dict[str, Tensor]:
        """Return the x that messages in flight describe, by name; empty if it is the current x."""
        if not self._published:
            return {}
        published = {n: p.detach() for group in self.groups for n, p in group.items()}
        for bucket, x in zip(self.buckets, self._published, strict=True):
            published |= bucket.layout.views(x)
        return published

    def _publish(self) -> None:
        """Keep x as it is for the round's messages, if local steps will move it before the round's end."""
        local_steps_follow = not self.cadence.exchanges(self.steps)
        if self.cadence.publishes(self.steps) and local_steps_follow and not self._published:
            self._published = [bucket.x.clone() for bucket in self.buckets]

    def _step_live(self) -> None:
        """Take one step of the user's optimizer, whatever the number of buckets."""
        self._give()
        self.optimizer_step()
        self.take_back()

    def _step_with(self, copies: list[Tensor]) -> None:
        """Do the same for a round; if it works on copies, add to them what has changed since it began."""
        self._step_live()
        for x, bucket, before in zip(copies, self.buckets, self._published, strict=False):
            x.add_(bucket.x - before)

    def _give(self) -> None:
        for bucket in self.buckets:
            bucket.give()
