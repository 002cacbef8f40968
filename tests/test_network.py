"""Descriptions of networks: what can be written, how it is read, and what is said about mistakes."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, replace
from math import inf
from typing import Any

import numpy as np
import pytest

from gossamer.network.links import Network
from gossamer.network.units import bits_per_second, seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10mbit", 1e7),
        ("10 Mbit/s", 1e7),
        ("1.5GBIT", 1.5e9),
        (" .5 kbitps ", 500.0),
        ("7bit/s", 7.0),
        ("2e3bit", 2000.0),
        ("unlimited", inf),
        ("Unlimited", inf),
        (1000, 1000.0),
        (np.float32(2.5), 2.5),
        (inf, inf),
    ],
)
def test_bandwidths(text, value):
    assert bits_per_second(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20ms", 0.02),
        ("35 ms", 0.035),
        ("150US", 150e-6),
        ("1.5 s", 1.5),
        ("0s", 0.0),
        (0, 0.0),
        (0.25, 0.25),
    ],
)
def test_times(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (bits_per_second, "10", r"bandwidth '10' has no unit: write '10mbit'"),
        (bits_per_second, "10mbits", r"unknown unit 'mbits': did you mean 'mbit'\? There are also bit, kbit"),
        (bits_per_second, "10mbps", r"unknown unit 'mbps': did you mean 'mbit'"),
        (bits_per_second, "10MB/s", r"bandwidth '10MB/s': unknown unit 'mb/s'"),
        (bits_per_second, "20ms", "unknown unit 'ms'"),
        (bits_per_second, "fast", "write a number with its unit, such as '10mbit'"),
        (bits_per_second, "", "write a number with its unit"),
        (bits_per_second, None, "bandwidth None: write a number"),
        (bits_per_second, True, "bandwidth True: write a number"),
        (bits_per_second, "-1mbit", "bandwidth '-1mbit': it must be above 0, or 'unlimited'"),
        (bits_per_second, 0, "above 0"),
        (bits_per_second, float("nan"), "above 0"),
        (seconds, "20", "time '20' has no unit: write '20ms'"),
        (seconds, "20mss", "did you mean 'ms'"),
        (seconds, "20ms/s", "unknown unit 'ms/s'"),
        (seconds, "-20ms", "finite and not negative"),
        (seconds, inf, "finite and not negative"),
        (seconds, [1], "such as '10ms'"),
    ],
)
def test_quantities_that_cannot_be_read(read, value, message):
    with pytest.raises(ValueError, match=message):
        read(value)


def test_a_uniform_network():
    net = Network.uniform(3, "10mbit", "20ms")
    assert net == Network.uniform(3, 1e7, 0.02)
    assert (net.n, net.up, net.down) == (3, (1e7,) * 3, (1e7,) * 3)
    assert net.latency == ((0.0, 0.02, 0.02), (0.02, 0.0, 0.02), (0.02, 0.02, 0.0))
    assert (net.rendezvous, net.overhead, net.limits) == (True, 1.036, {})
    assert not Network.uniform(3, 1e7, 0.02, rendezvous=False).rendezvous
    assert hash(net) == hash(pickle.loads(pickle.dumps(net)))  # noqa: S301 - our own bytes
    with pytest.raises(FrozenInstanceError):
        net.overhead = 2.0  # type: ignore[misc]


def test_arrays_and_text_become_plain_numbers():
    given: Any = np.array([1e6, 2e6]), ["1mbit", "unlimited"], np.full((2, 2), 0.5), {(0, 1): "5kbit"}
    net = Network(*given)
    assert (net.up, net.down) == ((1e6, 2e6), (1e6, inf))
    assert net.latency == ((0.0, 0.5), (0.5, 0.0))
    assert net.limits == {(0, 1): 5000.0}
    assert all(type(v) is float for v in (*net.up, *net.latency[0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"up": ()}, "at least one worker"),
        ({"down": (1.0,)}, "2 values in up: give as many in down"),
        ({"latency": ((0.0, 0.0),)}, "latency for each of 2 x 2 pairs"),
        ({"latency": ((0.0, 0.0), (0.0,))}, "latency for each of 2 x 2 pairs"),
        ({"latency": ((0.0, -1.0), (0.0, 0.0))}, "not negative"),
        ({"up": (1.0, 0.0)}, "above 0"),
        ({"overhead": 0.9}, "overhead=0.9"),
        ({"limits": {(0, 2): 1.0}}, "no worker 2: with 2 workers they are 0 to 1"),
        ({"limits": {(1, 1): 1.0}}, "not 1 with itself"),
        ({"limits": {(0, 1): -1.0}}, "above 0"),
    ],
)
def test_networks_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(Network.uniform(2, 1.0, 1.0), **changes)


@pytest.mark.parametrize(
    ("net", "text"),
    [
        (Network.uniform(4, "10mbit", "20ms"), "10 Mbit/s, 20 ms"),
        (Network.uniform(4, "unlimited", 0), "unlimited, 0 ms"),
        (Network.uniform(1, "2.5gbit", "1s"), "2.5 Gbit/s, 0 ms"),
        (Network.uniform(2, 500, "150us", rendezvous=False), "500 bit/s, 150 us, push"),
        (
            Network((1e3, 2e6), (1e7, 1e7), ((0, 1.5), (0.08, 0))),
            "1 kbit/s to 2 Mbit/s up, 10 Mbit/s down, 80 ms to 1.5 s",
        ),
        (
            replace(Network.uniform(3, 1e7, 0.1), limits={(0, 1): 1e6, (1, 0): 1e6}),
            "10 Mbit/s, 100 ms, 2 links limited to 1 Mbit/s",
        ),
    ],
)
def test_a_network_in_words(net, text):
    assert str(net) == text


FULL = """
bandwidth = "10mbit"
down = "50mbit"
latency = "20ms"
rendezvous = false
overhead = 1.1

