"""Which networks trained here count."""

from __future__ import annotations

from experiments.claims.networks import fitted
from tests.experiments.claims.made_values import JUDGES, training_errors


def test_a_network_fits_if_its_training_error_is_small_with_every_loss():
    errors = training_errors({"a, b": 4.9, "c, d": 5.1}, "FL-3", "Brier")
    assert fitted(errors, "FL-3") == {"a, b": [4.9]}
    assert fitted(errors, "FL-3", "Brier") == {"a, b": [4.9, 4.9]}
    assert fitted(errors | {"a, b, Brier: training error %": 5.0}, "FL-3", "Brier") == {}
    assert fitted(errors, "FL-3", "FLA-53") == {}
    assert fitted(errors, "FL-3", epoch=", last epoch") == {}


def of_texts(name, training_error, temperature):
    """Values of one network with FLA-53 and cross-entropy."""
    values = training_errors({name: training_error}, "FLA-53", "cross-entropy")
    values |= {f"{name}, {loss}: T by ECE": temperature for loss in ("FLA-53", "cross-entropy")}
    return values | {"networks trained here": 1}


def test_long_runs_take_the_place_of_short_ones():
    places = ("fashion-mnist, resnet8", "svhn, resnet8")
    short = of_texts(places[0], 1.0, 0.5) | of_texts(places[1], 1.0, 0.5)
    long = [of_texts(place, 2.0, 1.0) for place in places]
    judge = JUDGES["the optimal T of focal losses is near 1"]
    _, evidence = judge(short, *long, {})
    assert "2 of 2 (16% to 100%) fitted networks, on 2 of 2 data sets (1.0, 1.0; " in evidence
    assert "resnet8 2.0 / 2.0%; svhn" in evidence
    # Of a network whose long runs lack a loss the short ones are not used; of others they are.
    cut = {name: value for name, value in long[1].items() if "FLA-53: training" not in name}
    evidence = judge(short, long[0], cut, {})[1]
    assert "1 of 1 (3% to 100%) fitted networks, on 1 of 1 data sets (1.0; " in evidence
    other = of_texts("svhn, resnet20", 1.0, 0.5)
    _, evidence = judge(short | other, *long, {})
    assert "2 of 3 (9% to 99%) fitted networks, on 2 of 2 data sets (0.5, 1.0, 1.0; " in evidence
    assert "none fits" in judge({}, {}, {}, {})[1]
