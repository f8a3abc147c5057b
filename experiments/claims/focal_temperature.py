"""Paper 2: focal temperature scaling, and T beside gamma."""

from __future__ import annotations

from collections.abc import Callable

from experiments.claims.claim import KOMISARENKO, Claim, Values
from experiments.claims.public import (
    CHOICE,
    FROM_TO,
    GAIN_UNITS,
    OF_DATA,
    OF_IMAGES,
    PUBLIC,
    ends,
    gain,
)
from experiments.verdicts import Verdict, by_counts, by_interval, by_parts, counted

GAIN = "gain in ECE of focal temperature over temperature, %"
PARTS = ("validation", "test")
CHANGED = "predictions changed by any method"
CHOICES = ("ECE", "NLL")
FAMILIES = ("CIFAR-10", "CIFAR-100", "All")


def focal_temperature_gain(public: Values) -> Verdict:
    """Does focal temperature scaling have a smaller ECE at the same predictions?"""
    shown = []
    for family in FAMILIES:
        n = public[f"{family}: networks"]
        shown.append(f"{family}, {n:.0f} networks: {gain(public, f'{family}: {GAIN}')}")
    parts = [by_interval(*ends(public, f"All: {GAIN}", of)) for of in (OF_IMAGES, OF_DATA)]
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


def choice_by_error(public: Values, trained: Values) -> Verdict:
    """Is it better to select the parameters by ECE than by NLL, for both methods?"""
    parts, shown = [], []
    for method in ("focal temperature", "temperature"):
        name = CHOICE.format(method)
        parts.append(by_interval(*ends(public, f"All: {name}", OF_DATA)))
        shown.append(f"{method}, public networks: {gain(public, f'All: {name}')}")
        low, high = ends(trained, f"all: {name}", OF_IMAGES)
        shown.append(f"trained here: {trained[f'all: {name}']:.0f}% ({low:.0f} to {high:.0f})")
    n = trained["all: networks"]
    return by_parts(parts), (
        f"{'; '.join(shown)}; {GAIN_UNITS}; the {n:.0f} runs trained here are of nine networks, "
        "their intervals are of images alone, and they do not count"
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
    parts = [by_interval(*ends(search, gained, of)) for of in (OF_IMAGES, OF_DATA)]
    return by_parts(parts), (
        f"the line loses {by_ece[0]:.1f}% of the ECE that the grid reaches on validation and "
        f"{by_ece[1]:.1f}% on test ({by_nll[0]:.2f}% and {by_nll[1]:.2f}% of the NLL); gain in ECE "
        f"over temperature scaling: the line {gain(search, gained)}, the grid "
        f"{gain(public, f'All: {GAIN}')}; {GAIN_UNITS}"
    )


AUTHORS = (
    "95% intervals of test images, resampled for all networks at once; four networks in each part; "
    "says nothing about other networks"
)
CLAIMS = (
    Claim(
        "focal temperature scaling beats temperature scaling in ECE at equal accuracy",
        f"{KOMISARENKO}, Table 1",
        ("focal-temperature",),
        focal_temperature_gain,
        PUBLIC,
    ),
    Claim(
        "the same on networks of Mukhoti et al., CIFAR-10",
        f"{KOMISARENKO}, Table 1",
        ("authors-focal-temperature",),
        focal_temperature_on_authors_networks("FLSD-53, CIFAR-10", "Brier, CIFAR-10"),
        AUTHORS,
        "had no verdict",
    ),
    Claim(
        "the same on networks of Mukhoti et al., CIFAR-100",
        f"{KOMISARENKO}, Table 1",
        ("authors-focal-temperature",),
        focal_temperature_on_authors_networks("Brier, CIFAR-100"),
        AUTHORS,
        "had no verdict",
    ),
    Claim(
        "choosing by ECE gains about 20% over choosing by NLL",
        f"{KOMISARENKO}, Sec. 5",
        ("focal-temperature", "focal-temperature-trained"),
        choice_by_error,
        f"{PUBLIC}; both methods are parts",
        "held in part: 54 runs of nine networks were counted, and only images were resampled",
    ),
    Claim(
        "the optimal T falls as the gamma of training grows",
        f"{KOMISARENKO}, Fig. 8",
        ("focal-temperature-trained",),
        temperature_falls,
        "share of the data sets on which T falls at every step from cross-entropy to FL-3, FL-5 "
        "and FL-7; nine networks, one seed",
        "held: FL-3 alone was compared with cross-entropy",
    ),
    Claim(
        "T and the gamma of the map lie close to a line",
        f"{KOMISARENKO}, Fig. 8",
        ("temperature-line", "line-search", "focal-temperature"),
        temperatures_on_a_line,
        "share of the data sets (9, with 43 networks) whose median R² is 0.95 or more, and whether "
        "a search along the line still gains",
        "was not decided: by the curve of a square root, a measure of ours",
    ),
    Claim(
        "a search along that line keeps the gain",
        f"{KOMISARENKO}, Sec. 6",
        ("line-search", "focal-temperature"),
        line_keeps_the_gain,
        f"the line still gains over temperature scaling: {PUBLIC}",
        "had no verdict",
    ),
)
