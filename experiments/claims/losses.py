"""Paper 1 on its losses: which calibrates best, before and after temperature scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from experiments.claims.claim import FITS, MUKHOTI, Claim, Rule, Values
from experiments.claims.networks import COUNTED, fitted, judged, listed, with_long_runs
from experiments.claims.public import CHOICE, GAIN_UNITS, OF_DATA, OF_IMAGES, PUBLIC, ends, gain
from experiments.loss_tables import paper
from experiments.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    PARTLY,
    SURE_ENOUGH,
    Verdict,
    by_interval,
    by_parts,
)

FIXED = ("FL-1", "FL-2", "FL-3")
NEAR_ONE = (0.9, 1.1)
T_OF_FLA_53 = ", FLA-53: T by ECE"
OF_ITS_KIND = {
    "20newsgroups, text-cnn": ("20 Newsgroups", "Global Pooling CNN"),
    "sst-binary, tree-lstm": ("SST Binary", "Tree LSTM"),
}
"""Networks of the paper's kind on its data, and where the paper has them."""
COLUMNS = {
    **{"cross-entropy": "ce", "Brier": "brier", "MMCE, published": "mmce", "FLA-53": "fla-53"},
    **{loss: loss.lower() for loss in FIXED},
}
"""The paper's columns, by loss."""


def smaller_error(first: str, second: str, stage: str = "before") -> Callable[..., Verdict]:
    """Is the ECE before or after temperature scaling smaller with one loss than with another?"""

    def judge(*results: Values) -> Verdict:
        *trained, digits = results
        values = with_long_runs(*trained)
        ending = f": ECE % {stage} T, {first} minus {second}"
        signs = {
            name.removesuffix(ending): by_interval(
                -values[f"{name}, high"], -values[f"{name}, low"]
            )
            for name in values
            if name.endswith(ending)  # a network that has learned nothing is not compared
        }
        fit = {place: e for place, e in fitted(values, first, second).items() if place in signs}
        fit, but = without_exceptions(fit, stage, lambda printed: printed[first] < printed[second])
        better, worse = ([x for x in fit if signs[x] == side] for side in (HOLDS, FAILS))
        of_all = [[*signs.values()].count(side) for side in (HOLDS, FAILS)]
        verdict, share = judged(better, [*better, *worse])
        if verdict == OPEN and min(len(better), len(worse)) >= SURE_ENOUGH:
            verdict = PARTLY
        differ = f"{share}, of those that differ" if better or worse else "none differs"
        return verdict, (
            f"ECE significantly smaller on {len(better)} of {len(fit)} fitted networks, "
            f"significantly larger on {len(worse)}: {differ} "
            f"({listed(fit)}){but}; of all {len(signs)} networks on {of_all[0]} and {of_all[1]}; "
            f"five seeds of digits: {_against_on_digits(digits, first, second, stage)}"
        )

    return judge


def without_exceptions(
    fit: Mapping[str, list[float]], stage: str, as_claimed: Callable[[Mapping[str, float]], bool]
) -> tuple[dict[str, list[float]], str]:
    """The networks without those of which the paper itself prints no support of its claim.

    ``as_claimed`` is asked of the ECE of each loss that the paper prints, or for the stage T of the
    temperature; the second result names the networks left out.
    """
    cells = paper.cells()
    out = []
    for place in OF_ITS_KIND.keys() & fit.keys():
        row = cells["ece", stage, *OF_ITS_KIND[place]]
        if not as_claimed({loss: float(row[column]) for loss, column in COLUMNS.items()}):
            out.append(place)
    but = (
        f"; not counted, since the paper prints it so too: {'; '.join(sorted(out))}" if out else ""
    )
    return {place: errors for place, errors in fit.items() if place not in out}, but


def _against_on_digits(values: Values, first: str, second: str, stage: str) -> str:
    """The comparison on digits, where both losses are compared with cross-entropy by seed."""
    error = "ECE %" if stage == "before" else "ECE % after T"
    if second == "cross-entropy":
        name = f"{first} minus {second}: {error}"
        return f"{values[name]:+.1f} ± {values[f'{name}, half interval']:.1f} points"
    seen = [values[f"{loss}: {error}"] for loss in (first, second)]
    return f"{seen[0]:.1f}% against {seen[1]:.1f}%"


def smaller_error_than_gamma_3(*results: Values) -> Verdict:
    """Is the ECE smaller with FLA-53 than with FL-3? The other gammas stand beside it."""
    verdict, evidence = smaller_error("FLA-53", "FL-3")(*results)
    values = with_long_runs(*results[:-1])
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


