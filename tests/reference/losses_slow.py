"""The training losses in plain Python and mpmath: slow, obvious, and the judge.

Rows are lists of numbers, loops are written out, and nothing of the library is imported. Single
losses come from `focal_mpmath`; here are gradients, reductions, AdaFocal and the published MMCE.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mpmath import mp, mpf

from tests.reference import focal_mpmath as oracle

# --- one sample --------------------------------------------------------------------------------


def loss(logits_row: Sequence[float], label: int, gamma: float) -> mpf:
    """-(1-p)^gamma log p, or -(1+p)^|gamma| log p for gamma < 0."""
    if gamma >= 0:
        return oracle.focal_loss(logits_row, label, gamma)
    return oracle.inverse_focal_loss(logits_row, label, -gamma)


def slope(odds: mpf, gamma: float) -> mpf:
    """The derivative of the loss in c = -log p at p = 1 / (1 + odds)."""
    if gamma >= 0:
        return oracle.phi_at_odds(odds, gamma)
    p, c, k = 1 / (1 + odds), mp.log1p(odds), -mpf(gamma)
    return (1 + p) ** k - k * (1 + p) ** (k - 1) * p * c


def gradient(logits_row: Sequence[float], label: int, gamma: float) -> list[mpf]:
    """d loss / d logits = slope * (q - one-hot), with 1 - q of the label from the others."""
    odds = oracle.odds_against([mp.exp(mpf(s)) for s in logits_row])
    factor = slope(odds[label], gamma)
    return [factor * (-t / (1 + t) if i == label else 1 / (1 + t)) for i, t in enumerate(odds)]


# --- batches, as torch.nn.CrossEntropyLoss has them ---------------------------------------------


def of_labels(
    rows: Sequence[Sequence[float]],
    labels: Sequence[int],
    gammas: Sequence[float],
    weight: Sequence[float] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    smoothing: float = 0.0,
) -> list[float] | float:
    """Class indices, a gamma for each row; smoothing spreads a part over all classes."""
    losses, total = [], 0.0
    for row, label, gamma in zip(rows, labels, gammas, strict=True):
        if label == ignore_index:
            losses.append(0.0)
            continue
        w = [1.0] * len(row) if weight is None else weight
        each = [float(loss(row, k, gamma)) * w[k] for k in range(len(row))]
        spread = smoothing / len(row) * math.fsum(each) if smoothing else 0.0
        losses.append((1 - smoothing) * each[label] + spread)
        total += w[label]
    if reduction == "none":
        return losses
    return math.fsum(losses) / (total or 1.0) if reduction == "mean" else math.fsum(losses)


def of_probabilities(
    rows: Sequence[Sequence[float]],
    targets: Sequence[Sequence[float]],
    gammas: Sequence[float],
    weight: Sequence[float] | None = None,
    smoothing: float = 0.0,
) -> float:
    """Mean over rows of sum_k v_k w_k loss_k."""
    losses = []
    for row, target, gamma in zip(rows, targets, gammas, strict=True):
        for k, v in enumerate(target):
            v = v * (1 - smoothing) + smoothing / len(row)
            w = 1.0 if weight is None else weight[k]
            if v:
                losses.append(v * w * float(loss(row, k, gamma)))
    return math.fsum(losses) / len(rows)


# --- AdaFocal ----------------------------------------------------------------------------------


def adafocal(
    gammas: Sequence[float], confidence: Sequence[float], correct: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Inner edges and gammas after one validation set, for confidences without ties.

    Bins by rank, sizes differing by at most one, the first larger; rate 1, switch at 0.2, [-2, 20].
    """
    order = sorted(range(len(confidence)), key=lambda i: confidence[i])
    size, larger = divmod(len(order), len(gammas))
    uppers, moved, start = [], [], 0
    for b, gamma in enumerate(gammas):
        stop = start + size + (1 if b < larger else 0)
        members = order[start:stop]
        gap = sum(confidence[i] - correct[i] for i in members) / len(members)
        gamma *= math.exp(gap if gamma > 0 else -gap)
        if abs(gamma) < 0.2:
            gamma = -0.2 if gamma > 0 else 0.2
        moved.append(min(20.0, max(-2.0, gamma)))
        uppers.append(confidence[order[stop - 1]])
        start = stop
    return uppers[:-1], moved


# --- MMCE as it is in the code published with the papers -----------------------------------------


def published_mmce(confidence: Sequence[float], correct: Sequence[int]) -> float:
    """The plain form without the root: the square of the measure."""
    pairs = [
        (c - r) * (d - s) * math.exp(-abs(r - s) / 0.4)
        for r, c in zip(confidence, correct, strict=True)
        for s, d in zip(confidence, correct, strict=True)
    ]
    return math.fsum(pairs) / len(confidence) ** 2


def published_mmce_weighted(confidence: Sequence[float], correct: Sequence[int]) -> float:
    """Means over pairs, divided by the numbers of pairs once more; 0 without both groups."""
    right = [r for r, c in zip(confidence, correct, strict=True) if c]
    wrong = [r for r, c in zip(confidence, correct, strict=True) if not c]
    if not right or not wrong:
        return 0.0

    def mean(a: Sequence[float], b: Sequence[float], of_a: str, of_b: str) -> float:
        value = {"rest": lambda r: 1 - r, "own": lambda r: r}
        terms = [
            value[of_a](r) * value[of_b](s) * math.exp(-abs(r - s) / 0.4) for r in a for s in b
        ]
        return math.fsum(terms) / len(terms)

    n, m = len(right), len(wrong)
    square = mean(right, right, "rest", "rest") / (n * n + 1e-5)
    square += mean(wrong, wrong, "own", "own") / (m * m + 1e-5)
    square -= 2 * mean(right, wrong, "rest", "own") / (n * m + 1e-5)
    return math.sqrt(square + 1e-10)
