"""The reference metrics judged by hand-computed cases, published values and invariances."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from .metrics_slow import (
    ada_ece,
    aurc,
    brier,
    brier_decomposition,
    classwise_ece,
    confidence_gap,
    debiased_ece,
    ece,
    entropy,
    entropy_rows,
    error_rate,
    focal,
    kl,
    ks_error,
    mass_bins,
    mce,
    mmce,
    mmce_weighted,
    nll,
    nll_rows,
    s99,
    smooth_ece,
    split_by_correct,
    top_k_error,
    top_label,
    width_bins,
)

INF = math.inf
E = math.e


def approx(value: object, tolerance: float = 1e-13) -> object:
    return pytest.approx(value, rel=tolerance, abs=tolerance, nan_ok=True)


# --- top label and bins ------------------------------------------------------------------------


def test_top_label_takes_the_first_argmax() -> None:
    confidence, correct = top_label([[0.25, 0.75], [0.5, 0.5], [0.5, 0.5]], [1, 0, 1])
    assert confidence == [0.75, 0.5, 0.5]
    assert correct == [1.0, 1.0, 0.0]


FIVE = [0.0, 0.125, 0.25, 0.375, 1.0]
FIVE_CORRECT = [0, 1, 0, 1, 1]


def test_width_bins_by_hand() -> None:
    assert width_bins(FIVE, FIVE_CORRECT, 4) == [
        (3.0, 0.375, 1.0),
        (1.0, 0.375, 1.0),
        (0.0, 0.0, 0.0),
        (1.0, 1.0, 1.0),
    ]
    assert width_bins(FIVE, FIVE_CORRECT, 4, [2, 1, 0, 1, 0.5]) == [
        (3.0, 0.125, 1.0),
        (1.0, 0.375, 1.0),
        (0.0, 0.0, 0.0),
        (0.5, 0.5, 0.5),
    ]


@pytest.mark.parametrize("n_bins", [1, 3, 7, 10, 15, 25, 49, 100])
def test_width_bins_are_closed_on_the_right_at_every_edge(n_bins: int) -> None:
    for i in range(n_bins):
        edge = (i + 1) / n_bins
        for c, place in [(edge, i), (math.nextafter(edge, 0), i), (math.nextafter(edge, 2), i + 1)]:
            if c <= 1:
                filled = [b for b, (w, _, _) in enumerate(width_bins([c], [1], n_bins)) if w]
                assert filled == [place]
    assert width_bins([0.0], [0], n_bins)[0] == (1.0, 0.0, 0.0)
    assert width_bins([5e-324], [0], n_bins)[0][0] == 1.0


def test_a_float32_is_compared_as_the_number_it_is() -> None:
    third = np.float32(1 / 3)  # 0.33333334..., above the float64 edge 1/3
    assert [w for w, _, _ in width_bins(np.array([third]), [1], 3)] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("c", [-1e-9, 1.0000001, math.nan])
def test_confidences_outside_the_unit_interval_are_refused(c: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        width_bins([c], [1], 15)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, INF], [1.0, math.nan]])
def test_senseless_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        ece([0.5, 0.5], [1, 0], weights=weights)


def test_mass_bins_sizes_are_those_of_array_split() -> None:
    for n in range(1, 40):
        confidence = [(i + 1) / 64 for i in range(n)]
        sizes = [w for w, _, _ in mass_bins(confidence, [0] * n, 15)]
        assert sizes == [len(part) for part in np.array_split(np.arange(n), 15) if len(part)]


def test_mass_bins_split_tied_groups_in_proportion() -> None:
    # Three samples in the first bin, two in the second; the group of four at 0.5 has accuracy 1/4.
    assert mass_bins([0.5, 0.5, 0.75, 0.5, 0.5], [1, 0, 1, 0, 0], 2) == [
        (3.0, 1.5, 0.75),
        (2.0, 1.25, 1.25),
    ]


def test_mass_bins_without_ties() -> None:
    assert mass_bins([0.75, 0.25, 1.0, 0.5, 0.125], [0, 1, 1, 0, 0], 2) == [
        (3.0, 0.875, 1.0),
        (2.0, 1.75, 1.0),
    ]
    assert mass_bins([0.75, 0.25], [0, 1], 15) == [(1.0, 0.25, 1.0), (1.0, 0.75, 0.0)]


def test_mass_bins_weights() -> None:
    pair = [0.25, 0.75], [1, 0]
    assert mass_bins(*pair, 2, [1, 3]) == [(2.0, 1.0, 1.0), (2.0, 1.5, 0.0)]
    assert mass_bins(*pair, 2, [0.5, 1.5]) == [(1.0, 0.5, 0.5), (1.0, 0.75, 0.0)]
    # Not whole and fewer samples than bins: still n_bins bins, each of a quarter of the mass.
    assert mass_bins(*pair, 4, [0.5, 0.5]) == [(0.25, 0.0625, 0.25)] * 2 + [(0.25, 0.1875, 0.0)] * 2
    # Ties are pooled before they are cut.
    assert mass_bins([0.5, 0.5], [1, 0], 2, [0.5, 1.5]) == [(1.0, 0.5, 0.25)] * 2


# --- calibration errors ------------------------------------------------------------------------


def test_ece_by_hand() -> None:
    # Gaps -5/24, -5/8, 0 with shares 3/5, 1/5, 1/5.
    assert ece(FIVE, FIVE_CORRECT, 4) == approx(0.25)
    assert ece(FIVE, FIVE_CORRECT, 4, "l2") == approx(math.sqrt(5 / 48))
    assert ece(FIVE, FIVE_CORRECT, 4, "max") == approx(0.625)
    assert mce(FIVE, FIVE_CORRECT, 4) == approx(0.625)
    assert ece(FIVE, FIVE_CORRECT, 4, weights=[2, 1, 0, 1, 0.5]) == approx(1 / 3)
    assert mce(FIVE, FIVE_CORRECT, 4, weights=[2, 1, 0, 0, 0.5]) == approx(0.875 / 3)
    with pytest.raises(ValueError, match="norm"):
        ece(FIVE, FIVE_CORRECT, 4, "l3")


def test_ada_ece_by_hand() -> None:
    # Gaps 1/4 and 0 with shares 3/5 and 2/5.
    tied = [0.5, 0.5, 0.75, 0.5, 0.5], [1, 0, 1, 0, 0]
    assert ada_ece(*tied, 2) == approx(0.15)
    assert ada_ece(*tied, 2, "l2") == approx(math.sqrt(0.0375))
    assert ada_ece(*tied, 2, "max") == approx(0.25)
    assert ada_ece([0.5] * 4, [1, 1, 1, 0], 2) == approx(0.25)  # all equal: not 0
    assert ada_ece([0.25, 0.75], [1, 0], 2, weights=[0.5, 1.5]) == approx(0.375)


def test_classwise_ece_by_hand() -> None:
    # Class 0: (1/4 + 1/2) / 2; class 1, both in the bin up to 0.5: 1/8.
    assert classwise_ece([[0.75, 0.25], [0.5, 0.5]], [0, 1], 2) == approx(0.25)
    # Weights 1, 3: class 0 gives 1/16 + 3/8, class 1 gives |0.25 + 1.5 - 3| / 4.
    assert classwise_ece([[0.75, 0.25], [0.5, 0.5]], [0, 1], 2, [1, 3]) == approx(0.375)


def test_debiased_ece_by_hand() -> None:
    assert debiased_ece([0.875] * 4, [0, 0, 0, 1], 1) == approx(math.sqrt(0.328125))
    assert debiased_ece([0.25, 0.25, 0.75, 0.75], [0, 1, 1, 1], 2) == 0.0  # would be negative
    assert debiased_ece([0.75, 0.75], [1, 0], 2) == approx(0.25)  # bins of one: no correction


def test_ks_error_by_hand() -> None:
    # Running sums -3/4, -3/4 and 1/4 of the tied groups; one sample at a time would reach -5/4.
    assert ks_error([0.25, 0.5, 0.5, 1.0], [1, 0, 1, 0]) == approx(0.1875)
    assert ks_error([0.25, 1.0], [1, 0], [1, 2]) == approx(1.25 / 3)


def test_confidence_gap_by_hand() -> None:
    assert confidence_gap([0.75, 0.25], [1, 1]) == approx(-0.5)
    assert confidence_gap([0.75, 0.25], [0, 1], [3, 1]) == approx(0.375)


def test_mmce_by_hand() -> None:
    # Residuals 1/2 and -9/10, kernel 1/e between them.
    assert mmce([0.5, 0.9], [1, 0]) == approx(math.sqrt((0.25 + 0.81 - 0.9 / E) / 4))
    assert mmce_weighted([0.5, 0.9], [1, 0]) == approx(math.sqrt(0.25 + 0.81 - 0.9 / E))
    # One confidence: the kernel is 1, so both are plain differences of means.
    assert mmce([0.6] * 3, [1, 1, 0]) == approx(0.2 / 3)
    assert mmce_weighted([0.6] * 3, [1, 1, 0]) == approx(0.2)
    assert mmce_weighted([0.6] * 5, [1, 1, 0, 0, 0]) == approx(0.2)
    assert mmce([0.6, 0.6], [1, 0], [2, 1]) == approx(0.2 / 3)


def test_mmce_of_batches_all_right_or_all_wrong() -> None:
    for error in (mmce, mmce_weighted):
        assert error([0.5, 1.0], [1, 1]) == approx(0.25)
        assert error([0.5, 0.5], [0, 0]) == approx(0.5)
        assert error([1.0, 1.0], [1, 1]) == 0.0


def test_smooth_ece_of_residuals_of_one_sign_is_their_mean() -> None:
    # The kernel integrates to one, so smECE_sigma is the mean residual at every sigma.
    assert smooth_ece([0.7], [0]) == pytest.approx(0.7, abs=1e-6)
    assert smooth_ece([0.7, 0.2, 1.0], [0, 0, 0]) == pytest.approx(1.9 / 3, abs=1e-6)
    assert smooth_ece([0.0, 1.0], [0, 1]) == 0.0
    assert smooth_ece([0.5, 0.5], [1, 0]) == 0.0
    assert smooth_ece([0.0, 1.0], [1, 1], [1, 3]) == pytest.approx(0.25, abs=1e-6)
    assert smooth_ece([1 - 1e-4], [1]) == pytest.approx(1e-4, abs=1e-6)


def test_smooth_ece_of_two_opposite_ends_solves_its_equation() -> None:
    # -1/2 at 0 and +1/2 at 1: smECE_sigma = 1 - 2 P(the kernel at 0 is beyond 1/2).
    def beyond_half(sigma: float) -> float:
        return sum(
            ndtr((2 * k + 1.5) / sigma) - ndtr((2 * k + 0.5) / sigma) for k in range(-10, 11)
        )

    expected = brentq(lambda sigma: 1 - 2 * beyond_half(sigma) - sigma, 0.01, 1)
    assert smooth_ece([0.0, 1.0], [1, 0]) == pytest.approx(expected, abs=1e-6)


def test_smooth_ece_is_the_fixed_point_by_the_cosine_series_of_the_kernel() -> None:
    # The reflected Gaussian is the heat kernel of [0, 1] with insulated ends:
    # K(t, c) = 1 + 2 sum_m exp(-(pi m sigma)^2 / 2) cos(pi m t) cos(pi m c).
    confidence, correct, _ = sample(60, seed=1)
    c, hit = np.array(confidence), np.array(correct)
    sigma = smooth_ece(confidence, correct)
    t = np.linspace(0, 1, 200_001)
    residual = np.full_like(t, np.mean(c - hit))
    for m in range(1, math.ceil(10 / (math.pi * sigma))):
        size = 2 * math.exp(-((math.pi * m * sigma) ** 2) / 2)
        residual += size * np.mean((c - hit) * np.cos(math.pi * m * c)) * np.cos(math.pi * m * t)
    assert 0.01 < sigma < 0.2
    assert np.trapezoid(np.abs(residual), t) == pytest.approx(sigma, abs=2e-6)


# --- proper losses, errors and entropy ---------------------------------------------------------

TWO = [[0.5, 0.5], [0.25, 0.75]]


def test_nll_by_hand() -> None:
    assert nll(TWO, [0, 1]) == approx((math.log(2) - math.log(0.75)) / 2)
    assert nll(TWO, [0, 1], [3, 1]) == approx((3 * math.log(2) - math.log(0.75)) / 4)
    assert nll([[1.0, 0.0]], [0]) == 0.0
    assert nll([[1.0, 0.0], [0.5, 0.5]], [1, 0]) == INF
    assert nll([[1.0, 0.0], [0.5, 0.5]], [1, 0], [0, 1]) == approx(math.log(2))
    assert nll_rows([[1.0, 0.0], [0.5, 0.5]], [1, 0]) == [INF, approx(math.log(2))]


def test_focal_by_hand() -> None:
    assert focal(TWO, [0, 0], 2) == approx((0.25 * math.log(2) + 0.5625 * math.log(4)) / 2)
    assert focal(TWO, [0, 0], 0) == approx(nll(TWO, [0, 0]))
    assert focal([[1.0, 0.0]], [0], 3) == 0.0
    assert focal([[1.0, 0.0]], [1], 3) == INF


def test_brier_by_hand() -> None:
    assert brier(TWO, [0, 1]) == approx(0.3125)
    assert brier(TWO, [0, 1], [1, 3]) == approx((0.5 + 3 * 0.125) / 4)
    assert brier([[1.0, 0.0]], [1]) == 2.0


def test_brier_decomposition_by_hand() -> None:
    probs = [[0.25, 0.75], [0.25, 0.75], [0.75, 0.25], [0.75, 0.25]]
    labels = [1, 0, 0, 0]
    assert brier_decomposition(probs, labels, 2) == approx((0.125, 0.125, 0.375))
    assert brier(probs, labels) == approx(0.375)


def test_brier_decomposition_adds_up_when_bins_are_pure() -> None:
    rng = random.Random(3)
    probs = [[i / 8, j / 8, (8 - i - j) / 8] for i in range(9) for j in range(9 - i)] * 4
    labels = [rng.randrange(3) for _ in probs]
    weights = [rng.random() for _ in probs]
    reliability, resolution, uncertainty = brier_decomposition(probs, labels, 9, weights)
    assert reliability - resolution + uncertainty == approx(brier(probs, labels, weights))


def test_error_rate_by_hand() -> None:
    assert error_rate([*TWO, [0.5, 0.5]], [0, 0, 1]) == approx(2 / 3)
    assert error_rate(TWO, [0, 0], [3, 1]) == approx(0.25)


def test_top_k_error_by_hand() -> None:
    row = [0.2, 0.4, 0.4]
    ranks = [3, 1, 2]  # of classes 0, 1, 2: the tie goes to the smaller index
    for label, rank in enumerate(ranks):
        for k in (1, 2, 3):
            assert top_k_error([row], [label], k) == (0.0 if rank <= k else 1.0)
    assert top_k_error([[0.25] * 4] * 4, [0, 1, 2, 3], 3) == approx(0.25)
    assert top_k_error(TWO, [0, 0], 1) == error_rate(TWO, [0, 0])


def test_entropy_by_hand() -> None:
    assert entropy([[0.5, 0.5], [1.0, 0.0]]) == approx(math.log(2) / 2)
    assert entropy([[0.5, 0.5], [1.0, 0.0]], [3, 1]) == approx(math.log(2) * 0.75)
    assert entropy_rows([[0.25] * 4, [1.0, 0.0]]) == approx([math.log(4), 0.0])


def test_kl_by_hand() -> None:
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert kl([[0.5, 0.5]], [[0.25, 0.75]]) == approx(expected)
    assert kl([[0.5, 0.5], [1.0, 0.0]], [[0.25, 0.75], [1.0, 0.0]]) == approx(expected / 2)
    assert kl([[1.0, 0.0]], [[0.5, 0.5]]) == approx(math.log(2))
    assert kl([[0.5, 0.5]], [[1.0, 0.0]]) == INF


# --- correct and wrong ---------------------------------------------------------------------------


def test_split_by_correct_by_hand() -> None:
    assert split_by_correct([1, 5, 3], [1, 0, 1]) == (2.0, 5.0)
    assert split_by_correct([1, 5], [1, 1]) == approx((3.0, math.nan))
    assert split_by_correct([1, 5], [0, 0]) == approx((math.nan, 3.0))


def test_s99_by_hand() -> None:
    assert s99([0.99, 0.995, 1.0], [0, 1, 0]) == approx((2 / 3, 0.5))
    assert s99([0.99, 0.995, 1.0], [0, 1, 0], [1, 3, 0]) == approx((0.75, 1.0))
    assert s99([0.5], [1]) == approx((0.0, math.nan))


def test_aurc_by_hand() -> None:
    assert aurc([0.7, 0.9, 0.8], [1, 1, 0]) == approx(5 / 18)  # 0, 1/2, 1/3
    assert aurc([0.9, 0.9], [1, 0]) == approx(0.5)
    assert aurc([0.5, 0.9, 0.5], [0, 1, 1]) == approx((0 + 1 / 4 + 1 / 3) / 3)


# --- invariances -------------------------------------------------------------------------------


def sample(n: int, seed: int) -> tuple[list[float], list[float], list[float]]:
    """Confidences with many ties, correct a little less often than they say, and weights."""
    rng = random.Random(seed)
    confidence = [rng.choice([rng.random(), rng.randrange(17) / 16]) for _ in range(n)]
    correct = [float(rng.random() < 0.9 * c) for c in confidence]
    return confidence, correct, [rng.choice([0.5, 1.0, rng.random()]) for _ in range(n)]


def rows(n: int, seed: int) -> tuple[list[list[float]], list[int], list[float]]:
    """Rows of three probabilities, ties among them, labels, and weights."""
    rng = random.Random(seed)
    probs = []
    for _ in range(n):
        parts = [rng.randrange(1, 9) for _ in range(3)]
        probs.append([part / sum(parts) for part in parts])
    return probs, [rng.randrange(3) for _ in range(n)], [rng.random() for _ in range(n)]


def posterior_like(probs: list[list[float]], labels: list[int]) -> list[list[float]]:
    return [
        [q / 2 + (k == y) / 2 for k, q in enumerate(p)] for p, y in zip(probs, labels, strict=True)
    ]


Metric = Callable[..., object]

WEIGHTED: dict[str, tuple[str, Metric]] = {
    "width_bins": ("top", lambda c, y, w=None: sum(width_bins(c, y, 7, w), ())),
    "mass_bins": ("top", lambda c, y, w=None: sum(mass_bins(c, y, 7, w), ())),
    "ece": ("top", lambda c, y, w=None: ece(c, y, 7, weights=w)),
    "ece l2": ("top", lambda c, y, w=None: ece(c, y, 7, "l2", w)),
    "mce": ("top", lambda c, y, w=None: mce(c, y, 7, w)),
    "ada_ece": ("top", lambda c, y, w=None: ada_ece(c, y, 7, weights=w)),
    "ada_ece l2": ("top", lambda c, y, w=None: ada_ece(c, y, 7, "l2", w)),
    "ada_ece max": ("top", lambda c, y, w=None: ada_ece(c, y, 7, "max", w)),
    "ks_error": ("top", ks_error),
    "confidence_gap": ("top", confidence_gap),
    "mmce": ("top", mmce),
    "mmce_weighted": ("top", mmce_weighted),
    "smooth_ece": ("top", smooth_ece),
    "s99": ("top", s99),
    "classwise_ece": ("rows", lambda p, y, w=None: classwise_ece(p, y, 7, w)),
    "nll": ("rows", nll),
    "focal": ("rows", lambda p, y, w=None: focal(p, y, 2.5, w)),
    "brier": ("rows", brier),
    "brier_decomposition": ("rows", lambda p, y, w=None: brier_decomposition(p, y, 7, w)),
    "error_rate": ("rows", error_rate),
    "top_k_error": ("rows", lambda p, y, w=None: top_k_error(p, y, 2, w)),
    "entropy": ("rows", lambda p, y, w=None: entropy(p, w)),
    "kl": ("rows", lambda p, y, w=None: kl(posterior_like(p, y), p, w)),
}
TOLERANCE = dict.fromkeys(WEIGHTED, 1e-13) | {"smooth_ece": 1e-6}  # one step of its bisection
UNWEIGHTED: dict[str, tuple[str, Metric]] = {
    "debiased_ece": ("top", lambda c, y: debiased_ece(c, y, 7)),
    "aurc": ("top", aurc),
    "split_by_correct": ("top", split_by_correct),
}


def inputs(kind: str, n: int = 45, seed: int = 5) -> tuple[list, list, list[float]]:
    return sample(n, seed) if kind == "top" else rows(n, seed)


def repeat(values: list, times: list[int]) -> list:
    return [value for value, k in zip(values, times, strict=True) for _ in range(k)]


@pytest.mark.parametrize("name", [*WEIGHTED, *UNWEIGHTED])
def test_row_order_is_irrelevant(name: str) -> None:
    kind, metric = (WEIGHTED | UNWEIGHTED)[name]
    first, second, weights = inputs(kind)
    order = random.Random(6).sample(range(len(first)), len(first))
    shuffled, shuffled_second, shuffled_weights = (
        [values[i] for i in order] for values in (first, second, weights)
    )
    assert metric(shuffled, shuffled_second) == metric(first, second)  # to the last digit
    if name in WEIGHTED:
        assert metric(shuffled, shuffled_second, shuffled_weights) == metric(first, second, weights)


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_whole_weight_repeats_the_sample(name: str) -> None:
    kind, metric = WEIGHTED[name]
    first, second, _ = inputs(kind)
    times = [random.Random(i).randrange(4) for i in range(len(first))]
    assert 0 in times
    repeated = metric(repeat(first, times), repeat(second, times))
    assert metric(first, second, [float(k) for k in times]) == approx(repeated, TOLERANCE[name])


@pytest.mark.parametrize("name", sorted(set(WEIGHTED) - {"width_bins", "mass_bins"}))
def test_only_the_ratios_of_weights_matter_when_none_is_whole(name: str) -> None:
    kind, metric = WEIGHTED[name]
    first, second, _ = inputs(kind)
    weights = [0.5 + random.Random(i).random() / 4 for i in range(len(first))]
    halved = metric(first, second, [w / 2 for w in weights])
    assert halved == approx(metric(first, second, weights), TOLERANCE[name])


@pytest.mark.parametrize("name", [*WEIGHTED, *UNWEIGHTED])
def test_arrays_give_what_lists_give(name: str) -> None:
    kind, metric = (WEIGHTED | UNWEIGHTED)[name]
    first, second, _ = inputs(kind)
    assert metric(np.array(first), np.array(second)) == metric(first, second)


# --- real networks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("resnet110_c10", 0.0475035),
        ("resnet110_c100", 0.1848045),
        ("densenet40_c10", 0.0550027),
        ("densenet40_c100", 0.2115629),
        ("resnet50_birds", 0.0235350),
    ],
)
def test_ece_of_real_networks_agrees_with_two_public_sources(
    shared_data: Path, network: str, expected: float
) -> None:
    with np.load(shared_data / "top1" / f"markus93__probs_{network}_logits.npz") as data:
        confidence = data["confidence"]
        correct = data["true_label"] == data["pred_label"]
    assert ece(confidence, correct, 15) == pytest.approx(expected, abs=1e-7)
