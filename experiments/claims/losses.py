"""Paper 1 on its losses: which calibrates best, before and after temperature scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from experiments.claims.claim import FITS, MUKHOTI, Claim, Rule, Values
from experiments.claims.networks import COUNTED, fitted, listed, with_long_runs
from experiments.claims.public import CHOICE, GAIN_UNITS, OF_DATA, OF_IMAGES, PUBLIC, ends, gain
from experiments.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    PARTLY,
    SURE_ENOUGH,
    Verdict,
    by_counts,
    by_interval,
    by_parts,
    counted,
)

FIXED = ("FL-1", "FL-2", "FL-3")
NEAR_ONE = (0.9, 1.1)


def smaller_error(
    first: str, second: str, stage: str = "before"
) -> Callable[[Values, Values, Values, Values], Verdict]:
    """Is the ECE before or after temperature scaling smaller with one loss than with another?"""

    def judge(tables: Values, newsgroups: Values, sst: Values, digits: Values) -> Verdict:
        values = with_long_runs(tables, newsgroups, sst)
        ending = f": ECE % {stage} T, {first} minus {second}"
        signs = {
            name.removesuffix(ending): by_interval(
                -values[f"{name}, high"], -values[f"{name}, low"]
            )
            for name in values
            if name.endswith(ending)  # a network that has learned nothing is not compared
        }
        fit = {place: e for place, e in fitted(values, first, second).items() if place in signs}
        (better, worse), of_all = (
            [[signs[place] for place in places].count(side) for side in (HOLDS, FAILS)]
            for places in (fit, signs)
        )
        verdict = by_counts(better, worse)
        if verdict == OPEN and min(better, worse) >= SURE_ENOUGH:
            verdict = PARTLY
        return verdict, (
            f"ECE significantly smaller on {better} of {len(fit)} fitted networks, significantly "
            f"larger on {worse}: {counted(better, better + worse)} of those that differ "
            f"({listed(fit)}); of all {len(signs)} networks on {of_all[0]} and {of_all[1]}; five "
            f"seeds of digits: {_against_on_digits(digits, first, second, stage)}"
        )

    return judge


def _against_on_digits(values: Values, first: str, second: str, stage: str) -> str:
    """The comparison on digits, where both losses are compared with cross-entropy by seed."""
    error = "ECE %" if stage == "before" else "ECE % after T"
    if second == "cross-entropy":
        name = f"{first} minus {second}: {error}"
        return f"{values[name]:+.1f} ± {values[f'{name}, half interval']:.1f} points"
    seen = [values[f"{loss}: {error}"] for loss in (first, second)]
    return f"{seen[0]:.1f}% against {seen[1]:.1f}%"


def smaller_error_than_gamma_3(
    tables: Values, newsgroups: Values, sst: Values, digits: Values
) -> Verdict:
    """Is the ECE smaller with FLA-53 than with FL-3? The other gammas stand beside it."""
    verdict, evidence = smaller_error("FLA-53", "FL-3")(tables, newsgroups, sst, digits)
    values = with_long_runs(tables, newsgroups, sst)
    fit = fitted(values, "FLA-53", *FIXED)
    shown = []
    for loss in FIXED[:2]:
        places = _with_smaller_error(values, loss, "FLA-53", fit)
        shown.append(f"on {len(places)} ({'; '.join(places)})" if places else "on none")
    return verdict, (
        f"{evidence}; of the {len(fit)} fitted networks with every gamma {FIXED[0]} has a smaller "
        f"ECE than FLA-53 {shown[0]}, {FIXED[1]} {shown[1]}"
    )


def _with_smaller_error(
    values: Values, first: str, second: str, places: Iterable[str]
) -> list[str]:
    """The networks on which the ECE is smaller with the first loss, by the numbers alone."""
    name = "{}, {}: ECE % before T"
    return [p for p in places if values[name.format(p, first)] < values[name.format(p, second)]]


def best_fixed_gamma(tables: Values, newsgroups: Values, sst: Values, digits: Values) -> Verdict:
    """Does FL-3 have the smallest ECE of the three fixed gammas?"""
    values = with_long_runs(tables, newsgroups, sst)
    ending = f", {FIXED[0]}: ECE % before T"
    places = [name.removesuffix(ending) for name in values if name.endswith(ending)]

    def best(some: Iterable[str]) -> int:
        errors = [[values[f"{place}, {loss}: ECE % before T"] for loss in FIXED] for place in some]
        return sum(each[-1] == min(each) for each in errors)

    fit = fitted(values, *FIXED)
    count = best(fit)
    of_digits = " / ".join(f"{digits[f'{loss}: ECE %']:.1f}" for loss in FIXED)
    return by_counts(count, len(fit) - count), (
        f"FL-3 has the smallest ECE of FL-1, FL-2 and FL-3 on {counted(count, len(fit))} fitted "
        f"networks that have all three ({listed(fit)}), and on {best(places)} of all "
        f"{len(places)}; five seeds of digits: {of_digits}%"
    )


def temperature_near_one(
    tables: Values, newsgroups: Values, sst: Values, authors: Values
) -> Verdict:
    """Does the best T of FLA-53 lie between 0.9 and 1.1?"""
    values = with_long_runs(tables, newsgroups, sst)
    fit = fitted(values, "FLA-53", "cross-entropy")
    ending = ", FLA-53: T by ECE"
    found, plain = (
        [values[f"{place}, {loss}: T by ECE"] for place in fit]
        for loss in ("FLA-53", "cross-entropy")
    )
    of_all, of_authors = (
        [t for name, t in some.items() if name.endswith(ending)] for some in (values, authors)
    )
    (low, high), within = NEAR_ONE, [_near_one(each) for each in (found, plain, of_all, of_authors)]
    return by_counts(within[0], len(found) - within[0]), (
        f"T by ECE of FLA-53 is between {low:g} and {high:g} on {counted(within[0], len(found))} "
        f"fitted networks ({', '.join(f'{t:.1f}' for t in found)}; {listed(fit)}); that of "
        f"cross-entropy on {within[1]} ({', '.join(f'{t:.1f}' for t in plain)}); of all networks "
        f"trained here FLA-53 on {within[2]} of {len(of_all)}; of the authors' own networks on "
        f"CIFAR-10, which do not count, on {within[3]} of {len(of_authors)}"
    )


def _near_one(temperatures: Iterable[float]) -> int:
    low, high = NEAR_ONE
    return sum(low <= t <= high for t in temperatures)


def sure_predictions_kept(tables: Values, newsgroups: Values, sst: Values) -> Verdict:
    """Does FLA-53 have more predictions above 0.99 than cross-entropy after scaling?"""
    values = with_long_runs(tables, newsgroups, sst)
    name = "{}, {}: S99 %, after T by {}"
    places = fitted(values, "FLA-53", "cross-entropy")

    def more(by: str) -> int:
        return sum(
            values[name.format(place, "FLA-53", by)]
            > values[name.format(place, "cross-entropy", by)]
            for place in places
        )

    by_ece = more("ECE")  # as the paper chooses T
    shorter = tables["networks trained here"]
    significant = {
        word: tables[f"S99 after T by ECE: FLA-53 has significantly {word} than cross-entropy"]
        for word in ("more", "fewer")
    }
    return by_counts(by_ece, len(places) - by_ece), (
        "predictions above 0.99 after scaling, T by ECE as in the paper: FLA-53 has more than "
        f"cross-entropy on {counted(by_ece, len(places))} fitted networks ({listed(places)}); T "
        f"by NLL: on {more('NLL')}; of the {shorter:.0f} short runs significantly more on "
        f"{significant['more']:.0f}, fewer on {significant['fewer']:.0f}"
    )


def temperature_by_error(public: Values, authors: Values) -> Verdict:
    """Does T selected by ECE have a smaller ECE than T selected by NLL?"""
    name = f"All: {CHOICE.format('temperature')}"
    parts = [by_interval(*ends(public, name, of)) for of in (OF_IMAGES, OF_DATA)]
    better, n = (authors[name] for name in ("T by ECE better than T by NLL", "networks"))
    shown = (
        f"{family} {authors[f'{family}: mean ECE %, T by ECE']:.2f}% by ECE and "
        f"{authors[f'{family}: mean ECE %, T by NLL']:.2f}% by NLL"
        for family in ("FLA-53, CIFAR-10", "Brier, CIFAR-10", "Brier, CIFAR-100")
    )
    return by_parts(parts), (
        f"gain in ECE: {gain(public, name)}; {GAIN_UNITS}; on the authors' own networks, which do "
        f"not count, by the paper's bins and grid: {', '.join(shown)}; ECE is the better choice "
        f"on {better:.0f} of {n:.0f}"
    )


TRAINED = ("loss-tables", "newsgroups-losses", "sst-losses")
"""Networks trained here, those on texts for as many epochs as in the paper."""
FITTED = Rule(
    "networks that fit",
    f"A network counts if it fits with every loss compared: its training error is below {FITS:g}%, "
    f"by 400 or 1000 samples, at the epoch that is measured. {COUNTED}.",
)
PAIRED = Rule(
    "networks that fit and differ",
    f"As *{FITTED.name}*, of those whose 95% interval, on the same test samples or over the seeds "
    f"of SST, excludes 0. The claim holds in part from {SURE_ENOUGH} networks on each side.",
)
PUBLISHED_MMCE = "MMCE as the authors' code computes it (`mmce-published`)."
NINE = "nine networks were counted, of which most do not fit"
CLAIMS = (
    Claim(
        "FLA-53 beats cross-entropy before temperature scaling",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "digits-losses"),
        smaller_error("FLA-53", "cross-entropy"),
        changed="had no verdict",
        shared=PAIRED,
    ),
    Claim(
        "FLA-53 beats cross-entropy after temperature scaling",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "digits-losses"),
        smaller_error("FLA-53", "cross-entropy", "after"),
        changed="had no verdict",
        shared=PAIRED,
    ),
    Claim(
        "FL-3 beats cross-entropy before temperature scaling",
        f"{MUKHOTI}, Tables 4 and 7",
        (*TRAINED, "digits-losses"),
        smaller_error("FL-3", "cross-entropy"),
        changed="held in part: networks were counted that fit with cross-entropy alone, and the "
        "same recipes trained on another machine gave two networks on each side",
        shared=PAIRED,
    ),
    Claim(
        "FLA-53 beats the Brier loss before temperature scaling",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "digits-losses"),
        smaller_error("FLA-53", "Brier"),
        changed="held in part: networks were counted that fit with cross-entropy alone",
        shared=PAIRED,
    ),
    Claim(
        "FLA-53 beats the Brier loss after temperature scaling",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "digits-losses"),
        smaller_error("FLA-53", "Brier", "after"),
        changed="had no verdict",
        shared=PAIRED,
    ),
    Claim(
        "FLA-53 beats MMCE before temperature scaling",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "digits-losses"),
        smaller_error("FLA-53", "MMCE, published"),
        PUBLISHED_MMCE,
        "had no verdict",
        PAIRED,
    ),
    Claim(
        "FLA-53 beats MMCE after temperature scaling",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "digits-losses"),
        smaller_error("FLA-53", "MMCE, published", "after"),
        PUBLISHED_MMCE,
        "had no verdict",
        PAIRED,
    ),
    Claim(
        "FLA-53 beats FL-3 before temperature scaling",
        f"{MUKHOTI}, Secs 4 and 6",
        (*TRAINED, "digits-losses"),
        smaller_error_than_gamma_3,
        shared=PAIRED,
    ),
    Claim(
        "3 is the best fixed gamma of 1, 2 and 3",
        f"{MUKHOTI}, Sec. 6",
        (*TRAINED, "digits-losses"),
        best_fixed_gamma,
        "By the errors alone, without their intervals.",
        "had no verdict",
        FITTED,
    ),
    Claim(
        "the optimal T of focal losses is near 1",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "authors-networks"),
        temperature_near_one,
        changed=f"did not hold: {NINE}",
        shared=FITTED,
    ),
    Claim(
        "T selected by ECE has a smaller ECE than T selected by NLL",
        f"{MUKHOTI}, Sec. 6",
        ("focal-temperature", "authors-networks"),
        temperature_by_error,
        "Bins with equal numbers of samples, where the paper has equal widths.",
        "had no verdict",
        PUBLIC,
    ),
    Claim(
        "focal losses keep sure predictions after temperature scaling",
        f"{MUKHOTI}, Table 6",
        TRAINED,
        sure_predictions_kept,
        "By the shares alone, without a test.",
        f"held in part: {NINE}",
        FITTED,
    ),
)
