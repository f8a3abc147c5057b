"""Bounds on a criterion and on the best T, whatever the unknown classes of truncated rows are.

At one (gamma, T) every row has a smallest and a largest confidence and log-probability of its label
(``TruncatedRows.bounds``). The mean NLL (or focal loss) is between the means of these.

For the equal-width calibration error, call a row *certain* if both ends of its confidence are in
one bin. With N rows, and G_b the sum of confidence - correctness over the rows of bin b,

    ECE = sum over b of |G_b| / N.

Each G_b is the sum over certain rows, which is between the sums of their ends, plus a sum over some
of the uncertain rows. Each uncertain row is in one bin and adds at most u, the larger of
|end - correctness|. So, by the triangle inequality,

    sum over b of min |certain G_b| - sum of u  <=  N ECE
    N ECE  <=  sum over b of max |certain G_b| + sum of u

and ECE >= |mean confidence - accuracy|, where the mean confidence is between those of the ends. No
such bounds are derived for equal-mass bins, whose edges move with the ranks of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from calibrant import _inputs
from calibrant._numerics.logspace import sigmoid
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.data import Floats, Samples
from calibrant.calibrators.fit_report import TailBounds
from calibrant.calibrators.temperature.methods import (
    FocalCalibration,
    FocalTemperatureScaling,
    Identity,
    TemperatureScaling,
)
from calibrant.calibrators.truncated.rows import CRITERIA, TruncatedRows
from calibrant.errors import CalibrantError
from calibrant.focal.loss import focal_of_cross_entropy
from calibrant.metrics.binning import width_index

At: TypeAlias = tuple[float, float]
"""A point (gamma, T)."""
AnyCalibrator = TypeVar("AnyCalibrator", bound=Calibrator)

METHODS = tuple(
    method.NAME
    for method in (Identity, TemperatureScaling, FocalCalibration, FocalTemperatureScaling)
)
"""Methods that need only the confidence and the label's probability of a row."""
FARTHEST = 2.0
"""Largest |log(T / best T)| of the temperatures that are compared with the best."""
FIRST_LOOK, SECOND_LOOK = 8, 6
"""Temperatures evaluated on each side of the best T, from 1/1000 to FARTHEST in log T; then between
the last that may be the best and the first that cannot."""


def fit_truncated_rows(calibrator: AnyCalibrator, rows: TruncatedRows) -> AnyCalibrator:
    """Fit ``calibrator`` on truncated rows.

    Args:
        calibrator: One of the methods in ``METHODS``; it is fitted in place, with an estimate of
            the unknown classes.
        rows: With labels.

    Returns:
        The calibrator. ``report_.tail_bounds`` has bounds that hold whatever the unknown classes
        are; None for ``ada_ece``, for which none are known.

    Examples:
        >>> import numpy as np
        >>> from calibrant import TemperatureScaling
        >>> from calibrant.calibrators import TruncatedRows, fit_truncated_rows
        >>> rng = np.random.default_rng(0)
        >>> logits = -4.0 * np.log(np.arange(1, 51)) + 0.3 * rng.normal(size=(2000, 50))
        >>> labels = (logits / 2.0 + rng.gumbel(size=logits.shape)).argmax(axis=1)
        >>> rows = TruncatedRows.of(
        ...     np.sort(logits)[:, -10:],
        ...     np.argsort(logits)[:, -10:],
        ...     labels,
        ...     n_classes=50,
        ...     normaliser=np.log(np.exp(logits).sum(axis=1)),
        ...     label_logits=logits[np.arange(2000), labels],
        ... )
        >>> bounds = fit_truncated_rows(TemperatureScaling(), rows).report_.tail_bounds
        >>> bounds.lowest < TemperatureScaling().fit(logits, labels).temperature_ < bounds.highest
        True
    """
    check_truncated_fit(calibrator)
    _inputs.some_labels(None if (rows.labels < 0).any() else rows.labels)
    calibrator.fit_samples(rows)
    calibrator.origin_ = calibrator.origin_.with_data("logits", rows.logits, rows.label_classes)
    calibrator.report_ = replace(calibrator.report_, tail_bounds=tail_bounds(rows, calibrator))
    return calibrator


def check_truncated_fit(calibrator: Calibrator) -> None:
    """Refuse a calibrator that cannot be fitted on truncated rows."""
    check_method_of_truncated_rows(calibrator.NAME)
    calibrator._check_params()
    _inputs.choice(getattr(calibrator, "criterion", "nll"), "criterion", CRITERIA)
    if isinstance(calibrator, FocalTemperatureScaling):
        _inputs.choice(calibrator.search, "search", ("grid",))


