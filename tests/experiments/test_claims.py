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
                f"{name}: points of ECE that the map adds": (low + high) / 2,
                f"{name}: low end of its interval": low,
                f"{name}: high end of its interval": high,
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
        f"{name}: points of ECE that the map adds": (low + high) / 2,
        f"{name}: low end of its interval": low,
        f"{name}: high end of its interval": high,
        f"{name}: training error %": training_error,
        "TS_FL: cifar10-jpeg, resnet8, 4499 images: points of ECE that the map adds": 0.0,
    }
    assert JUDGES["the map hurts on CIFAR10-s, a tenth of each class"](values)[0] == expected


@pytest.mark.parametrize(
    ("claim", "paradigm"),
    [
        ("the map lowers the error after TS_FL", "TS_FL"),
        ("the map lowers the error after label smoothing", "LS"),
    ],
)
def test_the_map_after_scaling_or_smoothing(claim, paradigm):
    def panels(*titles, low=-2.0, high=-1.0):
        values = {"Standard: other: points of ECE that the map adds": 1.0}
        for title in titles:
            name = f"{paradigm}: {title}"
            values |= {
                f"{name}: points of ECE that the map adds": (low + high) / 2,
                f"{name}: low end of its interval": low,
                f"{name}: high end of its interval": high,
            }
        return values

    one, two = panels("a, resnet8, 5 images"), panels("b, resnet8, 5 images")
    same = panels("a, resnet8, 9 images")
    judge = JUDGES[claim]
    assert judge(one | two)[0] == HOLDS
    assert judge(one | same)[0] == OPEN  # two sizes, but one network and data set
    assert judge(one | two | panels("b, resnet8, 9 images", high=1.0))[0] == OPEN
    assert judge(one | two | panels("b, resnet8, 9 images", low=1.0, high=2.0))[0] == PARTLY


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
    ("claim", "first", "second", "of_digits"),
    [
        (
            "focal loss calibrates better than cross-entropy before temperature scaling",
            "FL-3",
            "cross-entropy",
            "+6.4 ± 2.0",
        ),
        ("FLA-53 beats the Brier loss before temperature scaling", "FLA-53", "Brier", "8.5% aga"),
        (
            "FLA-53 beats MMCE before temperature scaling",
            "FLA-53",
            "MMCE, published",
            "8.5% against 2.0%",
        ),
        ("FLA-53 beats a fixed gamma", "FLA-53", "FL-3", "8.5% against 2.0%"),
    ],
)
def test_a_loss_is_compared_on_fitted_networks(
    claim, first, second, of_digits, smaller, larger, expected
):
    networks = training_errors(FIT, first, second)
    networks |= training_errors({"does not, fit": 20.0}, first)
    networks |= training_errors({"does not, fit": 1.0}, second)
    sides = [(-2, -1)] * smaller + [(1, 2)] * larger + [(-1, 1)] * 8
    for place, (low, high) in zip([*PLACES, "does not, fit"], [*sides[:8], (1, 2)], strict=True):
        name = f"{place}: ECE % before T, {first} minus {second}"
        networks |= {name: (low + high) / 2, f"{name}, low": low, f"{name}, high": high}
    difference = f"{first} minus {second}: ECE %"
    digits = {difference: 6.4, f"{difference}, half interval": 2.0}
    digits |= {f"{second}: ECE %": 2.0, f"{first}: ECE %": 8.5}
    verdict, evidence = JUDGES[claim](networks, {}, {}, digits)
    assert verdict == expected
    assert of_digits in evidence
    assert f"of all 9 networks on {smaller} and {larger + 1}" in evidence


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
    claim = "focal losses keep sure predictions after temperature scaling"
    assert JUDGES[claim](values, {}, {})[0] == expected


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


def gains(family, name, images, data=None):
    """A gain with the intervals of resampled images and data sets."""
    values = {f"{family}: networks": 20, f"{family}: {name}": sum(images) / 2}
    for of, ends in (("95%", images), ("data sets resampled,", data or images)):
        values |= {f"{family}: {name}: {of} from": ends[0], f"{family}: {name}: {of} to": ends[1]}
    return values


