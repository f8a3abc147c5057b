"""NLL and calibration error against the number of samples, auto beside temperature scaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.learning_curves.intervals import paired
from experiments.learning_curves.measuring import AUTO, METHODS, METRICS, TEMPERATURE, Fits
from experiments.scoreboard.resampling import Interval
from experiments.scoreboard.tables import PERCENT


@dataclass(frozen=True)
class Curve:
    """One group of sets at every size."""

    title: str
    n_networks: int
    sizes: tuple[int, ...]
    means: dict[str, dict[str, list[float]]]
    """By metric and method, one value for each size."""
    differences: list[Interval]
    """NLL of auto minus temperature at each size."""

    @classmethod
    def of(cls, title: str, rows: Mapping[int, Sequence[Fits]]) -> Curve:
        """From the fits at every size."""
        return cls(
            title=title,
            n_networks=len(next(iter(rows.values()))),
            sizes=tuple(rows),
            means={
                metric: {
                    name: [mean_of(fits, metric, name) for fits in rows.values()]
                    for name in METHODS
                }
                for metric in METRICS
            },
            differences=[paired(fits) for fits in rows.values()],
        )


def mean_of(fits: Sequence[Fits], metric: str, method: str) -> float:
    """Mean over networks of the mean over the subsets that count for the differences too."""
    means = []
    for each in fits:
        usable = np.isfinite(each.difference(metric))
        if usable.any():
            means.append(each.values[metric][method][usable].mean())
    return float(np.mean(means)) if means else float("nan")


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Write the picture: a row for each group, a panel for each metric."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, NullLocator

    from calibrant.plots.palette import look
    from experiments.pictures import save

    figure = Figure(figsize=(8.6, 2.9 * len(curves)), layout="constrained")
    axes = figure.subplots(len(curves), len(METRICS), sharex=True, squeeze=False)
    for row, curve in zip(axes, curves, strict=True):
        for ax, metric in zip(row, METRICS, strict=True):
            scale = 100.0 if metric in PERCENT else 1.0
            for i, name in enumerate((TEMPERATURE, AUTO)):
                color, linestyle, marker = look(1 - i)
                values = scale * np.array(curve.means[metric][name])
                ax.plot(
                    curve.sizes,
                    values,
                    color=color,
                    linestyle=linestyle,
                    marker=marker,
                    markersize=4.5,
                    linewidth=1.4,
                    label=name,
                )
            if metric == "nll":
                base = np.array(curve.means[metric][TEMPERATURE])
                ends = [(d.low, d.high) for d in curve.differences]
                low, high = (
                    base + np.array([np.nan if e is None else e for e in side])
                    for side in zip(*ends, strict=True)
                )
                ax.fill_between(
                    curve.sizes,
                    low,
                    high,
                    color=look(0).color,
                    alpha=0.15,
                    linewidth=0,
                    label="95% interval of auto minus temperature",
                )
            else:
                ax.set_ylim(bottom=0)
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(FixedLocator(curve.sizes))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set_xticks(curve.sizes, [str(size) for size in curve.sizes])
            ax.set_ylabel("ada_ece, %" if scale == 100.0 else "NLL")
            ax.set_title(f"{curve.title}, {curve.n_networks} sets", fontsize="medium")
    for ax in axes[-1]:
        ax.set_xlabel("validation samples")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize="small")
    save(figure, path)
