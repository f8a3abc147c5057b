"""The claims on focal temperature scaling."""

from __future__ import annotations

import pytest

from experiments.verdicts import FAILS, HOLDS, OPEN, PARTLY
from tests.experiments.claims.made_values import JUDGES, gains

GAIN = "gain in ECE of focal temperature over temperature, %"
TRAINED = {"settings in which every loss is finished": 9}
AUTHORS_FAMILIES = ("FLSD-53, CIFAR-10", "Brier, CIFAR-10", "Brier, CIFAR-100")


@pytest.mark.parametrize(
    ("images", "data", "expected"),
    [((5, 9), (2, 9), HOLDS), ((5, 9), (-1, 9), OPEN), ((-9, -5), (-9, -5), FAILS)],
)
def test_a_gain_must_outlast_other_images_and_other_data_sets(images, data, expected):
    values = {"predictions changed by any method": 0}
    for family in ("CIFAR-10", "CIFAR-100", "All"):
        values |= gains(family, GAIN, images, data)
    claim = "focal temperature scaling beats temperature scaling in ECE at equal accuracy"
    verdict, evidence = JUDGES[claim](values, TRAINED | gains("all", GAIN, (-9, -5), (-8, 4)))
    assert verdict == expected
    aside = "20 runs of 9 networks trained here, which do not count: -7% (-9 to -5; -8 to 4)"
    assert aside in evidence
    log_loss = "gain in log-loss of choosing by NLL over ECE, focal temperature, %"
    claim = "choosing by log-loss gains in log-loss over choosing by ECE (the paper: about 1%)"
    verdict, evidence = JUDGES[claim](
        gains("All", log_loss, images, data), TRAINED | gains("all", log_loss, (-9, -5))
    )
    assert verdict == expected
    assert "which do not count: -7.0% (-9.0 to -5.0; -9.0 to -5.0)" in evidence


@pytest.mark.parametrize(
    ("images", "data", "expected"),
    [
        ((10, 25), (5, 20), HOLDS),
        ((-18, -4), (-18, -4), FAILS),
        ((10, 25), (-5, 5), OPEN),
        ((-5, 5), (5, 20), OPEN),
    ],
)
def test_a_choice_is_judged_by_both_methods_over_images_and_data_sets(images, data, expected):
    public, here, authors = {}, dict(TRAINED), {}
    for method in ("focal temperature", "temperature"):
        name = f"gain in ECE of choosing by ECE over NLL, {method}, %"
        public |= gains("All", name, images, data)
        here |= gains("all", name, (-9, -5))
        for family in AUTHORS_FAMILIES:
            name = f"gain in AdaECE of choosing by it over NLL, {method}, %"
            authors |= gains(family, name, (-9, -5))
    claim = "choosing by ECE gains over choosing by NLL (the paper: about 20%)"
    verdict, evidence = JUDGES[claim](public, here, authors)
    assert verdict == expected
    assert "Brier, CIFAR-100 -7.0% (-9.0 to -5.0) and -7.0% (-9.0 to -5.0)" in evidence


@pytest.mark.parametrize(
    ("rises", "falling", "always", "expected"),
    [
        ({}, 6, 6, HOLDS),
        ({"0a": 2}, 6, 5, HOLDS),  # two of the six steps of its two networks
        ({"0a": 3}, 5, 5, OPEN),  # half of them
        ({"2a": 2}, 5, 5, OPEN),
        (dict.fromkeys(("0a", "0b", "1a", "1b", "2a", "3a", "4a", "5a"), 2), 0, 0, FAILS),
    ],
)
def test_t_must_fall_at_most_steps_on_a_data_set(rises, falling, always, expected):
    places = ("0a", "1a", "2a", "3a", "4a", "5a", "0b", "1b")
    ending = "steps from ce, fl-3, fl-5, fl-7 at which T does not fall"
    values = {f"data {p[0]}, {p[1]}: {ending}": rises.get(p, 0) for p in places}
    claim = "the optimal T generally falls as the gamma of training grows"
    verdict, evidence = JUDGES[claim](values)
    assert verdict == expected
    assert f"FL-7 on {falling} of 6" in evidence
    assert f"at all of them on {always}; at {24 - sum(rises.values())} of 24 steps" in evidence


NEAR, LARGER, SMALLER, UNSURE = (0.93, 1.08), (1.2, 1.6), (0.5, 0.8), (0.85, 1.3)