GAIN = "gain in ECE of focal temperature over temperature, %"


@pytest.mark.parametrize(
    ("images", "data", "expected"),
    [((5, 9), (2, 9), HOLDS), ((5, 9), (-1, 9), OPEN), ((-9, -5), (-9, -5), FAILS)],
)
def test_a_gain_must_outlast_other_images_and_other_data_sets(images, data, expected):
    values = {"predictions changed by any method": 0}
    for family in ("CIFAR-10", "CIFAR-100", "All"):
        values |= gains(family, GAIN, images, data)
    claim = "focal temperature scaling beats temperature scaling in ECE at equal accuracy"
    assert JUDGES[claim](values)[0] == expected
    choice = gains("All", "gain in ECE of choosing by ECE over NLL, temperature, %", images, data)
    claim = "T selected by ECE has a smaller ECE than T selected by NLL"
    authors = {}
    for family in ("FLSD-53, CIFAR-10", "Brier, CIFAR-10", "Brier, CIFAR-100"):
        name = "gain in AdaECE of choosing by it over NLL, temperature, %"
        authors |= gains(family, name, (-9, -5))  # they are shown and do not count
    verdict, evidence = JUDGES[claim](choice, authors)
    assert verdict == expected
    assert "Brier, CIFAR-100 -7.0% (-9.0 to -5.0)" in evidence


@pytest.mark.parametrize(
    ("data", "expected"), [((5, 20), HOLDS), ((-18, -4), FAILS), ((-5, 5), OPEN)]
)
def test_a_choice_is_judged_by_both_methods_over_data_sets(data, expected):
    name = "gain in ECE of choosing by ECE over NLL, {}, %"
    public, here = {}, {}
    for method in ("focal temperature", "temperature"):
        public |= gains("All", name.format(method), (10, 25), data)
        here |= gains("all", name.format(method), (-9, -5))
    claim = "choosing by ECE gains about 20% over choosing by NLL"
    assert JUDGES[claim](public, here)[0] == expected


@pytest.mark.parametrize(
    ("against", "expected"),
    [("", HOLDS), ("0a 0b", OPEN), ("0a 1a 2a 3a 4a 5a", FAILS), ("0b 1b", OPEN)],
)
def test_networks_on_the_same_data_are_one(against, expected):
    values = {
        f"data {place[0]}, {place[1]}: steps from ce, fl-3, fl-5, fl-7 at which T does not fall": (
            2 * (place in against.split())
        )
        for place in ("0a", "1a", "2a", "3a", "4a", "5a", "0b", "1b")
    }
    verdict, evidence = JUDGES["the optimal T falls as the gamma of training grows"](values)
    assert verdict == expected
    assert f"{24 - 2 * len(against.split())} of 24 steps of 8 networks" in evidence


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
def test_a_line_must_be_straight_and_keep_the_gain(straight, images, data, expected):
    line, search = {"data sets": 9}, {}
    name = "gain in ECE of the line over temperature, %"
    search[name] = sum(images) / 2
    for of, ends in (("95%", images), ("data sets resampled,", data)):
        search |= {f"{name}: {of} from": ends[0], f"{name}: {of} to": ends[1]}
    for choice in ("ECE", "NLL"):
        name = f"R² of T over gamma, T chosen by {choice}"
        line |= {
            f"{name}: data sets with a median from 0.95 on": straight,
            f"{name}: median": 0.98,
        }
        for part in ("validation", "test"):
            search[f"line against grid by {choice}: loss on {part}, %"] = 2.0
    public = gains("All", GAIN, (10, 18), (3, 17))
    claim = "T and the gamma of the map lie close to a line"
    assert JUDGES[claim](line, search, public)[0] == expected
    keeps = HOLDS if min(images + data) > 0 else FAILS if max(images + data) < 0 else OPEN
    assert JUDGES["a search along that line keeps the gain"](search, public)[0] == keeps


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
