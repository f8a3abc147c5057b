"""Every metric against a slow, obvious reference, on random and hostile inputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calibrant import METRICS, metrics
from calibrant.metrics.evaluation import POSITIVE_METRICS
from tests.reference import metrics_slow as slow

RNG = np.random.default_rng(7)


def peaked(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident predictions with some exact ties, zeros and ones."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n_classes, 0.3), size=n)
    labels = np.array([rng.choice(n_classes, p=0.7 * p + 0.3 / n_classes) for p in probs])
    probs[: n // 5] = np.round(probs[: n // 5], 1)
    probs[: n // 5, -1] += 1.0 - probs[: n // 5].sum(-1)
    probs = np.clip(probs, 0, None)
    probs /= probs.sum(-1, keepdims=True)
    probs[0] = np.eye(n_classes)[0]
    labels[0] = 0
    return probs, labels


CASES = {
    "ordinary": peaked(400, 5, seed=0),
    "binary": peaked(400, 2, seed=1),
    "many classes": peaked(200, 50, seed=2),
    "fewer samples than bins": peaked(7, 3, seed=3),
    "one sample": peaked(1, 3, seed=4),
    "all tied": (np.full((20, 2), 0.5), RNG.integers(0, 2, 20)),
    "all certain": (np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 0])),
    "always wrong": (np.tile([0.7, 0.2, 0.1], (9, 1)), np.ones(9, dtype=int)),
    "on the edges": (
        np.stack([np.arange(8, 16) / 15, 1 - np.arange(8, 16) / 15], axis=-1),
        RNG.integers(0, 2, 8),
    ),
}

TOP_LABEL = {
    "ece": slow.ece,
    "mce": slow.mce,
    "ada_ece": slow.ada_ece,
    "debiased_ece": slow.debiased_ece,
    "ks_error": slow.ks_error,
    "confidence_gap": slow.confidence_gap,
    "mmce": slow.mmce,
    "mmce_weighted": slow.mmce_weighted,
    "aurc": slow.aurc,
    "s99": lambda c, y: slow.s99(c, y)[0],
    "s99_accuracy": lambda c, y: slow.s99(c, y)[1],
}
ALL_CLASSES = {
    "classwise_ece": slow.classwise_ece,
    "nll": slow.nll,
    "brier": slow.brier,
    "error_rate": slow.error_rate,
    "entropy": lambda p, y: slow.entropy(p),
    "top_k_error": lambda p, y: slow.top_k_error(p, y, 2),
    "focal_loss": lambda p, y: slow.focal(p, y, 3.0),
}
POSITIVE = {
    "positive_ece": slow.ece,
    "positive_ada_ece": slow.ada_ece,
    "prevalence_gap": slow.confidence_gap,
}
OPTIONS = {"top_k_error": {"k": 2}}


def case_for(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Samples that a metric accepts."""
    return CASES["binary" if name in POSITIVE_METRICS else "ordinary"]


def expected_of(name: str, probs: np.ndarray, labels: np.ndarray) -> float:
    if name in TOP_LABEL:
        return TOP_LABEL[name](*slow.top_label(probs, labels))
    return ALL_CLASSES[name](probs, labels)


@pytest.mark.parametrize("name", sorted([*TOP_LABEL, *ALL_CLASSES]))
def test_agrees_with_the_reference(name):
    for case, (probs, labels) in CASES.items():
        said = METRICS[name](probs, labels, **OPTIONS.get(name, {}))
        expected = expected_of(name, probs, labels)
        assert said == pytest.approx(
            expected, rel=1e-11, abs=1e-8 if "mmce" in name else 1e-12, nan_ok=True
        ), case


