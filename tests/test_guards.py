"""What is done to a model after it was wrapped is put right, or refused with its name."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer
from gossamer.algorithms import PowerGossip
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN
from tests.support.problem import flat
from tests.support.threads import run_threads, seeded
from tests.support.training import CHOCO, batch, fit, small, wrap

ALGORITHMS = {name: make(COMPRESSORS["topk"]) for name, make in COMPRESSED.items()} | PLAIN


def moved(model):
    model.to(torch.device("cpu", 0))


def shared(model):
    model.share_memory()


def copied(model):
    for p in model.parameters():
        p.data = p.data.clone()


@pytest.mark.parametrize("move", [moved, shared, copied])
@pytest.mark.parametrize("options", [{}, {"overlap": 1}, {"overlap": 2, "every": 3}, {"every": 2}])
def test_parameters_that_were_copied_are_taken_back(move, options):
    def work(link, moves):
        model = small()
        optimizer = wrap(model, link, algorithm="dpsgd", **options)
        for step in range(6):
            if moves and step in (0, 3, 4):
                places = [p.data_ptr() for p in model.parameters()]
                move(model)
                assert places != [p.data_ptr() for p in model.parameters()], "nothing was moved"
            fit(model, optimizer, 1, link.rank, step)
        return flat(model)

    expected = run_threads(3, lambda link: work(link, False))
    for x, y in zip(run_threads(3, lambda link: work(link, True)), expected, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_wrapped_model_is_saved_as_any_other(dtype, tmp_path):
    """By torch, a parameter without the others' bytes; by safetensors, which takes one storage for tied."""
    model = small().to(dtype)
    optimizer = wrap(model)
    optimizer.step()
    torch.save(model[2].bias.detach(), tmp_path / "bias.pt")
    torch.save(torch.zeros(3, dtype=dtype), tmp_path / "alone.pt")
    sizes = [(tmp_path / name).stat().st_size for name in ("bias.pt", "alone.pt")]
    assert sizes[0] <= sizes[1] + 64
    assert len({p.untyped_storage().data_ptr() for p in model.parameters()}) == 4
    save_model(model, tmp_path / "model.safetensors")
    other = small().to(dtype)
    load_model(other, tmp_path / "model.safetensors")
    assert torch.equal(flat(model), flat(other))
    load_model(model, tmp_path / "model.safetensors")
    optimizer.step()


def test_values_written_to_a_moved_model_count():
    model = small()
    optimizer = wrap(model)
    model.to(torch.device("cpu", 0))
    model.load_state_dict({name: torch.ones_like(v) for name, v in model.state_dict().items()})
    optimizer.step()
    assert (flat(model) == 1).all()


def test_a_model_may_be_wrapped_again():
    model = small()
    wrap(model)
    optimizer = wrap(model)
    plain = small()
    fit(plain, torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.5), 5)
    fit(model, optimizer, 5)
    assert torch.allclose(flat(model), flat(plain), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: m.double(), r"'0\.weight' was .*float32 on cpu .* is .*float64 on cpu now"),
        (lambda m: m.bfloat16(), r"is .*bfloat16 on cpu now; convert or move the model first"),
        (lambda m: m.to("meta"), r"'0\.weight' was replaced .* a move to another device"),
        (
            lambda m: m.load_state_dict(copy.deepcopy(m.state_dict()), assign=True),
            r"'0\.weight' was replaced .* without assign=True",
        ),
        (lambda m: m.__setitem__(2, nn.Linear(5, 3)), r"module '2' was replaced"),
        (lambda m: setattr(m[0], "bias", nn.Parameter(torch.zeros(5))), r"'0\.bias' was replaced"),
        (lambda m: m.requires_grad_(False), r"nothing left to train"),
    ],
)
def test_what_cannot_be_put_right_is_refused(change, complaint):
    model = small()
    optimizer = wrap(model)
    fit(model, optimizer, 1)
    before = optimizer.rounds
    change(model)
    with pytest.raises(ValueError, match=complaint):
        optimizer.step()
    assert optimizer.rounds == before


def test_the_inner_optimizers_step_is_refused():
    model = small()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = wrap(model, inner=inner)
    fit(model, optimizer, 1)
    before = flat(model)
    with pytest.raises(ValueError, match=r"call step\(\) of the optimizer that it returned"):
        inner.step()
    assert torch.equal(flat(model), before)
    again = wrap(model, inner=inner)
    fit(model, again, 1)
    with pytest.raises(ValueError, match="wrapped by"):
        inner.step()


class Layers(nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        with seeded():
            self.a, self.b, self.c = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3).to(dtype)

    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))).to(self.c.weight.dtype))


def steps(model, optimizer, first, count, rank):
    for step in range(first, first + count):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_layer_frozen_later_rests_and_is_not_sent(name):
    def work(link):
        model = Layers()
        optimizer = wrap(model, link, algorithm=ALGORITHMS[name])
        steps(model, optimizer, 0, 3, link.rank)
        model.a.requires_grad_(False)
        frozen, sent = model.a.weight.clone(), optimizer.bytes_sent
        others = model.b.weight.clone()
        steps(model, optimizer, 3, 3, link.rank)
        assert torch.equal(model.a.weight, frozen), "a frozen layer has moved"
        assert not torch.equal(model.b.weight, others), "the others have not"
        state = copy.deepcopy(optimizer.state_dict())
        model.a.requires_grad_(True)
        steps(model, optimizer, 6, 2, link.rank)
        assert not torch.equal(model.a.weight, frozen)
        end = flat(model)
        model.a.requires_grad_(False)
        steps(model, optimizer, 8, 1, link.rank)
        optimizer.load_state_dict(state)
        model.a.requires_grad_(True)
        steps(model, optimizer, 6, 2, link.rank)
        assert torch.equal(flat(model), end), "resumed from a checkpoint with a resting layer"
        with optimizer.consensus():
            average = flat(model)
        return sent, end, average

    results = run_threads(3, work)
    assert torch.allclose(results[0][2], torch.stack([end for _, end, _ in results]).mean(0), atol=1e-6)


