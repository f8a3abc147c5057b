"""The example of two classes: one column of probabilities in CSV files, and its report."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.files import write_predictions
from calibrant.report import Summary, write_report

NAMES = ("benign", "malignant")
NOTE = (
    "Data: breast cancer (569 samples of scikit-learn), half of it to train a naive Bayes "
    "classifier on, a quarter to calibrate on and a quarter to measure on."
)


def write_example(val: Path, test: Path, page: Path, *, seed: int, methods: list[str]) -> Summary:
    """Train a naive Bayes classifier, write what it predicts, and report on it."""
    from sklearn.datasets import load_breast_cancer  # type: ignore[import-untyped]
    from sklearn.naive_bayes import GaussianNB  # type: ignore[import-untyped]

    features, target = load_breast_cancer(return_X_y=True)
    labels = 1 - target  # scikit-learn has malignant first
    order = np.random.default_rng(seed).permutation(len(labels))
    train, *others = np.split(order, [len(order) // 2, 3 * len(order) // 4])
    classifier = GaussianNB().fit(features[train], labels[train])
    for file, rows in zip((val, test), others, strict=True):
        probs = classifier.predict_proba(features[rows])
        write_predictions(file, probs=probs, labels=labels[rows], class_names=NAMES)
    return write_report(
        val,
        test,
        page,
        title="Breast cancer, naive Bayes",
        notes=[NOTE],
        methods=methods,
        random_state=seed,
    )
