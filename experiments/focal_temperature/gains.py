"""The gain of one method over another in a metric, over several networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.scoreboard.measuring import Result
from experiments.scoreboard.resampling import Interval, interval
from experiments.scoreboard.tables import TIE

RESAMPLED = 4_000


def gain(mine: Sequence[Result], reference: Sequence[Result], metric: str) -> Interval:
    """1 - (mean of a metric) / (mean of the reference), in percent; above 0 is better.

    The interval is of resampled test images, drawn once for all networks that saw the same. For the
    ECE it spans models as far from calibrated as what was seen, and calibrated ones, as those of
    the scoreboard do.
    """
    seen, seen_reference = mean_of(mine, metric), mean_of(reference, metric)
    resampled, resampled_reference = (
        np.mean([result.resampled[metric] for result in results], axis=0)
        for results in (mine, reference)
    )
    off = [seen / seen_reference - resampled / resampled_reference]
    if metric == "ada_ece":
        noise, noise_reference = (
            np.mean([result.resampled["ada_ece_noise"] for result in results], axis=0)
            for results in (mine, reference)
        )
        off.append((noise_reference - noise) / seen_reference)
    return interval(100.0 * (1.0 - seen / seen_reference), [100.0 * draws for draws in off])


def over_data_sets(
    mine: Sequence[Result], reference: Sequence[Result], metric: str, data: Sequence[str]
) -> tuple[float, float]:
    """The 95% interval of the gain from resampled data sets, and networks within each.

    Networks on the same data are no independent samples; ``data`` names the data set of each.
    """
    seen = np.array([[each.values[metric] for each in results] for results in (mine, reference)])
    rng = np.random.default_rng(0)
    groups = [np.flatnonzero(np.array(data) == name) for name in dict.fromkeys(data)]
    gains = []
    for _ in range(RESAMPLED):
        drawn = [groups[i] for i in rng.integers(len(groups), size=len(groups))]
        rows = np.concatenate([rng.choice(group, len(group)) for group in drawn])
        sums = seen[:, rows].sum(axis=-1)
        gains.append(100.0 * (1.0 - sums[0] / sums[1]))
    low, high = np.quantile(gains, [0.025, 0.975])
    return float(low), float(high)


def mean_of(results: Sequence[Result], metric: str) -> float:
    """Mean over networks."""
    return float(np.mean([result.values[metric] for result in results]))


def counts(mine: Sequence[Result], reference: Sequence[Result], metric: str) -> tuple[int, int]:
    """On how many networks a metric is smaller, and larger; the rest are ties."""
    seen = [a.values[metric] - b.values[metric] for a, b in zip(mine, reference, strict=True)]
    return sum(one < -TIE for one in seen), sum(one > TIE for one in seen)


def shown(found: Interval) -> str:
    """A gain in percent with its interval."""
    if found.low is None or found.high is None:
        return f"{found.value:+.1f}%"
    return f"{found.value:+.1f}% [{found.low:+.1f}, {found.high:+.1f}]"
