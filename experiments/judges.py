"""Each claim of the papers as a function of published values, which returns its verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from experiments.verdicts import (
    FAILS,
    HOLDS,
    OPEN,
    PARTLY,
    SURE_ENOUGH,
    UNTESTED,
    Verdict,
    by_counts,
    by_interval,
    by_panels,
    by_parts,
    by_sources,
    counted,
    minus,
    t_interval,
)

FITS = 5.0
"""Training error in percent below which a network fits its training set, as those of the papers."""
LAST = ", last epoch"
TEXTS = ("20newsgroups, ", "sst-binary, ")
"""Data sets on which the paper's networks are trained for as many epochs as in the paper."""
NOISE = 0.01
"""Smaller rises of the test NLL, measured on a thousand samples, are ignored."""


Values = Mapping[str, float]


def fitted(values: Values, *losses: str, epoch: str = "") -> dict[str, list[float]]:
    """The networks that fit with every one of the losses, with these training errors.

    In percent, after the epoch whose predictions are measured, or after the ``epoch`` of that name.
    """
    ending = f", {losses[0]}: training error %{epoch}"
    places = [name.removesuffix(ending) for name in values if name.endswith(ending)]
    errors = {
        place: [
            values.get(f"{place}, {loss}: training error %{epoch}", math.inf) for loss in losses
        ]
        for place in places
    }
    return {place: each for place, each in errors.items() if max(each) < FITS}


def _listed(training_errors: Mapping[str, Sequence[float]]) -> str:
    """The networks that fit, with their training errors."""
    shown = (
        f"{place} {' / '.join(f'{error:.1f}' for error in errors)}%"
        for place, errors in training_errors.items()
    )
    return f"training errors: {'; '.join(shown)}" if training_errors else "none fits"


def _with_long_runs(tables: Values, *long: Values) -> Values:
    """The networks trained here, those on texts for as many epochs as in the paper."""
    others = {name: value for name, value in tables.items() if not name.startswith(TEXTS)}
    for each in long:
        others |= {name: value for name, value in each.items() if name.startswith(TEXTS)}
    return others


def smaller_error(first: str, second: str) -> Callable[[Values, Values, Values, Values], Verdict]:
    """Is the ECE before temperature scaling smaller with one loss than with another?"""

    def judge(tables: Values, newsgroups: Values, sst: Values, digits: Values) -> Verdict:
        values = _with_long_runs(tables, newsgroups, sst)
        ending = f": ECE % before T, {first} minus {second}"
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
            f"({_listed(fit)}); of all {len(signs)} networks on {of_all[0]} and {of_all[1]}; five "
            f"seeds of digits: {_against_on_digits(digits, first, second)}"
        )

    return judge


def _against_on_digits(values: Values, first: str, second: str) -> str:
    """The comparison on digits, where both losses are compared with cross-entropy by seed."""
    if second == "cross-entropy":
        name = f"{first} minus {second}: ECE %"
        return f"{values[name]:+.1f} ± {values[f'{name}, half interval']:.1f} points"
    seen = [values[f"{loss}: ECE %"] for loss in (first, second)]
    return f"{seen[0]:.1f}% against {seen[1]:.1f}%"


def best_fixed_gamma(tables: Values, newsgroups: Values, sst: Values, digits: Values) -> Verdict:
    """Does FL-3 have the smallest ECE of the three fixed gammas?"""
    values = _with_long_runs(tables, newsgroups, sst)
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
        f"networks that have all three ({_listed(fit)}), and on {best(places)} of all "
        f"{len(places)}; five seeds of digits: {of_digits}%"
    )


def temperature_near_one(
    tables: Values, newsgroups: Values, sst: Values, authors: Values
) -> Verdict:
    """Does the best T of FLA-53 lie between 0.9 and 1.1?"""
    values = _with_long_runs(tables, newsgroups, sst)
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
        f"fitted networks ({', '.join(f'{t:.1f}' for t in found)}; {_listed(fit)}); that of "
        f"cross-entropy on {within[1]} ({', '.join(f'{t:.1f}' for t in plain)}); of all networks "
        f"trained here FLA-53 on {within[2]} of {len(of_all)}; of the authors' own networks on "
        f"CIFAR-10, which do not count, on {within[3]} of {len(of_authors)}"
    )


