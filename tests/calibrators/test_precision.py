"""Double precision inside, the type of the logits outside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibrant._numerics import precision
from calibrant._numerics.precision import narrowed, widened

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_single_precision_is_widened_and_double_left_alone(library, dtype):
    logits = library.make([[0.1, -np.inf]], dtype)
    wide = library.numpy(widened(logits))
    assert wide.dtype == np.float64
    np.testing.assert_array_equal(wide, np.array([[0.1, -np.inf]], dtype))


def test_the_result_has_the_type_of_the_logits(library):
    logits = library.make([[0.0]], "float32")
    values = library.make([[-1e300, -1.0, -np.inf, 0.25]], "float64")
    found = library.numpy(narrowed(values, logits))
    assert found.dtype == np.float32
    lowest = np.finfo(np.float32).min
    np.testing.assert_array_equal(found, np.array([[lowest, -1.0, -np.inf, 0.25]], np.float32))


def test_a_result_of_the_right_type_is_passed_on(library):
    values = library.make([[-1.0]], "float32")
    assert narrowed(values, values) is values


def test_where_there_is_no_double_precision_nothing_is_widened(monkeypatch):
    monkeypatch.setattr(precision, "WITHOUT_FLOAT64", ("cpu",))
    logits = torch.zeros(2, 3)
    assert widened(logits) is logits


def test_gradients_pass_in_their_own_type():
    logits = torch.tensor([[1.0, 2.0, -float("inf")]], requires_grad=True)
    narrowed(torch.log_softmax(widened(logits), dim=-1), logits)[0, 0].backward()
    assert logits.grad.dtype == torch.float32
    assert torch.isfinite(logits.grad).all()
