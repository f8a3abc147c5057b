"""Bad input gets one clear line: what was wrong, what was found, what to do."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
import torch

import calibrant
from calibrant import focal

LOGITS = np.array([[1.0, 0.0, -1.0], [0.0, 2.0, 0.5]])
PROBS = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])
LABELS = np.array([0, 1])


def broken(values: np.ndarray, place: tuple[int, ...], value: float) -> np.ndarray:
    copy = values.copy()
    copy[place] = value
    return copy


REFUSED = {
    "nan logits": (
        lambda: focal.focal_log_probs(broken(LOGITS, (1, 2), np.nan), gamma=1.0),
        ValueError,
        "logits must not contain NaN; found NaN in row 1",
    ),
    "+inf logits": (
        lambda: focal.focal_log_probs(broken(LOGITS, (0, 2), np.inf), gamma=1.0),
        ValueError,
        r"logits must be below \+inf; found \+inf in row 0",
    ),
    "all masked": (
        lambda: focal.focal_loss(np.full((2, 3), -np.inf), LABELS, gamma=1.0),
        ValueError,
        r"found only -inf in row 0.*\(2 in all\)",
    ),
    "one column": (
        lambda: focal.focal_log_probs(np.zeros((5, 1)), gamma=1.0),
        ValueError,
        r"two or more classes on the last axis; found shape \(5, 1\).*np.zeros_like\(s\), s",
    ),
    "one column of probs": (
        lambda: focal.focal_map(np.zeros((5, 1)), gamma=1.0),
        ValueError,
        r"np.stack\(\[1 - p, p\]",
    ),
    "a sparse tensor": (
        lambda: calibrant.evaluate(logits=torch.tensor(LOGITS).to_sparse(), labels=LABELS),
        ValueError,
        "dense tensor with values; found the layout torch.sparse_coo",
    ),
    "a tensor without values": (
        lambda: calibrant.nll(torch.empty(2, 3, device="meta"), LABELS),
        ValueError,
        "found a tensor on the device meta",
    ),
    "a bare number": (
        lambda: focal.focal_log_probs(3.0, gamma=1.0),
        ValueError,
        r"found shape \(\)",
    ),
    "text": (lambda: focal.focal_map("probs.npz", gamma=1.0), ValueError, "found str 'probs.npz'"),
    "nothing": (lambda: focal.focal_map(None, gamma=1.0), ValueError, "found NoneType None"),
    "ragged": (lambda: focal.focal_map([[0.5, 0.5], [1.0]], gamma=1.0), ValueError, "rectangular"),
    "complex": (lambda: focal.focal_map(PROBS + 0j, gamma=1.0), ValueError, "complex128"),
    "booleans": (lambda: focal.focal_map(PROBS > 0, gamma=1.0), ValueError, "found dtype bool"),
    "rows do not sum to 1": (
        lambda: focal.focal_map(broken(PROBS, (1, 0), 2.5), gamma=1.0),
        ValueError,
        "sum to 1 within 0.0001; found 3.4 in row 1. If these are logits",
    ),
    "negative probs": (
        lambda: focal.focal_map(broken(PROBS, (0, 1), -0.2), gamma=1.0),
        ValueError,
        "must not be negative; found -0.2 in row 0",
    ),
    "nan probs": (
        lambda: focal.inverse_focal_map(broken(PROBS, (1, 1), np.nan), gamma=1.0),
        ValueError,
        "found NaN in row 1",
    ),
    "inf probs": (
        lambda: focal.focal_map(broken(PROBS, (1, 1), np.inf), gamma=1.0),
        ValueError,
        "found inf in row 1",
    ),
    "masked arrays": (
        lambda: focal.focal_log_probs(np.ma.array(LOGITS, mask=LOGITS > 1), gamma=1.0),
        ValueError,
        "logits must not be a masked array",
    ),
    "masked labels": (
        lambda: focal.focal_loss(LOGITS, np.ma.array(LABELS, mask=[0, 1]), gamma=1.0),
        ValueError,
        "labels must not be a masked array",
    ),
    "gamma beyond floats": (lambda: focal.focal_map(PROBS, gamma=10**400), ValueError, "finite"),
    "p above 1": (lambda: focal.phi([0.5, 1.5], gamma=1.0), ValueError, "found 1.5"),
    "p nan": (lambda: focal.phi([0.5, np.nan], gamma=1.0), ValueError, "found nan"),
    "labels too large": (
        lambda: focal.focal_loss(LOGITS, np.array([0, 3]), gamma=1.0),
        ValueError,
        "between 0 and 2 for 3 classes; found 3 in row 1",
    ),
    "negative labels": (
        lambda: focal.focal_loss(LOGITS, np.array([-1, 0]), gamma=1.0),
        ValueError,
        "found -1 in row 0",
    ),
    "float labels": (
        lambda: focal.focal_loss(LOGITS, np.array([0.0, 1.0]), gamma=1.0),
        ValueError,
        "labels must be integers; found float64",
    ),
    "one-hot labels": (
        lambda: focal.focal_loss(LOGITS, np.eye(3, dtype=int)[LABELS], gamma=1.0),
        ValueError,
        r"shape \(2,\); found shape \(2, 3\).*argmax over one-hot",
    ),
    "one-hot labels as floats": (
        lambda: calibrant.TemperatureScaling().fit(LOGITS, np.eye(3)[LABELS]),
        ValueError,
        r"found shape \(2, 3\).*argmax over one-hot labels: labels.argmax\(axis=1\)",
    ),
    "named labels": (
        lambda: focal.focal_loss(LOGITS, ["cat", "dog"], gamma=1.0),
        ValueError,
        "labels must be a rectangular array of numbers",
    ),
    "map below -1": (
        lambda: focal.focal_map(PROBS, gamma=-1.5),
        ValueError,
        "gamma must be at least -1; found -1.5. The focal map is defined for gamma >= -1",
    ),
    "negative gamma in a loss": (
        lambda: focal.focal_loss(LOGITS, LABELS, gamma=-0.5),
        ValueError,
        "gamma must be at least 0; found -0.5",
    ),
    "negative gamma in the inverse": (
        lambda: focal.inverse_focal_map(PROBS, gamma=-0.5),
        ValueError,
        "gamma must be at least 0",
    ),
    "gamma nan": (lambda: focal.focal_map(PROBS, gamma=np.nan), ValueError, "finite; found nan"),
    "gamma inf": (lambda: focal.focal_map(PROBS, gamma=np.inf), ValueError, "finite; found inf"),
    "gamma text": (
        lambda: focal.focal_map(PROBS, gamma="2"),
        ValueError,
        "a number; found str '2'",
    ),
    "gamma tensor": (
        lambda: focal.focal_map(PROBS, gamma=torch.tensor(2.0, requires_grad=True)),
        ValueError,
        "a number; found Tensor",
    ),
    "gamma yes": (lambda: focal.focal_map(PROBS, gamma=True), ValueError, "found bool True"),
    "gamma beyond float32": (
        lambda: focal.focal_map(PROBS.astype(np.float32), gamma=1e60),
        ValueError,
        r"range of the array's type float32; found 1e\+60",
    ),
    "gamma 0 has no thresholds": (
        lambda: focal.confidence_thresholds(gamma=0.0),
        ValueError,
        "gamma must be above 0 here",
    ),
    "temperature 0": (
        lambda: focal.focal_log_probs(LOGITS, gamma=1.0, temperature=0.0),
        ValueError,
        "temperature must be above 0; found 0",
    ),
    "temperature inf": (
        lambda: focal.focal_log_probs(LOGITS, gamma=1.0, temperature=np.inf),
        ValueError,
        "temperature must be finite",
    ),
    "temperature beyond float32": (
        lambda: focal.focal_log_probs(LOGITS.astype(np.float32), gamma=1.0, temperature=1e-60),
        ValueError,
        "range of the array's type float32; found 1e-60",
    ),
    "threshold above 1/2": (lambda: focal.gamma_for_threshold(0.6), ValueError, "found 0.6"),
    "threshold 0": (lambda: focal.gamma_for_threshold(0.0), ValueError, "found 0"),
    "five classes": (
        lambda: focal.closest_temperature(gamma=1.0, n_classes=5),
        ValueError,
        "from 2 to 4; found 5",
    ),
    "half a class": (
        lambda: focal.closest_temperature(gamma=1.0, n_classes=2.5),
        ValueError,
        "whole number; found float 2.5",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused_in_one_clear_line(case):
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message) as refusal:
        call()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("make", [torch.from_numpy, array_api_strict.asarray])
def test_the_same_line_for_every_library(make):
    with pytest.raises(ValueError, match="found NaN in row 1"):
        focal.focal_log_probs(make(broken(LOGITS, (1, 0), np.nan)), gamma=1.0)
    with pytest.raises(ValueError, match=r"found 3\.4 in row 1"):
        focal.focal_map(make(broken(PROBS, (1, 0), 2.5)), gamma=1.0)


def test_the_place_in_more_axes():
    logits = np.zeros((2, 3, 4))
    logits[1, 2, 0] = np.nan
    with pytest.raises(ValueError, match=r"NaN in row \(1, 2\)"):
        focal.focal_log_probs(logits, gamma=1.0)
    with pytest.raises(ValueError, match="NaN in the row"):
        focal.focal_log_probs(logits[1, 2], gamma=1.0)


def test_rounded_and_half_precision_probabilities_pass():
    printed = np.array([[0.33333, 0.33333, 0.33333]])
    assert focal.focal_map(printed, gamma=1.0).sum() == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    wide = torch.from_numpy(rng.dirichlet(np.ones(1000), size=4))
    for dtype in (torch.float16, torch.bfloat16):
        assert focal.focal_map(wide.to(dtype), gamma=1.0).dtype == torch.float32


def test_labels_of_any_integer_type_serve_torch_logits():
    logits = torch.from_numpy(LOGITS)
    expected = focal.focal_loss(logits, torch.tensor([1, 0]), gamma=2.0)
    for labels in (
        np.array([1, 0], dtype=np.uint16),
        np.array([1, 0], dtype=np.uint64),
        np.array([1, 0], dtype=">i4"),
        np.array([0, 1])[::-1],
        torch.tensor([1, 0], dtype=torch.uint8),
        [1, 0],
    ):
        torch.testing.assert_close(focal.focal_loss(logits, labels, gamma=2.0), expected)
    half = np.float16([[0.3335, 0.3335, 0.3330]])
    assert focal.focal_map(list(half), gamma=1.0).dtype == np.float32


def test_lists_and_whole_numbers_are_numbers():
    np.testing.assert_allclose(
        focal.focal_log_probs([[3, 1, 0]], gamma=1), focal.focal_log_probs([[3.0, 1, 0]], gamma=1.0)
    )
