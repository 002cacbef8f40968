"""Lists of members: which of two facts counts, that all come to believe the same, and what is no fact."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer._mesh import greetings, members
from gossamer._mesh.frames import MOST_CONTROL, Refused
from gossamer._mesh.members import (
    MOST_MEMBERS,
    OTHER_IDS,
    UNSEEN,
    Member,
    Members,
    Status,
    id_of_stranger,
    read_fact,
)

SUSPICION = 5.0
LONGEST_HOST = ".".join(["a" * 63] * 3 + ["a" * 61])


def key_of(number):
    return f"{number:064x}"


def member(number, incarnation=UNSEEN, status=Status.DEAD):
    """Return a member of the peers file, numbers below 5, or a stranger."""
    key = key_of(number)
    own_id = number if number < 5 else id_of_stranger(key)
    return Member(own_id, key, f"w{number}", f"host{number}:7000", incarnation, status)


def fact(number, incarnation, status):
    return member(number, incarnation, status).fact()


def new_list(me=0):
    """Return the list of one that knows the peers file and nothing else."""
    others = [member(number) for number in range(5) if number != me]
    return Members(member(me, 10, Status.ALIVE), others, SUSPICION)


def believed(known, number):
    m = known.by_id[known.id_of(key_of(number))]
    return m.incarnation, m.status


ranks = list(product((7, 8), Status))


@pytest.mark.parametrize("first", ranks, ids=str)
@pytest.mark.parametrize("second", ranks, ids=str)
def test_a_later_incarnation_counts_more_and_then_the_worse_status(first, second):
    known = new_list()
    assert [m.id for m in known.learn([fact(1, *first)], 0.0)] == [1]
    news = known.learn([fact(1, *second)], 0.0)
    assert believed(known, 1) == max(first, second)
    assert bool(news) == (second > first)


honest = st.builds(
    fact, st.integers(1, 7), st.integers(UNSEEN, 3), st.sampled_from(Status)
)  # about others than member 0; a member's name, address and id are always the same


@given(st.lists(honest, max_size=25), st.data())
def test_whoever_hears_the_same_facts_in_any_order_believes_the_same(facts, draws):
    """In any order, in one message or many, with some of them again and again."""
    straight, shuffled = new_list(), new_list()
    straight.learn(facts, 0.0)
    again = draws.draw(st.lists(st.sampled_from(facts), max_size=10)) if facts else []
    for one in draws.draw(st.permutations(facts + again)):
        shuffled.learn([one], 0.0)
    assert {m.key: m for m in straight.by_id.values()} == {m.key: m for m in shuffled.by_id.values()}
    assert straight.digest() == shuffled.digest()
    assert straight.alive() == shuffled.alive()


@given(st.lists(honest, max_size=12), st.lists(honest, max_size=12))
def test_two_that_tell_each_other_all_believe_the_same(ones, others):
    one, other = new_list(), new_list()
    one.learn(ones, 0.0)
    other.learn(others, 0.0)
    one.learn(json.loads(json.dumps(other.facts())), 0.0)
    other.learn(json.loads(json.dumps(one.facts())), 0.0)
    assert one.digest() == other.digest()
    assert other.learn(one.facts(), 0.0) == []


@given(st.lists(honest, min_size=1, max_size=12), st.lists(honest, min_size=1, max_size=12))
def test_equal_digests_mean_equal_beliefs(ones, others):
    one, other = new_list(), new_list()
    one.learn(ones, 0.0)
    other.learn(others, 0.0)
    same = {m.key: m.rank for m in one.by_id.values()} == {m.key: m.rank for m in other.by_id.values()}
    assert (one.digest() == other.digest()) == same


@pytest.mark.parametrize("status", Status)
def test_a_member_refutes_what_counts_more_than_what_it_says_of_itself(status):
    known = new_list()
    (own,) = known.learn([fact(0, 12, status)], 0.0)
    assert own == member(0, 13, Status.ALIVE)
    assert known.learn([fact(0, 12, Status.LEFT)], 0.0) == [], "that is over"


def test_a_member_that_leaves_does_not_come_back_by_itself():
    known = new_list()
    assert known.leave() == member(0, 10, Status.LEFT)
    assert known.learn([fact(0, 10, Status.LEFT)], 0.0) == []
    (own,) = known.learn([fact(0, 12, Status.DEAD)], 0.0)
    assert own.status == Status.LEFT


def test_a_suspect_is_there_until_it_was_doubted_long_enough():
    known = new_list()
    known.learn([fact(1, 3, Status.ALIVE)], 0.0)
    assert [m.status for m in known.suspect(1, now=1.0)] == [Status.SUSPECT]
    assert known.suspect(1, now=2.0) == [], "once"
    assert known.alive() == {0, 1}
    assert known.tick(5.9) == []
    assert [m.status for m in known.tick(6.0)] == [Status.DEAD]
    assert known.alive() == {0}
    assert known.tick(99.0) == []


def test_a_suspicion_ends_with_a_sign_of_life_and_waits_for_who_slept():
    known = new_list()
    known.learn([fact(1, 3, Status.SUSPECT), fact(2, 3, Status.SUSPECT)], 0.0)
    known.learn([fact(1, 4, Status.ALIVE)], 1.0)
    known.woke_up(gap=100.0)
    assert known.tick(104.0) == []
    assert [m.id for m in known.tick(105.0)] == [2]


def test_who_was_never_seen_is_known_to_all_but_not_there():
    """All must know the same members, dead or alive: the graph is made for all of them."""
    newcomer = Members(member(9, 1, Status.ALIVE), [member(1)], SUSPICION)
    newcomer.learn(new_list(1).facts(), 0.0)
    assert set(newcomer.by_id) == {0, 1, 2, 3, 4, id_of_stranger(key_of(9))}
    assert newcomer.alive() == {1, id_of_stranger(key_of(9))}


RIGHT = fact(1, 3, Status.ALIVE)
NAMES: list[Any] = [None, [], "", "a b", "a\n", "../x", "é", "x" * 65, "\x1b[2J", "a;b"]
WRONG: list[Any] = [
    None,
    "fact",
    {},
    [],
    RIGHT[:5],
    [*RIGHT, 0],
    *([*RIGHT[:0], value, *RIGHT[1:]] for value in (None, 5, "", "0" * 63, "0" * 65, "G" * 64, "A" * 64)),
    *([*RIGHT[:1], value, *RIGHT[2:]] for value in NAMES),
    *(
        [*RIGHT[:2], value, *RIGHT[3:]]
        for value in (
            None,
            7000,
            "",
            "host",
            "host:",
            ":7000",
            "host:port",
            "a b:1",
            "h:1\n",
            "h" * 261 + ":1",
        )
    ),
    *([*RIGHT[:3], value, *RIGHT[4:]] for value in (None, "3", 3.0, True, -2, 1 << 62, [3])),
    *([*RIGHT[:4], value, *RIGHT[5:]] for value in (None, "0", 0.0, False, -1, 5, 1 << 40)),
    *([*RIGHT[:5], value] for value in (None, "1", 1.0, True, -1, OTHER_IDS, id_of_stranger(key_of(2)))),
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_what_is_no_fact_is_refused_with_all_that_came_with_it(wrong):
    with pytest.raises(Refused, match="members"):
        read_fact(wrong)
    known = new_list()
    before = dict(known.by_id)
    with pytest.raises(Refused, match="members"):
        known.learn([fact(2, 9, Status.ALIVE), wrong], 0.0)
    assert known.by_id == before


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), st.lists))
def test_nothing_but_facts_is_a_fact(value):
    with pytest.raises(Refused):
        read_fact(value)


def test_an_id_belongs_to_the_first_who_had_it():
    known = new_list()
    assert known.learn([[*fact(9, 5, Status.ALIVE)[:5], 1]], 0.0) == []
    assert known.by_id[1] == member(1)
    assert known.id_of(key_of(9)) is None
    (news,) = known.learn([[*fact(1, 5, Status.ALIVE)[:5], 77]], 0.0)
    assert news.id == 1, "and stays the same, whatever others say"


def test_there_is_room_for_so_many(monkeypatch):
    monkeypatch.setattr(members, "MOST_MEMBERS", 6)
    known = new_list()
    news = known.learn([fact(number, 1, Status.ALIVE) for number in (7, 8, 9, 1)], 0.0)
    assert [m.id for m in news] == [id_of_stranger(key_of(7)), 1], "who is known is still believed"
    assert len(known.by_id) == 6


def test_the_longest_list_fits_into_a_frame():
    longest = Member(
        id_of_stranger("f" * 64), "f" * 64, "n" * 64, LONGEST_HOST + ":65535", (1 << 62) - 1, Status.LEFT
    )
    assert read_fact(longest.fact()) == longest
    told = greetings.write({"facts": [longest.fact()] * MOST_MEMBERS})
    assert len(told) <= MOST_CONTROL
