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
        seed: int = 0,
    ) -> None:
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"every={every!r}: the number of optimizer steps a round, 1 or more")
        algorithm.require(topology)
        self.rank, self.algorithm, self.every = rank, algorithm, every
        self.steps = 0  # optimizer steps done
        self._starts: list[Tensor] = []  # x before the local steps of this period, for early rounds
        self._ends: list[Tensor] = []  # and after them, while a round is shown the start
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

    def round(self) -> Round:
        """Return this step: a round, or a local step as a round without phases."""
        if self.next_step_exchanges:
            yield from self.exchange()
        else:
            self.local_step()

    def local_step(self) -> None:
        """Do a step of a period that is not its last."""
        self._require_in_place()
        if self.algorithm.early and self.steps % self.every == 0:
            self._starts = [flat.x.clone() for flat in self.flats]
        self._step()
        self.steps += 1

    def exchange(self) -> Round:
        """Return the round of this period, whose last step is in it.

        An early round tells of x as it was before the period's local steps, so that it may begin with
        the period and its messages fly until the last step; its own step is all that was done since then.
        """
        self._require_in_place()
        rounds = zip(self.workers, self.states, strict=True)
        r = together([self.algorithm.round(worker, state) for worker, state in rounds])
        self._to_the_start()
        try:
            post = advance(r, None)
        finally:
            self._to_the_end()
        if post is not None:
            inbox = yield post
            self._to_the_start()
            while (post := advance(r, inbox)) is not None:
                inbox = yield post
        self._starts, self._ends = [], []
        for worker in self.workers:
            worker.t += 1
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside parameters and optimizer."""
        return {
            "rank": self.rank,
            "steps": self.steps,
            "states": [dump(state) for state in self.states],
            "starts": [x.clone() for x in self._starts],
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
        starts = saved.get("starts", [])  # older checkpoints have none
        self._starts = [x.to(flat.x.device) for x, flat in zip(starts, self.flats, strict=bool(starts))]
        self._ends = []
        for worker in self.workers:
            worker.t = self.rounds

    def _step_only(self, which: int) -> None:
        """Step one dtype's parameters: the others' gradients are hidden from the optimizer meanwhile."""
        others = [p for i, f in enumerate(self.flats) if i != which for p in f.parameters.values()]
        hidden = without_gradients(others)
        if self._ends:  # all steps of the period are one step of the round
            self.flats[which].x.add_(self._ends[which] - self._starts[which])
        self._step()
        for p, grad in hidden.items():
            p.grad = grad

    def _to_the_start(self) -> None:
        """Put x back to where the period began, if local steps have moved it since."""
        if self._starts:
            self._ends = [flat.x.clone() for flat in self.flats]
            self._put(self._starts)

    def _to_the_end(self) -> None:
        """Undo that."""
        if self._ends:
            self._put(self._ends)
            self._ends = []

    def _put(self, xs: list[Tensor]) -> None:
        for flat, x in zip(self.flats, xs, strict=True):
            flat.x.copy_(x)

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
