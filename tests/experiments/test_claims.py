"""Verdicts on the papers' claims follow from the published values, and can go either way."""

from __future__ import annotations

import pytest

from experiments.claims import CLAIMS
from experiments.claims.networks import fitted
from experiments.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    PARTLY,
    UNTESTED,
    by_counts,
    by_interval,
    by_panels,
    by_parts,
    by_sources,
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


def training_errors(errors, *losses, epoch=""):
    """A training error for each network, the same with each loss."""
    return {
        f"{place}, {loss}: training error %{epoch}": error
        for place, error in errors.items()
        for loss in losses
    }


PLACES = [f"data {i}, network" for i in range(8)]
FIT = dict.fromkeys(PLACES, 1.0)


def test_a_network_fits_if_its_training_error_is_small_with_every_loss():
    errors = training_errors({"a, b": 4.9, "c, d": 5.1}, "FL-3", "Brier")
    assert fitted(errors, "FL-3") == {"a, b": [4.9]}
    assert fitted(errors, "FL-3", "Brier") == {"a, b": [4.9, 4.9]}
    assert fitted(errors | {"a, b, Brier: training error %": 5.0}, "FL-3", "Brier") == {}
    assert fitted(errors, "FL-3", "FLA-53") == {}
    assert fitted(errors, "FL-3", epoch=", last epoch") == {}


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


def between(name, low, high):
    """A published value with its interval."""
    return {name: (low + high) / 2, f"{name}, low": low, f"{name}, high": high}


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
    ("smaller", "larger", "expected"), [(6, 0, HOLDS), (0, 6, FAILS), (3, 5, PARTLY), (1, 1, OPEN)]
)
@pytest.mark.parametrize(
    ("first", "second", "named", "stage"),
    [
        ("FL-3", "cross-entropy", "cross-entropy", "before"),
        ("FLA-53", "cross-entropy", "cross-entropy", "before"),
        ("FLA-53", "cross-entropy", "cross-entropy", "after"),
        ("FLA-53", "Brier", "the Brier loss", "before"),
        ("FLA-53", "Brier", "the Brier loss", "after"),
        ("FLA-53", "MMCE, published", "MMCE", "before"),
        ("FLA-53", "MMCE, published", "MMCE", "after"),
        ("FLA-53", "FL-3", "FL-3", "before"),
    ],
)
def test_a_loss_is_compared_on_fitted_networks(
    first, second, named, stage, smaller, larger, expected
):
    claim = f"{first} beats {named} {stage} temperature scaling"
    of_digits = "+6.4 ± 2.0" if second == "cross-entropy" else "8.5% against 2.0%"
    error = {"before": "ECE %", "after": "ECE % after T"}[stage]
    networks = training_errors(FIT, first, second)
    networks |= training_errors({"does not, fit": 20.0}, first)
    networks |= training_errors({"does not, fit": 1.0}, second)
    sides = [(-2, -1)] * smaller + [(1, 2)] * larger + [(-1, 1)] * 8
    for place, (low, high) in zip([*PLACES, "does not, fit"], [*sides[:8], (1, 2)], strict=True):
        networks |= between(f"{place}: ECE % {stage} T, {first} minus {second}", low, high)
    difference = f"{first} minus {second}: {error}"
    digits = {difference: 6.4, f"{difference}, half interval": 2.0}
    digits |= {f"{second}: {error}": 2.0, f"{first}: {error}": 8.5}
    verdict, evidence = JUDGES[claim](networks, {}, {}, digits)
    assert verdict == expected
    assert of_digits in evidence
    assert f"of all 9 networks on {smaller} and {larger + 1}" in evidence


def test_the_other_gammas_stand_beside_gamma_3():
    losses = ("FLA-53", "FL-1", "FL-2", "FL-3")
    values = training_errors({"a, b": 1.0, "c, d": 2.0, "e, f": 20.0}, *losses)
    for place, errors in (("a, b", (3, 1, 2, 3)), ("c, d", (3, 2, 4, 3)), ("e, f", (3, 1, 1, 1))):
        names = [f"{place}, {loss}: ECE % before T" for loss in losses]
        values |= dict(zip(names, errors, strict=True))
        values |= between(f"{place}: ECE % before T, FLA-53 minus FL-3", -1.0, 1.0)
    digits = {"FLA-53: ECE %": 3.0, "FL-3: ECE %": 3.0}
    claim = "FLA-53 beats FL-3 before temperature scaling"
    assert JUDGES[claim](values, {}, {}, digits)[1].endswith(
        "of the 2 fitted networks with every gamma FL-1 has a smaller ECE than FLA-53 on 2 "
        "(a, b; c, d), FL-2 on 1 (a, b)"
    )


@pytest.mark.parametrize(("best", "expected"), [(8, HOLDS), (0, FAILS), (5, OPEN)])
def test_the_best_gamma_is_the_one_with_the_smallest_error(best, expected):
    tables = {"partly, run, FL-3: ECE % before T": 1.0}
    for i, place in enumerate([*PLACES, "does not, fit"]):
        errors = (3.0, 2.0, 1.0) if i < best else (1.0, 2.0, 3.0)
        losses = ("FL-1", "FL-2", "FL-3")
        names = [f"{place}, {loss}: ECE % before T" for loss in losses]
        tables |= dict(zip(names, errors, strict=True))
        tables |= training_errors({place: 1.0 if place in PLACES else 20.0}, *losses)
    digits = {f"FL-{gamma}: ECE %": gamma for gamma in (1, 2, 3)}
    claim = "3 is the best fixed gamma of 1, 2 and 3"
    assert JUDGES[claim](tables, {}, {}, digits)[0] == expected


