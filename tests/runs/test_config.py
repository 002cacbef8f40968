"""Settings: complete, checked, and the same after a trip through a file."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gossamer.runs import Config, read_config
from gossamer.runs.training.timetable import Timetable


def test_settings_survive_a_file(tmp_path):
    config = Config(algorithm="powergossip:2", options={"sub_steps": 2}, steps=7, gamma=None, clip=0.5)
    (tmp_path / "config.json").write_text(config.to_json())
    assert read_config(tmp_path / "config.json") == config


def test_what_is_left_out_is_chosen():
    assert Config().compressor == "topk:0.01"
    assert Config(algorithm="dpsgd").compressor is None
    assert Config(algorithm="allreduce").compressor is None
    assert Config(algorithm="naive", compressor="qsgd:8", overlap=1).make_algorithm().sends_before_gradient
    assert Config(algorithm="dpsgd", overlap=True).options == {"order": "combine-then-adapt"}


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"algorithm": "chico"}, "did you mean 'choco'"),
        ({"compressor": "topc:0.1"}, "did you mean 'topk'"),
        ({"compressor": "topk:1.5"}, "1.5"),
        ({"topology": "rign"}, "did you mean 'ring'"),
        ({"topology": "torus:3x3", "workers": 7}, "7"),
        ({"optimizer": "sdg"}, "did you mean 'sgd'"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"lr_scale": "lineer"}, "did you mean 'linear'"),
        ({"algorithm": "allreduce", "gamma": 0.1}, "takes no gamma"),
        ({"epochs": 1, "steps": 1}, "not both"),
        ({"workers": 0}, "at least 1"),
        ({"lr": -1.0}, "above 0"),
        (
            {"algorithm": "dcd", "compressor": "qsgd:8", "overlap": 1},
            "needs the gradient before its first message",
        ),
        (
            {"algorithm": "choco", "overlap": 1, "options": {"order": "adapt-then-combine"}},
            "nothing can overlap",
        ),
        ({"algorithm": "dpsgd", "overlap": 3, "every": 2}, "from 0 to every=2"),
        ({"algorithm": "choco", "topology": "one-peer-exponential"}, "constant graph"),
        ({"epochs": float("inf")}, "above 0"),
        ({"warmup": float("nan")}, "at least 0"),
        ({"nesterov": True, "momentum": 0.0}, "Nesterov"),
        ({"compute": "50"}, "ms"),
        ({"bandwidth": "10mbps", "simulated": True}, "mbit"),
        ({"buffers": "mine"}, "average"),
        ({"options": {"sub_stebs": 2}, "algorithm": "powergossip:1"}, "sub_stebs"),
    ],
)
def test_mistakes_are_explained(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        Config(**settings)


def test_a_difference_that_matters_is_named():
    with pytest.raises(ValueError, match=r"lr = 0.1, not 0.2"):
        Config().require_unchanged({"lr": 0.2})
    Config().require_unchanged({"deadline": 5.0, "keep": 7, "lr": 0.1})


def lrs(**settings):
    timetable = Timetable(Config(lr=0.5, steps=100, workers=4, **settings), steps_per_epoch=10)
    return [timetable.lr(step) for step in range(100)]


def test_learning_rates_follow_their_formulas():
    assert lrs() == [0.5] * 100
    assert lrs(lr_scale="linear")[0] == 2.0
    assert lrs(lr_scale="sqrt")[0] == 1.0
    assert lrs(warmup=2)[:20] == pytest.approx([0.5 * (i + 1) / 20 for i in range(20)])
    assert lrs(warmup=2)[20:] == [0.5] * 80
    assert lrs(schedule="step") == pytest.approx([0.5] * 50 + [0.05] * 25 + [0.005] * 25)
    cosine = lrs(schedule="cosine")
    assert (cosine[0], cosine[50]) == pytest.approx((0.5, 0.25))
    assert all(a > b > 0 for a, b in pairwise(cosine))


def test_the_time_table():
    timetable = Timetable(Config(epochs=2.5), steps_per_epoch=10)
    assert timetable.steps == 25
    assert [s for s in range(1, 26) if timetable.evaluates(s)] == [3, 6, 9, 12, 15, 18, 21, 24, 25]
    assert [s for s in range(1, 26) if timetable.saves(s)] == [3, 6, 9, 12, 15, 18, 21, 24, 25]
    assert not any(Timetable(Config(steps=9, checkpoint_every=0), 10).saves(s) for s in range(1, 10))
