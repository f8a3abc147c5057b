"""The synthetic data of the experiment, and how its runs are counted."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.synthetic_posterior.data import Normals
from experiments.synthetic_posterior.run import values


def test_the_synthetic_posterior_is_that_of_its_densities():
    data = Normals((-2.0, 0.0, 2.0))
    x = np.linspace(-10.0, 10.0, 2001)
    assert np.trapezoid(data.joint(x).sum(axis=1), x) == pytest.approx(1.0, abs=1e-6)
    inputs, labels = data.draw(200_000, np.random.default_rng(0))
    near = np.abs(inputs - 1.0) < 0.05
    shares = np.bincount(labels[near], minlength=3) / near.sum()
    np.testing.assert_allclose(shares, data.posterior(np.array([1.0]))[0], atol=0.02)


def test_runs_against_the_paper_are_counted():
    def numbers(kl, ece):
        return (20.0, kl, ece, 0.1, 90.0)

    found = {
        (0.0, "raw"): [numbers(0.001, 1.0), numbers(0.001, 1.0)],
        (1.0, "raw"): [numbers(0.1, 9.0), numbers(0.0005, 9.0)],
        (1.0, "temperature"): [numbers(0.01, 3.0), numbers(0.01, 1.0)],
        (1.0, "map"): [numbers(0.002, 1.0), numbers(0.02, 2.0)],
    }
    named = values(found)
    assert named["runs whose KLD or ECE does not grow with gamma"] == 1
    assert named["runs whose KLD is not smaller after the map than after a temperature"] == 1
    assert named["runs whose ECE is not smaller after the map than after a temperature"] == 1
    assert named["KLD, gamma 1, map"] == pytest.approx(0.011)
