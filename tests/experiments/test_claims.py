"""Verdicts on the papers' claims follow from the published values, and can go either way."""

from __future__ import annotations

import pytest

from experiments.claims import (
    CLAIMS,
    FAILS,
    HOLDS,
    OPEN,
    PARTLY,
    UNTESTED,
    by_counts,
    by_interval,
    by_parts,
    counted,
    share_interval,
)

JUDGES = {claim.says: claim.judge for claim in CLAIMS}
DATA = ("cifar10-jpeg", "svhn-subset")


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
        ((-2, -1), (-2, -1), PARTLY),  # it helps everywhere
        ((-1, 1), (-1, 1), OPEN),
    ],
)
def test_the_map_must_help_with_many_images_and_hurt_with_few(few, many, expected):
    judge = JUDGES["the map helps with plenty of data and hurts if the network overfits"]
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
    [((3, 3, 2), (1, 1, 1), HOLDS), ((1, 1, 1), (2, 2, 2), FAILS), ((3, 3, 2), (1, 1, 2), OPEN)],
)
@pytest.mark.parametrize(
    ("claim", "panels"),
    [
        ("larger networks need a larger gamma", ("resnet20, 2000 images", "resnet8, 2000 images")),
        ("fewer data need a larger gamma", ("resnet8, 500 images", "resnet8, 8000 images")),
    ],
)
def test_gammas_are_compared_seed_by_seed(claim, panels, first, second, expected):
    larger, smaller = panels
    values = best_gammas(larger, first) | best_gammas(smaller, second)
    assert JUDGES[claim](values)[0] == expected


@pytest.mark.parametrize(
    ("smaller", "larger", "expected"), [(6, 0, HOLDS), (0, 6, FAILS), (3, 5, PARTLY), (1, 1, OPEN)]
)
def test_a_loss_is_compared_on_every_network(smaller, larger, expected):
    name = "FL-3 against cross-entropy, ECE before T"
    networks = {
        f"{name}: significantly smaller": smaller,
        f"{name}: significantly larger": larger,
        f"{name}: noise": 2,
    }
    of_digits = "FL-3 minus cross-entropy: ECE %"
    digits = {of_digits: 6.4, f"{of_digits}, half interval": 2.0}
    claim = "focal loss calibrates better than cross-entropy before temperature scaling"
    verdict, evidence = JUDGES[claim](networks, digits)
    assert verdict == expected
    assert "+6.4 ± 2.0" in evidence


@pytest.mark.parametrize(("within", "expected"), [(9, HOLDS), (1, FAILS), (5, OPEN)])
def test_a_temperature_near_one_is_between_0_9_and_1_1(within, expected):
    values = {
        "networks trained here": 9,
        "FLA-53: T by ECE from 0.9 to 1.1": within,
        "cross-entropy: T by ECE from 0.9 to 1.1": 4,
        "FLA-53: T nearer to 1 than that of cross-entropy": 4,
        "FLA-53: T by ECE below 0.9": 9 - within,
    }
    assert JUDGES["the optimal T of focal losses is near 1"](values)[0] == expected


def rises(*runs):
    """Runs as: rise of the NLL, part of it from mistakes, rise of that of correct samples."""
    names = (
        "rise of the test NLL after its lowest epoch",
        "part of that rise from mistakes",
        "rise of the mean NLL of correct samples",
    )
    return {
        f"data, network {i}, cross-entropy: {name}": value
        for i, run in enumerate(runs)
        for name, value in zip(names, run, strict=True)
    }


def test_a_rise_is_of_mistakes_alone_where_correct_samples_fall():
    judge = JUDGES["late in training the test NLL rises only through the mistakes"]
    assert judge(rises(*[(0.1, 1.2, -0.1)] * 6))[0] == HOLDS
    assert judge(rises(*[(0.1, 0.5, 0.1)] * 6))[0] == FAILS
    assert judge(rises(*[(0.1, 0.95, 0.01)] * 6))[0] == FAILS
    assert judge(rises(*[(0.001, -5.0, 0.1)] * 6, *[(0.1, 1.2, -0.1)] * 6))[0] == HOLDS
    assert judge(rises((0.001, 1.2, -0.1)))[0] == UNTESTED


