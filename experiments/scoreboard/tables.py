"""Means over a family of networks, differences to a reference on the same images, and the tables.

A mean is over the networks that a method was measured on. Where that is not all of them, because
it failed or was not run, the means of two methods are not comparable; the differences are, since
they are taken over the same networks for both.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from experiments.scoreboard.measuring import MEASURED, Result
from experiments.scoreboard.resampling import BINNED, LEVEL, Floats, Interval, interval

PERCENT = ("ada_ece", "classwise_ece", "accuracy", "changed", "positive_ada_ece", "ece")
FLOORS = ("ada_ece", "ece")
TIE = 1e-5
"""Smaller differences count as ties: the tables would not show them."""


@dataclass(frozen=True)
class Difference:
    """A metric of a method minus that of the reference, over the networks both have it for."""

    metric: str
    against: str
    interval: Interval
    """For other test samples of these networks."""
    over_networks: Interval
    """For other networks: a paired t interval."""
    wins: int
    losses: int
    ties: int


@dataclass(frozen=True)
class Row:
    """One method on one family."""

    method: str
    n_networks: int
    """Networks it was measured on."""
    means: dict[str, float]
    differences: tuple[Difference, ...] = ()
    failed: int = 0
    skipped: int = 0

    def difference(self, metric: str, against: str) -> Difference | None:
        """The difference of a metric to a reference; None for the reference itself."""
        for one in self.differences:
            if (one.metric, one.against) == (metric, against):
                return one
        return None


@dataclass(frozen=True)
class Family:
    """The rows of one family, best first by the first comparison."""

    title: str
    n_networks: int
    floor: dict[str, float]
    """Mean noise floor of the calibration errors, at the confidences of the reference."""
    rows: tuple[Row, ...]


def summarise(
    title: str,
    results: Mapping[str, Sequence[Result]],
    compared: Sequence[tuple[str, str]],
) -> Family:
    """The rows of a family: ``results`` by method, ``compared`` metrics with their references."""
    metric, reference = compared[0]
    rows = []
    for method, of_method in results.items():
        measured = [result for result in of_method if result.values]
        differences = tuple(
            difference_to(metric, against, measured, results[against])
            for metric, against in compared
            if against != method and measured
        )
        rows.append(
            Row(
                method=method,
                n_networks=len(measured),
                means={
                    name: _mean(r.values[name] for r in measured if name in r.values)
                    for name in MEASURED
                },
                differences=differences,
                failed=sum(result.failure is not None for result in of_method),
                skipped=sum(result.skipped is not None for result in of_method),
            )
        )
    floors = [result.floors for result in results[reference]]
    return Family(
        title=title,
        n_networks=len(results[reference]),
        floor={name: _mean(floor[name] for floor in floors) for name in FLOORS},
        rows=tuple(sorted(rows, key=lambda row: _rank(row, metric, reference))),
    )


def difference_to(
    metric: str, against: str, measured: Sequence[Result], reference: Sequence[Result]
) -> Difference:
    """A metric minus that of the reference called ``against``, over the networks both have."""
    by_network = {result.network: result for result in reference if result.values}
    pairs = [(r, by_network[r.network]) for r in measured if r.network in by_network]
    seen = np.array([_minus(a.values[metric], b.values[metric]) for a, b in pairs])
    off = [
        _mean_of([_minus(a.resampled[metric], b.resampled[metric]) for a, b in pairs]) - seen.mean()
    ]
    if metric in BINNED:
        noise = f"{metric}_noise"
        off.append(_mean_of([a.resampled[noise] - b.resampled[noise] for a, b in pairs]))
    return Difference(
        metric=metric,
        against=against,
        interval=interval(float(seen.mean()), off),
        over_networks=_over_networks(seen),
        wins=int((seen < -TIE).sum()),
        losses=int((seen > TIE).sum()),
        ties=int((np.abs(seen) <= TIE).sum()),
    )


def _over_networks(seen: Floats) -> Interval:
    """The mean of differences, with a t interval."""
    value, n = float(seen.mean()), len(seen)
    if n < 2 or not np.isfinite(seen).all():
        return Interval(value, None, None)
    half = float(student.ppf((1.0 + LEVEL) / 2.0, n - 1) * seen.std(ddof=1) / np.sqrt(n))
    return Interval(value, value - half, value + half)


def _minus(a: Floats | float, b: Floats | float) -> Floats:
    """a - b; two that are infinite are equal."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(np.equal(a, b), 0.0, np.subtract(a, b)))


