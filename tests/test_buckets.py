"""Models of several dtypes and layouts in memory: noise of their own, one step of the user's optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gossamer
from gossamer import Simulation
from gossamer.algorithms import Choco
from gossamer.compress import Identity, RandomK, wire
from gossamer.rounds import Phase
from gossamer.topology import ring


def chosen(*names_and_dtypes: tuple[str, torch.dtype]) -> list[set[int]]:
    """Return which entries of each bucket worker 0 has sent in a round with random-k."""
    run = Simulation(
        {name: torch.zeros(1000, dtype=dtype) for name, dtype in names_and_dtypes},
        ring(2),
        Choco(RandomK(0.1, raw="never"), gamma=0.5),
        gradient=lambda rank, parameters, step: {n: torch.ones_like(p) for n, p in parameters.items()},
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    run.step()
    states = run.state(0)
    states = states if isinstance(states, list) else [states]
    return [set(state.x_hat.nonzero().flatten().tolist()) for state in states]


def test_every_bucket_has_noise_of_its_own():
    first, second = chosen(("a", torch.float32), ("b", torch.float64))
    assert len(first) == len(second) == 100
    assert len(first & second) < 40, "as many as chance makes equal, about 10"
    assert chosen(("a", torch.float32)) == [first], "the first one's is what a model of one dtype draws"


class TwoDtypes(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 3), nn.Linear(3, 2).double()

    def forward(self, x):
        return self.b(self.a(x).double())


X, Y = torch.randn(16, 4, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 2


def loss(model: nn.Module) -> torch.Tensor:
    return nn.functional.cross_entropy(model(X), Y)


def decentralized(model: nn.Module, optimizer: torch.optim.Optimizer) -> gossamer.DecentralizedOptimizer:
    return gossamer.decentralize(optimizer, model, algorithm="dpsgd")


def test_step_hooks_run_once_however_many_dtypes_there_are():
    model = TwoDtypes()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []
    inner.register_step_post_hook(lambda *_: steps.append("after"))
    optimizer = decentralized(model, inner)
    for _ in range(3):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    assert steps == ["after"] * 3


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SGD])
def test_closures_survive_two_dtypes(kind):
    plain, wrapped = TwoDtypes(), TwoDtypes()
    optimizers = [kind(plain.parameters(), lr=0.1), kind(wrapped.parameters(), lr=0.1)]
    calls = [0, 0]
    losses: list[list[float]] = [[], []]
    for i, model in enumerate((plain, wrapped)):
        optimizer = decentralized(model, optimizers[i]) if model is wrapped else optimizers[i]

        def closure(i=i, model=model, optimizer=optimizer):
            calls[i] += 1
            optimizer.zero_grad()
            value = loss(model)
            value.backward()
            return value.detach()

        for _ in range(3):
            value = optimizer.step(closure)
            assert value is not None
            losses[i].append(float(value))
    assert calls[0] == calls[1] >= 3
    assert losses[0] == losses[1]
    assert all(map(torch.equal, plain.parameters(), wrapped.parameters()))


def test_channels_last_stays_channels_last():
    """A flat vector has another order, so it is a mirror of such parameters and not their storage."""
    models = []
    for memory_format in (torch.channels_last, torch.contiguous_format):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
        model = model.to(memory_format=memory_format)  # type: ignore[call-overload]
        places = [p.data_ptr() for p in model.parameters()]
        optimizer = gossamer.decentralize(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            model,
            algorithm="choco",
            compressor="sign",
        )
        x = torch.randn(4, 3, 4, 4, generator=torch.Generator().manual_seed(1))
        for _ in range(3):
            optimizer.zero_grad()
            model(x.to(memory_format=memory_format)).square().sum().backward()
            optimizer.step()
        if memory_format == torch.channels_last:
            assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
            assert [p.data_ptr() for p in model.parameters()] == places, "they stay where they were"
        models.append(model)
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_messages_are_sealed_when_a_transport_asks_for_bytes(monkeypatch):
    """Until then sections stay where they were made; one message to many neighbours is sealed once."""
    sealed = []

    def sealing(code, sections, seal=wire.seal):
        sealed.append(code)
        return seal(code, sections)

    monkeypatch.setattr(wire, "seal", sealing)
    run = Simulation({"x": torch.ones(6)}, ring(4), Choco(Identity(), gamma=0.5))
    phase = next(run.nodes[0].round())
    assert isinstance(phase, Phase)
    assert phase.sent() == {1: 40, 3: 40}
    assert sealed == []
    outbox = phase.outbox()
    assert sealed == [Identity.code]
    assert outbox[1] is outbox[3]


def test_a_message_knows_its_length_before_its_bytes_are_on_the_host():
    far_away = torch.empty(5, device="meta")  # a device whose values cannot be copied
    message = wire.Message(Identity.code, [far_away])
    assert message.nbytes == 16 + 20
    with pytest.raises(NotImplementedError, match="meta"):
        message.sealed()
