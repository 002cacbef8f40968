"""The step of the torch optimizer inside, which only rounds may take."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

_WATCHED: WeakKeyDictionary[Optimizer, RemovableHandle] = WeakKeyDictionary()  # hooks of the latest wrappers


class InnerStep:
    """Steps an optimizer when called. Its own step(), which would train this worker alone, is refused.

    `one_gradient` refuses optimizers that evaluate their closure again: the algorithm has averaged one
    gradient.
    """

    def __init__(self, inner: Optimizer, *, one_gradient: bool) -> None:
        self._inner, self._one_gradient = inner, one_gradient
        self._allowed = False
        self.in_closure = False  # a closure may run more often on one worker than on another
        self._closure: Callable[[], float | None] | None = None
        earlier = _WATCHED.pop(inner, None)
        if earlier is not None:
            earlier.remove()  # wrapped anew: the newest wrapper counts
        _WATCHED[inner] = inner.register_step_pre_hook(self._before_step)

    def evaluate(self, closure: Callable[[], float] | None) -> float | None:
        """Evaluate the closure of the step to come, once, and return the loss."""
        self._closure = None
        if closure is None:
            return None
        with torch.enable_grad():
            loss = self._evaluated(closure)
        self._closure = self._first_known(loss, closure)
        return loss

    def __call__(self) -> None:
        """Do the step."""
        self._allowed = True
        try:
            if self._closure is None:
                self._inner.step()
            else:
                self._inner.step(self._closure)  # type: ignore[arg-type]  # a closure may return None
        finally:
            self._allowed = False

    def _before_step(self, *_: object) -> None:
        if not self._allowed:
            raise ValueError(
                "this optimizer is wrapped by gossamer.decentralize: call step() of the optimizer that it "
                "returned, the latest one if it was wrapped several times; the one inside would train this "
                "worker alone"
            )

    def _first_known(self, loss: float | None, closure: Callable[[], float]) -> Callable[[], float | None]:
        """Return a closure that answers once with the loss already computed, then evaluates again."""
        known = [loss]

        def replay() -> float | None:
            if known:
                return known.pop()
            if self._one_gradient:
                raise ValueError(
                    "all-reduce averages one gradient per step, this optimizer evaluates several; use DPSGD"
                )
            return self._evaluated(closure)

        return replay

    def _evaluated(self, closure: Callable[[], float]) -> float:
        self.in_closure = True
        try:
            return closure()
        finally:
            self.in_closure = False
