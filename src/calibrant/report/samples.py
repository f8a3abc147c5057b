"""The samples of a report, and the outcome of each method on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant.calibrators.data import LabelledScores, labelled_scores
from calibrant.errors import CalibrantError
from calibrant.files import Predictions
from calibrant.metrics.calibration import class_sums
from calibrant.metrics.resampling import ResampledMetrics
from calibrant.metrics.samples import ScoredSamples

Floats: TypeAlias = npt.NDArray[np.float64]

LONGEST_NAME = 80
"""Characters of a class name or an id on the page."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Checked samples, with the names of classes and rows."""

    samples: LabelledScores
    ids: npt.NDArray[Any] | None = None
    class_names: tuple[str, ...] | None = None
    file: str | None = None
    """The file that they were read from."""
    quoted: str | None = None
    """The file, quoted for a shell, and the condition on its rows."""
    columns: str = ""
    """The options that name its columns, quoted likewise, after a space."""
    groups: _inputs.Groups | None = None
    """The groups of the rows, to measure each of them."""

    def __len__(self) -> int:
        return len(self.samples.labels)

    def in_order_of(self, other: Part) -> Part:
        """The same samples with their classes in the order of those of ``other``, by name."""
        _inputs.same_scores(
            other.samples.kind, other.samples.scores, self.samples.kind, self.samples.scores
        )
        samples = self.samples.in_order_of(other.samples.classes)
        if self.class_names is None or samples.classes is None:
            return replace(self, samples=samples)
        return replace(self, samples=samples, class_names=tuple(map(str, samples.classes)))

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.samples.scores.shape[1])

    def class_name(self, k: int) -> str:
        """The name of class ``k``, shortened."""
        return str(k) if self.class_names is None else shortened(self.class_names[k])

    def row_name(self, i: int) -> str:
        """The id of row ``i``, or its number."""
        return str(i) if self.ids is None else shortened(str(self.ids[i]))


def shortened(text: str) -> str:
    """``text``, cut to the length that a table has room for."""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def checked_part(predictions: Predictions, *, to_fit: bool) -> Part:
    """Check the scores, labels and names of predictions."""
    predictions = predictions.with_scores()
    _inputs.some_scores(predictions.logits, predictions.probs)
    _inputs.some_labels(predictions.labels)
    samples = labelled_scores(
        predictions.labels,
        to_fit=to_fit,
        logits=predictions.logits,
        probs=predictions.probs,
    )._replace(upper_logits=predictions.upper_logits)
    names = predictions.class_names
    check_one_name_each(names, "class_names", "classes", samples.scores.shape[1])
    check_one_name_each(predictions.ids, "ids", "rows", len(samples.labels))
    return Part(samples=samples._replace(classes=names), ids=predictions.ids, class_names=names)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of one method on the test samples."""

    measured: ResampledMetrics
    """Its metrics; of more than two classes, without the scores."""
    predicted: npt.NDArray[np.int64]
    """Most probable class of each row."""
    class_errors: Floats
    """Calibration error of each class's probability, (K,)."""
    class_confidence: Floats
    """Mean probability of each class, (K,)."""

    @property
    def samples(self) -> ScoredSamples:
        """Confidence and correctness of each row; all scores of two classes."""
        return self.measured.samples


def outcome_of(measured: ResampledMetrics) -> Outcome:
    """Summarise the calibrated test samples of a method."""
    samples, n_bins = measured.samples, measured.todo.n_bins
    scores = samples.need_scores()
    probs = samples.probs() if samples.from_logits else scores
    return Outcome(
        measured=measured.without_many_scores(),
        predicted=scores.argmax(axis=1),
        class_errors=np.abs(class_sums(samples, n_bins).gaps).sum(axis=1) / len(samples),
        class_confidence=probs.mean(axis=0),
    )


def spread_rows(test: LabelledScores, numbers: int) -> npt.NDArray[np.intp]:
    """Indices of all rows, or of evenly spread rows with about ``numbers`` scores in total.

    Examples:
        >>> test = LabelledScores("logits", np.zeros((9, 2)), np.zeros(9, dtype=int))
        >>> spread_rows(test, 10).tolist()
        [0, 2, 4, 6, 8]
    """
    n, n_classes = test.scores.shape
    kept = min(n, max(1, numbers // n_classes))
    return np.linspace(0, n - 1, kept).round().astype(np.intp)


def check_one_name_each(
    names: Sequence[Any] | npt.NDArray[Any] | None, name: str, of: str, n: int
) -> None:
    """Refuse ids that are not one per row, or class names that are not one per class."""
    if names is not None and len(names) != n:
        raise CalibrantError(
            f"{name} must have one entry for each of the {n} {of}; found {len(names)}. "
            "Name all of them or none"
        )
