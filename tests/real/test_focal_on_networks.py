"""The map on the logits of real networks."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.focal import focal_log_probs, focal_map, inverse_focal_map

GAMMAS = (-0.5, 0.0, 0.5, 3.0)


def test_the_map_on_every_network(shared_data):
    files = sorted((shared_data / "logits").glob("*.npz"))
    assert files
    for file in files:
        with np.load(file) as arrays:
            logits = arrays["test_logits"][:500]
        for gamma in GAMMAS:
            said = focal_log_probs(logits, gamma=gamma, temperature=1.7)
            assert np.isfinite(said).all(), file.name
            np.testing.assert_array_equal(said.argmax(-1), logits.argmax(-1))
            np.testing.assert_allclose(np.exp(said).sum(-1), 1.0, rtol=2e-5)


def test_the_inverse_on_classical_models(shared_data):
    """Random forests and boosting: exact zeros and ones among the probabilities."""
    files = sorted((shared_data / "probs").glob("*.npz"))
    assert files
    for file in files:
        with np.load(file) as arrays:
            probs = arrays["test_probs"][:300].astype(np.float64)
        probs /= probs.sum(-1, keepdims=True)
        output = inverse_focal_map(probs, gamma=3.0)
        np.testing.assert_allclose(focal_map(output, gamma=3.0), probs, rtol=1e-12)


@pytest.mark.parametrize("name", ["c100_resnet20", "imagenet5k_effnet_lite0_f16"])
def test_float32_agrees_with_float64(shared_data, name):
    with np.load(shared_data / "logits" / f"{name}.npz") as arrays:
        logits = arrays["test_logits"][:200]
    wide = focal_log_probs(logits.astype(np.float64), gamma=2.0)
    narrow = focal_log_probs(logits, gamma=2.0)
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, rtol=48 * 1.2e-7, atol=48 * 1.2e-7)