@pytest.mark.parametrize(("more", "expected"), [(8, HOLDS), (0, FAILS), (5, OPEN)])
def test_sure_predictions_are_compared_after_scaling(more, expected):
    values = training_errors(FIT, "FLA-53", "cross-entropy")
    for i, place in enumerate(PLACES):
        for by in ("ECE", "NLL"):
            values[f"{place}, FLA-53: S99 %, after T by {by}"] = 3.0 if i < more else 1.0
            values[f"{place}, cross-entropy: S99 %, after T by {by}"] = 2.0
    name = "S99 after T by ECE: FLA-53 has significantly {} than cross-entropy"
    values |= {"networks trained here": 9, name.format("more"): 1, name.format("fewer"): 2}
    claim = "focal losses keep sure predictions after temperature scaling"
    verdict, evidence = JUDGES[claim](values, {}, {})
    assert verdict == expected
    assert evidence.endswith("of the 9 short runs significantly more on 1, fewer on 2")


@pytest.mark.parametrize(("within", "expected"), [(8, HOLDS), (0, FAILS), (5, OPEN)])
def test_a_temperature_near_one_is_between_0_9_and_1_1(within, expected):
    values = training_errors(FIT, "FLA-53", "cross-entropy")
    for i, place in enumerate(PLACES):
        values[f"{place}, FLA-53: T by ECE"] = 1.0 if i < within else 0.5
        values[f"{place}, cross-entropy: T by ECE"] = 2.0
    values["does not, fit, FLA-53: T by ECE"] = 1.0
    authors = {"CIFAR-10, ResNet 50, FLA-53: T by ECE": 1.1, "other, Brier: T by ECE": 1.0}
    verdict, evidence = JUDGES["the optimal T of focal losses is near 1"](values, {}, {}, authors)
    assert verdict == expected
    assert f"of all networks trained here FLA-53 on {within + 1} of 9" in evidence
    assert evidence.endswith("on CIFAR-10, which do not count, on 1 of 1")


def of_texts(name, training_error, temperature):
    """Values of one network with FLA-53 and cross-entropy."""
    values = training_errors({name: training_error}, "FLA-53", "cross-entropy")
    values |= {f"{name}, {loss}: T by ECE": temperature for loss in ("FLA-53", "cross-entropy")}
    return values | {"networks trained here": 1}


def test_long_runs_on_texts_take_the_place_of_short_ones():
    places = ("20newsgroups, text-cnn", "sst-binary, tree-lstm")
    short = of_texts(places[0], 1.0, 0.5) | of_texts(places[1], 1.0, 0.5)
    long = [of_texts(place, 2.0, 1.0) for place in places]
    judge = JUDGES["the optimal T of focal losses is near 1"]
    _, evidence = judge(short, *long, {})
    assert "2 of 2 (16% to 100%) fitted networks (1.0, 1.0; training errors: 20news" in evidence
    assert "text-cnn 2.0 / 2.0%; sst-binary" in evidence
    # Of a network whose long runs are missing the short ones are not used.
    assert "1 of 1 (3% to 100%) fitted networks" in judge(short, long[0], {}, {})[1]
    _, evidence = judge(short, {}, {}, {})
    assert "0 of 0 (0% to 100%) fitted networks (; none fits)" in evidence


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
    [((0.99, 0.98, 0.97, 0.96), HOLDS), ((0.99, 0.98, 0.97, 0.94), FAILS), ([0.9] * 4, FAILS)],
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


def gains(family, name, images, data=None):
    """A gain with the intervals of resampled images and data sets."""
    values = {f"{family}: networks": 20, f"{family}: {name}": sum(images) / 2}
    for of, ends in (("95%", images), ("data sets resampled,", data or images)):
        values |= {f"{family}: {name}: {of} from": ends[0], f"{family}: {name}: {of} to": ends[1]}
    return values


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
    [((5, 9), (2, 9), HOLDS), ((5, 9), (-1, 9), OPEN), ((-9, -5), (-9, -5), FAILS)],
)
def test_t_by_ece_is_compared_with_t_by_nll(images, data, expected):
    choice = gains("All", "gain in ECE of choosing by ECE over NLL, temperature, %", images, data)
    claim = "T selected by ECE has a smaller ECE than T selected by NLL"
    authors = {"T by ECE better than T by NLL": 7, "networks": 12}
    for family in ("FLA-53, CIFAR-10", "Brier, CIFAR-10", "Brier, CIFAR-100"):
        # They are shown and do not count.
        authors |= {f"{family}: mean ECE %, T by {by}": e for by, e in (("ECE", 2), ("NLL", 1))}
    verdict, evidence = JUDGES[claim](choice, authors)
    assert verdict == expected
    assert "Brier, CIFAR-100 2.00% by ECE and 1.00% by NLL; ECE is the better choice" in evidence


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
def test_a_line_must_be_straight_and_keep_a_gain(straight, images, data, expected):
    line, search, trained = {"data sets": 9}, {}, {"all: networks": 72, **TRAINED}
    over = {"temperature": (images, data), "the grid": ((-5, -1), (-5, -1))}
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
    claim = "a search along that line still beats temperature scaling"
    verdict, evidence = JUDGES[claim](search, public, authors)
    assert verdict == keeps
    assert "of the line over the grid: -3.0% (-5.0 to -1.0; -5.0 to -1.0)" in evidence
    assert "of the 0.26 points of ECE that the grid takes off" in evidence
    assert "gives back +0.04 (+0.01 to +0.12), on 20 networks of paper 1" in evidence


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


def test_every_verdict_says_its_rule():
    assert all(claim.rule for claim in CLAIMS)
    assert len(JUDGES) == len(CLAIMS)
