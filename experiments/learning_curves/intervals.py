"""Error bars of the NLL of auto minus temperature, from resamples of test samples and subsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.learning_curves.measuring import Fits
from experiments.scoreboard.networks import Floats
from experiments.scoreboard.resampling import RESAMPLES, SEED, Interval, interval


def paired(fits: Sequence[Fits]) -> Interval:
    """NLL of auto minus temperature, mean over sets of the mean over subsets.

    A resample resamples the test samples and the subsets, each once for all sets with the same test
    samples. Subsets on which a likelihood is 0 are left out.
    """
    usable = [each for each in fits if np.isfinite(each.difference("nll")).any()]
    if not usable:
        return Interval(float("nan"), None, None)
    seen = float(np.mean([np.nanmean(each.difference("nll")) for each in usable]))
    return interval(seen, [np.mean([resampled_mean(each) for each in usable], axis=0) - seen])


def resampled_mean(fits: Fits) -> Floats:
    """The difference in every resample, mean over the subsets that it drew."""
    finite = np.isfinite(fits.difference("nll"))
    weight = subset_draws(fits)[:, finite]
    weight[weight.sum(axis=1) == 0] = 1.0  # none of those drawn can be used: all that can
    return np.asarray((weight * fits.resampled[finite].T).sum(axis=1) / weight.sum(axis=1))


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
