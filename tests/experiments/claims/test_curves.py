"""The claims on the course of training."""

from __future__ import annotations

import pytest

from experiments.verdicts import FAILS, HOLDS, OPEN, UNTESTED
from tests.experiments.claims.made_values import FIT, JUDGES, PLACES, training_errors


def rises(*runs, loss="cross-entropy"):
    """Runs as: rise of the NLL, part of it from mistakes, rise of that of correct samples."""
    names = (
        "rise of the test NLL after its lowest epoch",
        "part of that rise from mistakes",
        "rise of the mean NLL of correct samples",
    )
    values = {
        f"data {i}, network, {loss}: {name}": value
        for i, run in enumerate(runs)
        for name, value in zip(names, run, strict=True)
    }
    errors = {f"data {i}, network": 1.0 for i in range(len(runs))}
    return values | training_errors(errors, "cross-entropy", epoch=", last epoch")


def test_a_rise_is_of_mistakes_alone_where_correct_samples_fall():
    judge = JUDGES["late in training the test NLL rises only through the mistakes"]
    alone = (0.1, 1.2, -0.1)
    assert judge(rises(*[alone] * 6))[0] == HOLDS
    assert judge(rises(*[(0.1, 0.5, 0.1)] * 6))[0] == FAILS
    assert judge(rises(*[(0.1, 0.95, 0.01)] * 6))[0] == FAILS
    assert judge(rises(*[(0.001, -5.0, 0.1)] * 6, *[alone] * 6))[0] == HOLDS
    assert judge(rises((0.001, 1.2, -0.1)))[0] == UNTESTED
    # Four networks are four, with however many losses; and those that do not fit are none.
    assert judge(rises(*[alone] * 4) | rises(*[alone] * 4, loss="FL-3"))[0] == OPEN
    errors = {f"data {i}, network": 20.0 for i in range(6)}
    unfit = training_errors(errors, "cross-entropy", epoch=", last epoch")
    assert judge(rises(*[alone] * 6) | unfit)[0] == UNTESTED


@pytest.mark.parametrize(
    ("early", "last", "expected"), [(1.1, 0.9, HOLDS), (0.99, 0.9, FAILS), (1.1, 1.05, FAILS)]
)
def test_norms_cross_where_the_larger_one_becomes_the_smaller(early, last, expected):
    ratio = "last-layer norm, FL-3 / cross-entropy"
    values = training_errors(FIT, "cross-entropy", "FL-3", epoch=", last epoch")
    for place in PLACES:
        values[f"{place}: {ratio}, mean of the first third"] = early
        values[f"{place}: {ratio}, last epoch"] = last
    claim = "the last layer of the focal loss is larger early and smaller late"
    assert JUDGES[claim](values)[0] == expected


def of_curves(numbers, losses=("cross-entropy", "FL-3"), places=PLACES, error=1.0):
    """Networks with the same training error after the last epoch and the same numbers."""
    errors = dict.fromkeys(places, error)
    values = training_errors(errors, *losses, epoch=", last epoch")
    return values | {f"{place}{name}": x for place in places for name, x in numbers.items()}


def two_rises(plain, focal, plain_wrong=1.0, focal_wrong=0.5):
    """Rises of the NLL with both losses, and of that of mistakes."""
    rise = "rise of the test NLL after its lowest epoch"
    wrong = "rise of the mean NLL of wrong samples"
    return {
        f", cross-entropy: {rise}": plain,
        f", FL-3: {rise}": focal,
        f", cross-entropy: {wrong}": plain_wrong,
        f", FL-3: {wrong}": focal_wrong,
    }