def tail_bounds(data: Samples, calibrator: Calibrator) -> TailBounds | None:
    """The bounds of a fit on ``data``: :class:`TruncatedRows`, or files of them."""
    criterion = calibrator.report_.criterion
    if criterion == "ada_ece":
        return None
    gamma = float(calibrator.state_.get("gamma", 0.0))
    best = float(calibrator.state_.get("temperature", 1.0))
    limits = _LimitsByTemperature(data, calibrator, gamma)
    if "temperature" not in calibrator.state_:
        limits.evaluate(np.array([best]))
        return TailBounds(criterion, *limits.known[best], None, None, False)
    steps = np.geomspace(1e-3, FARTHEST, FIRST_LOOK)
    limits.evaluate(best * np.exp(np.concatenate([-steps, [0.0], steps])))
    # The NLL is convex in 1/T: once it has risen, it stays higher.
    convex = gamma == 0.0 and criterion == "nll"
    ends = limits.ends(convex)
    between = [
        np.geomspace(inner, outer, SECOND_LOOK + 2)[1:-1]
        for inner, outer in ends
        if outer is not None
    ]
    if between:
        limits.evaluate(np.concatenate(between))
    (_, lowest), (_, highest) = limits.ends(convex)
    return TailBounds(criterion, *limits.known[best], lowest, highest, convex)


def criterion_limits(
    data: Samples, criterion: str, points: Sequence[At], *, n_bins: int, focal_gamma: float
) -> list[tuple[float, float]]:
    """Smallest and largest possible criterion at each point (gamma, T), in one pass."""
    like = criterion, n_bins, focal_gamma
    sums = np.asarray(data.summed(_sums_of_limits, like, tuple(points))) / len(data)
    if criterion == "ece":
        return [_error_limits(row, n_bins, data.accuracy) for row in sums]
    return [(float(low), float(high)) for low, high in sums]


class _LimitsByTemperature:
    """Limits of a fit's criterion at some temperatures, at one gamma."""

    def __init__(self, data: Samples, calibrator: Calibrator, gamma: float) -> None:
        self.data = data
        self.criterion = calibrator.report_.criterion
        self.n_bins = int(getattr(calibrator, "n_bins", 1))
        self.focal_gamma = float(getattr(calibrator, "focal_gamma", 0.0))
        self.gamma = gamma
        self.known: dict[float, tuple[float, float]] = {}

    def evaluate(self, temperatures: Floats) -> None:
        """Add the limits at these temperatures."""
        new = [float(t) for t in temperatures]
        limits = criterion_limits(
            self.data,
            self.criterion,
            [(self.gamma, t) for t in new],
            n_bins=self.n_bins,
            focal_gamma=self.focal_gamma,
        )
        self.known |= dict(zip(new, limits, strict=True))

    def ends(self, convex: bool) -> list[tuple[float, float | None]]:
        """On each side, the last T that may be the best and the next one, which cannot."""
        order = sorted(self.known)
        best = min(order, key=lambda t: self.known[t][1])
        to_beat = self.known[best][1]
        at = order.index(best)
        found: list[tuple[float, float | None]] = []
        for outward in (order[at::-1], order[at:]):
            out = [self.known[t][0] > to_beat for t in outward]
            if convex:
                first = out.index(True) if any(out) else len(out)
            else:
                first = len(out) - out[::-1].index(False)
            found.append((outward[first - 1], outward[first] if first < len(out) else None))
        return found


def _sums_of_limits(
    data: TruncatedRows, like: tuple[str, int, float], points: Sequence[At]
) -> Floats:
    """Sums over rows at each point, for :func:`criterion_limits`."""
    criterion, n_bins, focal_gamma = like
    sums = []
    for gamma, temperature in points:
        log_odds, true_log_prob, _ = data.bounds(gamma, 1.0 / temperature)
        if criterion == "ece":
            sums.append(_bin_sums(sigmoid(log_odds), data.correct, n_bins))
        else:
            losses = -true_log_prob[::-1]
            if criterion == "focal":
                losses = np.asarray(focal_of_cross_entropy(losses, focal_gamma))
            sums.append(losses.sum(axis=1))
    return np.array(sums)


def _bin_sums(ends: Floats, correct: Any, n_bins: int) -> Floats:
    """Sums of both ends of certain rows, by bin; of u of uncertain rows; of all ends."""
    bins = [width_index(end, n_bins) for end in ends]
    certain = bins[0] == bins[1]
    gaps = ends - correct
    by_bin = [np.bincount(bins[0][certain], weights=gap[certain], minlength=n_bins) for gap in gaps]
    uncertain = np.abs(gaps[:, ~certain]).max(axis=0).sum() if not certain.all() else 0.0
    return np.concatenate([*by_bin, [uncertain], ends.sum(axis=1)])


def _error_limits(means: Floats, n_bins: int, accuracy: float) -> tuple[float, float]:
    """Limits of the calibration error from the sums of :func:`_bin_sums` over N."""
    low, high = means[:n_bins], means[n_bins : 2 * n_bins]
    uncertain = means[2 * n_bins]
    least = float(_distance_from_zero(low, high).sum() - uncertain)
    mean_low, mean_high = means[2 * n_bins + 1 :] - accuracy
    overall = float(_distance_from_zero(mean_low, mean_high))
    most = float(np.maximum(np.abs(low), np.abs(high)).sum() + uncertain)
    return max(least, overall, 0.0), min(most, 1.0)


def _distance_from_zero(low: Any, high: Any) -> Floats:
    return np.asarray(np.maximum(np.maximum(low, -high), 0.0))


def check_method_of_truncated_rows(name: str) -> None:
    """Refuse a method that needs more than the confidence and the label's probability."""
    if name not in METHODS:
        raise CalibrantError(
            f"expected a method for truncated rows ({', '.join(METHODS)}), got {name!r}. Choose "
            "one of them, or log all logits of some rows"
        )