@pytest.mark.parametrize(
    ("early", "last", "expected"), [(1.1, 0.9, HOLDS), (0.99, 0.9, FAILS), (1.1, 1.05, FAILS)]
)
def test_norms_cross_where_the_larger_one_becomes_the_smaller(early, last, expected):
    ratio = "last-layer norm, FL-3 / cross-entropy"
    values = {}
    for i in range(9):
        values[f"network {i}: {ratio}, mean of the first third"] = early
        values[f"network {i}: {ratio}, last epoch"] = last
    claim = "the last layer of the focal loss is larger early and smaller late"
    assert JUDGES[claim](values)[0] == expected


def gains(family, name, low, high):
    return {
        f"{family}: networks": 20,
        f"{family}: {name}": (low + high) / 2,
        f"{family}: {name}: 95% from": low,
        f"{family}: {name}: 95% to": high,
    }


@pytest.mark.parametrize(
    ("images", "networks", "expected"),
    [((5, 9), (2, 9), HOLDS), ((5, 9), (-1, 9), OPEN), ((-9, -5), (-9, -5), FAILS)],
)
def test_a_gain_must_outlast_other_images_and_other_networks(images, networks, expected):
    name = "gain in ECE of focal temperature over temperature, %"
    values = {"predictions changed by any method": 0}
    for family in ("CIFAR-10", "CIFAR-100", "All"):
        values |= gains(family, name, *images)
        for end, value in zip(("from", "to"), networks, strict=True):
            values[f"{family}: {name}: networks resampled, {end}"] = value
    claim = "focal temperature scaling beats temperature scaling in ECE at equal accuracy"
    assert JUDGES[claim](values)[0] == expected


@pytest.mark.parametrize(
    ("trained", "expected"), [((5, 20), HOLDS), ((-18, -4), PARTLY), ((-5, 5), OPEN)]
)
def test_a_choice_is_judged_by_both_methods_on_all_networks(trained, expected):
    name = "gain in ECE of choosing by ECE over NLL, {}, %"
    public, here = {}, {}
    for method in ("focal temperature", "temperature"):
        public |= gains("All", name.format(method), 10, 25)
        here |= gains("all", name.format(method), *trained)
    claim = "choosing by ECE gains about 20% over choosing by NLL"
    assert JUDGES[claim](public, here)[0] == expected


@pytest.mark.parametrize(("straight", "expected"), [(43, HOLDS), (2, FAILS), (22, OPEN)])
def test_a_line_must_bend_less_than_a_square_root(straight, expected):
    values = {"networks": 43, "bend of the square root of 1 + gamma": 0.14}
    for choice in ("ECE", "NLL"):
        name = f"bend of T over gamma, T chosen by {choice}"
        values |= {
            f"{name}: networks below that of a square root": straight,
            f"{name}: median": 0.05,
            f"R² of T over gamma, T chosen by {choice}: median": 0.98,
        }
    assert JUDGES["T and the gamma of the map lie on a line"](values)[0] == expected


@pytest.mark.parametrize(
    ("plentiful", "overfitted", "expected"),
    [(0.9, 0.2, HOLDS), (0.1, 0.8, FAILS), (0.9, 0.8, PARTLY), (0.9, 0.45, OPEN)],
)
def test_on_tables_the_map_must_help_and_hurt(plentiful, overfitted, expected):
    values = {"data sets with many rows": 40, "data sets with few rows": 40}
    shares = {"MLP, stopped": (plentiful, 0.6), "MLP, to the end": (0.7, overfitted)}
    for setting, (many, few) in shares.items():
        values[f"{setting}, FL-3: share helped, many rows"] = many
        values[f"{setting}, FL-3: share helped, few rows"] = few
    assert JUDGES["the same on tables"](values)[0] == expected


@pytest.mark.parametrize(
    ("worse", "change", "expected"),
    [(60, (-6, -3), HOLDS), (3, (1, 2), FAILS), (60, (1, 2), PARTLY), (32, (-6, -3), OPEN)],
)
def test_on_most_tables_focal_loss_must_be_worse_and_the_map_help(worse, change, expected):
    values = {"data sets": 63}
    for setting in ("MLP, stopped", "MLP, to the end"):
        name = f"{setting}, FL-3"
        values |= {
            f"{name}: data sets with a larger ECE than CE": worse,
            f"{name}: data sets on which the map lowers ECE": 40,
            f"{name}: low end of the change by the map, %": change[0],
            f"{name}: high end of the change by the map, %": change[1],
        }
    claim = "on most data sets focal loss is worse than cross-entropy, and the map corrects it"
    assert JUDGES[claim](values)[0] == expected