@pytest.mark.parametrize(
    ("plain", "focal", "expected"),
    [(0.5, 0.1, HOLDS), (0.1, 0.5, FAILS), (0.1, 0.1, FAILS), (0.01, 0.0, UNTESTED)],
)
def test_a_rise_is_smaller_only_where_there_is_one(plain, focal, expected):
    judge = JUDGES["the test NLL rises less late in training with the focal loss"]
    values = of_curves(two_rises(plain, focal))
    assert judge(values)[0] == expected
    # Networks on which it does not rise, or which do not fit, change nothing.
    others = of_curves(two_rises(0.001, 0.5), places=["flat 1, n", "flat 2, n"])
    others |= of_curves(two_rises(0.5, 0.9), places=["unfit 1, n", "unfit 2, n"], error=9.0)
    assert judge(values | others)[0] == expected


def test_a_smaller_rise_on_half_of_the_networks_decides_nothing():
    judge = JUDGES["the test NLL rises less late in training with the focal loss"]
    half = of_curves(two_rises(0.5, 0.1, focal_wrong=2.0), places=PLACES[:4])
    verdict, evidence = judge(half | of_curves(two_rises(0.1, 0.5), places=PLACES[4:]))
    assert verdict == OPEN
    assert "rises less with FL-3 on 4 of 8 (16% to 84%) fitted networks" in evidence
    assert "the mean NLL of mistakes rises less on 4" in evidence


FOUR = ("cross-entropy", "FL-1", "FL-2", "FL-3")


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [((0.99, 0.98, 0.97, 0.96), HOLDS), ((0.99, 0.98, 0.97, 0.94), FAILS), ([0.9] * 4, OPEN)],
)
def test_correct_predictions_stay_sure_with_every_loss_or_do_not(confidence, expected):
    judge = JUDGES["correct predictions stay above a confidence of 0.95 with all four losses"]
    ending = ": confidence of correct test samples, last epoch"
    numbers = {f", {loss}{ending}": x for loss, x in zip(FOUR, confidence, strict=True)}
    values = of_curves(numbers, FOUR)
    assert judge(values)[0] == expected
    # A network with two of the losses is not counted, whatever its confidence.
    two = {f", {loss}{ending}": 0.955 for loss in ("cross-entropy", "FL-3")}
    verdict, evidence = judge(values | of_curves(two, places=["two, losses"]))
    assert verdict == expected
    n_sure = 8 * (confidence[-1] > 0.95)
    assert f"FL-3 on {n_sure};" in evidence
    assert evidence.endswith(f"with FL-3 on {n_sure + 1} of all 9 networks")
    assert judge({})[0] == OPEN


@pytest.mark.parametrize(
    ("early", "late", "expected"),
    [
        (1.2, 0.5, HOLDS),
        (1.2, 1.1, FAILS),  # smaller than early, not than with cross-entropy
        (0.6, 0.8, FAILS),  # smaller than with cross-entropy, not than early
        (2.5, 0.5, FAILS),  # not alike early
        (0.4, 0.2, FAILS),
    ],
)
def test_gradient_norms_must_be_alike_early_and_smaller_late(early, late, expected):
    norm = "gradient norm, FL-3 / cross-entropy"
    medians = {f": median {norm}, early": early, f": median {norm}, late": late}
    means = {f": mean {norm}, early": 1.0, f": mean {norm}, late": 0.5}
    claim = "gradient norms are alike early and later smaller with the focal loss"
    verdict, evidence = JUDGES[claim](of_curves(medians | means))
    assert verdict == expected
    assert evidence.endswith("by mean norms on 8")


@pytest.mark.parametrize(("share", "expected"), [(1.0, HOLDS), (0.92, HOLDS), (0.85, FAILS)])
def test_the_entropy_of_mistakes_is_higher_in_nearly_every_epoch(share, expected):
    name = ": share of epochs in which FL-3 has the higher entropy of wrong test samples"
    claim = "mistakes have a consistently higher entropy with the focal loss"
    verdict, evidence = JUDGES[claim](of_curves({name: share}))
    assert verdict == expected
    assert evidence.endswith(f"in every epoch on {8 * (share == 1.0)}")
    assert JUDGES[claim](of_curves({name: share}, places=PLACES[:5]))[0] in (OPEN, FAILS)
