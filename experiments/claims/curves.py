"""Paper 1 on the course of training: loss, weights and gradients over the epochs."""

from __future__ import annotations

from experiments.claims.claim import FITS, MUKHOTI, Claim, Values
from experiments.claims.networks import LAST, fitted, listed
from experiments.verdicts import UNTESTED, Verdict, by_counts, counted

NOISE = 0.01
"""Smaller rises of the test NLL, measured on a thousand samples, are ignored."""


def rise_from_mistakes(values: Values) -> Verdict:
    """If the test NLL rises late, is this due to mistakes, while correct samples improve?"""
    ending = ", cross-entropy: rise of the test NLL after its lowest epoch"
    fit = fitted(values, "cross-entropy", epoch=LAST)
    rising = {place: errors for place, errors in fit.items() if values[f"{place}{ending}"] > NOISE}
    if not rising:
        return UNTESTED, "the test NLL does not rise late on any fitted network"
    alone = [
        place
        for place in rising
        if values[f"{place}, cross-entropy: part of that rise from mistakes"] > 0.9
        and values[f"{place}, cross-entropy: rise of the mean NLL of correct samples"] < 0.0
    ]
    return by_counts(len(alone), len(rising) - len(alone)), (
        "mistakes make more than 90% of the rise, and the NLL of correct samples falls, on "
        f"{counted(len(alone), len(rising))} fitted networks on which it rises by more than "
        f"{NOISE:g} ({listed(rising)}); of all that fit it rises on {len(rising)} of {len(fit)}"
    )


def norms_cross(values: Values) -> Verdict:
    """Is the last layer of FL-3 larger early and smaller late?"""
    ratio = "last-layer norm, FL-3 / cross-entropy"
    places = fitted(values, "cross-entropy", "FL-3", epoch=LAST)
    early = [values[f"{place}: {ratio}, mean of the first third"] for place in places]
    last = [values[f"{place}: {ratio}, last epoch"] for place in places]
    crossed = sum(a > 1.0 > b for a, b in zip(early, last, strict=True))
    return by_counts(crossed, len(places) - crossed), (
        "larger in the mean of the first third of the epochs and smaller in the last on "
        f"{counted(crossed, len(places))} fitted networks; larger early on "
        f"{sum(a > 1 for a in early)}, smaller in the last on {sum(b < 1 for b in last)} "
        f"({listed(places)})"
    )


OF_CURVES = (
    f"share of the networks that fit (training error below {FITS:g}% after the last epoch), one "
    "seed each"
)
CLAIMS = (
    Claim(
        "late in training the test NLL rises only through the mistakes",
        f"{MUKHOTI}, Fig. 1",
        ("dynamics",),
        rise_from_mistakes,
        f"{OF_CURVES}, cross-entropy, as the claim",
        "held: 21 runs were counted, of all losses, on four networks; three of these fit",
    ),
    Claim(
        "the last layer of the focal loss is larger early and smaller late",
        f"{MUKHOTI}, Fig. 3h",
        ("dynamics",),
        norms_cross,
        f"{OF_CURVES}, both losses",
    ),
)