def best_fixed_gamma(*results: Values) -> Verdict:
    """Does FL-3 have the smallest ECE of the three fixed gammas?"""
    *trained, digits = results
    values = with_long_runs(*trained)
    ending = f", {FIXED[0]}: ECE % before T"
    places = [name.removesuffix(ending) for name in values if name.endswith(ending)]

    def best(some: Iterable[str]) -> list[str]:
        errors = {p: [values[f"{p}, {loss}: ECE % before T"] for loss in FIXED] for p in some}
        return [place for place, each in errors.items() if each[-1] == min(each)]

    fit, but = without_exceptions(
        fitted(values, *FIXED),
        "before",
        lambda printed: printed[FIXED[-1]] == min(printed[loss] for loss in FIXED),
    )
    verdict, share = judged(best(fit), fit)
    of_digits = " / ".join(f"{digits[f'{loss}: ECE %']:.1f}" for loss in FIXED)
    return verdict, (
        f"FL-3 has the smallest ECE of FL-1, FL-2 and FL-3 on {share}, of those that have all "
        f"three ({listed(fit)}){but}, and on {len(best(places))} of all "
        f"{len(places)}; five seeds of digits: {of_digits}%"
    )


def temperature_near_one(*trained: Values) -> Verdict:
    """Does the best T of FLA-53 lie between 0.9 and 1.1?"""
    values = with_long_runs(*trained)
    fit, but = without_exceptions(
        fitted(values, "FLA-53", "cross-entropy"),
        "T",
        lambda printed: _near_one([printed["FLA-53"]]) > 0,
    )
    found, plain = (
        [values[f"{place}, {loss}: T by ECE"] for place in fit]
        for loss in ("FLA-53", "cross-entropy")
    )
    of_all = [t for name, t in values.items() if name.endswith(T_OF_FLA_53)]
    nearer = sum(abs(t - 1.0) < abs(u - 1.0) for t, u in zip(found, plain, strict=True))
    low, high = NEAR_ONE
    verdict, share = judged([x for x, t in zip(fit, found, strict=True) if _near_one([t])], fit)
    return verdict, (
        f"T by ECE of FLA-53 is between {low:g} and {high:g} on {share} "
        f"({', '.join(f'{t:.1f}' for t in found)}; {listed(fit)}){but}; that of "
        f"cross-entropy on {_near_one(plain)} ({', '.join(f'{t:.1f}' for t in plain)}); T of "
        f"FLA-53 is nearer to 1 on {nearer}; of all networks trained here it is between on "
        f"{_near_one(of_all)} of {len(of_all)}"
    )


def temperature_of_authors_near_one(authors: Values) -> Verdict:
    """Does it on every network of the authors that was trained with it?"""
    found = [t for name, t in authors.items() if name.endswith(T_OF_FLA_53)]
    low, high = NEAR_ONE
    within = _near_one(found)
    verdict = PARTLY if 0 < within < len(found) else HOLDS if within else FAILS
    return verdict, (
        f"T by ECE is between {low:g} and {high:g} on {within} of {len(found)} networks "
        f"({', '.join(f'{t:.1f}' for t in found)})"
    )


def _near_one(temperatures: Iterable[float]) -> int:
    low, high = NEAR_ONE
    return sum(low <= t <= high for t in temperatures)


def sure_predictions_kept(tables: Values, *long: Values) -> Verdict:
    """Does FLA-53 have more predictions above 0.99 than cross-entropy after scaling?"""
    values = with_long_runs(tables, *long)
    name = "{}, {}: S99 %, after T by {}"
    places = fitted(values, "FLA-53", "cross-entropy")

    def more(by: str) -> list[str]:
        return [
            place
            for place in places
            if values[name.format(place, "FLA-53", by)]
            > values[name.format(place, "cross-entropy", by)]
        ]

    verdict, share = judged(more("ECE"), places)  # as the paper chooses T
    shorter = tables["networks trained here"]
    significant = {
        word: tables[f"S99 after T by ECE: FLA-53 has significantly {word} than cross-entropy"]
        for word in ("more", "fewer")
    }
    return verdict, (
        "predictions above 0.99 after scaling, T by ECE as in the paper: FLA-53 has more than "
        f"cross-entropy on {share} ({listed(places)}); T "
        f"by NLL: on {len(more('NLL'))}; of the {shorter:.0f} short runs significantly more on "
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


TRAINED = ("loss-tables", "newsgroups-losses", "sst-losses", "fitted-images")
"""Networks trained here: short runs, then those that take their place."""
FITTED = Rule(
    "networks that fit",
    f"A network counts if it fits with every loss compared: its training error is below {FITS:g}%, "
    f"by 400 to 1078 samples, at the epoch that is measured. {COUNTED}. 20 Newsgroups and "
    "SST, whose networks are the paper's, do not count where the paper itself prints the "
    "opposite of its claim.",
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
        f"{MUKHOTI}, Tables 1 and 4",
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
        TRAINED,
        temperature_near_one,
        changed=f"did not hold: {NINE}",
        shared=FITTED,
    ),
    Claim(
        "the same on networks of Mukhoti et al., FLA-53 on CIFAR-10",
        f"{MUKHOTI}, Table 1",
        ("authors-networks",),
        temperature_of_authors_near_one,
        "Holds if T of all four is, does not hold if none is. Says nothing about others: of the "
        "ten that the paper prints, seven have such a T.",
        "was no verdict of its own",
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
