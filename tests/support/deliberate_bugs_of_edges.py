"""Deliberate bugs in a worker's edges: see deliberate_bugs.py."""

from __future__ import annotations

from contextlib import suppress

from gossamer._mesh.link import ROUNDS
from gossamer._mesh.neighbourhood import Neighbourhood
from tests.support.deliberate_bugs import BUGS, bug, nothing

__all__ = ["BUGS"]


@bug(Neighbourhood, "_forget")
def a_replica_is_kept_without_its_edge(right):
    return lambda hood, peer: hood.edges.pop(peer)


@bug(Neighbourhood, "_is_up")
def an_edge_outlives_its_epoch(right):
    def is_up(hood, peer, edge):
        found = hood._protocol.links.get(peer)
        return found is not None and found.up

    return is_up


@bug(Neighbourhood, "collect")
def each_end_uses_its_own_weight(right):
    def collect(hood):
        arrived = right(hood)
        for peer in arrived:
            hood.edges[peer].weight = hood.edges[peer].proposed
        return arrived

    return collect


@bug(Neighbourhood, "collect", ("stranger",))
def the_first_weight_counts_for_ever(right):
    def collect(hood):
        before = {peer: edge.weight for peer, edge in hood.edges.items()}
        arrived = right(hood)
        for peer in arrived:
            hood.edges[peer].weight = before[peer] or hood.edges[peer].weight
        return arrived

    return collect


@bug(Neighbourhood, "collect")
def who_begins_later_is_taken_for_a_founder(right):
    def collect(hood):
        for peer in hood.awaited:
            with suppress(KeyError):
                first = hood._protocol.links[peer].streams[ROUNDS].arriving[1]
                first.weight = hood.edges[peer].weight
        return right(hood)

    return collect


@bug(Neighbourhood, "begin")
def a_weight_is_proposed_before_the_copy_is_there(right):
    def begin(hood):
        weights = right(hood)
        for peer, edge in hood.edges.items():
            edge.proposed = edge.proposed or hood._protocol.wanted[peer]
        return weights

    return begin


@bug(Neighbourhood, "keep_for_later")
def messages_before_the_copy_are_forgotten(right):
    return lambda hood, peer, message: not hood.edges[peer].known


@bug(Neighbourhood, "_come_to_know")
def messages_before_the_copy_are_taken_in_the_wrong_order(right):
    def come_to_know(hood, peer, edge):
        edge.waiting.reverse()
        right(hood, peer, edge)

    return come_to_know


@bug(Neighbourhood, "_come_to_know")
def messages_before_the_copy_are_taken_twice(right):
    def come_to_know(hood, peer, edge):
        if edge.met and edge.waiting:
            edge.waiting.appendleft(edge.waiting[0])
        right(hood, peer, edge)

    return come_to_know


@bug(Neighbourhood, "_come_to_know")
def it_counts_as_known_before_all_messages_were_taken(right):
    def come_to_know(hood, peer, edge):
        right(hood, peer, edge)
        edge.known = edge.met

    return come_to_know


@bug(Neighbourhood, "give_up")
def nobody_is_given_up(right):
    return nothing


@bug(Neighbourhood, "_has_drifted")
def a_wrong_replica_is_not_noticed(right):
    return lambda hood, peer, edge: False


@bug(Neighbourhood, "_latest")
def only_the_newest_of_late_messages_is_taken(right):
    def latest(hood, peer, edge, message):
        while hood.may_lag and hood._link(peer).streams[ROUNDS].complete(edge.taken + 1):
            edge.taken += 1
            message = hood._protocol.take(peer, ROUNDS, edge.taken)
        return message

    return latest