@pytest.mark.parametrize("case", ["binary", "all tied", "on the edges"])
@pytest.mark.parametrize("name", sorted(POSITIVE))
def test_two_classes_are_one_probability(name, case):
    probs, labels = CASES[case]
    expected = POSITIVE[name](probs[:, 1], labels == 1)
    assert METRICS[name](probs, labels) == pytest.approx(expected, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize(
    "case",
    [
        case if case == "many classes" else pytest.param(case, marks=pytest.mark.slow)
        for case in sorted(CASES)
    ],
)
def test_smooth_ece_agrees_with_the_integral(case):
    probs, labels = CASES[case]
    expected = slow.smooth_ece(*slow.top_label(probs, labels))
    assert METRICS["smooth_ece"](probs, labels) == pytest.approx(expected, abs=3e-4)


@pytest.mark.parametrize(
    ("norm", "n_bins"),
    [
        ("l1", 1),
        ("l1", 2),
        ("l1", 15),
        pytest.param("l1", 1000, marks=pytest.mark.slow),
        ("l2", 1),
        ("l2", 15),
        ("max", 1),
        ("max", 15),
    ],
)
def test_norms_and_bins(norm, n_bins):
    probs, labels = CASES["ordinary"]
    top = slow.top_label(probs, labels)
    for name in ("ece", "ada_ece"):
        said = METRICS[name](probs, labels, n_bins=n_bins, norm=norm)
        assert said == pytest.approx(getattr(slow, name)(*top, n_bins, norm), rel=1e-11)


def test_split_by_right_and_wrong():
    probs, labels = CASES["ordinary"]
    _, correct = slow.top_label(probs, labels)
    right, wrong = slow.split_by_correct(slow.entropy_rows(probs), correct)
    assert metrics.entropy_correct(probs, labels) == pytest.approx(right, rel=1e-12)
    assert metrics.entropy_wrong(probs, labels) == pytest.approx(wrong, rel=1e-12)
    soft = 0.99 * probs + 0.01 / 5
    right, wrong = slow.split_by_correct(slow.nll_rows(soft, labels), correct)
    assert metrics.nll_correct(soft, labels) == pytest.approx(right, rel=1e-12)
    assert metrics.nll_wrong(soft, labels) == pytest.approx(wrong, rel=1e-12)
    own = [p[y] for p, y in zip(soft, labels, strict=True)]
    right, wrong = slow.split_by_correct(own, correct)
    assert metrics.true_prob_correct(soft, labels) == pytest.approx(right, rel=1e-12)
    assert metrics.true_prob_wrong(soft, labels) == pytest.approx(wrong, rel=1e-12)


def test_brier_parts():
    probs, labels = CASES["ordinary"]
    parts = metrics.brier_decomposition(probs, labels)
    expected = slow.brier_decomposition(probs, labels)
    assert (parts.reliability, parts.resolution, parts.uncertainty) == pytest.approx(expected)
    whole = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bins
    assert whole == pytest.approx(metrics.brier(probs, labels))


def test_kl():
    probs, _ = CASES["ordinary"]
    other = 0.5 * probs + 0.1
    assert metrics.kl_to_posterior(other, probs) == pytest.approx(slow.kl(probs, other))
    assert metrics.kl_to_posterior(probs, probs) == 0.0
    with pytest.raises(ValueError, match="same shape"):
        metrics.kl_to_posterior(probs, probs[1:])


@pytest.mark.parametrize("name", sorted(METRICS))
def test_what_does_not_matter(name):
    """The order of rows, weights of 1, an ignored label, and leading axes."""
    probs, labels = case_for(name)
    options = OPTIONS.get(name, {})
    said = METRICS[name](probs, labels, **options)
    same = {"rel": 1e-9, "abs": 1e-12, "nan_ok": True}
    order = np.random.default_rng(3).permutation(len(labels))
    assert METRICS[name](probs[order], labels[order], **options) == pytest.approx(said, **same)
    ones = np.ones(len(labels))
    assert METRICS[name](probs, labels, sample_weight=ones, **options) == pytest.approx(
        said, **same
    )
    map_shaped = METRICS[name](probs.reshape(20, 20, -1), labels.reshape(20, 20), **options)
    assert map_shaped == pytest.approx(said, **same)
    more = np.concatenate([probs, probs[:3]]), np.append(labels, [-100] * 3)
    assert METRICS[name](*more, ignore_label=-100, **options) == pytest.approx(said, **same)
    assert METRICS[name](*map(torch.from_numpy, (probs, labels)), **options) == pytest.approx(
        said, **same
    )


@pytest.mark.parametrize("name", sorted(METRICS))
def test_whole_weights_are_repetitions(name):
    probs, labels = case_for(name)
    options = OPTIONS.get(name, {})
    weight = np.random.default_rng(5).integers(0, 4, len(labels))
    repeated = np.repeat(np.arange(len(labels)), weight)
    if name == "n_impossible":
        pytest.skip("counts rows, whatever their weight")
    said = METRICS[name](probs, labels, sample_weight=weight, **options)
    expected = METRICS[name](probs[repeated], labels[repeated], **options)
    close = 0.02 if name == "aurc" else 1e-9  # steps of coverage are of whole rows
    assert said == pytest.approx(expected, rel=close, abs=1e-12)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_logits_give_what_their_probabilities_give(name):
    k = 2 if name in POSITIVE_METRICS else 6
    logits = 3.0 * np.random.default_rng(8).standard_normal((300, k))
    labels = np.random.default_rng(9).integers(0, k, 300)
    logits[np.arange(300), labels] += 2.0
    logits[0] = [0, -np.inf, 1, 2, -np.inf, 0][:k]
    labels[0] = 3 if k > 2 else 0
    probs = torch.softmax(torch.from_numpy(logits), dim=-1).numpy()
    options = OPTIONS.get(name, {})
    said = METRICS[name](logits=logits, labels=labels, **options)
    assert said == pytest.approx(METRICS[name](probs, labels, **options), rel=1e-9, abs=1e-12)
    narrow = METRICS[name](logits=logits.astype(np.float16), labels=labels, **options)
    assert narrow == pytest.approx(said, rel=0.1, abs=0.02)


@pytest.mark.slow
def test_twenty_million_samples_in_one_bin():
    n = 20_000_000
    probs = np.broadcast_to(np.array([0.95, 0.05], dtype=np.float32), (n, 2))
    labels = np.zeros(n, dtype=np.int8)
    labels[::2] = 1
    assert metrics.ece(probs, labels) == pytest.approx(0.45, abs=1e-6)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_bad_input_is_refused(name):
    probs, labels = CASES["ordinary"]
    options = OPTIONS.get(name, {})
    broken = probs.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN in row 3"):
        METRICS[name](broken, labels, **options)
    with pytest.raises(ValueError, match="NaN in row 3"):
        METRICS[name](logits=broken, labels=labels, **options)
    with pytest.raises(ValueError, match="sum to 1"):
        METRICS[name](2 * probs, labels, **options)
    negative = probs.copy()
    negative[2] = [-0.5, 0.5, 0.5, 0.5, 0.0]
    with pytest.raises(ValueError, match=r"negative; found -0\.5 in row 2"):
        METRICS[name](negative, labels, **options)
    infinite = probs.copy()
    infinite[1, 4] = np.inf
    with pytest.raises(ValueError, match=r"\+inf in row 1"):
        METRICS[name](logits=infinite, labels=labels, **options)
    with pytest.raises(ValueError, match="labels must be between 0 and 4"):
        METRICS[name](probs, labels + 1, **options)
    with pytest.raises(ValueError, match="exactly one of probs or logits"):
        METRICS[name](probs, labels, logits=probs, **options)
    with pytest.raises(ValueError, match="exactly one of probs or logits is needed; found neither"):
        METRICS[name](labels=labels, **options)
    with pytest.raises(ValueError, match="at least one sample"):
        METRICS[name](probs[:0], labels[:0], **options)
    with pytest.raises(ValueError, match="at least one sample"):
        METRICS[name](probs, labels, sample_weight=(labels == 4) * 1.0, ignore_label=4, **options)
    with pytest.raises(ValueError, match="sample_weight must be finite"):
        METRICS[name](probs, labels, sample_weight=-np.ones(400), **options)


def test_half_precision_and_other_layouts():
    probs, labels = CASES["ordinary"]
    said = metrics.ece(probs, labels)
    half = metrics.ece(probs.astype(np.float16), np.append(labels[:-1], -1), ignore_label=-1)
    assert half == pytest.approx(said, abs=0.01)
    for same in (probs.astype(">f8"), np.asfortranarray(probs), probs.astype(np.longdouble)):
        assert metrics.ece(same, labels.astype(np.uint8)) == pytest.approx(said, rel=1e-12)
    broken = probs.copy()
    broken[[5, 30]] = np.nan
    with pytest.raises(ValueError, match="NaN in row 30"):
        metrics.ece(broken, np.where(np.arange(400) < 20, -1, labels), ignore_label=-1)
    with pytest.raises(ValueError, match="ignore_label must be a whole number"):
        metrics.ece(probs, labels, ignore_label=1.5)


def test_an_impossible_label_is_counted():
    probs, labels = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0])
    assert metrics.nll(probs, labels) == np.inf
    assert metrics.n_impossible(probs, labels) == 1
    assert metrics.nll(probs, labels, sample_weight=[0.0, 1.0]) == pytest.approx(np.log(2))


@pytest.mark.parametrize("name", ["ada_ece", "debiased_ece", "ks_error", "aurc"])
def test_the_order_of_the_classes_does_not_matter(name):
    """Sums over classes in another order differ in their last bits, and must not part ties."""
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(12, 6)) * 3
    logits = kinds[rng.integers(12, size=500)]
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    orders = np.argsort(rng.random(logits.shape), axis=1)
    shuffled = np.take_along_axis(logits, orders, axis=1)
    moved = np.argmax(orders == labels[:, None], axis=1)
    said = METRICS[name](logits=logits, labels=labels)
    assert METRICS[name](logits=shuffled, labels=moved) == pytest.approx(said, rel=1e-11)
