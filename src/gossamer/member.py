"""One worker's part of a run, the same in the simulation and over a network.

It holds the flat parameters, the torch optimizer and the algorithm's state, and hands out
rounds; it does not know how messages travel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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
        self._require_in_place()
        if self.next_step_exchanges:
            rounds = zip(self.workers, self.states, strict=True)
            yield from together([self.algorithm.round(worker, state) for worker, state in rounds])
            for worker in self.workers:
                worker.t += 1
        else:
            self._step()
        self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint must hold beside parameters and optimizer."""
        return {"rank": self.rank, "steps": self.steps, "states": [dump(state) for state in self.states]}

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
        for worker in self.workers:
            worker.t = self.rounds

    def _step_only(self, which: int) -> None:
        """Step one dtype's parameters: the others' gradients are hidden from the optimizer meanwhile."""
        others = [p for i, f in enumerate(self.flats) if i != which for p in f.parameters.values()]
        hidden = without_gradients(others)
        self._step()
        for p, grad in hidden.items():
            p.grad = grad

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