@pytest.mark.parametrize("name", ["dpsgd", "choco", "powergossip", "allreduce"])
def test_resting_layers_cost_no_bytes_and_leave_the_rest_as_it_would_be(name):
    """Against a model in which the frozen layer was never trained: the same bytes a round."""

    def sent(link, when):
        model = Layers()
        if when == "before":
            model.a.requires_grad_(False)
        optimizer = wrap(model, link, algorithm=ALGORITHMS[name])
        steps(model, optimizer, 0, 2, link.rank)
        if when == "after":
            model.a.requires_grad_(False)
            steps(model, optimizer, 2, 1, link.rank)
        before = optimizer.bytes_sent
        steps(model, optimizer, 3, 4, link.rank)
        return optimizer.bytes_sent - before

    never, before, after = (run_threads(3, partial(sent, when=when)) for when in ("", "before", "after"))
    assert after == before
    assert after[0] < never[0]


def test_a_whole_dtype_may_rest_and_messages_under_way_are_dropped():
    def work(link):
        model = Layers(torch.float64)
        optimizer = wrap(model, link, algorithm="dpsgd", overlap=2, every=3)
        steps(model, optimizer, 0, 5, link.rank)
        model.c.requires_grad_(False)
        frozen = model.c.weight.clone()
        steps(model, optimizer, 5, 5, link.rank)
        assert torch.equal(model.c.weight, frozen)
        model.c.requires_grad_(True)
        steps(model, optimizer, 10, 5, link.rank)
        assert not torch.equal(model.c.weight, frozen)
        return optimizer.rounds

    assert run_threads(3, work) == [5] * 3


def test_layers_frozen_on_one_worker_alone_stop_all():
    def work(link):
        model = Layers()
        optimizer = wrap(model, link, algorithm="dpsgd")
        steps(model, optimizer, 0, 2, link.rank)
        (model.a if link.rank else model.b).requires_grad_(False)
        with pytest.raises(gossamer.MismatchError, match="'frozen parameters'"):
            steps(model, optimizer, 2, 1, link.rank)
        return True

    assert run_threads(3, work) == [True] * 3


def test_lazy_layers_are_refused_until_they_have_a_shape():
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(ValueError, match=r"'0\.weight' of a lazy layer .* run a batch through the model"):
        wrap(model, inner=torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.ones(2, 4))
    wrap(model, inner=torch.optim.SGD(model.parameters(), lr=0.1)).step()


def test_sparse_gradients_with_all_reduce_are_those_of_a_dense_embedding():
    def work(link, sparse):
        with seeded():
            model = nn.Embedding(10, 4, sparse=sparse)
        optimizer = wrap(model, link, torch.optim.SGD(model.parameters(), lr=0.1), algorithm="allreduce")
        for step in range(3):
            optimizer.zero_grad()
            model(torch.tensor([link.rank, step, step])).square().sum().backward()
            assert model.weight.grad is not None
            assert model.weight.grad.is_sparse == sparse
            optimizer.step()
        return flat(model)

    for x, y in zip(*(run_threads(3, partial(work, sparse=sparse)) for sparse in (True, False)), strict=True):
        assert torch.allclose(x, y, rtol=0, atol=1e-7)


def test_factors_of_an_edge_rest_with_their_matrices():
    """Two matrices and an edge that has both: the one that rested has its factors when it wakes."""

    def work(link):
        model = Layers()
        optimizer = wrap(model, link, algorithm=PowerGossip(rank=2))
        steps(model, optimizer, 0, 3, link.rank)
        edges = optimizer._node.states[0].edges
        before = {j: [q.clone() for q in edge.Q] for j, edge in edges.items()}
        model.b.requires_grad_(False)
        steps(model, optimizer, 3, 2, link.rank)
        assert all(len(edge.Q) == 2 for edge in optimizer._node.states[0].edges.values())
        whole = optimizer.state_dict()["gossamer"]["states"][0]["edges"]
        for j, edge in whole.items():
            assert torch.equal(edge["Q"][1], before[j][1]), "the resting matrix's factor has changed"
            assert edge["c"] == 5
        return True

    assert run_threads(3, work) == [True] * 3


def test_choco_with_a_resting_layer_equals_choco_without_that_layer_for_the_others():
    """From the moment on when a layer rests, the others do what they would do if it had never been there."""

    def work(link, whole):
        with seeded():
            parts = nn.ParameterDict({"a": nn.Parameter(torch.randn(30)), "b": nn.Parameter(torch.randn(20))})
        model = parts if whole else nn.ParameterDict({"b": parts["b"]})
        optimizer = wrap(model, link, algorithm=CHOCO)
        if whole:
            model["a"].requires_grad_(False)
        for step in range(5):
            model["b"].grad = model["b"].detach() - link.rank + step
            optimizer.step()
        return model["b"].detach().clone()

    for x, y in zip(*(run_threads(3, partial(work, whole=whole)) for whole in (True, False)), strict=True):
        assert torch.equal(x, y)
