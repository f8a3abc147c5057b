"""Paper 3: where the focal map helps, and which gamma is best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from experiments.claims.claim import CHAROENPHAKDEE, FITS, Claim, Values
from experiments.claims.public import FROM_TO
from experiments.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
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
ADDS = ": points of ECE that the map adds"
TRAINING_ERROR = ": training error %"


def map_by_data(values: Values) -> Verdict:
    """Does the map lower the error with many images, and raise it on networks that fit few?"""
    parts, shown, clusters = [], [], 0
    for few, many in _sizes(values):
        fits = values[f"{STANDARD}: {few}{TRAINING_ERROR}"] < FITS
        clusters += fits
        for panel, sign in ((few, 1), (many, -1)):
            (interval,) = _intervals(values, STANDARD, panel)
            parts += [interval if sign > 0 else minus(interval)] if fits else []
            added = _with_intervals(_map_adds(values, STANDARD, panel), [interval])
            error = values[f"{STANDARD}: {panel}{TRAINING_ERROR}"]
            shown.append(f"{panel} {added}, training error {error:.1f}%")
    return _when_complete(values, by_panels(parts, clusters)), (
        f"points of ECE that the map adds: {'; '.join(shown)}{_left_out(values)}"
    )


def map_on_a_tenth(values: Values) -> Verdict:
    """Does the map raise the error of a network that fits a tenth of the images?"""
    (panel,) = _panels(values, STANDARD)
    intervals = _intervals(values, STANDARD, panel)
    error = values[f"{STANDARD}: {panel}{TRAINING_ERROR}"]
    verdict = by_interval(*intervals[0]) if error < FITS else UNTESTED
    added = _with_intervals(_map_adds(values, STANDARD, panel), intervals)
    return _when_complete(values, verdict), (
        f"points of ECE that the map adds, mean of gamma 1 to 3: {panel} {added}, training error "
        f"{error:.1f}%{_left_out(values)}"
    )


def map_after(paradigm: str) -> Callable[[Values], Verdict]:
    """Does the map lower the error after TS_FL, or after label smoothing?"""

    def judge(values: Values) -> Verdict:
        panels = _panels(values, paradigm)
        intervals = [_intervals(values, paradigm, panel)[0] for panel in panels]
        sides = [by_interval(*minus(each)) for each in intervals]
        clusters = len({panel.rpartition(", ")[0] for panel in panels})
        verdict = by_panels([minus(each) for each in intervals], clusters)
        return _when_complete(values, verdict), (
            f"the map significantly lowers the ECE in {sides.count(HOLDS)} of {len(panels)} panels "
            f"of {clusters} networks and data sets, raises it in {sides.count(FAILS)}: "
            + "; ".join(
                f"{panel} {_with_intervals(_map_adds(values, paradigm, panel), [interval])}"
                for panel, interval in zip(panels, intervals, strict=True)
            )
            + _left_out(values)
        )

    return judge


def gamma_by_size(values: Values) -> Verdict:
    """Does the best gamma grow with the network?"""
    larger = [p for p in _panels(values, STANDARD) if ", resnet20, " in p]
    pairs = [(panel, panel.replace("resnet20", "resnet8")) for panel in larger]
    return _larger_gammas(values, [pair for pair in pairs if _best_gammas(values, pair[1])])


def gamma_by_data(values: Values) -> Verdict:
    """Does the best gamma grow as images become fewer, at the same number of steps?"""
    verdict, evidence = _larger_gammas(values, _sizes(values))
    if values.get("fewest steps of a run") == values.get("most steps of a run", math.nan):
        return verdict, f"{evidence}; the same {values['most steps of a run']:.0f} steps for all"
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
        f"{min(low for low, _ in ends):.2f} (95% intervals from resampled test images)"
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
    start = f"{paradigm}: "
    panels = [name.removeprefix(start).removesuffix(ADDS) for name in values if name.endswith(ADDS)]
    return [p for p in panels if f"{start}{p}{ADDS}" in values]


def _map_adds(values: Values, paradigm: str, panel: str) -> list[float]:
    return [
        values[f"{paradigm}: {p}{ADDS}"] for p in _panels(values, paradigm) if p.endswith(panel)
    ]


def _intervals(values: Values, paradigm: str, panel: str) -> list[tuple[float, float]]:
    panels = [p for p in _panels(values, paradigm) if p.endswith(panel)]
    low, high = (
        [values[f"{paradigm}: {p}: {end} end of its interval"] for p in panels] for end in ENDS
    )
    return list(zip(low, high, strict=True))


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


def _when_complete(values: Values, verdict: str) -> str:
    """Nothing is decided by part of the runs."""
    return OPEN if _left_out(values) else verdict


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
        low, high = t_interval([one[seed] - other[seed] for seed in seeds])
        intervals.append((low, high))
        gammas = (", ".join(f"{of[seed]:.0f}" for seed in seeds) for of in (one, other))
        of_mean = f"difference {low:+.1f} to {high:+.1f}" if math.isfinite(low) else "one seed"
        shown.append(f"{first} against {second}: {' against '.join(gammas)}, {of_mean}")
    return _when_complete(values, by_panels(intervals, len(pairs))), (
        "gamma with the smallest ECE without the map, by seed: "
        f"{'; '.join(shown)}{_left_out(values)}"
    )


def _with_intervals(numbers: list[float], intervals: list[tuple[float, float]]) -> str:
    return " and ".join(
        f"{number:+.1f} ({f'{low:+.1f} to {high:+.1f}' if math.isfinite(low) else 'one seed'})"
        for number, (low, high) in zip(numbers, intervals, strict=True)
    )


ON_IMAGES = (
    "95% intervals over three seeds, each panel a part; two networks or data sets at least, and "
    "all runs finished; runs that have learned nothing (training error above 75% of that of the "
    "majority class) are left out with their seed"
)
BEST_GAMMAS = (
    "95% interval over three seeds of the difference of the best gamma, each data set a part; two "
    "data sets at least, and all runs finished"
)
ON_TABLES = (
    "share of the tables, 63 of 54 sources, five splits each; tables made from the same data "
)
CLAIMS = (
    Claim(
        "the map helps with plenty of data and hurts if the network overfits",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("map-on-images",),
        map_by_data,
        f"{ON_IMAGES}; the fewest images count where the training error is below {FITS:g}%",
        "held: SVHN with 8192 images had three seeds then; of those of 512 steps one has learned",
    ),
    Claim(
        "the map hurts on CIFAR10-s, a tenth of each class",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("cifar10-s",),
        map_on_a_tenth,
        "95% interval over two seeds of one network, all runs finished, its training error below "
        f"{FITS:g}%; says nothing about other networks",
        "had no verdict",
    ),
    Claim(
        "the map hurts four networks of Mukhoti et al., by the votes of people",
        f"{CHAROENPHAKDEE}, Sec. 6.2",
        ("human-posterior",),
        map_on_authors_networks,
        "95% interval of test images for each of the four networks; says nothing about other "
        "networks; their training errors are not in the files",
        "had no verdict",
    ),
    Claim(
        "the map lowers the error after TS_FL",
        f"{CHAROENPHAKDEE}, Fig. 6",
        ("map-on-images",),
        map_after(SCALED),
        ON_IMAGES,
        "had no verdict",
    ),
    Claim(
        "the map lowers the error after label smoothing",
        f"{CHAROENPHAKDEE}, Fig. 6",
        ("map-on-images",),
        map_after(SMOOTHED),
        ON_IMAGES,
        "had no verdict",
    ),
    Claim(
        "the map helps on tables with many rows and hurts where few are overfitted",
        f"{CHAROENPHAKDEE}, Sec. 6.2",
        ("many-data-sets",),
        map_on_tables,
        f"{ON_TABLES}cannot decide it; training to the end stands for overfitting",
    ),
    Claim(
        "on most data sets focal loss is worse than cross-entropy",
        f"{CHAROENPHAKDEE}, Sec. 6.3",
        ("many-data-sets",),
        worse_on_tables,
        f"{ON_TABLES}cannot decide it; both ways of training are parts",
        "was one verdict with the next",
    ),
    Claim(
        "the map corrects that",
        f"{CHAROENPHAKDEE}, Sec. 6.3",
        ("many-data-sets",),
        map_corrects,
        "95% interval of the mean change, 54 sources of tables resampled; both ways of training "
        "are parts",
        "was one verdict with the last",
    ),
    Claim(
        "larger networks need a larger gamma",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("map-on-images",),
        gamma_by_size,
        BEST_GAMMAS,
        "was not decided: by the share of pairs, of which one or two decide nothing",
    ),
    Claim(
        "fewer data need a larger gamma",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("map-on-images",),
        gamma_by_data,
        f"{BEST_GAMMAS}, with the same number of steps for every size",
        "held: six pairs were counted, which are three seeds of two data sets, with other "
        "numbers of steps",
    ),
)
