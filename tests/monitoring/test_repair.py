"""The smallest repair is the one that the samples ask for."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibrators.data import FitData
from calibrant.monitoring.repair import Offset, smallest_repair


def stated(n: int, k: int, change: str, seed: int = 0) -> FitData:
    """Samples whose stated log-probabilities differ from the truth in one way."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n, k))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    if change == "offset":
        logits[:, 1] += 0.7
    elif change == "temperature":
        logits *= 1.6
    elif change == "fit":
        logits = np.where(logits == logits.max(axis=1, keepdims=True), logits + 2.0, 2.0 * logits)
    return FitData(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True), labels, None)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("change", ["nothing", "offset", "temperature"])
def test_each_change_has_its_repair(k, change):
    found = smallest_repair(stated(4000, k, change))
    assert found.name == change
    assert found.n == 4000
    assert [each.name for each in found.candidates] == ["offset", "temperature", "fit"]
    if change == "temperature":
        assert found.temperature == pytest.approx(1.6, rel=0.1)
    if change == "offset":
        factors = np.array(found.factors)
        np.testing.assert_allclose(factors[0] / factors[1], np.exp(0.7), rtol=0.15)
    assert (found.gain > 0) == (change != "nothing")


def test_a_new_fit_if_nothing_simpler_will_do():
    found = smallest_repair(stated(4000, 4, "fit"))
    assert found.name == "fit"
    assert found.method is not None


def test_few_samples_support_nothing():
    assert smallest_repair(stated(19, 3, "offset")).name == "nothing"


def test_an_offset_makes_mean_probabilities_rates():
    data = stated(3000, 5, "offset")
    probs = np.exp(Offset.fit(data).log_probs(data.logits))
    rates = np.bincount(data.labels, minlength=5) / 3000
    np.testing.assert_allclose(probs.mean(axis=0), rates, atol=1e-3)


def test_an_offset_of_a_class_without_samples_is_finite():
    data = stated(300, 3, "nothing")
    only = data.labels < 2
    found = Offset.fit(FitData(data.logits[only], data.labels[only], None))
    assert np.isfinite(found.bias).all()
    assert np.exp(found.log_probs(data.logits[only])).mean(axis=0)[2] < 0.05
