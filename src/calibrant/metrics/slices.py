r"""The worst slice: the values of one or two columns for which the probabilities are most off.

Among a thousand slices, some are far off by chance. Here the deviation of each slice is compared
with the *largest* deviation of all slices of a calibrated model, in simulations of its labels
(Westfall and Young, 1993). So the p-value of the worst slice accounts for the search: for a
calibrated model it is below 5% in 5% of cases.

The deviation of a slice S is the larger of that of its mean and that of its slope, in standard
errors of a calibrated model. With v_i = p_i (1 - p_i), log-odds x_i and their mean x_S over S,
weighted by v,

    |sum_S (p_i - y_i)| / sqrt(sum_S v_i),
    |sum_S (p_i - y_i) (x_i - x_S)| / sqrt(sum_S v_i (x_i - x_S)^2)

times sqrt(V / (V + 1)) with V = sum_S v_i, so that a single surprise in a slice that was all but
certain is no large deviation. p is P(class 1) of two classes, otherwise the confidence.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._inputs import Groups
from calibrant._inputs.groups import described_group
from calibrant._tables import html_table, text_table
from calibrant._types import Array, RandomState
from calibrant.errors import CalibrantError
from calibrant.metrics.calibration_test import DECIMALS, simulations_for
from calibrant.metrics.groups import By
from calibrant.metrics.intervals import CHUNK_NUMBERS, chunks
from calibrant.metrics.positive import clipped_log_odds, is_one_column, log_odds, positive
from calibrant.metrics.resampling import plan
from calibrant.metrics.samples import Floats, ScoredSamples, samples_from_scores

MOST_SLICES = 100_000
MOST_DRAWN = 50_000_000
"""Number of labels to draw: large samples get fewer simulations."""
MOST_SHOWN = 10
"""Slices in the result."""
HEAD = ("slice", "n", "mean prob", "rate", "gap", "p-value")


@dataclass(frozen=True)
class Slice:
    """One slice of the samples."""

    by: By
    n: int
    mean_prob: float
    """Mean P(class 1), or mean confidence of more than two classes."""
    rate: float
    """Share of class 1, or of correct predictions."""
    p_value: float
    """Probability that any slice of a calibrated model is as far off."""

    @property
    def name(self) -> str:
        """``country=DE, sex=f``"""
        return described_group(*zip(*self.by, strict=True))

    def cells(self) -> tuple[str, ...]:
        """One row of a table, with the columns ``HEAD``."""
        gap = self.mean_prob - self.rate
        shares = (f"{self.mean_prob:.2%}", f"{self.rate:.2%}", f"{gap:+.2%}")
        return (self.name, f"{self.n}", *shares, f"{self.p_value:.2g}")


@dataclass(frozen=True)
class SliceSearch:
    """The result of :func:`worst_slices`: print it, or take ``to_dict``."""

    n_slices: int
    """Number of slices that were compared."""
    level: float
    n_simulations: int
    seed: int
    slices: tuple[Slice, ...]
    """The worst ones, worst first."""

    @property
    def worst(self) -> Slice:
        """The worst slice."""
        return self.slices[0]

    @property
    def off(self) -> tuple[Slice, ...]:
        """Those that are significantly off, given the search."""
        return tuple(each for each in self.slices if each.p_value < 1.0 - self.level)

    def verdict(self) -> str:
        """One sentence about the worst slice."""
        worst = self.worst
        words = (
            f"{worst.name} (n = {worst.n}): mean probability {worst.mean_prob:.1%}, rate "
            f"{worst.rate:.1%}, p = {worst.p_value:.2g} given {self.n_slices} slices"
        )
        if self.off:
            return f"The worst slice is {words}."
        return f"No slice is off, as far as the samples can show. The worst is {words}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        slices = [{**asdict(each), "by": dict(each.by)} for each in self.slices]
        return {**asdict(self), "slices": slices, "verdict": self.verdict()}

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        table = [HEAD, *(each.cells() for each in self.slices)]
        return "\n".join([*text_table(table, "<>>>>>"), "", self.verdict()])

    def _repr_html_(self) -> str:
        rows = [each.cells() for each in self.slices]
        return html_table([HEAD], rows, below=[self.verdict()])


def worst_slices(
    probs: Array = None,
    labels: Array = None,
    *,
    groups: Any,
    logits: Array = None,
    sample_weight: Array = None,
    ignore_label: int | None = None,
    positive: Any = None,
    classes: Any = None,
    level: float = 0.95,
    n_simulations: int = 500,
    random_state: RandomState = 0,
) -> SliceSearch:
    """Search the slices of one or two columns that are furthest from calibrated.

    The p-values account for the search: see ``metrics/slices.py``.

    Args:
        probs: Probabilities, classes on the last axis; one column is the positive class.
        labels: One per row: class indices, or names.
        groups: The columns to search: a frame or a dict of columns. Cut numbers into ranges first,
            such as with ``pandas.cut``.
        logits: Scores before the softmax, instead of ``probs``.
        sample_weight: Weight of each row.
        ignore_label: Rows with this label are left out.
        positive: The positive class, if the scores are one column and the labels not 0 and 1.
        classes: The label of each column, if labels are neither indices nor names of columns.
        level: 1 minus the probability that any slice of a calibrated model is called off.
        n_simulations: Number of simulated calibrated models; fewer for very many samples.
        random_state: Seed of the simulations: an int, a NumPy Generator or None.

    References:
        Westfall and Young, Resampling-based multiple testing (1993).

    Examples:
        >>> import numpy as np
        >>> from calibrant.metrics import worst_slices
        >>> rng = np.random.default_rng(0)
        >>> columns = {"sex": rng.integers(0, 2, 4000), "age": rng.integers(0, 5, 4000)}
        >>> p = rng.uniform(0.1, 0.9, 4000)
        >>> bad = (columns["sex"] == 1) & (columns["age"] == 3)
        >>> labels = (rng.random(4000) < np.where(bad, p - 0.1, p)).astype(int)
        >>> worst_slices(p, labels, groups=columns).worst.name
        'sex=1, age=3'
    """
    if groups is None:
        raise CalibrantError(
            "a search needs the columns whose values are searched; found none. Pass groups=, a "
            "frame or a dict of columns"
        )
    samples = samples_from_scores(
        probs,
        labels,
        logits=logits,
        sample_weight=sample_weight,
        ignore_label=ignore_label,
        positive=positive,
        classes=classes,
        groups=groups,
    )
    return search_slices(
        samples, level=level, n_simulations=n_simulations, random_state=random_state
    )


def search_slices(
    samples: ScoredSamples,
    *,
    level: float = 0.95,
    n_simulations: int = 500,
    random_state: RandomState = 0,
) -> SliceSearch:
    """:func:`worst_slices` of samples that are already checked."""
    assert samples.groups is not None
    todo = plan((), 1, level, n_simulations, random_state, len(samples))
    column, odds = _one_column(samples)
    found = _Slices.of(samples.groups, column, odds)
    n_drawn = max(min(todo.n_resamples, MOST_DRAWN // len(samples)), simulations_for(level))
    observed = found.deviations(column.gap[:, np.newaxis])[:, 0]
    rng = np.random.default_rng(todo.seed)
    probability, largest = column.confidence[:, np.newaxis], []
    for size in chunks(n_drawn, len(samples), CHUNK_NUMBERS):
        gaps = probability - (rng.random((len(samples), size)) < probability)
        largest.append(found.deviations(gaps).max(axis=0))
    simulated = np.concatenate(largest)
    mean, rate, count = found.means(column)
    return SliceSearch(
        n_slices=len(observed),
        level=todo.level,
        n_simulations=n_drawn,
        seed=todo.seed,
        slices=tuple(
            Slice(
                by=found.by[i],
                n=int(count[i]),
                mean_prob=float(mean[i]),
                rate=float(rate[i]),
                p_value=float(((simulated >= observed[i]).sum() + 1) / (n_drawn + 1)),
            )
            for i in np.argsort(-observed, kind="stable")[:MOST_SHOWN]
        ),
    )


def _one_column(samples: ScoredSamples) -> tuple[ScoredSamples, Floats]:
    """The probability that is searched as the confidence, and its log-odds."""
    if is_one_column(samples):
        return positive(samples), log_odds(samples)
    confidence = samples.confidence
    column = ScoredSamples(confidence, samples.correct, samples.weight)
    return column, clipped_log_odds(confidence, 1.0 - confidence)


@dataclass(frozen=True)
class _Slices:
    """Sums over slices, as sparse matrices of (slices, samples)."""

    by: list[By]
    members: Any
    """1 where a sample is in a slice."""
    weighted: Any
    """The weight of the sample there."""
    tilted: Any
    """The weight times x_i - x_S."""
    scales: Floats
    """(2, slices): what sums and tilted sums are divided by."""

    @classmethod
    def of(cls, groups: Groups, column: ScoredSamples, odds: Floats) -> _Slices:
        """The slices of all columns and pairs of columns."""
        from scipy.sparse import csr_array

        by, rows = zip(*_slices(groups), strict=True)
        if len(by) > MOST_SLICES:
            raise CalibrantError(
                f"a search takes at most {MOST_SLICES} slices; found {len(by)}. Choose columns "
                "with fewer values"
            )
        ends = np.cumsum([0, *map(len, rows)])
        place, shape = np.concatenate(rows), (len(by), len(column))
        weight, claimed = column.weights, column.confidence * (1.0 - column.confidence)

        def matrix(values: Floats) -> Any:
            return csr_array((values, place, ends), shape=shape)

        squares = matrix((weight**2 * claimed)[place])
        variance = squares.sum(axis=1)
        centre = _divided(squares @ odds, variance)
        tilt = odds[place] - np.repeat(centre, np.diff(ends))
        tilt_variance = np.asarray((squares * matrix(tilt**2)).sum(axis=1))
        unit = float((weight**2).mean())
        shrink = np.sqrt(_divided(variance, variance + unit))
        return cls(
            by=list(by),
            members=matrix(np.ones(len(place))),
            weighted=matrix(weight[place]),
            tilted=matrix(weight[place] * tilt),
            scales=np.stack(
                [_divided(shrink, np.sqrt(each)) for each in (variance, tilt_variance)]
            ),
        )

    def deviations(self, gaps: Floats) -> Floats:
        """(slices, simulations) from gaps of the samples, (samples, simulations)."""
        mean, slope = (
            np.abs(matrix @ gaps) * scale[:, np.newaxis]
            for matrix, scale in zip((self.weighted, self.tilted), self.scales, strict=True)
        )
        return np.asarray(np.round(np.maximum(mean, slope), DECIMALS))

    def means(self, column: ScoredSamples) -> tuple[Floats, Floats, Floats]:
        """Mean probability, rate of positives and number of samples of each slice."""
        total = self.weighted.sum(axis=1)
        mean, rate = (
            (self.weighted @ values) / total for values in (column.confidence, column.correct * 1.0)
        )
        return mean, rate, self.members.sum(axis=1)


def _slices(groups: Groups) -> Iterator[tuple[By, npt.NDArray[np.intp]]]:
    """All slices of one column, then those of two that are smaller than either part."""
    sizes: dict[By, int] = {}
    ways = (*((c,) for c in groups.columns), *itertools.combinations(groups.columns, 2))
    for way in ways:
        crossing = Groups(way)
        for key, rows in crossing.cells():
            by = tuple(zip(crossing.names, key, strict=True))
            if len(by) == 1:
                sizes[by] = len(rows)
            elif len(rows) in (sizes[by[:1]], sizes[by[1:]]):
                continue  # the same rows as one of the two alone
            yield by, rows


def _divided(numbers: Any, by: Any) -> Floats:
    """The quotients; 0 where the divisor is 0."""
    by = np.asarray(by, dtype=np.float64)
    return np.asarray(np.divide(numbers, by, out=np.zeros(len(by)), where=by > 0.0))
