"""The map against the oracle, on every array library, and what must hold for any input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from mpmath import mp, mpf

from calibrant.focal import focal_log_probs, focal_map, phi
from calibrant.focal.scalar import phi_gradient
from tests.reference import focal_mpmath as oracle

GAMMAS = (-0.9, -0.5, -0.25, 0.0, 1e-8, 0.05, 0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 20.0, 100.0)
SCALES = (1e-3, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
TEMPERATURES = (0.01, 1.0, 100.0)
DTYPES = ("float32", "float64")


def hostile_rows(n_classes: int, scale: float, seed: int) -> list[np.ndarray]:
    """Random logits; a tie on top; all tied but one; a mask; a lone gap; a near-tie."""
    rng = np.random.default_rng(seed)
    plain, tied, masked, gap, near = (scale * rng.standard_normal((5, n_classes))).tolist()
    tied[-1] = max(tied)
    masked[n_classes // 2] = -np.inf
    gap[0] = max(gap) + scale
    near[0] = float(np.nextafter(max(near), np.inf))
    flat = [scale] * n_classes
    flat[-1] = -scale
    return [np.array(row) for row in (plain, tied, masked, gap, near, flat)]


def error_in_units(value: float, exact: mpf, eps: float, gamma: float) -> float:
    """The error over eps (1 + |gamma|) max(1, |value|)."""
    if mp.isinf(exact):
        return 0.0 if value == float(exact) else np.inf
    return float(abs(mpf(value) - exact) / (eps * (1 + abs(gamma)) * max(1, abs(exact))))


def worst_error(rows: list[np.ndarray], gamma: float, temperature: float) -> float:
    worst = 0.0
    for row in rows:
        said = focal_log_probs(row, gamma=gamma, temperature=temperature)
        assert said.dtype == row.dtype
        exact = oracle.stable(oracle.focal_log_probs, row.tolist(), gamma, temperature)
        eps = float(np.finfo(row.dtype).eps)
        for value, truth in zip(said.tolist(), exact, strict=True):
            worst = max(worst, error_in_units(value, truth, eps, gamma))
    return worst


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
@pytest.mark.parametrize(
    "temperature", [1.0, *(pytest.param(t, marks=pytest.mark.slow) for t in (0.01, 100.0))]
)
@pytest.mark.parametrize(
    "gamma",
    [*GAMMAS[::2], *(pytest.param(gamma, marks=pytest.mark.slow) for gamma in GAMMAS[1::2])],
)
def test_log_probs_agree_with_the_oracle(gamma, temperature, dtype):
    rows = [
        row.astype(dtype)
        for n_classes in (2, 3, 10)
        for scale in SCALES
        for row in hostile_rows(n_classes, scale, seed=n_classes)
    ]
    assert worst_error(rows, gamma, temperature) <= 16


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("n_classes", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_log_probs_agree_with_the_oracle_for_many_classes(n_classes, gamma, dtype):
    seed = GAMMAS.index(gamma)
    scale = SCALES[seed % len(SCALES)]
    row = hostile_rows(n_classes, scale, seed)[seed % 6].astype(dtype)
    assert worst_error([row], gamma, TEMPERATURES[seed % 3]) <= 16


@pytest.mark.parametrize("gamma", GAMMAS)
def test_half_precision_comes_out_as_exact_float32(gamma):
    row = np.array([3.5, -1.25, 0.0078125, -60000.0], dtype=np.float16)
    said = focal_log_probs(row, gamma=gamma)
    assert said.dtype == np.float32
    exact = oracle.stable(oracle.focal_log_probs, row.astype(float).tolist(), gamma)
    eps = float(np.finfo(np.float32).eps)
    for value, truth in zip(said.tolist(), exact, strict=True):
        assert error_in_units(value, truth, eps, gamma) <= 16


@pytest.mark.parametrize("gamma", [-1.0, -0.999999, -0.99])
def test_gamma_down_to_minus_one(gamma):
    rows = [
        row
        for scale in (0.1, 1.0, 10.0, 100.0)
        for row in hostile_rows(4, scale, seed=3)
        if not (gamma == -1.0 and np.isinf(row).any() and scale > 10)
    ]
    for row in rows:
        said = focal_log_probs(row, gamma=gamma)
        exact = oracle.stable(oracle.focal_log_probs, row.tolist(), gamma)
        # Close to -1 the two largest classes cancel down to (1 + gamma) of the gap between them.
        scale = np.max(np.abs(row[np.isfinite(row)]))
        for value, truth in zip(said.tolist(), exact, strict=True):
            assert abs(mpf(value) - truth) <= 1e-14 * max(1, scale) or value == float(truth)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_every_row_is_a_distribution_with_the_same_argmax(library, gamma):
    for dtype in DTYPES:
        for scale in (*SCALES, 1e30):
            for temperature in TEMPERATURES:
                rows = np.stack(hostile_rows(10, scale, seed=5)).astype(dtype)
                said = library.numpy(
                    focal_log_probs(library.make(rows), gamma=gamma, temperature=temperature)
                )
                assert not np.isnan(said).any()
                assert (said <= 0).all()
                np.testing.assert_array_equal(said == -np.inf, rows == -np.inf)
                eps = np.finfo(dtype).eps
                np.testing.assert_allclose(np.exp(said).sum(-1), 1.0, atol=100 * eps)
                np.testing.assert_array_equal(said.argmax(-1), rows.argmax(-1))
                tied = rows == rows.max(-1, keepdims=True)
                assert (np.where(tied, said, -np.inf).max(-1) == said.max(-1)).all()
                if gamma >= 0:
                    assert order_is_kept(rows, said)


def order_is_kept(given: np.ndarray, said: np.ndarray) -> bool:
    """Sorting by the input sorts the output, up to roundings of neighbours."""
    in_order = np.take_along_axis(said, given.argsort(-1), axis=-1)
    finite = np.where(np.isinf(in_order), np.finfo(said.dtype).min / 4, in_order)
    slack = 4 * np.finfo(said.dtype).eps * np.maximum(1, np.abs(finite[..., 1:]))
    return bool((np.diff(finite, axis=-1) >= -slack).all())


def test_logits_at_the_end_of_the_range_give_no_nan(library):
    for dtype in DTYPES:
        largest = np.finfo(dtype).max
        rows = np.array(
            [
                [largest, -largest, 0.0],
                [largest, largest, -largest],
                [-largest, -largest, -largest],
            ],
            dtype=dtype,
        )
        for gamma in GAMMAS:
            said = library.numpy(focal_log_probs(library.make(rows), gamma=gamma))
            np.testing.assert_allclose(
                np.exp(said), [[1, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]], rtol=1e-6
            )


def test_a_near_tie_keeps_its_winner():
    """Two logits whose probabilities round to the same number: the later one is on top."""
    for dtype in DTYPES:
        one = np.ones(4, dtype=dtype)
        one[2] += np.finfo(dtype).eps
        for gamma in GAMMAS:
            said = focal_log_probs(one, gamma=gamma, temperature=100.0)
            assert said.argmax() == 2
            assert np.exp(said).sum() == pytest.approx(1.0, rel=1e-6)
            probs = np.array([0.25, 0.25, np.nextafter(0.25, 1), 0.25])
            assert focal_map(probs, gamma=gamma).argmax() == 2


logit_rows = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(2, 8)),
    elements=st.floats(-50, 50, width=32),
)


@given(logit_rows, st.sampled_from(GAMMAS), st.randoms(use_true_random=False))
def test_classes_may_be_permuted(logits, gamma, random):
    order = list(range(logits.shape[-1]))
    random.shuffle(order)
    np.testing.assert_allclose(
        focal_log_probs(logits[:, order], gamma=gamma),
        focal_log_probs(logits, gamma=gamma)[:, order],
        rtol=1e-13 * (1 + abs(gamma)),
        atol=1e-15 * (1 + abs(gamma)),
    )


@given(logit_rows, st.sampled_from(GAMMAS), st.integers(-64, 64))
def test_logits_may_be_shifted(logits, gamma, shift):
    # By whole numbers where that is exact, so that only the map can differ.
    logits = np.round(logits * 1024) / 1024
    np.testing.assert_array_equal(
        focal_log_probs(logits + shift, gamma=gamma), focal_log_probs(logits, gamma=gamma)
    )


@given(logit_rows)
def test_gamma_zero_is_the_softmax(logits):
    softmax = torch.log_softmax(torch.from_numpy(logits), dim=-1).numpy()
    np.testing.assert_allclose(focal_log_probs(logits, gamma=0.0), softmax, rtol=1e-14, atol=1e-15)


@given(logit_rows)
def test_gamma_zero_leaves_probabilities_alone(logits):
    probs = torch.softmax(torch.from_numpy(logits), dim=-1).numpy()
    np.testing.assert_allclose(focal_map(probs, gamma=0.0), probs, rtol=1e-13)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_map_on_probabilities_agrees_with_the_oracle(library, gamma):
    rng = np.random.default_rng(2)
    rows = rng.dirichlet(np.full(6, 0.2), size=6)
    rows[0] = [0, 0.5, 0.5, 0, 0, 0]
    rows[1] = [0, 0, 0, 0, 1, 0]
    rows[2] = [1e-300, 1e-16, 1 - 2e-16, 0, 1e-20, 0]
    rows[3] = [5e-324, 1 - 1e-9, 1e-9, 0, 0, 0]
    said = library.numpy(focal_map(library.make(rows), gamma=gamma))
    for row, ours in zip(rows, said, strict=True):
        exact = [float(v) for v in oracle.stable(oracle.focal_map, row.tolist(), gamma)]
        # The exponent reaches 745 (1 + gamma), and its rounding is the relative error.
        np.testing.assert_allclose(ours, exact, rtol=2e-13 * (1 + abs(gamma)), atol=5e-324)


@pytest.mark.parametrize("gamma", [-1.0, *GAMMAS])
def test_phi_agrees_with_the_oracle(library, gamma):
    p = np.array([0.0, 1e-300, 1e-9, 0.05, 0.3, 0.499999, 0.5, 0.7, 0.875, 0.9, 1 - 1e-9, 1.0])
    said = library.numpy(phi(library.make(p), gamma=gamma))
    exact = [float(oracle.stable(oracle.phi, float(v), gamma)) for v in p]
    np.testing.assert_allclose(said, exact, rtol=1e-14 * (1 + abs(gamma)))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_the_gradient_of_phi_is_that_of_the_oracle(gamma):
    cross_entropy = np.array([1e-6, 1e-3, 0.1, 0.7, 3.0, 40.0])
    said = phi_gradient(cross_entropy, gamma)
    with mp.workdps(60):
        exact = [
            float(mp.diff(lambda log_p: oracle.phi(mp.exp(log_p), gamma), -mp.mpf(float(c))))
            for c in cross_entropy
        ]
    np.testing.assert_allclose(said, exact, rtol=1e-9, atol=1e-12)
    ends = phi_gradient(np.array([0.0, 1e-300, 1e150]), gamma)
    assert np.isfinite(ends).all()
    assert ends[2] == 0.0


def test_phi_where_gamma_and_p_are_extreme():
    assert phi(np.array([1e-17]), gamma=1e17)[0] == pytest.approx(14.7682, rel=1e-4)


@pytest.mark.parametrize("gamma", [-0.9, -0.5, 0.0, 0.05, 0.5, 1.0, 3.0, 20.0])
def test_gradients_are_right_and_finite(gamma):
    ordinary = torch.tensor(
        [
            [1.0, -2.0, 0.5, 0.1],
            [2.0, 2.0, 1.0, -3.0],
            [0.0, 0.0, 0.0, 0.0],
            [30.0, 0.0, 1.0, -9.0],
        ],
        dtype=torch.float64,
    ).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda s: focal_log_probs(s, gamma=gamma, temperature=1.5), ordinary
    )
    assert torch.autograd.gradcheck(
        lambda s: focal_map(torch.softmax(s, dim=-1), gamma=gamma), ordinary
    )
    for dtype in (torch.float32, torch.float64):
        extreme = torch.tensor(
            [
                [1e4, 0.0, -1e4],
                [0.0, -float("inf"), -1e3],
                [5.0, 5.0, 5.0],
                [0, -float("inf"), -float("inf")],
            ],
            dtype=dtype,
        ).requires_grad_()
        said = focal_log_probs(extreme, gamma=gamma)
        torch.where(said == -float("inf"), 0.0, said).sum().backward()
        assert torch.isfinite(extreme.grad).all()
        probs = torch.softmax(extreme.detach() / 100, dim=-1)
        probs[0] = torch.tensor([1.0, 1e-40, 0.0])  # subnormal in float32
        probs.requires_grad_()
        focal_map(probs, gamma=gamma)[:, 0].sum().backward()
        assert torch.isfinite(probs.grad).all()


def test_bfloat16_and_leading_axes(library):
    logits = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    whole = library.numpy(focal_log_probs(library.make(logits), gamma=2.0))
    one = library.numpy(focal_log_probs(library.make(logits[1, 2]), gamma=2.0))
    np.testing.assert_array_equal(whole[1, 2], one)
    said = focal_log_probs(torch.from_numpy(logits).bfloat16(), gamma=2.0)
    assert said.dtype == torch.float32
    assert focal_log_probs(np.empty((0, 3)), gamma=1.0).shape == (0, 3)