def _mean_of(draws: Sequence[Floats]) -> Floats:
    """The mean over networks in every resample."""
    return np.asarray(np.mean(draws, axis=0))


def _mean(values: Iterable[float]) -> float:
    given = list(values)
    return float(np.mean(given)) if given else float("nan")


def _rank(row: Row, metric: str, reference: str) -> tuple[float, str]:
    """Sort key: the difference to the reference, which is fair if networks are missing."""
    found = row.difference(metric, reference)
    if found is not None:
        return found.interval.value, row.method
    return (0.0 if row.method == reference else float("inf")), row.method


def shown(metric: str, value: float) -> str:
    """A mean as a table cell."""
    if not np.isfinite(value):
        return "inf" if value > 0 else "-"
    return f"{100 * value:.2f}" if metric in PERCENT else f"{value:.4f}"


def shown_difference(one: Difference | None) -> tuple[str, str]:
    """The difference with its interval, bold where significantly better; and wins, losses, ties."""
    if one is None:
        return "", ""
    counts = f"{one.wins}-{one.losses}-{one.ties}"
    value, low, high = one.interval
    if not np.isfinite(value):
        return "inf" if value > 0 else "-inf", counts
    scale, digits = (100.0, 2) if one.metric in PERCENT else (1.0, 4)
    number = f"{scale * value:+.{digits}f}"
    if low is None or high is None:
        return number, counts
    text = f"{number} [{scale * low:+.{digits}f}, {scale * high:+.{digits}f}]"
    return (f"**{text}**" if one.interval.better else text), counts


def lower(family: Family, metric: str, against: str) -> str:
    """Which rows have a lower mean than a reference, and whether they are significantly lower."""
    listed = []
    for row in family.rows:
        one = row.difference(metric, against)
        if one is None or one.interval.value >= -TIE:
            continue
        over = [
            f"{what} {'significant' if each.better else 'not significant'}"
            for what, each in (("over samples", one.interval), ("over sets", one.over_networks))
        ]
        listed.append(f"{row.method} {shown_difference(one)[0].strip('*')} ({', '.join(over)})")
    found = "; ".join(listed) or "none"
    return f"Lower {metric} than {against}: {found}."


def head_and_cells(
    family: Family, compared: Sequence[tuple[str, str]]
) -> tuple[list[str], list[list[str]]]:
    """The table of a family as text, without columns that no row has."""
    measured = [m for m in MEASURED if not all(np.isnan(row.means[m]) for row in family.rows)]
    head = ["method", "sets", *(f"{m} %" if m in PERCENT else m for m in measured)]
    for metric, against in compared:
        unit = " %" if metric in PERCENT else ""
        head += [f"{metric}{unit} minus {against}", "w-l-t"]
    floor = [shown(m, family.floor[m]) if m in family.floor else "" for m in measured]
    blank = [""] * (2 * len(compared))
    cells = [["*noise floor*", str(family.n_networks), *floor, *blank]]
    for row in family.rows:
        means = [shown(name, row.means[name]) for name in measured]
        differences = [
            part for pair in compared for part in shown_difference(row.difference(*pair))
        ]
        cells.append([row.method, _networks(row), *means, *differences])
    return head, cells


def _networks(row: Row) -> str:
    notes = [
        f"{count} {what}"
        for count, what in ((row.failed, "failed"), (row.skipped, "not run"))
        if count
    ]
    return f"{row.n_networks}" + (f" ({', '.join(notes)})" if notes else "")


COUNTS = (" wins", " losses", " ties")


def as_csv(families: Iterable[Family], compared: Sequence[tuple[str, str]]) -> str:
    """Every number of every family, at full precision."""
    names = ["family", "method", "networks", "failed", "skipped", *MEASURED]
    for metric, against in compared:
        names += [
            f"{metric} minus {against}{part}"
            for part in ("", " low", " high", " low over sets", " high over sets", *COUNTS)
        ]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for family in families:
        for row in family.rows:
            writer.writerow(_csv_cells(family.title, row, compared))
    return out.getvalue()


def _csv_cells(
    title: str, row: Row, compared: Sequence[tuple[str, str]]
) -> Iterator[str | int | float | None]:
    yield from (title, row.method, row.n_networks, row.failed, row.skipped)
    yield from (row.means[name] for name in MEASURED)
    for pair in compared:
        one = row.difference(*pair)
        if one is None:
            yield from [None] * (5 + len(COUNTS))
        else:
            yield from (*one.interval, *one.over_networks[1:], one.wins, one.losses, one.ties)
