"""Verdicts by counts, networks, intervals and parts."""

from __future__ import annotations

import pytest

from experiments.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    PARTLY,
    by_counts,
    by_interval,
    by_networks,
    by_panels,
    by_parts,
    by_sources,
    counted,
    share_interval,
)


def test_counts_decide_where_the_interval_of_their_share_leaves_out_one_half():
    decided = {
        (6, 0): HOLDS,
        (8, 1): HOLDS,
        (5, 0): OPEN,
        (7, 2): OPEN,
        (0, 6): FAILS,
        (0, 0): OPEN,
    }
    assert {counts: by_counts(*counts) for counts in decided} == decided
    assert by_counts(0, 0) == OPEN


def test_networks_decide_where_their_data_sets_agree():
    six = [f"data {i}, network" for i in range(6)]
    assert by_networks(six, []) == HOLDS
    assert by_networks([], six) == FAILS
    assert by_networks(six[:5], []) == OPEN
    # Six networks on three data sets are three data sets.
    assert by_networks([f"data {i % 3}, network {i}" for i in range(6)], []) == OPEN
    # A data set is on the side of most of its networks, and on none where they differ.
    seven = [*six, "data 0, larger"]
    assert by_networks([*six, "data 1, other", "data 2, other"], ["data 0, other"]) == OPEN
    assert by_networks([*seven, "data 1, other"], ["data 0, third"]) == HOLDS


def test_the_interval_of_a_share_is_exact():
    assert share_interval(9, 9) == pytest.approx((0.025 ** (1 / 9), 1.0))
    assert share_interval(0, 4) == pytest.approx((0.0, 1.0 - 0.025**0.25))
    assert counted(9, 9) == "9 of 9 (66% to 100%)"


def test_a_claim_of_parts_holds_where_all_do():
    assert by_parts([HOLDS, HOLDS]) == HOLDS
    assert by_parts([FAILS, FAILS]) == FAILS
    assert by_parts([HOLDS, OPEN]) == OPEN
    assert by_parts([HOLDS, OPEN, FAILS]) == PARTLY


def test_an_interval_decides_where_it_leaves_out_zero():
    assert [by_interval(*each) for each in ((1, 2), (-1, 1), (-2, -1))] == [HOLDS, OPEN, FAILS]


def test_one_network_on_one_data_set_decides_nothing():
    assert by_panels([(1, 2)], clusters=1) == OPEN
    assert by_panels([(1, 2), (1, 2)], clusters=2) == HOLDS
    assert by_panels([(1, 2), (-1, 2)], clusters=2) == OPEN
    assert by_panels([(1, 2), (-2, -1)], clusters=2) == PARTLY


def test_views_of_the_same_objects_cannot_decide():
    assert by_sources(20, 8, repeated=0) == HOLDS
    assert by_sources(20, 8, repeated=9) == OPEN
    assert by_sources(8, 20, repeated=0) == FAILS
    assert by_sources(8, 20, repeated=9) == OPEN
    assert by_sources(3, 3, repeated=9) == OPEN
