"""What people write into decentralize(...), and when they write it."""

from __future__ import annotations

import copy

import networkx as nx
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gossamer
from gossamer.algorithms import Choco
from gossamer.compress import TopK
from tests.support.problem import flat
from tests.support.single_process import fit, same, sgd, together, trains_like_torch, wrap
from tests.support.training import small
from tests.support.workers import Row


def wrapping(**options):
    """Wrap a small model with these arguments."""
    return lambda rank: gossamer.decentralize(*reversed(pair(small())), **options)


def pair(model, inner=sgd):
    return model, inner(model)


def swapped(rank):
    model, inner = pair(small())
    gossamer.decentralize(model, inner)


def compressor(text):
    def chosen(rank):
        algorithm = gossamer.decentralize(*reversed(pair(small())), compressor=text, gamma=0.3).algorithm
        assert isinstance(algorithm, Choco)
        return algorithm.compressor

    return chosen


def one_round(rank, graph):
    """Average 0, 10 and 20 once along a graph, without learning."""
    model = nn.Linear(1, 1, bias=False)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.0), topology=graph)
    nn.init.constant_(model.weight, 10.0 * rank)
    optimizer.step()
    return model.weight.item()


def along_a_path(values):
    """Metropolis weights of a path of three are 1/3 along its edges."""
    return values == pytest.approx([10 / 3, 10, 50 / 3])


def named(graph):
    return nx.relabel_nodes(graph, dict(enumerate(["ann", "bob", "eve"])))


def different_shapes(rank):
    model = nn.Linear(4, 3 if rank < 2 else 5)
    wrap(model)


def different_graph(rank):
    wrap(small(), topology="chain" if rank == 1 else "ring")


def different_rate(rank):
    model = small()
    wrap(model, torch.optim.SGD(model.parameters(), lr=0.1 if rank < 2 else 0.2))


def wrapped_optimizer(rank):
    model = small()
    wrap(model, wrap(model))


def model_wrapped_twice(rank):
    model = small()
    wrap(model)
    optimizer = wrap(model)
    fit(model, optimizer, 4, rank)
    alone = small()
    return same(flat(model), together(alone, sgd(alone), 4))


def lazy(rank):
    model = nn.Sequential(nn.LazyLinear(3))
    wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))


def lazy_after_a_batch(rank):
    def model():
        layer = nn.LazyLinear(3)
        net = nn.Sequential(layer)
        net(torch.ones(1, 6))
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
        return net

    return trains_like_torch(rank, model)


def all_frozen(rank):
    model = small()
    inner = sgd(model)
    model.requires_grad_(False)
    wrap(model, inner)


def foreign_parameter(rank):
    wrap(small(), sgd(small()))


def later_group(rank):
    model = small()
    wrap(model).add_param_group({"params": [nn.Parameter(torch.zeros(2))]})


def copied_optimizer(rank):
    copy.deepcopy(wrap(small()))


def ddp_passed(rank):
    model = DistributedDataParallel(small())
    wrap(model)


def ddp_inside(rank):
    """The optimizer has the bare model, DDP is around it already."""
    model = small()
    wrapper = DistributedDataParallel(model)
    fit(wrapper, wrap(model), 1, rank)


def ddp_around_afterwards(rank):
    model = small()
    optimizer = wrap(model)
    fit(DistributedDataParallel(model), optimizer, 1, rank)


ROWS = {
    "a misspelt algorithm": Row(wrapping(algorithm="chocco"), r"did you mean 'choco'"),
    "a misspelt topology": Row(wrapping(topology="rnig", compressor="sign"), r"did you mean 'ring'"),
    "model and optimizer swapped": Row(swapped, r"a torch optimizer first, then the model"),
    "an unknown keyword": Row(
        wrapping(compressor="sign", topologie="ring"),
        r"there is no argument 'topologie': did you mean 'topology'\?",
    ),
    "topk": Row(compressor("topk"), r"give the ratio .* as in topk:0\.01"),
    "topk:5": Row(compressor("topk:5"), r"'topk:5': ratio=5: .* at most 1; for 5 % write 0\.05"),
    "topk:1": Row(compressor("topk:1"), r"1 would send all entries; write 0\.01 or 1% .*, 1\.0 for all"),
    "topk:one": Row(compressor("topk:one"), r"'one' is no ratio; write 0\.01 or 1%"),
    "topk:1%": Row(compressor("topk:1%"), fine=lambda found: found == [TopK(0.01)] * 3),
    "topk:1.0": Row(compressor("topk:1.0"), fine=lambda found: found == [TopK(1.0)] * 3),
    "powergossip beside a compressor": Row(
        wrapping(algorithm="powergossip", compressor="sign"), r"powergossip takes no compressor"
    ),
    "no compressor": Row(wrapping(), r"choco needs a compressor"),
    "a networkx graph": Row(lambda rank: one_round(rank, nx.path_graph(3)), fine=along_a_path),
    "a networkx graph of names": Row(
        lambda rank: one_round(rank, named(nx.path_graph(3))), fine=along_a_path
    ),
    "a graph of another size": Row(
        wrapping(algorithm="dpsgd", topology=nx.path_graph(5)),
        r"the networkx graph has 5 nodes, but there are 3 workers",
    ),
    "different shapes": Row(
        different_shapes, r"worker 2 differs in 'layout.*same settings", gossamer.MismatchError
    ),
    "different topologies": Row(
        different_graph, r"worker 1 differs in 'topology'.*same settings", gossamer.MismatchError
    ),
    "different learning rates": Row(
        different_rate,
        r"worker 2 differs in 'optimizer\.param_groups\[0\]\.lr': it has 0\.2, .*same settings",
        gossamer.MismatchError,
    ),
    "a wrapped optimizer wrapped": Row(wrapped_optimizer, r"decentralized already"),
    "a model wrapped twice": Row(model_wrapped_twice),
    "LazyLinear": Row(lazy, r"run a batch through the model once, then make the optimizer"),
    "LazyLinear after a batch": Row(lazy_after_a_batch),
    "all frozen": Row(all_frozen, r"trains no parameter of this model"),
    "a foreign parameter": Row(foreign_parameter, r"not in the model; pass their model"),
    "add_param_group": Row(later_group, r"add parameter groups before gossamer\.decentralize"),
    "deepcopy(optimizer)": Row(copied_optimizer, r"save its state_dict\(\) instead", TypeError),
    "DDP(model) passed": Row(ddp_passed, r"Train the bare model .*\.module.*group="),
    "DDP around the model before": Row(ddp_inside, r"Train the bare model .*\.module.*group="),
    "DDP around the model afterwards": Row(ddp_around_afterwards, r"Train the bare model .*\.module.*group="),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(workers, name):
    workers.check(__name__, name, ROWS[name])
