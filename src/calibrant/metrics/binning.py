"""Bins of confidence, and statistics of bins that can be merged.

Every calibration error over bins depends on three sums for each bin: the number of samples, their
confidences and the number of correct ones. So one object serves an array in memory, a stream larger
than memory, and parts counted by several processes:

    bins = EqualWidthBins(15)
    bins.update(confidence, correct)     # for each batch
    bins.merge(other_bins)               # from another process
    bins.table()                         # counts, mean confidence, accuracy per bin

Equal-width bins are exact in constant memory. Equal-mass bins need the ranks of all samples:
:func:`equal_mass_table` sorts them in memory, and :class:`EqualMassSketch` counts them on a fixed
fine grid, with a small known bound on the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from calibrant import _inputs

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

TIED = 2.0**-40
"""Largest relative difference of odds that count as equal, computed in another order."""
LAST_BITS = 2.0**-52
"""Largest rounding error of a confidence close to 1."""
DISTINCT = 2.0**-26
"""Relative difference of the distances to 1 from which confidences count as different, even in
their last bits: otherwise all confidences next to 1 would be tied."""

SUMS = 5
"""Sums of each bin, in the order of the fields of BinTable."""


def tie_width(confidence: Any) -> Any:
    """How far above a confidence another may be to count as tied with it."""
    room = 1.0 - confidence
    return TIED * confidence * room + np.minimum(LAST_BITS, DISTINCT * room)


def are_tied(lower: Any, upper: Any) -> Any:
    """Whether two confidences are equal except for rounding.

    The same logits with the classes in another order give confidences that may differ in their last
    bits, and a calibration error must not depend on the order of the classes.
    """
    return upper - lower <= tie_width(lower)


def group_starts(confidence: Floats) -> npt.NDArray[np.bool_]:
    """Where, in ascending order, a confidence is not tied with the one before it.

    Examples:
        >>> import numpy as np
        >>> group_starts(np.array([0.1, 0.3, 0.1 + 0.2, 0.4])).tolist()
        [True, True, False, True]
    """
    return np.append(True, ~are_tied(confidence[:-1], confidence[1:]))


@dataclass(frozen=True)
class BinTable:
    """Statistics of each bin, from the lowest confidence to the highest."""

    lower: Floats
    """Lower edge, exclusive; for equal-mass bins the smallest confidence in the bin."""
    upper: Floats
    """Upper edge, inclusive; for equal-mass bins the largest confidence in the bin."""
    weight: Floats
    """Number of samples in the bin, or their total weight."""
    confidence_sum: Floats
    """Sum of their confidences."""
    correct_sum: Floats
    """Number of correct ones."""
    square_sum: Floats
    """Sum of (confidence - correct)^2: the noise of the gap."""
    claimed_variance_sum: Floats
    """Sum of confidence (1 - confidence): the noise of a calibrated model."""

    @property
    def total(self) -> float:
        """Samples in all bins, or their total weight."""
        return float(self.weight.sum())

    @property
    def confidence(self) -> Floats:
        """Mean confidence per bin, NaN if the bin is empty."""
        return _ratio(self.confidence_sum, self.weight)

    @property
    def accuracy(self) -> Floats:
        """Accuracy per bin, NaN if the bin is empty."""
        return _ratio(self.correct_sum, self.weight)

    @property
    def gap(self) -> Floats:
        """Mean confidence minus accuracy per bin, 0 if the bin is empty."""
        gaps: Floats = np.nan_to_num(_ratio(self.confidence_sum - self.correct_sum, self.weight))
        return gaps

    @property
    def share(self) -> Floats:
        """Share of all samples in each bin."""
        return self.weight / self.total


def _ratio(sums: Floats, weight: Floats) -> Floats:
    ratio: Floats = np.full(len(weight), np.nan)
    np.divide(sums, weight, out=ratio, where=weight > 0)
    return ratio


def width_edges(n_bins: int) -> Floats:
    """The edges i/n of equal-width bins; bin i holds edges[i] < confidence <= edges[i+1]."""
    return np.arange(n_bins + 1) / n_bins


def width_index(confidence: Floats, n_bins: int) -> npt.NDArray[np.intp]:
    """The equal-width bin of each confidence: 0 is in the first, 1 (or just above) in the last."""
    from calibrant.metrics.kernels import write_bins

    index = np.empty(len(confidence), dtype=np.intp)
    write_bins(confidence, width_edges(n_bins), index)
    return index


class _Sums:
    """Sums over the samples of numbered cells, which can be merged."""

    def __init__(self, n_cells: int) -> None:
        self.count: Counts = np.zeros(n_cells, dtype=np.int64)
        # In the order of the fields of BinTable; those of one cell are adjacent in memory.
        self.sums: Floats = np.zeros((n_cells, SUMS)).T

    def _add(
        self,
        cell: npt.NDArray[np.intp],
        confidence: Floats,
        correct: npt.NDArray[Any],
        weight: Floats | None,
    ) -> None:
        from calibrant.metrics.kernels import add_to_cells

        weight = np.empty(0) if weight is None else weight
        add_to_cells(cell, confidence, correct, weight, self.count, self.sums.T)

    def merge(self, other: Self) -> None:
        """Add the counts of another object with the same bins."""
        _inputs.same_count("bins", len(self.count), len(other.count))
        self.count += other.count
        self.sums += other.sums


class EqualWidthBins(_Sums):
    """Mergeable statistics of equal-width bins: exact, in constant memory.

    Examples:
        >>> import numpy as np
        >>> bins = EqualWidthBins(5)
        >>> bins.update(np.array([0.9, 1.0, 0.3]), np.array([True, False, True]))
        >>> bins.count.tolist(), bins.table().accuracy[4]
        ([0, 1, 0, 0, 2], np.float64(0.5))
    """

    def __init__(self, n_bins: int) -> None:
        super().__init__(n_bins)
        self.n_bins = n_bins

    def update(
        self, confidence: Floats, correct: npt.NDArray[Any], weight: Floats | None = None
    ) -> None:
        """Count one more batch; ``correct`` is 0 or 1."""
        from calibrant.metrics.kernels import width_bin_sums

        weight = np.empty(0) if weight is None else weight
        edges = width_edges(self.n_bins)
        added = width_bin_sums.sum(confidence, correct, weight, edges, times=SUMS)
        self.count += added[:, 0].astype(np.int64)
        self.sums += added[:, 1:].T

    def table(self) -> BinTable:
        """The bins of all samples counted so far."""
        edges = width_edges(self.n_bins)
        return BinTable(edges[:-1], edges[1:], *self.sums.copy())


def mass_edges(total: float, n_bins: int, *, whole: bool) -> Floats:
    """Ranks at which equal-mass bins end, from 0 to ``total``.

    With ``whole``, the sizes of the bins differ by at most one, with the larger bins first, and
    fewer samples than bins give one bin each. Otherwise the mass is cut into equal parts.
    """
    if not whole:
        return total * np.arange(n_bins + 1) / n_bins
    n_bins = min(n_bins, int(total))
    size, larger = divmod(int(total), n_bins)
    steps = np.arange(n_bins + 1)
    return (steps * size + np.minimum(steps, larger)).astype(np.float64)


def _cut(groups: Floats, sums: Floats, edges: Floats) -> BinTable:
    """Bins between the ranks ``edges``, of groups in ascending order of confidence.

    A group that an edge cuts is divided in proportion: the sums grow linearly inside a group.
    """
    running = np.concatenate([np.zeros((len(sums), 1)), np.cumsum(sums, axis=1)], axis=1)
    ranks = np.minimum(running[0], edges[-1])
    ranks[-1] = edges[-1]  # equal up to rounding
    cut = [np.diff(np.interp(edges, ranks, column)) for column in running[1:]]
    first = np.searchsorted(ranks, edges[:-1], side="right") - 1
    last = np.searchsorted(ranks, edges[1:], side="left") - 1
    return BinTable(groups[first], groups[last], np.diff(edges), *cut)


def mass_membership(
    confidence: Floats, n_bins: int, weight: Floats | None = None
) -> tuple[Counts, Counts, Floats]:
    """The equal-mass bin of each sample, and its share of the sample: (sample, bin, share).

    A sample occurs once, with share 1, unless an edge cuts the group it is tied with. A group whose
    weight vanishes next to those before it is in one bin, where its weight counts for nothing.
    """
    order = np.argsort(confidence)
    values = confidence[order]
    weight = np.ones(len(order)) if weight is None else weight[order]
    first = group_starts(values)
    sizes = np.add.reduceat(weight, np.flatnonzero(first))
    stops = np.cumsum(sizes)
    edges = mass_edges(float(stops[-1]), n_bins, whole=all_whole(weight))
    starts = stops - sizes
    stops = np.minimum(stops, edges[-1])
    stops[-1] = edges[-1]
    width = stops - starts
    last_bin = len(edges) - 2
    low = np.minimum(np.searchsorted(edges, starts, side="right") - 1, last_bin)
    high = np.clip(np.searchsorted(edges, stops, side="left") - 1, low, last_bin)
    group = np.cumsum(first) - 1
    samples, bins, shares = [], [], []
    for step in range(int((high - low).max()) + 1):
        there = low + step <= high
        bin_of_group = np.minimum(low + step, last_bin)
        inside = np.minimum(stops, edges[bin_of_group + 1])
        overlap = inside - np.maximum(starts, edges[bin_of_group])
        share = np.divide(overlap, width, out=np.ones_like(width), where=width != 0.0)
        kept = there[group]
        samples.append(order[kept])
        bins.append(bin_of_group[group][kept])
        shares.append(share[group][kept])
    return np.concatenate(samples), np.concatenate(bins), np.concatenate(shares)


def all_whole(weight: Floats) -> bool:
    """Whether weights are whole numbers whose sum is exact."""
    return bool((weight == np.floor(weight)).all()) and float(weight.sum()) < 2.0**53


def equal_mass_table(
    confidence: Floats, correct: npt.NDArray[Any], n_bins: int, weight: Floats | None = None
) -> BinTable:
    """Equal-mass bins of samples in memory, by sorted rank.

    A group of tied confidences that straddles an edge is divided in proportion, with its mean
    accuracy on both sides, so the order of the rows does not matter. Whole-number weights count as
    repetitions of a sample; other weights are masses, cut exactly at the edges.

    Examples:
        >>> import numpy as np
        >>> table = equal_mass_table(np.array([0.5, 0.9, 0.9, 0.9]), np.array([1, 0, 1, 1]), 2)
        >>> table.weight.tolist(), table.correct_sum.round(3).tolist()
        ([2.0, 2.0], [1.667, 1.333])
    """
    order = np.argsort(confidence)
    confidence, correct = confidence[order], correct[order]
    weight = np.ones(len(order)) if weight is None else weight[order]
    whole = all_whole(weight)
    if not weight.all():
        kept = weight > 0
        confidence, correct, weight = confidence[kept], correct[kept], weight[kept]
    first = group_starts(confidence)
    group = np.cumsum(first) - 1
    groups = _Sums(int(group[-1]) + 1)
    groups._add(group, confidence, correct, weight)
    edges = mass_edges(float(groups.sums[0].sum()), n_bins, whole=whole)
    return _cut(confidence[first], groups.sums, edges)


class EqualMassSketch(_Sums):
    """Mergeable counts on a fixed fine grid of confidences, from which equal-mass bins are cut.

    The grid has 2^11 cells for every halving of the distance to 0 or to 1, down to 2^-30: it is
    finest where confidences are dense. It takes about 8 MB for any number of samples, and less with
    fewer ``digits``: 2^digits cells. Samples in a
    cell that a bin edge cuts are treated as tied, which changes an equal-mass calibration error by
    at most :meth:`error_bound`.

    Examples:
        >>> import numpy as np
        >>> sketch = EqualMassSketch()
        >>> sketch.update(np.linspace(0.5, 1.0, 1001), np.ones(1001))
        >>> sketch.table(15).weight.tolist()[:2], sketch.error_bound(15) < 0.02
        ([67.0, 67.0], True)
    """

    DIGITS = 11
    """Binary digits of a distance that distinguish cells."""
    HALVINGS = 29

    def __init__(self, digits: int = DIGITS) -> None:
        self.digits = digits
        n_cells = 2 * ((self.HALVINGS << digits) + 1)
        super().__init__(n_cells)
        self.lowest: Floats = np.full(n_cells, np.inf)
        self.highest: Floats = np.full(n_cells, -np.inf)
        self.whole = True

    def update(
        self, confidence: Floats, correct: npt.NDArray[Any], weight: Floats | None = None
    ) -> None:
        """Count one more batch."""
        from calibrant.metrics.kernels import sketch_cells

        if weight is not None:
            self.whole &= all_whole(weight)
        cell = np.empty(len(confidence), dtype=np.intp)
        sketch_cells(confidence, self.digits, self.HALVINGS, self.lowest, self.highest, cell)
        self._add(cell, confidence, correct, weight)

    def merge(self, other: Self) -> None:
        """Add the counts of another sketch."""
        super().merge(other)
        self.whole &= other.whole
        np.minimum(self.lowest, other.lowest, out=self.lowest)
        np.maximum(self.highest, other.highest, out=self.highest)

    def cells(self) -> BinTable:
        """The cells of the grid that hold samples."""
        full = self.sums[0] > 0
        return BinTable(self.lowest[full], self.highest[full], *self.sums[:, full])

    def table(self, n_bins: int) -> BinTable:
        """The equal-mass bins of all samples counted so far."""
        sums = self.sums[:, self.sums[0] > 0]
        edges = mass_edges(float(sums[0].sum()), n_bins, whole=self.whole)
        return _cut(sums[1] / sums[0], sums, edges)

    def error_bound(self, n_bins: int) -> float:
        """Bound on the error of the l1 equal-mass calibration error of :meth:`table`.

        In a cell that an edge cuts, it is unknown which samples are on which side. Correct samples
        and confidences on the wrong side change the gaps of the two bins beside the edge. A cell
        whose samples are all tied is cut exactly.
        """
        full = self.sums[0] > 0
        weight, _, hits, _, _ = self.sums[:, full]
        edges = mass_edges(float(weight.sum()), n_bins, whole=self.whole)
        return bound_of_cut_groups(weight, hits, self.lowest[full], self.highest[full], edges)


def bound_of_cut_groups(
    weight: Floats, hits: Floats, lowest: Floats, highest: Floats, edges: Floats
) -> float:
    """Bound on the error of an l1 error if the samples of groups that an edge cuts count as tied.

    Groups are in ascending order; ``hits`` are their numbers of correct samples, ``lowest`` and
    ``highest`` the ends of their confidences, ``edges`` the ranks at which bins end.
    """
    ranks, inner = np.cumsum(weight), edges[1:-1]
    group = np.minimum(np.searchsorted(ranks, inner, side="left"), len(weight) - 1)
    below = inner - (ranks[group] - weight[group])  # part of the group on the lower side
    above = weight[group] - below
    # The number of correct samples on the lower side is between ``least`` and ``most``.
    expected = hits[group] * below / weight[group]
    most = np.minimum(below, hits[group])
    least = np.maximum(0.0, hits[group] - above)
    answers = np.maximum(most - expected, expected - least)
    by_edges = [
        np.bincount(group, weights=2.0 * each, minlength=len(weight))
        for each in (answers, np.minimum(below, above) * (highest - lowest)[group])
    ]
    # No more than these can be misplaced, however many edges cut a group.
    of_groups = [2.0 * np.minimum(hits, weight - hits), weight * (highest - lowest)]
    bound = sum(np.minimum(a, b) for a, b in zip(by_edges, of_groups, strict=True))
    return min(float(np.where(are_tied(lowest, highest), 0.0, bound).sum() / edges[-1]), 1.0)
