"""One worker's part of a run, the same in the simulation and over a network.

It holds the flat parameters, the torch optimizer and the algorithm's state, and hands out
rounds; it does not know how messages travel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gossamer.algorithms import Algorithm
from gossamer.flat import FlatParameters, without_gradients
from gossamer.lockstep import advance
from gossamer.topology import Schedule, Topology
from gossamer.tree import dump, load
from gossamer.worker import Post, Round, Worker


class Member:
    """A worker's parameters, optimizer step and algorithm state."""

    def __init__(
        self,
        rank: int,
        flats: list[FlatParameters],
        step: Callable[[], None],
        algorithm: Algorithm,
        topology: Topology | Schedule,
        *,
        common_start: bool,
        every: int = 1,
        overlap: int = 0,
        seed: int = 0,
    ) -> None:
        algorithm.require(topology)
        algorithm.require_period(every, overlap)
        self.rank, self.algorithm, self.every, self.overlap = rank, algorithm, every, int(overlap)
        self.steps = 0  # optimizer steps done
        self._told: list[Tensor] = []  # the x that messages under way tell of, if steps were done since
        self._reached: list[Tensor] = []  # and where those steps led, while the round is at work on it
        self._step = step
        self.flats = flats
        self.workers = [
            Worker(
                rank=rank,
                topology=topology,
                layout=flat.layout,
                x=flat.x,
                step=lambda i=i: self._step_only(i),  # type: ignore[misc]  # i is bound early on purpose
                gradient=flat.gradient,
                set_gradient=flat.set_gradient,
                common_start=common_start,
                seed=seed,
                every=every,
            )
            for i, flat in enumerate(self.flats)
        ]
        self.states = [algorithm.start(worker) for worker in self.workers]

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

    def round(self) -> Round:
        """Return this step: a round, or a local step as a round without phases."""
        if self.next_step_exchanges:
            yield from self.exchange()
        else:
            self.local_step()

    def local_step(self) -> None:
        """Do a step that is not the last before a round."""
        self._require_in_place()
        if self.steps % self.every == self.every - self.overlap:
            self._told = [flat.x.clone() for flat in self.flats]
        self._step()
        self.steps += 1

    def exchange(self) -> Round:
        """Return the next round, which ends with the step to come.

        With `overlap` it tells of x as it was that many steps before its end, so that it may begin
        there; local steps done since then are, with the last one, the round's one step.
        """
        self._require_in_place()
        rounds = zip(self.workers, self.states, strict=True)
        r = together([self.algorithm.round(worker, state) for worker, state in rounds])
        self._back()
        post = advance(r, None)
        if post is not None:
            self._forth()
            inbox = yield post
            self._back()
            while (post := advance(r, inbox)) is not None:
                inbox = yield post
        self._told, self._reached = [], []
        for worker in self.workers:
            worker.t += 1
        self.steps += 1

    def put(self, xs: list[Tensor]) -> None:
        """Give the parameters other values, a flat vector a dtype."""
        for flat, x in zip(self.flats, xs, strict=True):
            flat.x.copy_(x)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside parameters and optimizer."""
        return {
            "rank": self.rank,
            "steps": self.steps,
            "states": [dump(state) for state in self.states],
            "told": [x.clone() for x in self._told],
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take up a saved state."""
        if saved["rank"] != self.rank:
            raise ValueError(
                f"this is worker {self.rank}, the checkpoint was saved by worker {saved['rank']}; "
                f"every worker loads its own"
            )
        parts = zip(self.states, saved["states"], self.flats, strict=True)
        self.states = [load(type(state), dumped, flat.x.device) for state, dumped, flat in parts]
        self.steps = saved["steps"]
        told = saved.get("told", [])  # an older version's checkpoint has none
        self._told = [x.to(flat.x) for x, flat in zip(told, self.flats, strict=bool(told))]
        self._reached = []
        for worker in self.workers:
            worker.t = self.rounds

    def _step_only(self, which: int) -> None:
        """Step one dtype's parameters: the others' gradients are hidden from the optimizer meanwhile."""
        others = [p for i, f in enumerate(self.flats) if i != which for p in f.parameters.values()]
        hidden = without_gradients(others)
        if self._reached:
            self.flats[which].x.add_(self._reached[which] - self._told[which])
        self._step()
        for p, grad in hidden.items():
            p.grad = grad

    def _back(self) -> None:
        """Put x back to what messages tell of, if steps were done since."""
        if self._told:
            self._reached = [flat.x.clone() for flat in self.flats]
            self.put(self._told)

    def _forth(self) -> None:
        """Undo that."""
        if self._reached:
            self.put(self._reached)
            self._reached = []

    def _require_in_place(self) -> None:
        for flat in self.flats:
            flat.require_in_place()


def together(rounds: list[Round]) -> Round:
    """Run rounds side by side: each phase sends one message a peer, the rounds' messages end to end."""
    if len(rounds) == 1:
        yield from rounds[0]
        return
    posts = [advance(r, None) for r in rounds]
    while any(post is not None for post in posts):
        present = [post for post in posts if post is not None]
        assert len(present) == len(posts), "rounds of one algorithm have the same number of phases"
        inbox = yield _joined(present)
        cuts = {j: torch.split_with_sizes(inbox[j], [post.expect[j] for post in present]) for j in inbox}
        posts = [advance(r, {j: cuts[j][i].clone() for j in inbox}) for i, r in enumerate(rounds)]


def _joined(posts: list[Post]) -> Post:
    send = {j: torch.cat([post.send[j] for post in posts]) for j in posts[0].send}
    return Post(send, {j: sum(post.expect[j] for post in posts) for j in posts[0].expect})