def _near_one(temperatures: Iterable[float]) -> int:
    low, high = NEAR_ONE
    return sum(low <= t <= high for t in temperatures)


def sure_predictions_kept(tables: Values, newsgroups: Values, sst: Values) -> Verdict:
    """Does FLA-53 have more predictions above 0.99 than cross-entropy after scaling?"""
    values = _with_long_runs(tables, newsgroups, sst)
    name = "{}, {}: S99 %, after T by {}"
    places = fitted(values, "FLA-53", "cross-entropy")

    def more(by: str) -> int:
        return sum(
            values[name.format(place, "FLA-53", by)]
            > values[name.format(place, "cross-entropy", by)]
            for place in places
        )

    by_ece = more("ECE")  # as the paper chooses T
    return by_counts(by_ece, len(places) - by_ece), (
        "predictions above 0.99 after scaling, T by ECE as in the paper: FLA-53 has more than "
        f"cross-entropy on {counted(by_ece, len(places))} fitted networks ({_listed(places)}); T "
        f"by NLL: on {more('NLL')}"
    )


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
        f"{NOISE:g} ({_listed(rising)}); of all that fit it rises on {len(rising)} of {len(fit)}"
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
        f"({_listed(places)})"
    )


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


def focal_temperature_gain(public: Values) -> Verdict:
    """Does focal temperature scaling have a smaller ECE at the same predictions?"""
    shown = []
    for family in FAMILIES:
        n = public[f"{family}: networks"]
        shown.append(f"{family}, {n:.0f} networks: {_gain(public, f'{family}: {GAIN}')}")
    parts = [by_interval(*_ends(public, f"All: {GAIN}", of)) for of in (OF_IMAGES, OF_DATA)]
    return by_parts(parts), (
        f"{'; '.join(shown)}; predictions changed: {public[CHANGED]:.0f}; {GAIN_UNITS}"
    )


def focal_temperature_on_authors_networks(*families: str) -> Callable[[Values], Verdict]:
    """Does focal temperature scaling have a smaller AdaECE on networks of Mukhoti et al.?"""

    def judge(values: Values) -> Verdict:
        name, shown, parts = "AdaECE, focal temperature minus temperature, both by AdaECE", [], []
        for family in families:
            low, high = (values[f"{family}: {name}: 95% {end}"] for end in FROM_TO)
            parts.append(by_interval(-high, -low))
            change = values[f"{family}: {name}"]
            shown.append(f"{family}: {change:+.2f} ({low:+.2f} to {high:+.2f})")
        return by_parts(parts), (
            f"points of AdaECE that it adds, four networks each: {'; '.join(shown)}; 95% intervals "
            "from resampled test images"
        )

    return judge


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


def choice_by_error(public: Values, trained: Values) -> Verdict:
    """Is it better to select the parameters by ECE than by NLL, for both methods?"""
    parts, shown = [], []
    for method in ("focal temperature", "temperature"):
        name = CHOICE.format(method)
        parts.append(by_interval(*_ends(public, f"All: {name}", OF_DATA)))
        shown.append(f"{method}, public networks: {_gain(public, f'All: {name}')}")
        low, high = _ends(trained, f"all: {name}", OF_IMAGES)
        shown.append(f"trained here: {trained[f'all: {name}']:.0f}% ({low:.0f} to {high:.0f})")
    n = trained["all: networks"]
    return by_parts(parts), (
        f"{'; '.join(shown)}; {GAIN_UNITS}; the {n:.0f} runs trained here are of nine networks, "
        "their intervals are of images alone, and they do not count"
    )


def temperature_by_error(public: Values, authors: Values) -> Verdict:
    """Does T selected by ECE have a smaller ECE than T selected by NLL?"""
    name = f"All: {CHOICE.format('temperature')}"
    parts = [by_interval(*_ends(public, name, of)) for of in (OF_IMAGES, OF_DATA)]
    shown = []
    for family in ("FLSD-53, CIFAR-10", "Brier, CIFAR-10", "Brier, CIFAR-100"):
        of_family = f"{family}: gain in AdaECE of choosing by it over NLL, temperature, %"
        low, high = _ends(authors, of_family, OF_IMAGES)
        shown.append(f"{family} {authors[of_family]:.1f}% ({low:.1f} to {high:.1f})")
    return by_parts(parts), (
        f"gain in ECE: {_gain(public, name)}; {GAIN_UNITS}; on the authors' own networks, which do "
        f"not count: {', '.join(shown)}"
    )


