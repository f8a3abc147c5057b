"""Paper 3: where the focal map helps, and which gamma is best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from experiments.claims.claim import CHAROENPHAKDEE, FITS, Claim, Rule, Values
from experiments.claims.public import FROM_TO
from experiments.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    SURE_ENOUGH,
    UNTESTED,
    Verdict,
    by_interval,
    by_panels,
    by_parts,
    by_sources,
    counted,
    minus,
    t_interval,
)

STANDARD, SCALED, SMOOTHED = "Standard", "TS_FL", "LS"
REPEATED = {"all": 9, "many": 8, "few": 0}
"""Tables that are other views of the objects of a table that counts already."""
ENDS = ("low", "high")
SETTINGS = ("MLP, stopped", "MLP, to the end")
ADDED = "points of ECE that the map adds"
RISE = "points of ECE that gamma adds without the map, the largest against the smallest"
AGAINST_STANDARD = "points of ECE that TS_FL adds without the map"
TRAINING_ERROR = ": training error %"
OF_WHOLE_GAMMAS = 6**-0.5
"""Standard deviation of the rounding in a difference of two gammas, each found on whole numbers."""


def map_by_data(values: Values) -> Verdict:
    """Does the map lower the error with many images, and raise it on networks that fit few?"""
    parts, shown, clusters = [], [], 0
    for few, many in _sizes(values):
        fits = _fits(values, STANDARD, few)
        clusters += fits
        for panel, sign in ((few, 1), (many, -1)):
            interval = _interval(values, f"{STANDARD}: {panel}: {ADDED}")
            parts += [interval if sign > 0 else minus(interval)] if fits else []
            shown.append(_shown(values, STANDARD, panel, ADDED))
    return _when_complete(by_panels(parts, clusters), values), (
        f"points of ECE that the map adds: {'; '.join(shown)}{_left_out(values)}"
    )


def map_on_a_tenth(values: Values) -> Verdict:
    """Does the map raise the error of a network that fits a tenth of the images?"""
    (panel,) = _panels(values, STANDARD)
    interval = _interval(values, f"{STANDARD}: {panel}: {ADDED}")
    verdict = by_interval(*interval) if _fits(values, STANDARD, panel) else UNTESTED
    return _when_complete(verdict, values), (
        "points of ECE that the map adds, mean of gamma 1 to 3: "
        f"{_shown(values, STANDARD, panel, ADDED)}{_left_out(values)}"
    )


def in_panels(effect: str, *paradigms: str, lowers: bool = False) -> Callable[..., Verdict]:
    """Does something raise, or lower, the ECE in the panels of paradigms whose networks fit?"""

    def judge(*results: Values) -> Verdict:
        values = {name: value for each in results for name, value in each.items()}
        every = [(p, panel) for p in paradigms for panel in _panels(values, p)]
        fitted = [(p, panel) for p, panel in every if _fits(values, p, panel)]
        intervals = [_interval(values, f"{p}: {panel}: {effect}") for p, panel in fitted]
        claimed = [minus(each) if lowers else each for each in intervals]
        sides = [by_interval(*each) for each in claimed]
        clusters = len({panel.rpartition(", ")[0] for _, panel in fitted})
        for_it, against = ("lower", "higher") if lowers else ("higher", "lower")
        several = len(paradigms) > 1
        return _when_complete(by_panels(claimed, clusters), *results), (
            f"{effect}: significantly {for_it} in {sides.count(HOLDS)} and {against} in "
            f"{sides.count(FAILS)} of {len(fitted)} panels, of {clusters} networks and data sets "
            "that fit; of all: "
            + "; ".join(
                (f"{p}, " if several else "") + _shown(values, p, panel, effect)
                for p, panel in every
            )
            + "".join(_left_out(each) for each in results)
        )

    return judge


def map_by_size(values: Values) -> Verdict:
    """Does the map add more to the error of a larger network?"""
    shown, parts = [], []
    for larger, smaller in _networks(values):
        low, high = _interval(values, f"{STANDARD}: {larger}: {ADDED}")
        to, from_ = _interval(values, f"{STANDARD}: {smaller}: {ADDED}")
        parts.append(HOLDS if low > from_ else FAILS if high < to else OPEN)
        shown += [_shown(values, STANDARD, each, ADDED) for each in (larger, smaller)]
    verdict = by_parts(parts) if len(parts) >= SURE_ENOUGH else OPEN
    return _when_complete(verdict, values), (
        f"points of ECE that the map adds: {'; '.join(shown)}{_left_out(values)}"
    )


def gamma_by_size(values: Values) -> Verdict:
    """Does the best gamma grow with the network?"""
    return _larger_gammas(values, _networks(values))


def gamma_by_data(values: Values) -> Verdict:
    """Does the best gamma grow as images become fewer, at the same number of steps?"""
    verdict, evidence = _larger_gammas(values, _sizes(values))
    if values.get("fewest steps of a run") == values.get("most steps of a run", math.nan):
        return verdict, (
            f"{evidence}; the same {values['most steps of a run']:.0f} steps for all, in which "
            "few images are seen more often and fitted better: size and fit are not told apart"
        )
    return OPEN, (
        f"{evidence}; the number of steps differs with the size, and fewer images were seen more "
        "often, so size and fit are not told apart"
    )


def map_on_authors_networks(values: Values) -> Verdict:
    """Does the map move outputs of networks of Mukhoti et al. away from the votes of people?"""
    ending = ": change of KL by the map"
    networks = [name.removesuffix(ending) for name in values if name.endswith(ending)]
    ends = [[values[f"{n}{ending}: 95% {end}"] for end in FROM_TO] for n in networks]
    name = "FLSD-53: KL, {}"
    return by_parts([by_interval(low, high) for low, high in ends]), (
        f"KL from the votes of about 50 people for each image, {len(networks)} networks trained "
        f"with FLSD-53 on CIFAR-10: {values[name.format('as it is')]:.3f} before the map and "
        f"{values[name.format('map')]:.3f} after it, larger on all by at least "
        f"{min(low for low, _ in ends):.2f} (95% intervals from resampled test images); NLL of the "
        f"labels {values['FLSD-53: NLL, as it is']:.3f} and {values['FLSD-53: NLL, map']:.3f}"
    )


def worse_on_tables(values: Values) -> Verdict:
    """Does the focal loss have a larger ECE on most tables?"""
    n, shown, parts = values["data sets"], [], []
    for setting in SETTINGS:
        larger = values[f"{setting}, FL-3: data sets with a larger ECE than CE"]
        parts.append(by_sources(larger, n - larger, REPEATED["all"]))
        shown.append(f"{setting}: {counted(larger, n)}")
    return by_parts(parts), f"tables on which FL-3 is worse than cross-entropy: {'; '.join(shown)}"


def map_corrects(values: Values) -> Verdict:
    """Does the map lower the ECE of FL-3 on tables?"""
    shown, parts = [], []
    for setting in SETTINGS:
        name = f"{setting}, FL-3"
        low, high = (values[f"{name}: {end} end of the change by the map, %"] for end in ENDS)
        parts.append(by_interval(-high, -low))
        left = values[f"{name}: mean ECE with map minus that of CE, %"]
        shown.append(
            f"{setting}: by {low:+.1f} to {high:+.1f} points, which leaves {left:+.1f} to "
            "cross-entropy"
        )
    return by_parts(parts), f"the map changes the mean ECE of FL-3: {'; '.join(shown)}"


def map_on_tables(values: Values) -> Verdict:
    """Does the map help on most tables with many rows, and hurt when overfitting few rows?"""
    shown, counts = [], {}
    for setting in SETTINGS:
        for rows in ("many", "few"):
            n = values[f"data sets with {rows} rows"]
            helped = n * values[f"{setting}, FL-3: share helped, {rows} rows"]
            counts[setting, rows] = (helped, n - helped)
            shown.append(f"{setting}, {rows} rows: {counted(helped, n)}")
    plentiful, overfitted = counts[SETTINGS[0], "many"], counts[SETTINGS[1], "few"]
    verdict = by_parts(
        [
            by_sources(*plentiful, REPEATED["many"]),
            by_sources(*overfitted[::-1], REPEATED["few"]),
        ]
    )
    return verdict, f"tables on which the map helps: {'; '.join(shown)}"


def _panels(values: Values, paradigm: str) -> list[str]:
    """Panels of a paradigm: data set, network and images."""
    start, end = f"{paradigm}: ", f": {ADDED}"
    found = [name for name in values if name.startswith(start) and name.endswith(end)]
    return [name.removeprefix(start).removesuffix(end) for name in found]


def _fits(values: Values, paradigm: str, panel: str) -> bool:
    return values[f"{paradigm}: {panel}{TRAINING_ERROR}"] < FITS


def _interval(values: Values, name: str) -> tuple[float, float]:
    """Over the seeds; a single seed has none."""
    return values.get(f"{name}, low", -math.inf), values.get(f"{name}, high", math.inf)


def _shown(values: Values, paradigm: str, panel: str, effect: str) -> str:
    """An effect on a panel with its interval, and the training error."""
    name = f"{paradigm}: {panel}: {effect}"
    low, high = _interval(values, name)
    spans = f"{low:+.1f} to {high:+.1f}" if math.isfinite(low) else "one seed"
    error = values[f"{paradigm}: {panel}{TRAINING_ERROR}"]
    return f"{panel} {values[name]:+.1f} ({spans}), training error {error:.1f}%"


def _sizes(values: Values) -> list[tuple[str, str]]:
    """The panels with the fewest and the most images, of each data set with ResNet-8."""
    sizes: dict[str, list[int]] = {}
    for panel in _panels(values, STANDARD):
        data, network, images = panel.split(", ")
        if network == "resnet8":
            sizes.setdefault(data, []).append(int(images.split()[0]))
    return [
        (f"{data}, resnet8, {min(of_data)} images", f"{data}, resnet8, {max(of_data)} images")
        for data, of_data in sizes.items()
        if len(of_data) > 1
    ]


def _networks(values: Values) -> list[tuple[str, str]]:
    """The panels of ResNet-20, each with that of ResNet-8 on the same images."""
    panels = _panels(values, STANDARD)
    pairs = [(p, p.replace("resnet20", "resnet8")) for p in panels if ", resnet20, " in p]
    return [pair for pair in pairs if pair[1] in panels]


def _when_complete(verdict: str, *results: Values) -> str:
    """Nothing is decided by part of the runs."""
    return OPEN if any(map(_left_out, results)) else verdict


def _left_out(values: Values) -> str:
    n, finished = values.get("runs", 0), values.get("runs that finished", 0)
    return "" if finished == n else f"; only {finished:.0f} of {n:.0f} runs are finished"


def _best_gammas(values: Values, panel: str) -> dict[str, float]:
    """By seed."""
    name = f"{STANDARD}: {panel}: gamma with the smallest ECE without the map, seed "
    return {key.removeprefix(name): v for key, v in values.items() if key.startswith(name)}


def _larger_gammas(values: Values, pairs: Sequence[tuple[str, str]]) -> Verdict:
    """Is the best gamma of the first panel larger, by the mean difference over seeds?"""
    shown, intervals = [], []
    for first, second in pairs:
        one, other = (_best_gammas(values, panel) for panel in (first, second))
        seeds = [seed for seed in one if seed in other]
        differences = [one[seed] - other[seed] for seed in seeds]
        low, high = t_interval(differences, least_deviation=OF_WHOLE_GAMMAS)
        intervals.append((low, high))
        gammas = (", ".join(f"{of[seed]:.0f}" for seed in seeds) for of in (one, other))
        of_mean = f"difference {low:+.1f} to {high:+.1f}" if math.isfinite(low) else "one seed"
        shown.append(f"{first} against {second}: {' against '.join(gammas)}, {of_mean}")
    return _when_complete(by_panels(intervals, len(pairs)), values), (
        "gamma with the smallest ECE without the map, by seed: "
        f"{'; '.join(shown)}{_left_out(values)}"
    )


SEEDS = (
    "95% intervals over the seeds (three, on CIFAR10-s two). Each panel, a network on a number of "
    "images, is a part. At least two networks or data sets, and all runs finished. A run that has "
    "learned nothing (training error above 75% of that of the majority class) is left out with its "
    "seed"
)
ON_IMAGES = Rule("panels", f"{SEEDS}.")
FITTED_PANELS = Rule(
    "panels that fit", f"As *panels*, of those with a training error below {FITS:g}%."
)
BEST_GAMMAS = Rule(
    "best gammas",
    "95% interval over three seeds of the difference of the best gamma, found on whole numbers. "
    "Each data set is a part. At least two data sets, and all runs finished.",
)
ON_TABLES = Rule(
    "tables",
    "Counted is the share of the tables (63 of 54 sources, five splits each) that support the "
    "claim. Tables made from the same data cannot decide it.",
)
CLAIMS = (
    Claim(
        "the map helps with plenty of data and hurts if the network overfits",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("map-on-images",),
        map_by_data,
        f"A data set counts if the training error with the fewest images is below {FITS:g}%.",
        "held: SVHN with 8192 images had three seeds then; of those of 512 steps one has learned",
        ON_IMAGES,
    ),
    Claim(
        "the map hurts on CIFAR10-s, a tenth of each class (ResNet-8 here, ResNet-110 there)",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("cifar10-s",),
        map_on_a_tenth,
        "95% interval over two seeds of one network, all runs finished, its training error below "
        f"{FITS:g}%. Says nothing about other networks.",
        "had no verdict",
    ),
    Claim(
        "the map hurts networks that can fit their images: four of paper 1, by the votes of people",
        f"{CHAROENPHAKDEE}, Sec. 6.2",
        ("human-posterior",),
        map_on_authors_networks,
        "95% interval of test images for each of the four networks. Says nothing about other "
        "networks. Their training errors are not in the files; networks of their recipe (ResNet-50 "
        "and larger, 350 epochs) fit.",
        "had no verdict",
    ),
    Claim(
        "the map lowers the error after TS_FL",
        f"{CHAROENPHAKDEE}, Fig. 6",
        ("map-on-images", "cifar10-s"),
        in_panels(ADDED, SCALED, lowers=True),
        changed="was not decided: networks that do not fit were counted, and CIFAR10-s was not",
        shared=FITTED_PANELS,
    ),
    Claim(
        "the map lowers the error after label smoothing",
        f"{CHAROENPHAKDEE}, Fig. 6",
        ("map-on-images",),
        in_panels(ADDED, SMOOTHED, lowers=True),
        changed="held: networks were counted of which a third of the training images were wrong",
        shared=FITTED_PANELS,
    ),
    Claim(
        "after TS_FL or label smoothing a larger gamma is worse, without the map",
        f"{CHAROENPHAKDEE}, Sec. 6.2",
        ("map-on-images", "cifar10-s"),
        in_panels(RISE, SCALED, SMOOTHED),
        "Gamma 3 against the smallest, 0 or with label smoothing 1.",
        "had no verdict",
        FITTED_PANELS,
    ),
    Claim(
        "without the map TS_FL is worse than no scaling",
        f"{CHAROENPHAKDEE}, Sec. 6.1",
        ("map-on-images", "cifar10-s"),
        in_panels(AGAINST_STANDARD, SCALED),
        "Mean of gamma 1 to 3.",
        "had no verdict",
        FITTED_PANELS,
    ),
    Claim(
        "the map helps on tables with many rows and hurts where few are overfitted",
        f"{CHAROENPHAKDEE}, Sec. 6.2",
        ("many-data-sets",),
        map_on_tables,
        "Parts: training that is stopped on many rows, where the map should help, and training to "
        "the end on few, which stands for overfitting.",
        shared=ON_TABLES,
    ),
    Claim(
        "on most data sets focal loss is worse than cross-entropy",
        f"{CHAROENPHAKDEE}, Sec. 6.3",
        ("many-data-sets",),
        worse_on_tables,
        "Both ways of training are parts.",
        "was one verdict with the next, not decided",
        ON_TABLES,
    ),
    Claim(
        "the map corrects that",
        f"{CHAROENPHAKDEE}, Sec. 6.3",
        ("many-data-sets",),
        map_corrects,
        "95% interval of the mean change, 54 sources of tables resampled. Both ways of training "
        "are parts.",
        "was one verdict with the last, not decided",
    ),
    Claim(
        "the map is less effective as networks become larger",
        f"{CHAROENPHAKDEE}, Sec. 6.2",
        ("map-on-images",),
        map_by_size,
        "The intervals of ResNet-20 and ResNet-8 on the same images do not overlap.",
        "had no verdict",
        ON_IMAGES,
    ),
    Claim(
        "larger networks need a larger gamma",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("map-on-images",),
        gamma_by_size,
        changed="was not decided: by the share of pairs, of which one or two decide nothing",
        shared=BEST_GAMMAS,
    ),
    Claim(
        "fewer data need a larger gamma",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("map-on-images",),
        gamma_by_data,
        "All sizes have the same number of steps.",
        "held: six pairs were counted, which are three seeds of two data sets, with other "
        "numbers of steps",
        BEST_GAMMAS,
    ),
)
