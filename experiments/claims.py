"""The papers' empirical claims, judged by the published results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

from experiments.catalogue import Experiment

HOLDS = "holds here"
FAILS = "does not hold here"
PARTLY = "holds in part here"
OPEN = "not decided here"
UNTESTED = "cannot be tested here"

LEVEL = 0.95
SURE_ENOUGH = 2
"""Number of significant networks on both sides from which a claim holds in part."""
NOISE = 0.01
"""Smaller rises of the test NLL, measured on a thousand samples, are ignored."""

Values = Mapping[str, float]
Verdict = tuple[str, str]
"""One of the five verdicts, and its evidence."""

MUKHOTI = "Mukhoti et al. (2020)"
KOMISARENKO = "Komisarenko and Kull (2024)"
CHAROENPHAKDEE = "Charoenphakdee et al. (2021)"


@dataclass(frozen=True)
class Claim:
    """A paper's claim about networks, and the results that judge it.

    Attributes:
        says: The claim in a few words.
        source: Paper and place.
        experiments: Experiments whose published values are used.
        judge: Function of their values that returns a verdict.
    """

    says: str
    source: str
    experiments: tuple[str, ...]
    judge: Callable[..., Verdict]

    def judged(self, published: Mapping[str, Experiment]) -> Verdict:
        """The verdict by the published runs."""
        values = []
        for name in self.experiments:
            result = published[name].published() if name in published else None
            if result is None:
                return UNTESTED, f"`python -m experiments {name}` has not been published"
            values.append(result["values"])
        verdict, evidence = self.judge(*values)
        return verdict, f"{evidence} ({', '.join(f'`{name}`' for name in self.experiments)})"


def by_counts(better: float, worse: float) -> str:
    """Judge a claim by the numbers of networks for and against it.

    It holds if the interval of the share (Clopper and Pearson) is above one half.
    """
    low, high = share_interval(better, better + worse)
    return HOLDS if low > 0.5 else FAILS if high < 0.5 else OPEN


def share_interval(count: float, n: float) -> tuple[float, float]:
    """The exact interval of a share, observed as ``count`` of ``n``."""
    if n == 0:
        return 0.0, 1.0
    found = binomtest(round(count), round(n)).proportion_ci(LEVEL, method="exact")
    return float(found.low), float(found.high)


def counted(count: float, n: float) -> str:
    """A count with the interval of its share."""
    low, high = share_interval(count, n)
    return f"{count:.0f} of {n:.0f} ({low:.0%} to {high:.0%})"


def by_interval(low: float, high: float) -> str:
    """Judge a claim that a value is above 0 by its interval."""
    return HOLDS if low > 0 else FAILS if high < 0 else OPEN


def by_parts(verdicts: Sequence[str]) -> str:
    """Judge a claim by the verdicts on its parts."""
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return PARTLY if {HOLDS, FAILS} <= set(verdicts) else OPEN


def smaller_error(first: str, second: str) -> Callable[[Values, Values], Verdict]:
    """Is the ECE before temperature scaling smaller with one loss than with another?"""

    def judge(networks: Values, digits: Values) -> Verdict:
        name = f"{first} against {second}, ECE before T"
        better, worse = (
            networks[f"{name}: significantly smaller"],
            networks[f"{name}: significantly larger"],
        )
        n = better + worse + networks[f"{name}: noise"]
        verdict = by_counts(better, worse)
        if verdict == OPEN and min(better, worse) >= SURE_ENOUGH:
            verdict = PARTLY
        return verdict, (
            f"ECE significantly smaller on {better:.0f} of {n:.0f} networks, significantly larger "
            f"on {worse:.0f}: {counted(better, better + worse)} of those that differ; one seed "
            "each, 95% intervals on the same test samples; over five seeds of digits "
            f"{_against_on_digits(digits, first, second)}"
        )

    return judge


def _against_on_digits(values: Values, first: str, second: str) -> str:
    """The comparison on digits, where both losses are compared with cross-entropy by seed."""
    if second == "cross-entropy":
        name = f"{first} minus {second}: ECE %"
        return f"{values[name]:+.1f} ± {values[f'{name}, half interval']:.1f} points"
    seen = [values[f"{loss}: ECE %"] for loss in (first, second)]
    return f"{seen[0]:.1f}% against {seen[1]:.1f}%"


def temperature_near_one(values: Values) -> Verdict:
    """Does the best T of FLA-53 lie between 0.9 and 1.1?"""
    near = "{}: T by ECE from 0.9 to 1.1"
    within, n = values[near.format("FLA-53")], values["networks trained here"]
    nearer = values["FLA-53: T nearer to 1 than that of cross-entropy"]
    return by_counts(within, n - within), (
        f"T by ECE of FLA-53 is between 0.9 and 1.1 on {counted(within, n)} networks and below on "
        f"{values['FLA-53: T by ECE below 0.9']:.0f}; that of cross-entropy is on "
        f"{values[near.format('cross-entropy')]:.0f}, and further from 1 on {nearer:.0f}"
    )


def sure_predictions_kept(values: Values) -> Verdict:
    """Does FLA-53 have more predictions above 0.99 than cross-entropy after scaling?"""
    name = "S99 after T by {}: FLA-53 has significantly {} than cross-entropy"
    more, fewer = ([values[name.format(by, how)] for by in CHOICES] for how in ("more", "fewer"))
    verdict = by_counts(more[0], fewer[0])  # by ECE, as the paper chooses T
    if verdict == OPEN and min(more[0], fewer[0]) >= SURE_ENOUGH:
        verdict = PARTLY
    n = values["networks trained here"]
    return verdict, (
        "predictions above 0.99 after scaling, T by ECE as in the paper: FLA-53 has significantly "
        f"more than cross-entropy on {more[0]:.0f} of {n:.0f} networks, significantly fewer on "
        f"{fewer[0]:.0f}: {counted(more[0], more[0] + fewer[0])} of those that differ; T by NLL: "
        f"more on {more[1]:.0f}, fewer on {fewer[1]:.0f}"
    )


def rise_from_mistakes(values: Values) -> Verdict:
    """If the test NLL rises late, is this due to mistakes, while correct samples improve?"""
    ending = ": rise of the test NLL after its lowest epoch"
    runs = [name.removesuffix(ending) for name in values if name.endswith(ending)]
    rising = [run for run in runs if values[f"{run}{ending}"] > NOISE]
    if not rising:
        return UNTESTED, "the test NLL does not rise late in any run"
    alone = [
        run
        for run in rising
        if values[f"{run}: part of that rise from mistakes"] > 0.9
        and values[f"{run}: rise of the mean NLL of correct samples"] < 0.0
    ]
    plain = [sum(run.endswith("cross-entropy") for run in some) for some in (alone, rising)]
    return by_counts(len(alone), len(rising) - len(alone)), (
        "mistakes make more than 90% of the rise, and the NLL of correct samples falls, in "
        f"{counted(len(alone), len(rising))} runs in which it rises by more than {NOISE:g} "
        f"(cross-entropy: {plain[0]} of {plain[1]}); all losses, one seed each"
    )


def norms_cross(values: Values) -> Verdict:
    """Is the last layer of FL-3 larger early and smaller late?"""
    ratio = "last-layer norm, FL-3 / cross-entropy"
    places = [name.removesuffix(f": {ratio}, last epoch") for name in values]
    places = [place for place in places if f"{place}: {ratio}, last epoch" in values]
    early = [values[f"{place}: {ratio}, mean of the first third"] for place in places]
    last = [values[f"{place}: {ratio}, last epoch"] for place in places]
    crossed = sum(a > 1.0 > b for a, b in zip(early, last, strict=True))
    return by_counts(crossed, len(places) - crossed), (
        "larger in the mean of the first third of the epochs and smaller in the last on "
        f"{counted(crossed, len(places))} networks; larger early on {sum(a > 1 for a in early)}, "
        f"smaller in the last on {sum(b < 1 for b in last)}"
    )


def map_by_data(values: Values) -> Verdict:
    """Does the map lower the error with many images, and raise it with few?"""
    few, many = (_map_intervals(values, f"resnet8, {n} images") for n in (500, 8000))
    parts = [by_interval(low, high) for low, high in few]
    parts += [by_interval(-high, -low) for low, high in many]
    added = [_map_adds(values, f"resnet8, {n} images") for n in (500, 8000)]
    return by_parts(parts), (
        f"points of ECE that the map adds, ResNet-8: {_with_intervals(added[0], few)} with 500 "
        f"images, {_with_intervals(added[1], many)} with 8000; two data sets, three seeds, gamma 1 "
        "to 3"
    )


def gamma_by_size(values: Values) -> Verdict:
    """Does the best gamma grow with the network?"""
    large, small = [], []
    for data in ("cifar10-jpeg", "svhn-subset"):
        if found := _best_gammas(values, f"{data}, resnet20, 2000 images"):
            large += found
            small += _best_gammas(values, f"{data}, resnet8, 2000 images")
    verdict, evidence = _larger_gammas(large, small)
    return verdict, f"{evidence}: ResNet-20 against ResNet-8, 2000 images, seed by seed"


def gamma_by_data(values: Values) -> Verdict:
    """Does the best gamma grow as images become fewer?"""
    verdict, evidence = _larger_gammas(
        *(_best_gammas(values, f"resnet8, {n} images") for n in (500, 8000))
    )
    return verdict, f"{evidence}: 500 images against 8000, ResNet-8, two data sets, seed by seed"


def focal_temperature_gain(public: Values) -> Verdict:
    """Does focal temperature scaling have a smaller ECE at the same predictions?"""
    name, shown = "gain in ECE of focal temperature over temperature, %", []
    for family in FAMILIES:
        n = public[f"{family}: networks"]
        low, high = (public[f"{family}: {name}: networks resampled, {end}"] for end in FROM_TO)
        shown.append(
            f"{family}: {_gain(public, f'{family}: {name}')}, and {low:.0f} to {high:.0f} with the "
            f"{n:.0f} networks resampled"
        )
    parts = [
        by_interval(*(public[f"All: {name}: {of} {end}"] for end in FROM_TO))
        for of in ("95%", "networks resampled,")
    ]
    return by_parts(parts), (
        f"{'; '.join(shown)}; first intervals from resampled test images; predictions changed: "
        f"{public[CHANGED]:.0f}"
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


def map_on_fitted_networks(values: Values) -> Verdict:
    """Does the map move outputs of networks that fit their training set away from the truth?"""
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
        for values, family, title in (
            (public, "All", "public networks"),
            (trained, "all", "trained here"),
        ):
            name = f"{family}: gain in ECE of choosing by ECE over NLL, {method}, %"
            parts.append(by_interval(*(values[f"{name}: 95% {end}"] for end in FROM_TO)))
            n = values[f"{family}: networks"]
            shown.append(f"{method}, {n:.0f} {title}: {_gain(values, name)}")
    return by_parts(parts), f"{'; '.join(shown)}; 95% intervals from resampled test images"


def temperature_falls(values: Values) -> Verdict:
    """Is the T of networks trained with gamma 3 below that of cross-entropy?"""
    against = values["settings in which T of fl-3 is not below that of ce"]
    n = values["settings in which every loss is finished"]
    return by_counts(n - against, against), (
        f"T of FL-3 is below that of cross-entropy on {counted(n - against, n)} data sets and "
        "networks, one seed each"
    )


def temperatures_on_a_line(values: Values) -> Verdict:
    """Are the best temperatures over gamma straighter than a square root?"""
    n, shown, parts = values["networks"], [], []
    for choice in CHOICES:
        name = f"bend of T over gamma, T chosen by {choice}"
        straight = values[f"{name}: networks below that of a square root"]
        parts.append(by_counts(straight, n - straight))
        shown.append(
            f"T by {choice}: {counted(straight, n)} public networks bend less, median "
            f"{values[f'{name}: median']:.1%} and R² "
            f"{values[f'R² of T over gamma, T chosen by {choice}: median']:.3f}"
        )
    root = values["bend of the square root of 1 + gamma"]
    return by_parts(parts), (
        "largest distance from the chord in percent of the rise, of the square root of 1 + gamma "
        f"{root:.1%}; {'; '.join(shown)}"
    )


def worse_on_tables(values: Values) -> Verdict:
    """Does the focal loss have a larger ECE on most tables, and does the map reduce it?"""
    n, shown, parts = values["data sets"], [], []
    for setting in SETTINGS:
        name = f"{setting}, FL-3"
        larger = values[f"{name}: data sets with a larger ECE than CE"]
        helped = values[f"{name}: data sets on which the map lowers ECE"]
        low, high = (values[f"{name}: {end} end of the change by the map, %"] for end in ENDS)
        parts += [by_counts(larger, n - larger), by_interval(-high, -low)]
        shown.append(
            f"{setting}: FL-3 worse than cross-entropy on {counted(larger, n)}, the map helps "
            f"on {helped:.0f} and changes ECE by {low:+.1f} to {high:+.1f} points"
        )
    return by_parts(parts), "; ".join(shown) + "; five divisions each"


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
    verdict = by_parts([by_counts(*plentiful), by_counts(*overfitted[::-1])])
    return verdict, f"tables on which the map helps: {'; '.join(shown)}"


def _gain(values: Values, name: str) -> str:
    low, high = (values[f"{name}: 95% {end}"] for end in FROM_TO)
    return f"{values[name]:.0f}% ({low:.0f} to {high:.0f})"


CHANGED = "predictions changed by any method"
CHOICES = ("ECE", "NLL")
ENDS = ("low", "high")
FROM_TO = ("from", "to")
FAMILIES = ("CIFAR-10", "CIFAR-100", "All")
SETTINGS = ("MLP, stopped", "MLP, to the end")


def _standard(values: Values, ending: str) -> list[float]:
    chosen = (name for name in values if name.startswith("Standard") and name.endswith(ending))
    return [values[name] for name in chosen]


def _map_adds(values: Values, panel: str) -> list[float]:
    return _standard(values, f"{panel}: points of ECE that the map adds")


def _map_intervals(values: Values, panel: str) -> list[tuple[float, float]]:
    ends = (_standard(values, f"{panel}: {end} end of its interval") for end in ENDS)
    return list(zip(*ends, strict=True))


def _best_gammas(values: Values, panel: str) -> list[float]:
    name = f"{panel}: gamma with the smallest ECE without the map, seed "
    return [value for key, value in values.items() if key.startswith("Standard") and name in key]


def _larger_gammas(first: list[float], second: list[float]) -> Verdict:
    """Is the first gamma larger in most pairs?"""
    larger, smaller = (
        sum(sign * (a - b) > 0 for a, b in zip(first, second, strict=True)) for sign in (1, -1)
    )
    return by_counts(larger, smaller), (
        f"the gamma with the smallest ECE without the map is larger in {larger} pairs of runs, "
        f"smaller in {smaller}, the same in {len(first) - larger - smaller}: larger in "
        f"{counted(larger, larger + smaller)} of those that differ"
    )


def _with_intervals(numbers: list[float], intervals: list[tuple[float, float]]) -> str:
    return " and ".join(
        f"{number:+.1f} ({low:+.1f} to {high:+.1f})"
        for number, (low, high) in zip(numbers, intervals, strict=True)
    )


CLAIMS = (
    Claim(
        "focal loss calibrates better than cross-entropy before temperature scaling",
        f"{MUKHOTI}, Table 1",
        ("loss-tables", "digits-losses"),
        smaller_error("FL-3", "cross-entropy"),
    ),
    Claim(
        "FLA-53 beats a fixed gamma",
        f"{MUKHOTI}, Sec. 5",
        ("loss-tables", "digits-losses"),
        smaller_error("FLA-53", "FL-3"),
    ),
    Claim(
        "the optimal T of focal losses is near 1",
        f"{MUKHOTI}, Table 1",
        ("loss-tables",),
        temperature_near_one,
    ),
    Claim(
        "focal losses keep sure predictions after temperature scaling",
        f"{MUKHOTI}, Table 6",
        ("loss-tables",),
        sure_predictions_kept,
    ),
    Claim(
        "late in training the test NLL rises only through the mistakes",
        f"{MUKHOTI}, Fig. 1",
        ("dynamics",),
        rise_from_mistakes,
    ),
    Claim(
        "the last layer of the focal loss is larger early and smaller late",
        f"{MUKHOTI}, Fig. 3h",
        ("dynamics",),
        norms_cross,
    ),
    Claim(
        "the map helps with plenty of data and hurts if the network overfits",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("map-on-images",),
        map_by_data,
    ),
    Claim(
        "the map hurts networks that fit their training set, on the votes of people",
        f"{CHAROENPHAKDEE}, Sec. 6.2",
        ("human-posterior",),
        map_on_fitted_networks,
    ),
    Claim(
        "the same on tables",
        f"{CHAROENPHAKDEE}, Sec. 6.2",
        ("many-data-sets",),
        map_on_tables,
    ),
    Claim(
        "on most data sets focal loss is worse than cross-entropy, and the map corrects it",
        f"{CHAROENPHAKDEE}, Sec. 6.3",
        ("many-data-sets",),
        worse_on_tables,
    ),
    Claim(
        "larger networks need a larger gamma",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("map-on-images",),
        gamma_by_size,
    ),
    Claim(
        "fewer data need a larger gamma",
        f"{CHAROENPHAKDEE}, Fig. 5",
        ("map-on-images",),
        gamma_by_data,
    ),
    Claim(
        "focal temperature scaling beats temperature scaling in ECE at equal accuracy",
        f"{KOMISARENKO}, Table 1",
        ("focal-temperature",),
        focal_temperature_gain,
    ),
    Claim(
        "the same on networks of Mukhoti et al., CIFAR-10",
        f"{KOMISARENKO}, Table 1",
        ("authors-focal-temperature",),
        focal_temperature_on_authors_networks("FLSD-53, CIFAR-10", "Brier, CIFAR-10"),
    ),
    Claim(
        "the same on networks of Mukhoti et al., CIFAR-100",
        f"{KOMISARENKO}, Table 1",
        ("authors-focal-temperature",),
        focal_temperature_on_authors_networks("Brier, CIFAR-100"),
    ),
    Claim(
        "choosing by ECE gains about 20% over choosing by NLL",
        f"{KOMISARENKO}, Sec. 5",
        ("focal-temperature", "focal-temperature-trained"),
        choice_by_error,
    ),
    Claim(
        "the optimal T falls as the gamma of training grows",
        f"{KOMISARENKO}, Fig. 8",
        ("focal-temperature-trained",),
        temperature_falls,
    ),
    Claim(
        "T and the gamma of the map lie on a line",
        f"{KOMISARENKO}, Fig. 8",
        ("temperature-line",),
        temperatures_on_a_line,
    ),
)
