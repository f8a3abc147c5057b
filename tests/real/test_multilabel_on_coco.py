"""Multi-label calibration of a real network: TResNet-XL on COCO, 80 labels."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant import MultiLabelCalibration, evaluate_multilabel
from calibrant.files import read_predictions

FEW = 50
"""Labels with fewer positives than this to fit on are rare."""


@pytest.fixture(scope="module")
def parts(shared_data):
    file = shared_data / "multilabel" / "coco_tresnetxl.npz"
    if not file.exists():
        pytest.skip("the multi-label file is not in the data folder")
    return tuple(read_predictions(f"{file}::{part}") for part in ("val", "test"))


def losses(probs, labels):
    wide = np.clip(probs.astype(np.float64), 1e-7, 1 - 1e-7)
    return -np.log(np.where(labels == 1, wide, 1 - wide))


def separate_platt(val, test):
    """Each label fitted on its own."""
    alone = MultiLabelCalibration(curve="platt", per_label=False)
    return np.hstack(
        [
            alone.fit(probs=val.probs[:, [i]], labels=val.labels[:, [i]]).predict_proba(
                probs=test.probs[:, [i]]
            )
            for i in range(val.probs.shape[1])
        ]
    )


def test_better_than_the_model_and_than_separate_labels(parts):
    val, test = parts
    found = MultiLabelCalibration().fit(probs=val.probs, labels=val.labels)
    probs = {
        "as it is": test.probs,
        "separate": separate_platt(val, test),
        "shared": found.predict_proba(probs=test.probs),
    }
    results = {name: evaluate_multilabel(p, test.labels) for name, p in probs.items()}
    for name, each in results.items():
        print(f"{name}: nll {each.nll:.5f}, ece {each.macro_ece:.5f}, off {len(each.off)}")
    assert results["shared"].nll < 0.95 * results["separate"].nll < 0.2 * results["as it is"].nll
    assert results["shared"].macro_ece < results["separate"].macro_ece
    assert results["shared"].macro_ece < 0.05 * results["as it is"].macro_ece
    assert len(results["as it is"].off) == 80
    assert not results["shared"].off


def test_rare_labels_are_not_worse(parts):
    val, test = parts
    rare = val.labels.sum(axis=0) < FEW
    assert rare.sum() > 20
    found = MultiLabelCalibration().fit(probs=val.probs, labels=val.labels)
    after = losses(found.predict_proba(probs=test.probs), test.labels).mean(axis=0)
    before = losses(test.probs, test.labels).mean(axis=0)
    alone = losses(separate_platt(val, test), test.labels).mean(axis=0)
    print(*(f"{each[rare].mean():.5f}" for each in (before, alone, after)))
    assert (after < before)[rare].all()
    assert after[rare].mean() < alone[rare].mean()
