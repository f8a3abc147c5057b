"""Finite masks of any size, and numbers that are none, in the searches for a temperature."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant import FocalTemperatureScaling, TemperatureScaling
from calibrant.calibrators.temperature.grid_pruning import Point
from calibrant.calibrators.temperature.interpolated_errors import mass_error, width_error

pytestmark = pytest.mark.filterwarnings("ignore::calibrant.calibrators.CalibrationWarning")

SOURCE = Path(calibrant.__file__).parent
MASKS = [-1e38, -1e39, -1e100, -1e300, float(np.finfo(np.float64).min)]


def masked(mask, n=300, n_classes=5):
    """Over-confident samples, one of which has every class but its own at ``mask``."""
    rng = np.random.default_rng(0)
    truth = 1.4 * rng.normal(size=(n, n_classes))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    logits = 1.8 * truth
    logits[7], labels[7] = mask, 2
    logits[7, 2] = 1.0
    return logits, labels


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("criterion", ["ece", "ada_ece", "nll", "brier", "focal"])
@pytest.mark.parametrize("method", [TemperatureScaling, FocalTemperatureScaling])
def test_a_finite_mask_is_as_good_as_an_absent_class(method, criterion, mask):
    logits, labels = masked(mask)
    absent = np.where(logits == mask, -np.inf, logits)
    found, expected = (method(criterion=criterion).fit(x, labels) for x in (logits, absent))
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-6)
    assert found.report_.after <= found.report_.before
    assert found.report_.after == pytest.approx(expected.report_.after, rel=1e-9)


@pytest.mark.parametrize("search", ["grid", "line", "refine"])
@pytest.mark.parametrize("mask", MASKS)
def test_no_search_ends_worse_than_it_began(search, mask):
    logits, labels = masked(mask)
    report = FocalTemperatureScaling(search=search).fit(logits, labels).report_
    assert np.isfinite(report.after)
    assert report.after <= report.before


def test_numbers_that_are_none_give_two_numbers():
    for bad in ([np.nan], [0.3, np.nan, 0.2], [np.nan] * 40, [np.inf, np.nan, -np.inf, 0.0]):
        log_odds = np.sort(bad)
        weight, edges = np.ones(len(bad)), np.linspace(0.0, len(bad), 16)
        assert len(mass_error(log_odds, weight, weight, edges, 1e-6)) == 2
        assert len(width_error(log_odds, weight, weight, edges / len(bad), 1e-6)) == 2


def test_a_criterion_that_is_no_number_is_never_compared():
    with pytest.raises(FloatingPointError, match=r"not a number at gamma = 0, T = 2"):
        Point(0.0, 2.0, float("nan"))


def compiled_functions(tree):
    """Functions with a decorator that compiles them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(
            name.id in ("njit", "over_rows", "kernel")
            for decorator in node.decorator_list
            for name in ast.walk(decorator)
            if isinstance(name, ast.Name)
        ):
            yield node


def advances(loop):
    """Whether every round of a ``while`` moves a counter that its condition bounds."""
    bounded = {
        name.id
        for test in ast.walk(loop.test)
        if isinstance(test, ast.Compare)
        for name in (test.left, *test.comparators)
        if isinstance(name, ast.Name)
    }
    leaves_early = any(isinstance(node, ast.Continue) for node in ast.walk(loop))
    return not leaves_early and any(
        isinstance(step, ast.AugAssign)
        and isinstance(step.op, ast.Add | ast.Sub | ast.RShift | ast.FloorDiv)
        and isinstance(step.value, ast.Constant)
        and isinstance(step.value.value, int)
        and isinstance(step.target, ast.Name)
        and step.target.id in bounded
        for step in loop.body
    )


def test_no_loop_of_a_kernel_depends_on_a_comparison_of_floats_alone():
    n_functions, endless = 0, []
    for path in sorted(SOURCE.rglob("*.py")):
        for function in compiled_functions(ast.parse(path.read_text())):
            n_functions += 1
            endless += [
                f"{path.relative_to(SOURCE)}:{loop.lineno} in {function.name}"
                for loop in ast.walk(function)
                if isinstance(loop, ast.While) and not advances(loop)
            ]
    assert n_functions > 50
    assert endless == []


def test_the_check_of_loops_sees_an_endless_one():
    source = """
@njit(cache=True)
def ties(values):
    i = 0
    while i < len(values):
        while values[i] - values[0] <= 0.0:
            i += 1
"""
    (function,) = compiled_functions(ast.parse(source))
    found = [loop for loop in ast.walk(function) if isinstance(loop, ast.While)]
    assert [advances(loop) for loop in found] == [False, False]
