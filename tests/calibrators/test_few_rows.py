"""Passes of a fit over few numbers are computed in NumPy: the same as compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import calibrant
from calibrant._numerics.first_use import few_up_to
from calibrant.calibrators.data import FitData
from calibrant.calibrators.row_kernels import FARTHEST
from calibrant.calibrators.temperature.grid_pruning import node_log_odds_of
from calibrant.calibrators.temperature.kernels import cross_entropy_rows
from calibrant.calibrators.temperature.rows import log_odds_of_gammas
from calibrant.calibrators.top_rest.kernels import (
    exponents_of_rest,
    rest_derivatives,
    rest_rows,
)
from tests.metrics.test_few_rows import both_ways, hostile_logits

RNG = np.random.default_rng(0)
INVERSE_TEMPERATURES = [0.01, 0.7, 1.0, 30.0]


def labels_of(logits: np.ndarray) -> np.ndarray:
    """Possible labels, of which every other one is at the top."""
    possible = np.where(np.isfinite(logits), RNG.random(logits.shape), -1.0).argmax(axis=1)
    return np.where(np.arange(len(logits)) % 2, logits.argmax(axis=1), possible)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inverse_temperature", INVERSE_TEMPERATURES)
def test_temperature_rows(dtype, inverse_temperature):
    logits = hostile_logits(dtype)
    labels = labels_of(logits)

    def rows():
        out = np.empty((4, len(logits)))
        cross_entropy_rows(logits, labels, inverse_temperature, out)
        return out

    few, many = both_ways(rows)
    np.testing.assert_allclose(few, many, rtol=1e-11, atol=1e-11 * inverse_temperature**3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inverse_temperature", INVERSE_TEMPERATURES)
def test_the_top_and_the_rest(dtype, inverse_temperature):
    logits = hostile_logits(dtype)
    labels = labels_of(logits)
    n, n_classes = logits.shape
    bias = RNG.normal(size=n_classes)
    weight = RNG.random(n)

    def rows():
        tops = np.empty(n, dtype=np.int64)
        lead, level, of_label = np.empty(n), np.empty(n), np.empty(n)
        every, out = np.arange(n), (tops, lead, level, of_label)
        rest_rows(every, every, logits, labels, inverse_temperature, 1.0, np.empty(0), *out)
        rest = np.zeros(n, dtype=np.int64), np.zeros(n), np.zeros(n), np.zeros(n)
        rest_rows(every[::2], every, logits, labels, inverse_temperature, 1.3, bias, *rest)
        x = np.empty((n, n_classes))
        exponents_of_rest(logits, inverse_temperature, tops, x)
        some = (x > FARTHEST).sum(axis=1) == n_classes  # as fits have them: all classes possible
        some &= labels != tops
        of_some = x[some], tops[some], labels[some], weight[some]
        sums = rest_derivatives.sum(*of_some, 1.3, bias)
        return tops, lead, level, of_label, *rest, x, sums

    for few, many in zip(*both_ways(rows), strict=True):
        np.testing.assert_allclose(few, many, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_fits_are_the_same(n_classes):
    logits = RNG.normal(size=(400, n_classes)) * 3
    labels = (logits / 2 + RNG.gumbel(size=logits.shape)).argmax(axis=1)
    for method in (
        calibrant.TemperatureScaling,
        calibrant.TopRestScaling,
        calibrant.AutoCalibration,
    ):

        def fitted(method=method):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return method().fit(logits=logits, labels=labels).predict_proba(logits=logits)

        few, many = both_ways(fitted)
        np.testing.assert_allclose(few, many, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_classes", [2, 3, 17, 18, 60])
def test_log_odds_of_the_search(n_classes, dtype):
    logits = (4.0 * RNG.normal(size=(60, n_classes))).astype(dtype)
    logits[0] = 0.0  # ties
    logits[1, 1:] = -np.inf  # one class
    logits[2, : n_classes // 2] = -np.inf
    logits[3] *= 60000.0
    if dtype == "float64":
        logits[4, :2] = 1.7e308, -1.7e308
    data = FitData(logits, labels_of(logits), RNG.random(len(logits)))
    gammas, nodes = np.array([-0.9, -0.5, 0.0, 1e-8, 2.0, 9.0]), np.linspace(-4.0, 4.0, 8)

    def found():
        return (
            *node_log_odds_of(data, gammas, nodes, keep=True),
            np.stack([log_odds_of_gammas(data, gammas, b) for b in INVERSE_TEMPERATURES]),
        )

    few, many = both_ways(found)
    for ours, theirs in zip(few, many, strict=True):
        tolerance = 1e-6 if ours.dtype == "float32" else 1e-11
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize("criterion", ["ece", "ada_ece"])
@pytest.mark.parametrize("search", ["grid", "line", "refine"])
def test_the_search_finds_the_same_point(criterion, search):
    logits = 3.0 * RNG.normal(size=(400, 20))
    labels = (0.6 * logits + RNG.gumbel(size=logits.shape)).argmax(axis=1)

    def point():
        method = calibrant.FocalTemperatureScaling(criterion=criterion, search=search)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the best point may be at a bound
            return method.fit(logits, labels).state_

    few, many = both_ways(point)
    assert few == pytest.approx(many, rel=1e-6)


def test_a_command_and_a_program_differ_in_what_is_few():
    from calibrant._numerics.first_use import IN_A_COMMAND, IN_A_PROGRAM, are_few

    assert are_few(IN_A_PROGRAM)
    assert not are_few(IN_A_COMMAND)
    with few_up_to(IN_A_COMMAND):
        assert are_few(IN_A_COMMAND)


@pytest.mark.slow
def test_compilation_is_announced_once(tmp_path):
    """In a new process without a cache, as on a new machine."""
    code = """
from calibrant._numerics.first_use import Announcement
import numpy as np
from calibrant.metrics import ece
Announcement.say = lambda: print("compiling")
logits = np.random.default_rng(0).normal(size=(5000, 10))
print(ece(logits=logits, labels=logits.argmax(axis=1)) > 0)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for said in (["compiling", "True"], ["True"]):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == said
