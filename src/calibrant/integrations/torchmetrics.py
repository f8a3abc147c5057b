"""The metrics of calibrant as metrics of torchmetrics: same numbers, ``(preds, target)``.

They work in a ``MetricCollection`` and in Lightning's ``self.log``, and add up over processes.
``preds`` are (N, C) or (N, C, ...), as in torchmetrics: probabilities if all entries are between 0
and 1, else logits. Where this rule would be wrong, for logits that all happen to be between 0 and
1, the rows do not sum to 1 and are refused.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from calibrant import _inputs
from calibrant.errors import CalibrantError

_inputs.installed(
    "torch", "torchmetrics", extra="torchmetrics", purpose="calibrant.integrations.torchmetrics"
)

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from calibrant.calibrators.torch_layer import in_double
from calibrant.metrics.binning import BinTable, EqualWidthBins, width_edges
from calibrant.metrics.calibration import (
    MOST_BINS,
    NORMS,
    ada_ece,
    class_sums,
    error_of_table,
)
from calibrant.metrics.resampling import ROWS
from calibrant.metrics.samples import (
    Floats,
    ScoredSamples,
    samples_from_scores,
    samples_of_confidence,
)

MOST_CLASSES = range(2, 2**31)


class _Metric(Metric):
    """Checks batches, and computes in double precision."""

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    def __init__(self, *, ignore_index: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.ignore_index = _inputs.ignored_label(ignore_index)
        self.set_dtype(torch.float64)

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Count one more batch, which may be empty."""
        check_shapes(preds, target)
        if target.numel() == 0 or _inputs.all_ignored(target, self.ignore_index):
            return
        scores = preds.detach().movedim(1, -1)
        largest = 1.0 + _inputs.sum_tolerance(scores)
        kind = "probs" if bool(((scores >= 0) & (scores <= largest)).all()) else "logits"
        given: dict[str, Any] = {kind: scores}
        self._count(samples_from_scores(labels=target, ignore_label=self.ignore_index, **given))

    def compute(self) -> Tensor:
        """The metric of all samples counted so far; NaN if there are none."""
        return torch.tensor(self._value(), dtype=self.dtype, device=self.device)

    @abstractmethod
    def _count(self, samples: ScoredSamples) -> None:
        """Add samples to the state."""

    @abstractmethod
    def _value(self) -> float:
        """The metric of the state."""

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Any = "") -> Any:
        """Move to the device of the module but keep the types: half precision cannot count."""
        return super()._apply(in_double(fn), exclude_state)


