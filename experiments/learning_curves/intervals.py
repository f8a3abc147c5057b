"""Error bars of auto minus temperature, from joint resamples of test images and subsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.learning_curves.measuring import Fits
from experiments.scoreboard.networks import Floats
from experiments.scoreboard.resampling import RESAMPLES, SEED, Interval, interval


def paired(fits: Sequence[Fits], metric: str) -> Interval:
    """Auto minus temperature, mean over networks of the mean over subsets.

    A resample resamples the test images and the subsets, each once for all networks that saw the
    same images. Subsets on which a likelihood is 0 are left out.
    """
    usable = [each for each in fits if np.isfinite(each.difference(metric)).any()]
    if not usable:
        return Interval(float("nan"), None, None)
    seen = float(np.mean([np.nanmean(each.difference(metric)) for each in usable]))
    off = [np.mean([resampled_mean(e, metric, e.resampled[metric]) for e in usable], axis=0) - seen]
    if metric == "ada_ece":
        # As noise lifts the error of a calibrated model; the subsets differ as they were seen to.
        lifted = [
            resampled_mean(e, metric, e.resampled["ada_ece_noise"] + e.difference(metric)[:, None])
            for e in usable
        ]
        off.append(np.mean(lifted, axis=0) - seen)
    return interval(seen, off)


def resampled_mean(fits: Fits, metric: str, values: Floats) -> Floats:
    """Mean of (subsets, resamples) over the subsets that each resample drew."""
    finite = np.isfinite(fits.difference(metric))
    weight = subset_draws(fits)[:, finite]
    weight[weight.sum(axis=1) == 0] = 1.0  # none of those drawn can be used: all that can
    return np.asarray((weight * values[finite].T).sum(axis=1) / weight.sum(axis=1))


def subset_draws(fits: Fits) -> Floats:
    """(resamples, subsets): how often each subset is drawn, the same for the same images.

    One fewer is drawn than there are: then the variance of a mean is neither too small nor too
    large, however few there are (Rao and Wu 1988).
    """
    n = fits.n_subsets
    if n == 1:
        return np.ones((RESAMPLES, 1))
    rng = np.random.default_rng([SEED, int(fits.network.images, 16), fits.size])
    rows = [np.bincount(rng.integers(0, n, n - 1), minlength=n) for _ in range(RESAMPLES)]
    return np.array(rows, dtype=np.float64)