def temperature_falls(values: Values) -> Verdict:
    """Does T fall with each step from cross-entropy to FL-3, FL-5 and FL-7?"""
    ending = ": steps from ce, fl-3, fl-5, fl-7 at which T does not fall"
    rises = {
        name.removesuffix(ending): value for name, value in values.items() if name.endswith(ending)
    }
    data = {place.partition(",")[0] for place in rises}
    against = {place.partition(",")[0] for place, count in rises.items() if count}
    steps = 3 * len(rises)
    return by_counts(len(data) - len(against), len(against)), (
        f"T falls at every step from cross-entropy to FL-3, FL-5 and FL-7 on "
        f"{counted(len(data) - len(against), len(data))} data sets; at "
        f"{steps - sum(rises.values()):.0f} of {steps} steps of {len(rises)} networks"
    )


def temperatures_on_a_line(line: Values, search: Values, public: Values) -> Verdict:
    """Does a line explain T over gamma, and does a search along it keep the gain?"""
    n, shown, parts = line["data sets"], [], []
    for choice in CHOICES:
        name = f"R² of T over gamma, T chosen by {choice}"
        straight = line[f"{name}: data sets with a median from 0.95 on"]
        parts.append(by_counts(straight, n - straight))
        shown.append(
            f"T by {choice}: median R² {line[f'{name}: median']:.3f}, at least 0.95 on "
            f"{counted(straight, n)} data sets"
        )
    kept, evidence = line_keeps_the_gain(search, public)
    return by_parts([*parts, kept]), f"{'; '.join(shown)}; {evidence}"


def line_keeps_the_gain(search: Values, public: Values) -> Verdict:
    """Does a search along the line still gain over temperature scaling?"""
    name = "line against grid by {}: loss on {}, %"
    by_ece = [search[name.format("ECE", part)] for part in PARTS]
    by_nll = [search[name.format("NLL", part)] for part in PARTS]
    gained = "gain in ECE of the line over temperature, %"
    parts = [by_interval(*_ends(search, gained, of)) for of in (OF_IMAGES, OF_DATA)]
    return by_parts(parts), (
        f"the line loses {by_ece[0]:.1f}% of the ECE that the grid reaches on validation and "
        f"{by_ece[1]:.1f}% on test ({by_nll[0]:.2f}% and {by_nll[1]:.2f}% of the NLL); gain in ECE "
        f"over temperature scaling: the line {_gain(search, gained)}, the grid "
        f"{_gain(public, f'All: {GAIN}')}; {GAIN_UNITS}"
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


def _ends(values: Values, name: str, of: str) -> tuple[float, float]:
    low, high = (values[f"{name}: {of} {end}"] for end in FROM_TO)
    return low, high


def _gain(values: Values, name: str) -> str:
    images, data = (_ends(values, name, of) for of in (OF_IMAGES, OF_DATA))
    return (
        f"{values[name]:.0f}% ({images[0]:.0f} to {images[1]:.0f}; {data[0]:.0f} to {data[1]:.0f})"
    )


OF_IMAGES, OF_DATA = "95%", "data sets resampled,"
GAIN = "gain in ECE of focal temperature over temperature, %"
CHOICE = "gain in ECE of choosing by ECE over NLL, {}, %"
GAIN_UNITS = "first interval of resampled test images, second of resampled data sets and networks"
STANDARD, SCALED, SMOOTHED = "Standard", "TS_FL", "LS"
FIXED = ("FL-1", "FL-2", "FL-3")
NEAR_ONE = (0.9, 1.1)
PARTS = ("validation", "test")
REPEATED = {"all": 9, "many": 8, "few": 0}
"""Tables that are other views of the objects of a table that counts already."""
CHANGED = "predictions changed by any method"
CHOICES = ("ECE", "NLL")
ENDS = ("low", "high")
FROM_TO = ("from", "to")
FAMILIES = ("CIFAR-10", "CIFAR-100", "All")
SETTINGS = ("MLP, stopped", "MLP, to the end")


ADDS = ": points of ECE that the map adds"
TRAINING_ERROR = ": training error %"


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