class _OfSums(_Metric):
    """Keeps sums over samples, which do not grow with their number."""

    n: Tensor
    sums: Tensor

    def __init__(self, shape: tuple[int, ...], **options: Any) -> None:
        super().__init__(**options)
        self.add_state("n", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("sums", torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def _count(self, samples: ScoredSamples) -> None:
        self.n += len(samples)
        self.sums += torch.from_numpy(self._sums_of(samples)).to(self.sums)

    def _value(self) -> float:
        n, sums = int(self.n), _inputs.as_numpy(self.sums).astype(np.float64)
        return self._of_sums(sums, n) if n > 0 else float("nan")

    @abstractmethod
    def _sums_of(self, samples: ScoredSamples) -> Floats:
        """What the samples add to the sums."""

    @abstractmethod
    def _of_sums(self, sums: Floats, n: int) -> float:
        """The metric of ``n`` samples with these sums."""


class CalibrationError(_OfSums):
    """:func:`calibrant.ece`, the expected calibration error over equal-width bins.

    Args:
        n_bins: Number of bins.
        norm: ``"l1"`` (ECE), ``"l2"`` or ``"max"`` (MCE).
        ignore_index: Rows with this target do not count.
        **options: Those of ``torchmetrics.Metric``; the same for the other metrics.

    Examples:
        >>> import torch
        >>> from calibrant.integrations.torchmetrics import CalibrationError
        >>> metric = CalibrationError()
        >>> metric.update(torch.tensor([[2.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 1]))
        >>> metric.compute().round(decimals=4)
        tensor(0.0833, dtype=torch.float64)
    """

    def __init__(self, *, n_bins: int = 15, norm: str = "l1", **options: Any) -> None:
        n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
        super().__init__((5, n_bins), **options)
        self.n_bins, self.norm = n_bins, _inputs.choice(norm, "norm", NORMS)

    def _sums_of(self, samples: ScoredSamples) -> Floats:
        bins = EqualWidthBins(self.n_bins)
        bins.update(samples.confidence, samples.correct)
        return bins.sums

    def _of_sums(self, sums: Floats, n: int) -> float:
        edges = width_edges(self.n_bins)
        return error_of_table(BinTable(edges[:-1], edges[1:], *sums), self.norm)


class ClasswiseCalibrationError(_OfSums):
    """:func:`calibrant.classwise_ece`, the calibration error averaged over the classes.

    Args:
        num_classes: Number of classes.
        n_bins: Number of equal-width bins.
        **options: As for :class:`CalibrationError`.

    Examples:
        >>> import torch
        >>> from calibrant.integrations.torchmetrics import ClasswiseCalibrationError
        >>> metric = ClasswiseCalibrationError(num_classes=2)
        >>> round(metric(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 1])).item(), 4)
        0.25
    """

    def __init__(self, *, num_classes: int, n_bins: int = 15, **options: Any) -> None:
        n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
        num_classes = _inputs.whole_number(num_classes, "num_classes", allowed=MOST_CLASSES)
        super().__init__((num_classes, n_bins), **options)
        self.n_bins, self.num_classes = n_bins, num_classes

    def _sums_of(self, samples: ScoredSamples) -> Floats:
        check_num_classes(samples.n_classes, self.num_classes)
        return class_sums(samples, self.n_bins).gaps

    def _of_sums(self, sums: Floats, n: int) -> float:
        return float(np.abs(sums).sum()) / (n * self.num_classes)


class _MeanOfRows(_OfSums):
    """Both sums, from one pass: then a ``MetricCollection`` may share the state of the two."""

    NAMES: ClassVar = ("nll", "brier")
    NAME: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        super().__init__((len(self.NAMES),), **options)

    def _sums_of(self, samples: ScoredSamples) -> Floats:
        return np.array([ROWS[name](samples).sum() for name in self.NAMES])

    def _of_sums(self, sums: Floats, n: int) -> float:
        return float(sums[self.NAMES.index(self.NAME)]) / n


class NegativeLogLikelihood(_MeanOfRows):
    """:func:`calibrant.nll`, the mean of -log p of the true class.

    Examples:
        >>> import torch
        >>> from calibrant.integrations.torchmetrics import NegativeLogLikelihood
        >>> metric = NegativeLogLikelihood()
        >>> round(metric(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 1])).item(), 4)
        0.3081
    """

    NAME = "nll"


class BrierScore(_MeanOfRows):
    """:func:`calibrant.brier`, the Brier score summed over the classes.

    Examples:
        >>> import torch
        >>> from calibrant.integrations.torchmetrics import BrierScore
        >>> metric = BrierScore()
        >>> round(metric(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 1])).item(), 4)
        0.17
    """

    NAME = "brier"


class AdaptiveCalibrationError(_Metric):
    """:func:`calibrant.ada_ece`, the calibration error over equal-mass bins.

    Its bins depend on all samples, so it keeps two numbers of each.

    Args:
        n_bins: Number of equal-mass bins.
        norm: ``"l1"``, ``"l2"`` or ``"max"``.
        **options: As for :class:`CalibrationError`.

    Examples:
        >>> import torch
        >>> from calibrant.integrations.torchmetrics import AdaptiveCalibrationError
        >>> metric = AdaptiveCalibrationError(n_bins=1)
        >>> round(metric(torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 1])).item(), 4)
        0.25
    """

    confidence: list[Tensor]
    correct: list[Tensor]

    def __init__(self, *, n_bins: int = 15, norm: str = "l1", **options: Any) -> None:
        super().__init__(**options)
        self.n_bins = _inputs.whole_number(n_bins, "n_bins", allowed=MOST_BINS)
        self.norm = _inputs.choice(norm, "norm", NORMS)
        self.add_state("confidence", [], dist_reduce_fx="cat")
        self.add_state("correct", [], dist_reduce_fx="cat")

    def _count(self, samples: ScoredSamples) -> None:
        for state, values in (
            (self.confidence, samples.confidence),
            (self.correct, samples.correct),
        ):
            state.append(torch.from_numpy(values).to(self.device, self.dtype))

    def _value(self) -> float:
        if len(self.confidence) == 0:
            return float("nan")
        samples = samples_of_confidence(dim_zero_cat(self.confidence), dim_zero_cat(self.correct))
        return ada_ece.of(samples, n_bins=self.n_bins, norm=self.norm)


def check_shapes(preds: Tensor, target: Tensor) -> None:
    """Refuse predictions without an axis of classes after the first."""
    if preds.ndim < 2 or preds.ndim != target.ndim + 1:
        raise CalibrantError(
            "preds must be (N, C) or (N, C, ...) and target (N) or (N, ...); found shapes "
            f"{tuple(preds.shape)} and {tuple(target.shape)}. For binary probabilities p pass "
            "torch.stack([1 - p, p], dim=1)"
        )


def check_num_classes(found: int, expected: int) -> None:
    """Refuse another number of classes than was announced."""
    if found != expected:
        raise CalibrantError(
            f"preds must have num_classes={expected} classes on axis 1; found {found}. "
            "Pass num_classes of the model"
        )