[workers.3]
up = "1mbit"
down = "10mbit"

[workers.1]
bandwidth = "unlimited"

[[links]]
between = [0, 4]
latency = "80ms"
bandwidth = "5mbit"

[[links]]
between = [2, 1]
one_way = true
latency = 0.5
"""


def test_a_file_with_everything(tmp_path):
    path = tmp_path / "home.toml"
    path.write_text(FULL)
    net = Network.from_file(path, 5)
    assert net.up == (1e7, inf, 1e7, 1e6, 1e7)
    assert net.down == (5e7, inf, 5e7, 1e7, 5e7)
    latency = np.full((5, 5), 0.02) - np.diag([0.02] * 5)
    latency[0, 4] = latency[4, 0] = 0.08
    latency[2, 1] = 0.5
    assert np.array_equal(net.latency, latency)
    assert net.limits == {(0, 4): 5e6, (4, 0): 5e6}
    assert (net.rendezvous, net.overhead) == (False, 1.1)


def test_json_says_the_same(tmp_path):
    import tomllib

    (tmp_path / "a.toml").write_text(FULL)
    (tmp_path / "a.json").write_text(json.dumps(tomllib.loads(FULL)))
    assert Network.from_file(str(tmp_path / "a.json"), 5) == Network.from_file(tmp_path / "a.toml", 5)


def test_what_a_file_does_not_say_costs_nothing(tmp_path):
    (tmp_path / "empty.toml").write_text("")
    assert Network.from_file(tmp_path / "empty.toml", 3) == Network.uniform(3, "unlimited", 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bandwith = '1mbit'", r"net\.toml: unknown setting 'bandwith': did you mean 'bandwidth'"),
        ("bandwidth = '1'", r"net\.toml: bandwidth: bandwidth '1' has no unit"),
        ("up = '1mbits'", "up: bandwidth '1mbits': unknown unit 'mbits'"),
        ("latency = '-1ms'", "latency: time '-1ms': it must be finite and not negative"),
        ("rendezvous = 'no'", "rendezvous = 'no': it is true or false"),
        ("overhead = 'x'", "overhead = 'x': it is a number"),
        ("overhead = true", "overhead = True: it is a number"),
        ("overhead = 0.5", "at least 1"),
        ("bandwidth = ", "this is not TOML: Invalid value"),
        ("workers = 3", "workers must be a table"),
        ("workers.1 = 3", r"workers\.1: a worker must be a table"),
        ("workers.5.up = 1", r"workers\.5: there is no worker 5: with 5 workers they are 0 to 4"),
        ("workers.first.up = 1", r"workers\.first: there is no worker 'first'"),
        ("workers.1.upp = 1", r"workers\.1: unknown setting 'upp': did you mean 'up'"),
        ("workers.1.down = 0", r"workers\.1: down: bandwidth 0: it must be above 0"),
        ("links = 'all'", r"each as its own table under \[\[links\]\]"),
        ("links = [1]", "links, entry 1: a link must be a table"),
        ("[[links]]\nlatency = 1", r"entry 1: say which two workers it joins: between = \[0, 4\]"),
        ("[[links]]\nbetween = [0, 1, 2]", "say which two workers"),
        ("[[links]]\nbetween = [0, 9]", "entry 1: there is no worker 9"),
        ("[[links]]\nbetween = [0, true]", "there is no worker True"),
        ("[[links]]\nbetween = [2, 2]", "not 2 with itself"),
        ("[[links]]\nbetween = [0, 1]\noneway = true", "unknown setting 'oneway': did you mean 'one_way'"),
        ("[[links]]\nbetween = [0, 1]\none_way = 1", "one_way = 1: it is true or false"),
        ("[[links]]\nbetween = [0, 1]\nlatency = '5'", "links, entry 1: time '5' has no unit"),
        ("[[links]]\nbetween = [0, 1]\nbandwidth = -5", "links, entry 1: bandwidth -5"),
        (
            "[[links]]\nbetween = [0, 1]\n[[links]]\nbetween = [1, 0]",
            "links: 1 to 0 is described twice: write it once",
        ),
    ],
)
def test_mistakes_in_a_file(tmp_path, text, message):
    (tmp_path / "net.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        Network.from_file(tmp_path / "net.toml", 5)


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("none.toml", None, FileNotFoundError, r"no network file .*none\.toml: is the path right"),
        ("net.yaml", None, ValueError, r"net\.yaml: a network file ends in \.toml or \.json"),
        ("net.json", "{", ValueError, "this is not JSON"),
        ("net.json", "[]", ValueError, "the file must be a table"),
    ],
)
def test_files_that_are_not_one(tmp_path, name, text, error, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(error, match=message):
        Network.from_file(tmp_path / name, 2)
