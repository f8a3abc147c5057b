"""Thresholds, the bias of a row, and gamma for a threshold, against the oracle and the papers."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from mpmath import mp, mpf

from calibrant.focal import (
    confidence_bias,
    confidence_thresholds,
    gamma_for_threshold,
    phi,
)
from tests.reference import focal_mpmath as oracle


@pytest.mark.parametrize(
    ("gamma", "tau_oc", "tau_uc"),
    [
        (0.5, 0.161288, 0.421457),
        (1, math.exp(-2), math.exp(-1)),
        (2, 0.104058, 0.297637),
        (3, 0.085461, 0.252584),
        (5, 0.063876, 0.196803),
        (7, 0.051496, 0.162902),
    ],
)
def test_printed_thresholds(gamma, tau_oc, tau_uc):
    assert confidence_thresholds(gamma=gamma) == pytest.approx((tau_oc, tau_uc), abs=5.1e-7)


@pytest.mark.parametrize("gamma", [1e-6, 0.01, 0.3, 1.0, 4.0, 50.0, 1e4])
def test_thresholds_agree_with_the_oracle(gamma):
    exact = [float(v) for v in oracle.stable(oracle.confidence_thresholds, gamma)]
    # The top of a smooth hill is known to the square root of a rounding less than its slope is.
    assert confidence_thresholds(gamma=gamma) == pytest.approx(exact, rel=1e-9)


def test_thresholds_go_to_their_limits_with_gamma():
    tau_oc, tau_uc = confidence_thresholds(gamma=1e-18)
    assert tau_oc == pytest.approx(0.2031878699799799, rel=1e-12)  # log q = -2 (1 - q)
    assert tau_uc == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("p0", "gamma"),
    [
        (0.1, 14.9240),
        (0.19, 5.3370),
        (0.2, 4.8506),
        (0.25, 3.0702),
        (0.3, 1.9572),
        (0.4, 0.6805),
        (0.45, 0.2927),
    ],
)
def test_printed_gammas(p0, gamma):
    assert gamma_for_threshold(p0) == pytest.approx(gamma, abs=5e-5)


@pytest.mark.parametrize("p0", [1e-12, 1e-3, 0.05, 0.2, 0.2499, 0.25, 0.49, 0.4999999, 0.5 - 1e-12])
def test_gamma_for_threshold_agrees_with_the_oracle(p0):
    exact = oracle.stable(oracle.gamma_for_threshold, p0)
    assert abs(mpf(gamma_for_threshold(p0)) / exact - 1) < 1e-14


def test_gamma_for_threshold_at_the_ends():
    assert gamma_for_threshold(0.5) == 0.0
    assert 0.0 < gamma_for_threshold(0.5 - 2**-54) < 1e-15
    assert math.isfinite(gamma_for_threshold(1e-300))
    with pytest.raises(ValueError, match=r"between 1e-300 and 0\.5"):
        gamma_for_threshold(1e-320)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 5.0])
def test_the_two_questions_are_each_others_inverse(gamma):
    _, tau_uc = confidence_thresholds(gamma=gamma)
    assert gamma_for_threshold(tau_uc) == pytest.approx(gamma, rel=1e-12)
    assert phi(np.array(tau_uc), gamma=gamma) == pytest.approx(1.0, rel=1e-14)


@functools.cache
def rows_and_signs(gamma: float) -> list[tuple[np.ndarray, list[mpf]]]:
    """Rows of several numbers of classes, and the sign of the bias of each by the oracle."""
    rng, found = np.random.default_rng(11), []
    for n_classes in (2, 4, 10, 200):
        rows = np.concatenate(
            [rng.dirichlet(np.full(n_classes, a), size=6) for a in (0.05, 1.0, 100.0)]
        )
        signs = []
        for row in rows:
            mapped = oracle.stable(oracle.focal_map, row.tolist(), gamma)
            with mp.workdps(60):
                total = sum(mpf(v) for v in row.tolist())
                signs.append(mp.sign(mpf(row.max()) / total - max(mapped)))
        found.append((rows, signs))
    return found


@pytest.mark.parametrize(
    "gamma", [5.0, *(pytest.param(g, marks=pytest.mark.slow) for g in (1e-6, 0.1, 1.0, 50.0))]
)
def test_bias_has_the_sign_of_the_oracle(library, gamma):
    for rows, signs in rows_and_signs(gamma):
        said = library.numpy(confidence_bias(library.make(rows), gamma=gamma))
        assert said.tolist() == signs


def test_bias_is_zero_where_the_map_is_still(library):
    rows = np.array([[0.25] * 4, [0, 0.5, 0.5, 0], [0, 0, 1, 0], [1 / 3, 1 / 3, 0, 1 / 3]])
    assert not library.numpy(confidence_bias(library.make(rows), gamma=3.0)).any()
    random = np.random.default_rng(0).dirichlet(np.ones(4), size=5)
    assert not library.numpy(confidence_bias(library.make(random), gamma=0.0)).any()


def test_bias_of_a_row_that_is_nearly_one_hot():
    rows = np.array([[1.0, 1e-300, 1e-308], [1.0, 0.0, 5e-324]])
    np.testing.assert_array_equal(confidence_bias(rows, gamma=2.0), [-1, -1])


@pytest.mark.parametrize("n_classes", [2, 3, 5, 10, 100])
@pytest.mark.parametrize("gamma", [0.05, 0.5, 2.0])
def test_bias_of_a_row_that_is_nearly_uniform(n_classes, gamma):
    """One class lower than the rest by some roundings: phi(1/K) rising or falling decides."""
    for roundings in (1, 7, 300, 10**6, 10**9):
        row = np.full(n_classes, 1.0 / n_classes)
        row[-1] -= roundings * np.spacing(row[-1])
        mapped = oracle.stable(oracle.focal_map, row.tolist(), gamma)
        with mp.workdps(60):
            total = sum(mpf(v) for v in row.tolist())
            expected = mp.sign(mpf(row.max()) / total - max(mapped))
        assert confidence_bias(row, gamma=gamma) == expected
