"""Evaluation by group: every metric for each value of some columns and for their crossing.

Each group is tested by the simulations that its noise floor comes from. The p-values are adjusted
for the number of groups by Holm's method: in 95% of calibrated models no group is called off, in
whatever way the groups overlap.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from calibrant._inputs import Groups
from calibrant._inputs.groups import Key, described_group
from calibrant._tables import html_table, text_table
from calibrant.errors import CalibrantError
from calibrant.metrics.samples import ScoredSamples

if TYPE_CHECKING:
    from calibrant.metrics.evaluation import Evaluation, Measured

MOST_GROUPS = 500
"""More groups than this are refused: each of them would be tested at 1/500 of the level."""
MOST_NAMED = 3
"""Groups in the verdict."""
GAPS = ("prevalence_gap", "confidence_gap")
ERRORS = ("positive_ece", "ece")
"""The metrics in the table: the first of them that is measured."""

By = tuple[tuple[str, str], ...]
"""The columns of a group and their values."""


@dataclass(frozen=True)
class GroupCalibration:
    """The calibration of one group."""

    by: By
    evaluation: Evaluation
    """Every metric with its interval, and the noise floors."""
    p_value: float
    """Of its calibration test, adjusted for the number of groups."""

    @property
    def name(self) -> str:
        """``country=DE, sex=f``"""
        return described_group(*zip(*self.by, strict=True))

    @property
    def off(self) -> bool:
        """Whether it is significantly off, given the number of groups."""
        return self.p_value < 1.0 - self.evaluation.level

    @property
    def side(self) -> str:
        """What is off, as in :attr:`Evaluation.side`; ``calibrated`` if there is no evidence."""
        return self.evaluation.side if self.off else "calibrated"

    def first(self, names: Sequence[str]) -> Measured | None:
        """The first of these metrics that was measured."""
        measured = {each.name: each for each in self.evaluation.measured}
        return next((measured[name] for name in names if name in measured), None)

    def cells(self) -> tuple[str, ...]:
        """One row of a table."""
        gap, error = self.first(GAPS), self.first(ERRORS)
        floors = {each.name: each.expected for each in self.evaluation.noise_floors}
        known = gap is not None and gap.low is not None
        return (
            self.name,
            f"{self.evaluation.n}",
            "" if gap is None else f"{gap.value:+.2%}",
            f"{gap.low:+.2%} to {gap.high:+.2%}" if gap is not None and known else "",
            "" if error is None else f"{error.value:.2%}",
            f"{floors[error.name]:.2%}" if error is not None and error.name in floors else "",
            f"{self.p_value:.2g}",
            self.side if self.off else "",
        )


@dataclass(frozen=True)
class GroupedEvaluation:
    """The groups of an :class:`Evaluation`: print it, index it, take ``to_frame`` or ``to_dict``.

    Rows without a value form a group of their own, ``missing``.
    """

    columns: tuple[str, ...]
    groups: tuple[GroupCalibration, ...]
    """The values of each column; then, of several columns, the combinations that occur."""
    level: float

    def __getitem__(self, values: str | Key) -> GroupCalibration:
        key = (values,) if isinstance(values, str) else tuple(values)
        for group in self.groups:
            if tuple(value for _, value in group.by) == key:
                return group
        raise KeyError(f"{', '.join(key)} is no group; there are {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """What the groups are called."""
        return tuple(group.name for group in self.groups)

    @property
    def off(self) -> tuple[GroupCalibration, ...]:
        """The groups that are significantly off, largest gap first."""
        found = [group for group in self.groups if group.off]
        return tuple(sorted(found, key=_gap_size, reverse=True))

    def verdict(self) -> str:
        """One sentence: which groups are off, and by how much."""
        if not self.off:
            return f"None of {len(self.groups)} groups is off, as far as the samples can show."
        named = [f"{each.name} ({each.side}: {_gap_text(each)})" for each in self.off[:MOST_NAMED]]
        more = len(self.off) - len(named)
        are = "are" if len(self.off) > 1 else "is"
        return (
            f"{len(self.off)} of {len(self.groups)} groups {are} off: {', '.join(named)}"
            f"{f' and {more} more' if more else ''}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "columns": list(self.columns),
            "n_off": len(self.off),
            "groups": [
                {
                    "by": dict(group.by),
                    "p_value": group.p_value,
                    "side": group.side,
                    "evaluation": group.evaluation.to_dict(),
                }
                for group in self.groups
            ],
            "verdict": self.verdict(),
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_frame(self, backend: Literal["pandas", "polars", "pyarrow"] = "pandas") -> Any:
        """One row for each group, with every metric, the ends of its interval and its noise floor.

        A column that does not define a group is empty in its row.

        Args:
            backend: ``"pandas"``, ``"polars"`` or ``"pyarrow"``.
        """
        import narwhals.stable.v2 as nw

        rows = [self._flat(group) for group in self.groups]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return nw.from_dict(columns, backend=backend).to_native()

    def _flat(self, group: GroupCalibration) -> dict[str, Any]:
        values, evaluation = dict(group.by), group.evaluation
        floors = {each.name: each.expected for each in evaluation.noise_floors}
        flat: dict[str, Any] = {name: values.get(name, "") for name in self.columns}
        flat |= {"n": evaluation.n, "p_value": group.p_value, "side": group.side}
        for each in evaluation.measured:
            flat |= {each.name: each.value, f"{each.name}_low": each.low}
            flat[f"{each.name}_high"] = each.high
            if each.name in floors:
                flat[f"{each.name}_noise_floor"] = floors[each.name]
        return flat

    @property
    def head(self) -> tuple[str, ...]:
        """The heads of the columns of the table."""
        interval = f"{100 * self.level:g}% interval"
        return ("group", "n", "gap", interval, "ECE", "noise floor", "p-value", "")

    def __str__(self) -> str:
        table = [self.head, *(group.cells() for group in self.groups)]
        return "\n".join([*text_table(table, "<>>>>>><"), "", self.verdict()])

    def _repr_html_(self) -> str:
        rows = [group.cells() for group in self.groups]
        return html_table([self.head], rows, below=[self.verdict()])


def evaluate_groups(
    samples: ScoredSamples, evaluate: Callable[[ScoredSamples, int], Evaluation]
) -> GroupedEvaluation:
    """Evaluate every group of samples in memory.

    Args:
        samples: Samples with groups.
        evaluate: The evaluation of some of them, as one of so many tests.
    """
    assert samples.groups is not None
    rows = dict(_groups_of(samples.groups))
    check_number(len(rows))
    return adjusted(
        samples.groups.names,
        {by: evaluate(samples.rows(which), len(rows)) for by, which in rows.items()},
    )


def adjusted(columns: Sequence[str], evaluations: Mapping[By, Evaluation]) -> GroupedEvaluation:
    """The evaluations of groups, with p-values adjusted for their number."""
    p_values = holm([each.judged.p_value for each in evaluations.values()])
    return GroupedEvaluation(
        columns=tuple(columns),
        groups=tuple(
            GroupCalibration(by, each, p_value)
            for (by, each), p_value in zip(evaluations.items(), p_values, strict=True)
        ),
        level=next(iter(evaluations.values())).level,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for their number: below 5%, for any test that is true, in 5% at most.

    References:
        Holm, A simple sequentially rejective multiple test procedure (1979).

    Examples:
        >>> [round(p, 3) for p in holm([0.01, 0.2, 0.02])]
        [0.03, 0.2, 0.04]
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.asarray(p_values)[order] * np.arange(len(order), 0, -1)
    found = np.empty(len(order))
    found[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [float(p) for p in found]


def check_number(n_groups: int) -> None:
    """Refuse more groups than can be tested."""
    if n_groups > MOST_GROUPS:
        raise CalibrantError(
            f"an evaluation by group takes at most {MOST_GROUPS} groups; found {n_groups}. Choose "
            "columns with fewer values, or fewer columns"
        )


def _groups_of(groups: Groups) -> Iterator[tuple[By, npt.NDArray[np.intp]]]:
    """Each value of each column, then the combinations of several columns, with their rows."""
    for places in combinations_of(groups.columns):
        way = Groups(tuple(groups.columns[i] for i in places))
        for key, rows in way.cells():
            yield tuple(zip(way.names, key, strict=True)), rows


def combinations_of(columns: Sequence[Any]) -> list[tuple[int, ...]]:
    """The columns by which samples are grouped: each alone, then all of them.

    Examples:
        >>> combinations_of(["country"]), combinations_of(["country", "sex"])
        ([(0,)], [(0,), (1,), (0, 1)])
    """
    alone: list[tuple[int, ...]] = [(i,) for i in range(len(columns))]
    return alone if len(alone) == 1 else [*alone, tuple(range(len(columns)))]


def _gap_size(group: GroupCalibration) -> float:
    gap = group.first(GAPS)
    return 0.0 if gap is None else abs(gap.value)


def _gap_text(group: GroupCalibration) -> str:
    gap = group.first(GAPS)
    return f"p = {group.p_value:.2g}" if gap is None else f"gap {gap.value:+.2%}"
