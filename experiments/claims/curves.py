"""Paper 1 on the course of training: loss, weights and gradients over the epochs."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.claims.claim import FITS, MUKHOTI, Claim, Rule, Values
from experiments.claims.networks import COUNTED, LAST, fitted, judged, listed
from experiments.verdicts import UNTESTED, Verdict

NOISE = 0.01
"""Smaller rises of the test NLL, measured on 400 to 1000 samples, are ignored."""
FOUR = ("cross-entropy", "FL-1", "FL-2", "FL-3")
"""The losses of Fig. 3."""
SURE = 0.95
"""The confidence that the paper names."""
ALIKE = 2.0
"""Gradient norms are alike whose medians differ by a smaller factor."""
CONSISTENT = 0.9
"""Share of the epochs in which a mean over some dozens of mistakes must be higher."""


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
    verdict, share = judged(alone, rising)
    return verdict, (
        "mistakes make more than 90% of the rise, and the NLL of correct samples falls, on "
        f"{share}, of those on which it rises by more than "
        f"{NOISE:g} ({listed(rising)}); of all that fit it rises on {len(rising)} of {len(fit)}"
    )


def norms_cross(values: Values) -> Verdict:
    """Is the last layer of FL-3 larger early and smaller late?"""
    ratio = "last-layer norm, FL-3 / cross-entropy"
    places = fitted(values, "cross-entropy", "FL-3", epoch=LAST)
    early = [values[f"{place}: {ratio}, mean of the first third"] for place in places]
    last = [values[f"{place}: {ratio}, last epoch"] for place in places]
    crossed = [x for x, a, b in zip(places, early, last, strict=True) if a > 1.0 > b]
    verdict, share = judged(crossed, places)
    return verdict, (
        "larger in the mean of the first third of the epochs and smaller in the last on "
        f"{share}; larger early on "
        f"{sum(a > 1 for a in early)}, smaller in the last on {sum(b < 1 for b in last)} "
        f"(ratios {_shown(early, last, form='.3f')}; {listed(places)})"
    )


def rise_smaller(values: Values) -> Verdict:
    """Where the test NLL rises late with cross-entropy, does it rise less with FL-3?"""

    def of(place: str, loss: str, name: str) -> float:
        return values[f"{place}, {loss}: {name}"]

    rise = "rise of the test NLL after its lowest epoch"
    of_wrong = "rise of the mean NLL of wrong samples"
    fit = fitted(values, "cross-entropy", "FL-3", epoch=LAST)
    rising = {
        place: errors for place, errors in fit.items() if of(place, "cross-entropy", rise) > NOISE
    }
    if not rising:
        return UNTESTED, "the test NLL does not rise late with cross-entropy on any fitted network"
    plain, focal = (
        [of(place, loss, rise) for place in rising] for loss in ("cross-entropy", "FL-3")
    )
    less = [x for x, a, b in zip(rising, plain, focal, strict=True) if b < a]
    less_of_wrong = sum(
        of(place, "FL-3", of_wrong) < of(place, "cross-entropy", of_wrong) for place in rising
    )
    verdict, share = judged(less, rising)
    return verdict, (
        f"the test NLL rises less with FL-3 on {share}, of those on "
        f"which it rises by more than {NOISE:g} with cross-entropy (cross-entropy / FL-3: "
        f"{_shown(plain, focal, form='.3f')}; {listed(rising)}); the mean NLL of mistakes rises "
        f"less on {less_of_wrong}; of all that fit the test NLL rises with cross-entropy on "
        f"{len(rising)} of {len(fit)}"
    )


def correct_stay_sure(values: Values) -> Verdict:
    """Do correct predictions have a mean confidence above 0.95 with all four losses?"""
    ending = ": confidence of correct test samples, last epoch"
    every = fitted(values, *FOUR, epoch=LAST)
    fit = {p: e for p, e in every.items() if values[f"{p}, {FOUR[0]}{ending}"] > SURE}
    found = [[values[f"{place}, {loss}{ending}"] for loss in FOUR] for place in fit]
    sure = [place for place, each in zip(fit, found, strict=True) if min(each) > SURE]
    verdict, share = judged(sure, fit)
    by_loss = ", ".join(
        f"{loss} on {sum(each[i] > SURE for each in found)}" for i, loss in enumerate(FOUR)
    )
    focal = [value for name, value in values.items() if name.endswith(f", FL-3{ending}")]
    return verdict, (
        f"mean confidence of correct test samples above {SURE:g} with all four losses on "
        f"{share}, of the {len(every)} that have them those on which it is with cross-entropy "
        f"({by_loss}; confidence "
        f"{_shown(*zip(*found, strict=True), form='.2f')}; {listed(fit)}); with FL-3 on "
        f"{sum(each > SURE for each in focal)} of all {len(focal)} networks"
    )


def gradients_fall(values: Values) -> Verdict:
    """Are gradient norms of FL-3 like those of cross-entropy early, and smaller later?"""
    fit = fitted(values, "cross-entropy", "FL-3", epoch=LAST)

    def ratios(statistic: str) -> list[tuple[float, float]]:
        name = f"{statistic} gradient norm, FL-3 / cross-entropy"
        return [(values[f"{x}: {name}, early"], values[f"{x}: {name}, late"]) for x in fit]

    def as_claimed(some: list[tuple[float, float]]) -> list[str]:
        return [
            place
            for place, (early, late) in zip(fit, some, strict=True)
            if 1 / ALIKE < early < ALIKE and late < min(early, 1.0)
        ]

    medians, means = ratios("median"), ratios("mean")
    verdict, share = judged(as_claimed(medians), fit)
    return verdict, (
        f"median gradient norm of FL-3 within a factor of {ALIKE:g} of that of cross-entropy "
        "early, and late smaller than it, and more so than early, on "
        f"{share}; alike early on "
        f"{sum(1 / ALIKE < early < ALIKE for early, _ in medians)}, smaller late on "
        f"{sum(late < 1.0 for _, late in medians)} (ratios "
        f"{_shown(*zip(*medians, strict=True), form='.2f')}; {listed(fit)}); by mean norms on "
        f"{len(as_claimed(means))}"
    )


def mistakes_less_sure(values: Values) -> Verdict:
    """Do mistakes have a higher entropy with FL-3 than with cross-entropy?"""
    fit = fitted(values, "cross-entropy", "FL-3", epoch=LAST)
    name = "share of epochs in which FL-3 has the higher entropy of wrong test samples"
    shares = [values[f"{place}: {name}"] for place in fit]
    higher = [place for place, share in zip(fit, shares, strict=True) if share >= CONSISTENT]
    verdict, on = judged(higher, fit)
    return verdict, (
        f"the mean entropy of wrong test samples is higher with FL-3 in at least {CONSISTENT:.0%} "
        f"of the epochs on {on} "
        f"({_shown(shares, form='.0%')}; {listed(fit)}); in every epoch on "
        f"{sum(share == 1.0 for share in shares)}"
    )


def _shown(*columns: Sequence[float], form: str) -> str:
    """Some numbers of each network, in the order of the networks."""
    return "; ".join(" / ".join(f"{x:{form}}" for x in row) for row in zip(*columns, strict=True))


OF_CURVES = Rule(
    "networks that fit at the end",
    f"A network counts if its training error is below {FITS:g}% after the last epoch, with every "
    f"loss compared. {COUNTED}.",
)
TEN_EPOCHS = "networks on texts were trained for ten epochs"
CLAIMS = (
    Claim(
        "late in training the test NLL rises only through the mistakes",
        f"{MUKHOTI}, Fig. 1",
        ("dynamics",),
        rise_from_mistakes,
        "Judged on cross-entropy, as the claim is.",
        "held: 21 runs were counted, of all losses, on four networks, three of which fit; then was "
        f"not decided, by 3 of 3: {TEN_EPOCHS}",
        OF_CURVES,
    ),
    Claim(
        "the last layer of the focal loss is larger early and smaller late",
        f"{MUKHOTI}, Fig. 3h",
        ("dynamics",),
        norms_cross,
        changed=f"was not decided, by 0 of 3: {TEN_EPOCHS}",
        shared=OF_CURVES,
    ),
    Claim(
        "the test NLL rises less late in training with the focal loss",
        f"{MUKHOTI}, Fig. 3c and Sec. 7",
        ("dynamics",),
        rise_smaller,
        "A network counts if the NLL rises with cross-entropy.",
        "had no verdict",
        OF_CURVES,
    ),
    Claim(
        "correct predictions stay above a confidence of 0.95 with all four losses",
        f"{MUKHOTI}, Fig. 3e",
        ("dynamics",),
        correct_stay_sure,
        "A network counts if cross-entropy is above it. The paper shows one network, which is "
        "right on 95% of the test set.",
        "had no verdict",
        OF_CURVES,
    ),
    Claim(
        "gradient norms are alike early and later smaller with the focal loss",
        f"{MUKHOTI}, Fig. 4b to 4d",
        ("dynamics",),
        gradients_fall,
        "At epochs 10 and 200 of 350, as parts of each run.",
        "had no verdict",
        OF_CURVES,
    ),
    Claim(
        "mistakes have a consistently higher entropy with the focal loss",
        f"{MUKHOTI}, Fig. 3d",
        ("dynamics",),
        mistakes_less_sure,
        changed="had no verdict",
        shared=OF_CURVES,
    ),
)
