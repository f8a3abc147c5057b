"""Verdicts on the papers' claims follow from the published values, and can go either way."""

from __future__ import annotations

import pytest

from experiments.claims import CLAIMS, FAILS, HOLDS, OPEN, by_counts, by_interval

JUDGES = {claim.says: claim.judge for claim in CLAIMS}
DATA = ("cifar10-jpeg", "svhn-subset")


def test_counts_decide_three_to_one():
    assert [by_counts(*each) for each in ((3, 1), (2, 1), (1, 3), (0, 0))] == [
        HOLDS,
        OPEN,
        FAILS,
        OPEN,
    ]


def test_an_interval_decides_where_it_leaves_out_zero():
    assert [by_interval(*each) for each in ((1, 2), (-1, 1), (-2, -1))] == [HOLDS, OPEN, FAILS]


def added_by_the_map(few, many):
    """Values of the map on images: an interval for each number of images, on both data sets."""
    values = {}
    for images, (low, high) in ((500, few), (8000, many)):
        for data in DATA:
            name = f"Standard: {data}, resnet8, {images} images"
            values |= {
                f"{name}: points of ECE that the map adds": (low + high) / 2,
                f"{name}: low end of its interval": low,
                f"{name}: high end of its interval": high,
            }
    return values


@pytest.mark.parametrize(
    ("few", "many", "expected"),
    [
        ((1, 2), (-2, -1), HOLDS),
        ((-2, -1), (1, 2), FAILS),
        ((-2, -1), (-2, -1), OPEN),  # it helps everywhere
        ((-1, 1), (-1, 1), OPEN),
    ],
)
def test_the_map_must_help_with_many_images_and_hurt_with_few(few, many, expected):
    judge = JUDGES["the map helps where data is plentiful and hurts where the network overfits"]
    assert judge(added_by_the_map(few, many))[0] == expected


def best_gammas(panel, gammas):
    best = "gamma with the smallest ECE without the map"
    return {
        f"Standard: {data}, {panel}: {best}, seed {seed}": gamma
        for data in DATA
        for seed, gamma in enumerate(gammas)
    }


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((3, 3, 2), (1, 1, 2), HOLDS), ((1, 1, 1), (2, 2, 2), FAILS), ((1, 2, 1), (2, 1, 1), OPEN)],
)
@pytest.mark.parametrize(
    ("claim", "panels"),
    [
        (
            "larger networks need a larger gamma",
            ("resnet20, 2000 images", "resnet44, 2000 images", "resnet8, 2000 images"),
        ),
        ("fewer data need a larger gamma", ("resnet8, 500 images", "resnet8, 8000 images")),
    ],
)
def test_gammas_are_compared_seed_by_seed(claim, panels, first, second, expected):
    *larger, smaller = panels
    values = best_gammas(smaller, second)
    for panel in larger:
        values |= best_gammas(panel, first)
    assert JUDGES[claim](values)[0] == expected


def test_both_larger_networks_count():
    values = best_gammas("resnet8, 2000 images", [1, 1, 1])
    values |= best_gammas("resnet20, 2000 images", [2, 2, 2])
    values |= best_gammas("resnet44, 2000 images", [0, 0, 0])
    verdict, evidence = JUDGES["larger networks need a larger gamma"](values)
    assert (verdict, "larger in 3 pairs of runs, smaller in 3" in evidence) == (OPEN, True)
