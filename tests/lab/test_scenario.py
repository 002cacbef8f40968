"""Scenarios: what can be written, how it is read, and what is said about mistakes."""

from __future__ import annotations

from math import inf

import pytest

from gossamer.lab import Event, Scenario, names
from gossamer.network.links import Network

EVERYTHING = """
workers = 4

[network]
bandwidth = "100mbit"
latency = "5ms"

[network.workers.3]
up = "1mbit"
latency = "60ms"

[[network.links]]
between = [0, 2]
latency = "7ms"

[sites]
count = 2
latency = "40ms"
bandwidth = "50mbit"

[conditions]
jitter = "2ms"
loss = 0.01
queue = 200000
links = [{ between = [0, 1], loss = 0.1, one_way = true }]

[[events]]
at = "8s"
every = "10s"
what = "cut"
between = [0, 1]

[[events]]
at = 30
what = "latency"
value = "80ms"
worker = 3
"""


def read(tmp_path, text, n=None):
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    return Scenario.from_file(path, n)


def test_a_file_with_everything(tmp_path):
    scenario = read(tmp_path, EVERYTHING)
    assert scenario.n == 4
    assert scenario.network.up == (1e8, 1e8, 1e8, 1e6)
    assert scenario.network.down == (1e8,) * 4
    assert scenario.network.latency[0] == (0, 0.005, 0.007, 0.04)  # 0 2 is described by itself
    assert scenario.network.latency[2] == (0.007, 0.04, 0, 0.06)
    assert scenario.network.limits == dict.fromkeys([(0, 3), (3, 0), (1, 2), (2, 1), (1, 3), (3, 1)], 5e7)
    assert scenario.loss[0][1] == 0.1
    assert scenario.loss[1][0] == scenario.loss[2][3] == 0.01
    assert scenario.jitter[2] == (0.002, 0.002, 0, 0.002)
    assert scenario.queue == 200_000
    assert scenario.events == (Event(8, "cut", (0, 1), every=10), Event(30, "latency", (3,), "80ms"))
    assert scenario.events[1].value == 0.08


def test_some_of_the_workers_of_a_file(tmp_path):
    scenario = read(tmp_path, EVERYTHING, 3)
    assert scenario.network.up == (1e8, 1e8, 1e8)
    assert scenario.network.latency[0] == (0, 0.005, 0.007)
    assert scenario.network.limits == {(1, 2): 5e7, (2, 1): 5e7}
    assert [event.who for event in scenario.events] == [(0, 1)]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("n", [2, 5, 8])
def test_those_that_come_with_gossamer(name, n):
    scenario = Scenario.named(name, n)
    assert scenario.n == n
    assert str(scenario).startswith(f"{n} workers: ")


def test_what_they_are():
    assert names() == ["flapping", "homes", "lan", "phone-line", "two-sites"]
    assert Scenario.named("lan", 8) == Scenario.uniform(8, "1gbit", "1ms")
    sites = Scenario.named("two-sites", 8).network
    assert [sites.latency[0][j] for j in (1, 3, 4, 7)] == [0.0005, 0.0005, 0.04, 0.04]
    assert len(sites.limits) == 32
    homes = Scenario.named("homes", 8).network
    assert all(
        5e6 <= up <= 20e6 and 50e6 <= down <= 200e6 for up, down in zip(homes.up, homes.down, strict=True)
    )
    assert all(0.01 <= homes.latency[i][j] <= 0.06 for i in range(8) for j in range(8) if i != j)
    phone = Scenario.named("phone-line", 4).network
    assert (phone.up[0], phone.down[0], phone.latency[0][3], phone.latency[1][2]) == (1e6, 4e6, 0.06, 0.005)
    cut, heal = Scenario.named("flapping", 4).events
    assert (heal.at - cut.at, cut.every, heal.every) == (2, 10, 10)


