"""People's votes for the CIFAR-10 test images, and the divergence of a network from them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

from experiments.scoreboard.networks import PEOPLE, Floats

EVERY = "all images"


def vote_shares(folder: Path) -> Floats:
    """The share of the votes (47 to 63 for an image) that each class has."""
    with np.load(folder / f"{PEOPLE}.npz") as file:
        counts = file["counts"].astype(np.float64)
    shares: Floats = counts / counts.sum(axis=1, keepdims=True)
    return shares


def divergence(shares: Floats, log_probs: Floats) -> Floats:
    """KL from the votes to the outputs, sum of p log(p / q), of each image.

    A class without votes adds 0. With few votes this is too large by about the number of other
    plausible classes over twice the votes, but by the same amount for every q: the part that
    depends on q is linear in the shares, so differences of methods are unbiased.
    """
    return np.asarray(xlogy(shares, shares).sum(axis=1) - (shares * log_probs).sum(axis=1))


def by_agreement(shares: Floats, edges: Sequence[float]) -> dict[str, npt.NDArray[np.bool_]]:
    """The images by the share of their most frequent class; the last edge is 1, all votes."""
    top = shares.max(axis=1)
    lows = (0.0, *edges)
    found = {EVERY: np.ones(len(top), dtype=bool)}
    for low, high in pairwise(lows):
        name = f"below {high:g}" if low == 0.0 else f"{low:g} to {high:g}"
        found[name] = (low <= top) & (top < high)
    found["all votes the same"] = top == 1.0
    return found
