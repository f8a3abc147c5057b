"""The claims on where the focal map helps, and on the best gamma."""

from __future__ import annotations

import pytest

from experiments.verdicts import FAILS, HOLDS, OPEN, PARTLY, UNTESTED
from tests.experiments.claims.made_values import DATA, JUDGES, between


def added_by_the_map(few, many, *, training_error, finished=4):
    """Values of the map on images: an interval for each number of images, on both data sets."""
    values = {"runs": 4, "runs that finished": finished}
    for images, (low, high) in ((512, few), (8192, many)):
        for data in DATA:
            name = f"Standard: {data}, resnet8, {images} images"
            values |= {
                **between(f"{name}: points of ECE that the map adds", low, high),
                f"{name}: training error %": training_error,
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
    assert judge(added_by_the_map(few, many, training_error=1.0))[0] == expected
    # Networks that do not fit do not count; nor does half of a grid.
    assert judge(added_by_the_map(few, many, training_error=6.0))[0] == OPEN
    verdict, evidence = judge(added_by_the_map(few, many, training_error=1.0, finished=3))
    assert verdict == OPEN
    assert "only 3 of 4 runs are finished" in evidence


@pytest.mark.parametrize(
    ("low", "high", "training_error", "finished", "expected"),
    [
        (1.0, 2.0, 1.0, 8, HOLDS),
        (-2.0, -1.0, 1.0, 8, FAILS),
        (-1.0, 1.0, 1.0, 8, OPEN),
        (1.0, 2.0, 6.0, 8, UNTESTED),  # it does not fit
        (1.0, 2.0, 1.0, 7, OPEN),
    ],
)
def test_the_map_on_a_tenth_of_the_images(low, high, training_error, finished, expected):
    name = "Standard: cifar10-jpeg, resnet8, 4499 images"
    values = {
        "runs": 8,
        "runs that finished": finished,
        **between(f"{name}: points of ECE that the map adds", low, high),
        f"{name}: training error %": training_error,
        "TS_FL: cifar10-jpeg, resnet8, 4499 images: points of ECE that the map adds": 0.0,
    }
    claim = "the map hurts on CIFAR10-s, a tenth of each class (ResNet-8 here, ResNet-110 there)"
    assert JUDGES[claim](values)[0] == expected


ADDED = "points of ECE that the map adds"
RISE = "points of ECE that gamma adds without the map, the largest against the smallest"


def panels(paradigm, effect, *titles, low=1.0, high=2.0, training_error=1.0):
    """Values of panels with this interval of an effect."""
    values = {}
    for title in titles:
        name = f"{paradigm}: {title}"
        values |= between(f"{name}: {ADDED}", 5.0, 6.0)
        values |= between(f"{name}: {effect}", low, high)
        values[f"{name}: training error %"] = training_error
    return values


@pytest.mark.parametrize(
    ("claim", "paradigm", "effect", "sign"),
    [
        ("the map lowers the error after TS_FL", "TS_FL", ADDED, -1),
        ("the map lowers the error after label smoothing", "LS", ADDED, -1),
        (
            "after TS_FL or label smoothing a larger gamma is worse, without the map",
            "LS",
            RISE,
            1,
        ),
        (
            "without the map TS_FL is worse than no scaling",
            "TS_FL",
            "points of ECE that TS_FL adds without the map",
            1,
        ),
    ],
)
def test_panels_that_fit_decide(claim, paradigm, effect, sign):
    def some(*titles, low=1.0, high=2.0, **others):
        ends = sorted((sign * low, sign * high))
        return panels(paradigm, effect, *titles, low=ends[0], high=ends[1], **others)

    one, two = some("a, resnet8, 5 images"), some("b, resnet8, 5 images")
    judge = JUDGES[claim]
    assert judge(one, two)[0] == HOLDS
    assert judge(one | some("a, resnet8, 9 images"))[0] == OPEN  # one network and data set
    assert judge(one | two, some("b, resnet8, 9 images", low=-1.0))[0] == OPEN
    assert judge(one | two, some("b, resnet8, 9 images", low=-2.0, high=-1.0))[0] == PARTLY
    assert judge(some("a, resnet8, 5 images", low=-2.0, high=-1.0), two)[0] == PARTLY
    # Networks that do not fit are shown, and decide nothing.
    unfit = some("c, resnet8, 5 images", low=-2.0, high=-1.0, training_error=30.0)
    verdict, evidence = judge(one | two | unfit)
    assert verdict == HOLDS
    assert "c, resnet8, 5 images" in evidence
    assert (
        judge(some("a, resnet8, 5 images", "b, resnet8, 5 images", training_error=30.0))[0] == OPEN
    )
    # Nor does half of a grid.
    runs = {"runs": 4, "runs that finished": 3}
    assert judge(one | runs, two)[0] == judge(one, two | runs)[0] == OPEN


@pytest.mark.parametrize(
    ("larger", "smaller", "expected"),
    [((3, 4), (1, 2), HOLDS), ((1, 2), (3, 4), FAILS), ((1, 3), (2, 4), OPEN)],
)
def test_the_map_on_a_larger_network(larger, smaller, expected):
    judge = JUDGES["the map is less effective as networks become larger"]
    values = {}
    for data in DATA:
        for network, (low, high) in (("resnet20", larger), ("resnet8", smaller)):
            title = f"{data}, {network}, 2048 images"
            values |= panels("Standard", ADDED, title, low=low, high=high, training_error=30.0)
    assert judge(values)[0] == expected
    assert judge({name: v for name, v in values.items() if DATA[0] in name})[0] == OPEN


def best_gammas(panel, gammas, data=DATA):
    best = "gamma with the smallest ECE without the map"
    values = {f"Standard: {each}, {panel}: points of ECE that the map adds": 0.0 for each in data}
    return values | {
        f"Standard: {each}, {panel}: {best}, seed {seed}": gamma
        for each in data
        for seed, gamma in enumerate(gammas)
    }


SAME_STEPS = {"fewest steps of a run": 512, "most steps of a run": 512}


@pytest.mark.parametrize(
    ("claim", "panels"),
    [
        (
            "larger networks need a larger gamma",
            ("resnet20, 2048 images", "resnet8, 2048 images"),
        ),
        ("fewer data need a larger gamma", ("resnet8, 512 images", "resnet8, 8192 images")),
    ],
)
def test_the_best_gamma_is_compared_seed_by_seed(claim, panels):
    larger, smaller = panels
    judge = JUDGES[claim]

    def judged(first, second, **others):
        values = best_gammas(larger, first, **others) | best_gammas(smaller, second, **others)
        return judge(SAME_STEPS | values)

    assert judged([3, 3, 3], [0, 1, 0])[0] == HOLDS
    assert judged([0, 1, 0], [3, 3, 3])[0] == FAILS
    verdict, evidence = judged([3, 3, 1], [1, 1, 2])
    assert verdict == OPEN
    assert "3, 3, 1 against 1, 1, 2, difference -3.3 to +5.3" in evidence
    assert judged([3, 3, 3], [0, 1, 0], data=DATA[:1])[0] == OPEN  # one data set
    assert judged([3], [0])[0] == OPEN  # one seed


def test_the_same_difference_of_every_seed_is_still_uncertain():
    """Whole gammas hide what is between them."""
    values = SAME_STEPS | best_gammas("resnet8, 512 images", [1] * 3)
    values |= best_gammas("resnet8, 8192 images", [0] * 3)
    verdict, evidence = JUDGES["fewer data need a larger gamma"](values)
    assert verdict == OPEN
    assert "difference -0.0 to +2.0" in evidence


def test_fewer_data_are_not_compared_at_other_numbers_of_steps():
    values = best_gammas("resnet8, 512 images", [3] * 3) | best_gammas("resnet8, 9 images", [0] * 3)
    judge = JUDGES["fewer data need a larger gamma"]
    for steps in ({"fewest steps of a run": 320, "most steps of a run": 504}, {}):
        verdict, evidence = judge(values | steps)
        assert verdict == OPEN
        assert "the number of steps differs" in evidence


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
    claim = "the map helps on tables with many rows and hurts where few are overfitted"
    assert JUDGES[claim](values)[0] == expected


@pytest.mark.parametrize(("worse", "expected"), [(60, HOLDS), (3, FAILS), (32, OPEN)])
def test_focal_loss_must_be_worse_on_most_tables(worse, expected):
    values = {"data sets": 63}
    for setting in ("MLP, stopped", "MLP, to the end"):
        values[f"{setting}, FL-3: data sets with a larger ECE than CE"] = worse
    claim = "on most data sets focal loss is worse than cross-entropy"
    assert JUDGES[claim](values)[0] == expected


@pytest.mark.parametrize(
    ("change", "expected"), [((-6, -3), HOLDS), ((1, 2), FAILS), ((-1, 1), OPEN)]
)
def test_the_map_must_lower_the_error_on_tables(change, expected):
    values = {}
    for setting in ("MLP, stopped", "MLP, to the end"):
        name = f"{setting}, FL-3"
        values |= {
            f"{name}: mean ECE with map minus that of CE, %": 0.8,
            f"{name}: low end of the change by the map, %": change[0],
            f"{name}: high end of the change by the map, %": change[1],
        }
    assert JUDGES["the map corrects that"](values)[0] == expected