@pytest.mark.parametrize(
    ("of_authors", "here", "by_data", "expected"),
    [
        (NEAR, NEAR, NEAR, HOLDS),
        (LARGER, SMALLER, SMALLER, FAILS),
        (NEAR, LARGER, LARGER, PARTLY),
        (NEAR, LARGER, UNSURE, OPEN),
        (NEAR, UNSURE, UNSURE, OPEN),
        ((0.89, 1.0), NEAR, NEAR, OPEN),
        ((1.0, 1.11), NEAR, NEAR, OPEN),
    ],
)
def test_t_is_a_product_where_their_ratio_is_near_one(of_authors, here, by_data, expected):
    composed = {"networks trained here": 9, "data sets trained here": 6}
    authors = {"FLSD-53, CIFAR-10: networks": 4}

    def ratio(name, interval):
        name = f"found / composed, {name}"
        low, high = interval
        return {name: 1.0, f"{name}: 95% from": low, f"{name}: 95% to": high}

    for of in ("map's T on the simplex", "map's T on own outputs"):
        authors |= ratio(f"FLSD-53, {of}", of_authors)
        authors |= ratio(f"FL-1 to FL-3 as printed, {of}", LARGER)  # shown, and does not count
        composed |= ratio(f"trained here, {of}", here)
        composed |= ratio(f"trained here, {of}, by data set", by_data)
        composed |= ratio(f"temperatures of Table 1, {of}", SMALLER)
    claim = "T after focal training is T of cross-entropy times T of the map"
    assert JUDGES[claim](composed, authors)[0] == expected


@pytest.mark.parametrize(
    ("straight", "images", "data", "expected"),
    [
        (9, (2, 16), (1, 17), HOLDS),
        (0, (-9, -1), (-9, -1), FAILS),
        (5, (2, 16), (1, 17), OPEN),
        (9, (-9, -1), (-9, -1), PARTLY),
        (9, (2, 16), (-1, 17), OPEN),
        (9, (-1, 16), (1, 17), OPEN),
    ],
)
def test_a_line_must_be_straight_and_lose_little(straight, images, data, expected):
    line, search, trained = {"data sets": 9}, {}, {"all: networks": 72, **TRAINED}
    over = {
        "temperature": ((2, 16), (2, 16)),
        "the grid": ((-5, -1), (-5, -1)),
        "halfway from temperature to the grid": (images, data),
    }
    for against, intervals in over.items():
        of_name = gains("of", f"gain in ECE of the line over {against}, %", *intervals)
        search |= {key.removeprefix("of: "): value for key, value in of_name.items()}
    for name, value in (("line minus grid", 0.038), ("grid minus temperature", -0.263)):
        name = f"points of test ECE, {name}"
        search |= {name: value, f"{name}: 95% from": 0.014, f"{name}: 95% to": 0.118}
    authors = gains("all", "AdaECE, search on a line minus grid", (-0.03, 0.1))
    for choice, called in (("ECE", "AdaECE"), ("NLL", "NLL")):
        name = f"R² of T over gamma, T chosen by {choice}"
        line |= {
            f"{name}: data sets with a median from 0.95 on": straight,
            f"{name}: median": 0.98,
            f"{name}: smallest": 0.21,
        }
        trained[f"{name}: median"] = 0.99
        for network, value in (("one", 0.97), ("another", 0.96)):
            authors[f"T of the map's gamma by {called}: R² of a line, {network}"] = value
        for part in ("validation", "test"):
            search[f"line against grid by {choice}: loss on {part}, %"] = 2.0
    public = gains("All", GAIN, (10, 18), (3, 17))
    claim = "T and the gamma of the map lie close to a line"
    verdict, evidence = JUDGES[claim](line, search, public, authors, trained)
    assert verdict == expected
    assert "smallest of a network 0.210" in evidence
    assert "which do not count: 0.960, 0.970 by AdaECE; 0.960, 0.970 by NLL" in evidence
    keeps = HOLDS if min(images + data) > 0 else FAILS if max(images + data) < 0 else OPEN
    claim = "a search along that line works without much loss"
    verdict, evidence = JUDGES[claim](search, public, authors)
    assert verdict == keeps
    assert "of the line over the grid: -3.0% (-5.0 to -1.0; -5.0 to -1.0)" in evidence
    assert "of the 0.26 points of ECE that the grid takes off" in evidence
    assert "gives back +0.04 (+0.01 to +0.12), on 20 networks of paper 1" in evidence
