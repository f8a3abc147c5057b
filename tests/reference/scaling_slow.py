r"""Temperature scaling and focal temperature scaling: slow, obvious, and the judge.

    q = softmax(s / T),   log h = log q - gamma log(1 - q) - log1p(gamma u),   Psi = h / sum h

The first half is NumPy in float64 and tries every point of a grid; the second half is mpmath and
finds the best temperature to 30 digits. Nothing of calibrant is imported. `logits` are n rows of K
numbers, -inf for an absent class; `labels` are n class numbers; a whole `weights` w means that the
row is there w times. Any other positive weight is a share of the mass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpmath import mp, mpf

PAPER_GAMMAS = (-0.5, -0.25, 0.0, 0.05, 0.25, 0.37, 0.5, 0.75, 1.0, 5.0)
PAPER_TEMPERATURES = tuple(i / 100 for i in range(1, 501))
CRITERIA = ("nll", "brier", "focal", "ece", "ada_ece")

Floats = np.ndarray[Any, np.dtype[np.float64]]


# --- the maps ----------------------------------------------------------------------------------


def softmax(logits: Any, temperature: float) -> Floats:
    """softmax(s / T), row by row."""
    s = np.asarray(logits, dtype=np.float64)
    e = np.exp((s - s.max(axis=1, keepdims=True)) / temperature)
    return e / e.sum(axis=1, keepdims=True)


def log_softmax_and_rest(logits: Any, temperature: float) -> tuple[Floats, Floats]:
    """log q and log(1 - q), the latter without ever subtracting a q above 1/2 from 1.

    The first largest class takes it from the sum of the others; no other class is above 1/2.
    """
    s = np.asarray(logits, dtype=np.float64)
    rows = np.arange(len(s))
    top = s.argmax(axis=1)
    z = (s - s[rows, top][:, None]) / temperature
    log_q = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    with np.errstate(divide="ignore"):
        log_rest = np.log1p(-np.minimum(np.exp(log_q), 0.5))
        others = z.copy()
        others[rows, top] = -np.inf
        runner_up = others.max(axis=1, keepdims=True)
        shift = np.where(np.isfinite(runner_up), runner_up, 0.0)
        log_others = shift[:, 0] + np.log(np.exp(others - shift).sum(axis=1))
    # q_top = 1 / (1 + O), 1 - q_top = O / (1 + O), O the weight of the others: at most K - 1.
    log_q[rows, top] = -np.log1p(np.exp(log_others))
    log_rest[rows, top] = log_others + log_q[rows, top]
    return log_q, log_rest


def focal_log_map(log_q: Floats, log_rest: Floats, gamma: float) -> Floats:
    """log Psi from log q and log(1 - q); gamma > -1."""
    if gamma == 0.0:
        return log_q
    # u = -q log q / (1 - q): 0 at q = 0 and 1 at q = 1.
    with np.errstate(invalid="ignore", over="ignore"):
        u = np.exp(log_q - log_rest) * -log_q
    u = np.where(np.isneginf(log_q), 0.0, u)
    u = np.where(log_rest < -36.0, 1.0, u)  # 1 - u = (1 - q) / 2 is below the last digit
    alone = np.isneginf(log_rest).any(axis=1, keepdims=True)  # one-hot: a fixed point
    with np.errstate(invalid="ignore"):
        log_h = log_q - gamma * log_rest - np.log1p(gamma * u)
    log_h = np.where(alone, log_q, log_h)
    log_h = log_h - log_h.max(axis=1, keepdims=True)
    return log_h - np.log(np.exp(log_h).sum(axis=1, keepdims=True))


def focal_log_probs(logits: Any, gamma: float, temperature: float) -> Floats:
    """log Psi^gamma(softmax(s / T))."""
    return focal_log_map(*log_softmax_and_rest(logits, temperature), gamma)


# --- the criteria ------------------------------------------------------------------------------


def criterion_value(
    criterion: str,
    log_probs: Floats,
    logits: Any,
    labels: Any,
    weights: Any = None,
    *,
    focal_gamma: float = 3.0,
    n_bins: int = 15,
) -> float:
    """One criterion of calibrated `log_probs`; right or wrong is told by the logits."""
    labels = np.asarray(labels)
    n = len(labels)
    w = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    log_p = log_probs[np.arange(n), labels]
    if criterion == "nll":
        return float((w * -log_p).sum() / w.sum())
    if criterion == "focal":
        loss = -((-np.expm1(log_p)) ** focal_gamma) * log_p
        return float((w * loss).sum() / w.sum())
    probs = np.exp(log_probs)
    if criterion == "brier":
        probs[np.arange(n), labels] = np.expm1(log_p)
        return float((w * (probs**2).sum(axis=1)).sum() / w.sum())
    confidence = probs.max(axis=1)
    correct = (np.asarray(logits).argmax(axis=1) == labels).astype(np.float64)
    error = {"ece": equal_width_ece, "ada_ece": equal_mass_ece}[criterion]
    return error(confidence, correct, n_bins, w)


def equal_width_ece(confidence: Floats, correct: Floats, n_bins: int, w: Floats) -> float:
    """sum over bins (i/M, (i+1)/M] of |sum w (confidence - correct)| / sum w."""
    edges = np.array([i / n_bins for i in range(n_bins + 1)])
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, n_bins - 1)
    gaps = np.bincount(place, weights=w * (confidence - correct))
    return float(np.abs(gaps).sum() / w.sum())


def equal_mass_ece(confidence: Floats, correct: Floats, n_bins: int, w: Floats) -> float:
    """The same over bins of equal mass; a group of ties is cut in proportion.

    Along the samples sorted by confidence, the sum of the gaps so far is a line through each group
    of ties, so that its values at the cuts give every bin.
    """
    values, group = np.unique(confidence, return_inverse=True)
    mass = np.bincount(group, weights=w, minlength=len(values))
    gap = np.bincount(group, weights=w * (confidence - correct), minlength=len(values))
    so_far = np.concatenate([[0.0], np.cumsum(mass)])
    gap_so_far = np.concatenate([[0.0], np.cumsum(gap)])
    gaps = np.diff(np.interp(mass_cuts(w, n_bins), so_far, gap_so_far))
    return float(np.abs(gaps).sum() / w.sum())


def mass_cuts(w: Floats, n_bins: int) -> Floats:
    """Where bins of equal mass end; of n samples, sizes differ by one and the larger come first."""
    total = float(w.sum())
    if not (w == np.floor(w)).all():
        return np.array([total * i / n_bins for i in range(n_bins + 1)])
    n = int(total)
    bins = min(n, n_bins)
    sizes = [n // bins + (1 if i < n % bins else 0) for i in range(bins)]
    return np.concatenate([[0.0], np.cumsum(sizes)])


# --- the exhaustive search ---------------------------------------------------------------------


def grid_tables(
    logits: Any,
    labels: Any,
    weights: Any = None,
    *,
    gammas: Sequence[float] = PAPER_GAMMAS,
    temperatures: Sequence[float] = PAPER_TEMPERATURES,
    criteria: Sequence[str] = CRITERIA,
    focal_gamma: float = 3.0,
    n_bins: int = 15,
) -> dict[str, Floats]:
    """Each criterion at every (gamma, T): arrays of shape (len(gammas), len(temperatures))."""
    tables = {name: np.empty((len(gammas), len(temperatures))) for name in criteria}
    for j, temperature in enumerate(temperatures):
        log_q, log_rest = log_softmax_and_rest(logits, temperature)
        for i, gamma in enumerate(gammas):
            log_probs = focal_log_map(log_q, log_rest, gamma)
            for name in criteria:
                tables[name][i, j] = criterion_value(
                    name,
                    log_probs,
                    logits,
                    labels,
                    weights,
                    focal_gamma=focal_gamma,
                    n_bins=n_bins,
                )
    return tables


def value_at(
    criterion: str,
    logits: Any,
    labels: Any,
    gamma: float,
    temperature: float,
    weights: Any = None,
    *,
    focal_gamma: float = 3.0,
    n_bins: int = 15,
) -> float:
    """One criterion at one (gamma, T), on the grid or off it."""
    return criterion_value(
        criterion,
        focal_log_probs(logits, gamma, temperature),
        logits,
        labels,
        weights,
        focal_gamma=focal_gamma,
        n_bins=n_bins,
    )


# --- the best temperature to 30 digits -----------------------------------------------------------


def best_temperature(
    criterion: str,
    logits: Any,
    labels: Any,
    weights: Any = None,
    *,
    focal_gamma: float = 3.0,
    digits: int = 30,
) -> mpf:
    """The T of the lowest nll, brier or focal loss; 0 or inf where the lowest value is a limit.

    A scan over 1/T finds the lowest valley (brier and the focal loss may have several), and
    bisection on the sign of the derivative there finds its floor. The scan is in units of the
    largest logit gap, from 1e-8 to 1e8 of it, ten points a decade.
    """
    rows = [[mpf(float(s)) for s in row] for row in logits]
    targets = [int(label) for label in labels]
    masses = [mpf(1)] * len(rows) if weights is None else [mpf(float(w)) for w in weights]
    problem = _Problem(criterion, rows, targets, masses, mpf(focal_gamma))
    with mp.workdps(2 * digits):
        scale = max(max(row) - s for row in rows for s in row if s != -mp.inf)
        if scale == 0:
            raise ValueError("every logit of a row is the same: any temperature is as good")
        betas = [mp.mpf(10) ** (mpf(k) / 10) / scale for k in range(-80, 81)]
        values = [problem.value(beta) for beta in betas]
        best = min(range(len(betas)), key=values.__getitem__)
        if problem.limit_at_zero() <= values[best]:
            return mp.inf
        if problem.limit_at_infinity() <= values[best]:
            return mpf(0)
        if best in (0, len(betas) - 1):
            raise ArithmeticError("the lowest value lies outside the scan")
        return 1 / _bisected(problem.slope, betas[best - 1], betas[best + 1])


def _bisected(slope: Callable[[mpf], mpf], low: mpf, high: mpf) -> mpf:
    if not slope(low) < 0 < slope(high):
        raise ArithmeticError("the scan is too coarse: no single valley between its points")
    while high - low > mp.eps * 8 * high:
        middle = (low + high) / 2
        if slope(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class _Problem:
    """A criterion as a function of beta = 1/T, with its derivative and its two limits."""

    def __init__(
        self,
        criterion: str,
        rows: list[list[mpf]],
        labels: list[int],
        weights: list[mpf],
        focal_gamma: mpf,
    ) -> None:
        self.criterion = criterion
        self.samples = list(zip(rows, labels, weights, strict=True))
        self.total = sum(weights, mpf(0))
        self.focal_gamma = focal_gamma

    def value(self, beta: mpf) -> mpf:
        losses = (w * self._loss(*_odds(s, y, beta), y) for s, y, w in self.samples)
        return sum(losses, mpf(0)) / self.total

    def slope(self, beta: mpf) -> mpf:
        slopes = (w * self._slope(s, y, beta) for s, y, w in self.samples)
        return sum(slopes, mpf(0)) / self.total

    def limit_at_zero(self) -> mpf:
        """T -> inf: uniform over the classes that are there."""
        return self.value(mpf(0))

    def limit_at_infinity(self) -> mpf:
        """T -> 0: uniform over the classes tied at the top."""
        total = mpf(0)
        for s, y, w in self.samples:
            ties = [0 if v == max(s) else -mp.inf for v in s]
            total += w * self._loss(*_odds(ties, y, mpf(1)), y)
        return total / self.total

    def _loss(self, odds: mpf, probs: list[mpf], label: int) -> mpf:
        """From the odds against the label, (1 - p) / p, which never round away."""
        if odds == mp.inf and self.criterion != "brier":
            return mp.inf
        if self.criterion == "nll":
            return mp.log1p(odds)
        if self.criterion == "focal":
            rest = odds / (1 + odds)
            return (rest**self.focal_gamma if rest else mpf(0)) * mp.log1p(odds)
        if self.criterion == "brier":
            rest = mpf(1) if odds == mp.inf else odds / (1 + odds)
            return rest**2 + sum((q**2 for k, q in enumerate(probs) if k != label), mpf(0))
        raise ValueError(f"expected nll, brier or focal, got {self.criterion!r}")

    def _slope(self, s: list[mpf], y: int, beta: mpf) -> mpf:
        """Derivative by beta, from dq_k = q_k (s_k - mean s) and d(-log p) = mean s - s_y."""
        odds, probs = _odds(s, y, beta)
        finite = [(q, v) for q, v in zip(probs, s, strict=True) if v != -mp.inf]
        # mean - s_y as a sum of differences, so that nothing is lost where p is near 1.
        away = sum((q * (v - s[y]) for q, v in finite), mpf(0))
        if self.criterion == "nll":
            return away
        if self.criterion == "focal":
            g, rest, c = self.focal_gamma, odds / (1 + odds), mp.log1p(odds)
            if rest == 0:
                return mpf(0)
            return (rest**g + g * rest ** (g - 1) * (1 - rest) * c) * away
        mean = s[y] + away
        slope = mpf(0)
        for k, (q, v) in enumerate(zip(probs, s, strict=True)):
            if v != -mp.inf:
                gap = -odds / (1 + odds) if k == y else q
                slope += 2 * gap * q * (v - mean)
        return slope


def _odds(s: Sequence[mpf], label: int, beta: mpf) -> tuple[mpf, list[mpf]]:
    """(1 - p) / p of the label, and softmax(beta s)."""
    top = max(s)
    weights = [mp.exp(beta * (v - top)) if v != -mp.inf else mpf(0) for v in s]
    others = sum((w for k, w in enumerate(weights) if k != label), mpf(0))
    odds = others / weights[label] if weights[label] else mp.inf
    total = sum(weights, mpf(0))
    return odds, [w / total for w in weights]
