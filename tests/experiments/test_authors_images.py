"""The images of a figure are found in the test set by what it prints of them."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.training.datasets.cifar import CIFAR10_CLASSES
from experiments.authors_images.run import Shown, distances, printed

CAT, DOG = (CIFAR10_CLASSES.index(name) for name in ("cat", "dog"))


def probabilities(predicted: list[int], confidence: list[float]) -> np.ndarray:
    probs = np.repeat((1.0 - np.array(confidence))[:, None] / 9.0, 10, axis=1)
    probs[np.arange(len(predicted)), predicted] = confidence
    return probs


def test_the_figure_has_eight_images_with_two_losses_each():
    found = printed()
    assert list(found) == list(range(1, 9))
    for number, shown in found.items():
        assert set(shown.predicted) == set(shown.confidences) == {"brier", "fla-53"}
        right = {name == shown.label for name in shown.predicted.values()}
        assert right == {number <= 4}


def test_an_image_is_near_if_label_predictions_and_confidences_are():
    labels = np.array([CAT, CAT, DOG, CAT])
    before = probabilities([DOG, DOG, DOG, CAT], [0.8, 0.7, 0.8, 0.8])
    after = probabilities([DOG, DOG, DOG, CAT], [0.6, 0.6, 0.6, 0.6])
    shown = Shown("cat", {"brier": "dog"}, {"brier": ["0.8000", "0.6000"]})
    away = distances(shown, {"brier": [before, after]}, labels)
    assert away == pytest.approx([0.0, 0.05, np.inf, np.inf])