def test_one_as_text():
    scenario = Scenario.uniform(4, "10mbit", "20ms", "2ms", 0.01)
    assert str(scenario) == "4 workers: 10 Mbit/s, 20 ms, jitter 2 ms, loss 0.01"
    assert str(Scenario.named("flapping", 2)) == "2 workers: 100 Mbit/s, 5 ms, 2 events"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed = 3", "unknown setting 'speed'"),
        ("workers = 0", "workers = 0: it is the number of workers, such as 8"),
        ("[network]\nbandwidth = '10'", "network: bandwidth: bandwidth '10' has no unit"),
        ("[network]\nlatncy = '10ms'", "network: unknown setting 'latncy': did you mean 'latency'"),
        ("[network.workers.9]\nup = '1mbit'", "network: workers.9: there is no worker 9"),
        (
            "[sites]\ncount = 9",
            "count = 9: it is a number of places, at most one for each of 4 workers",
        ),
        ("[sites]\nlatency = 'far'", "sites: time 'far': write a number with its unit"),
        ("[conditions]\nloss = 2", "conditions: loss 2: it is a fraction of all packets, such as 0.01"),
        ("[conditions]\nloss = '1%'", "it is a fraction"),
        ("[conditions]\nqueue = 100", "queue = 100: it is a number of bytes, at least 65536"),
        ("[conditions]\nreorder = 1", "reorder = 1: it is true or false"),
        ("[conditions]\nlinks = [{between = [0, 0]}]", "links, entry 1: a link joins two workers"),
        ("events = 3", "events: write each as its own table"),
        ("[[events]]\nwhat = 'cut'", 'events, entry 1: say when and what: at = "10s", what = "cut"'),
        ("[[events]]\nat = '1s'\nwhat = 'cut'", r"say to whom: either between = \[0, 1\] or worker = 3"),
        ("[[events]]\nat = '1s'\nwhat = 'cutt'\nworker = 1", "unknown event 'cutt': did you mean 'cut'"),
        ("[[events]]\nat = '1s'\nwhat = 'cut'\nworker = 7", "there is no worker 7"),
        ("[[events]]\nat = '1s'\nwhat = 'loss'\nworker = 1", "loss: say to what: value = 0.01"),
        ("[[events]]\nat = '1s'\nwhat = 'cut'\nvalue = 1\nworker = 1", "cut: it has no value"),
        ("[[events]]\nat = '1s'\nwhat = 'up'\nvalue = '1mbit'\nbetween = [0, 1]", "up belongs to a worker"),
        ("[[events]]\nat = '1s'\nwhat = 'cut'\nevery = 0\nworker = 1", "leave it out"),
        ("workers 8", "this is not TOML"),
    ],
)
def test_mistakes_are_explained(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text if text.startswith("workers") else f"workers = 4\n{text}")


def test_a_file_for_any_number_of_workers_must_be_told_it(tmp_path):
    with pytest.raises(ValueError, match="fits any number of workers: say how many"):
        read(tmp_path, "[network]\nlatency = '1ms'")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no scenario file"):
        Scenario.from_file(tmp_path / "none.toml", 4)


@pytest.mark.parametrize(
    ("name", "n", "message"),
    [
        ("homes", 9, "9 workers, but the file describes 8: ask for 8 or fewer"),
        ("home", 4, "unknown scenario 'home': did you mean 'homes'"),
    ],
)
def test_names_that_mean_no_scenario(name, n, message):
    with pytest.raises(ValueError, match=message):
        Scenario.named(name, n)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda network: Scenario(network, jitter=((0.1,),)), "jitter: give a value for each of 3 x 3 pairs"),
        (lambda network: Scenario(network, events=(Event(1, "cut", (3,)),)), "there is no worker 3"),
        (lambda network: Event(1, "cut", (1, 1)), "neither a worker, such as"),
        (lambda network: Scenario(network).first(4), "4 workers of 3"),
    ],
)
def test_values_that_make_no_scenario(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt(Network.uniform(3, "10mbit", "1ms"))


def test_a_network_from_tables_and_the_latency_of_a_worker():
    tables = {"latency": "20ms", "workers": {"1": {"latency": "60ms"}, "2": {"latency": 0}}}
    network = Network.from_tables(tables, 4)
    assert network.latency[0] == (0, 0.06, 0, 0.02)
    assert network.latency[1][2] == 0.06
    assert network.up == (inf,) * 4
    with pytest.raises(ValueError, match="the network must be a table"):
        Network.from_tables([], 4)  # type: ignore[arg-type]
