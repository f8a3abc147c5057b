"""The empirical claims of the papers, and how the published results judge them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from experiments.catalogue import Experiment

HOLDS = "holds here"
FAILS = "does not hold here"
OPEN = "not decided here"
UNTESTED = "cannot be tested here"

Values = Mapping[str, float]
Verdict = tuple[str, str]
"""One of the four, and the numbers behind it."""

MUKHOTI = "Mukhoti et al. (2020)"
KOMISARENKO = "Komisarenko and Kull (2024)"
CHAROENPHAKDEE = "Charoenphakdee et al. (2021)"


@dataclass(frozen=True)
class Claim:
    """What a paper says of networks, and which result judges it.

    Attributes:
        says: The claim in a few words.
        source: Paper and place.
        experiment: Whose published values are looked at.
        judge: From the values to a verdict.
    """

    says: str
    source: str
    experiment: str
    judge: Callable[[Values], Verdict]

    def judged(self, published: Mapping[str, Experiment]) -> Verdict:
        """The verdict of the published run; none without one."""
        experiment = published.get(self.experiment)
        result = None if experiment is None else experiment.published()
        if result is None:
            return UNTESTED, f"`python -m experiments {self.experiment}` has not been published"
        verdict, evidence = self.judge(result["values"])
        return verdict, f"{evidence} (`{self.experiment}`)"


def by_counts(better: float, worse: float) -> str:
    """A claim about networks, judged by how many are surely for it and surely against it."""
    if better + worse == 0:
        return OPEN
    if better >= 3 * worse:
        return HOLDS
    return FAILS if worse >= 3 * better else OPEN


def by_interval(low: float, high: float) -> str:
    """A claim that something is above 0, judged by its interval."""
    return HOLDS if low > 0 else FAILS if high < 0 else OPEN


def _by_most(sure: int, against: int, n: int) -> str:
    """A claim of several parts, each surely so, surely not, or neither."""
    if by_counts(sure, n - sure) == HOLDS:
        return HOLDS
    return FAILS if by_counts(against, n - against) == HOLDS else OPEN


def smaller_error(first: str, second: str) -> Callable[[Values], Verdict]:
    """Is the ECE before temperature scaling smaller with one loss than with another?"""

    def judge(values: Values) -> Verdict:
        name = f"{first} against {second}, ECE before T"
        better, worse = values[f"{name}: surely smaller"], values[f"{name}: surely larger"]
        noise = values[f"{name}: noise"]
        return by_counts(better, worse), (
            f"ECE surely smaller on {better:.0f} of {better + worse + noise:.0f} networks, surely "
            f"larger on {worse:.0f}; one seed each, 95% intervals on the same test samples"
        )

    return judge


def temperature_near_one(values: Values) -> Verdict:
    """Is the best T of FLA-53 nearer to 1 than that of cross-entropy?"""
    nearer = values["FLA-53: T nearer to 1 than that of cross-entropy"]
    n = values["networks trained here"]
    return by_counts(nearer, n - nearer), (
        f"T by ECE of FLA-53 is nearer to 1 than that of cross-entropy on {nearer:.0f} of {n:.0f} "
        f"networks, and below 0.9 on {values['FLA-53: T by ECE below 0.9']:.0f}"
    )


def sure_predictions_kept(values: Values) -> Verdict:
    """Has FLA-53 more predictions above 0.99 than cross-entropy once both are scaled?"""
    name = "S99 after T by {}: FLA-53 has {} than cross-entropy"
    more, fewer = ([values[name.format(by, how)] for by in CHOICES] for how in ("more", "fewer"))
    return by_counts(more[0], fewer[0]), (  # by ECE, as the paper chooses T
        f"predictions above 0.99 after scaling, T by ECE as in the paper: FLA-53 has more than "
        f"cross-entropy on {more[0]:.0f} networks, fewer on {fewer[0]:.0f}; T by NLL: more on "
        f"{more[1]:.0f}, fewer on {fewer[1]:.0f}"
    )


def rise_from_mistakes(values: Values) -> Verdict:
    """Where the test NLL of cross-entropy rises late, do mistakes make most of the rise?"""
    ending = "cross-entropy: part of that rise from mistakes"
    parts = [value for name, value in values.items() if name.endswith(ending)]
    if not parts:
        return UNTESTED, "the test NLL of cross-entropy does not rise late in any run"
    most = sum(part > 0.9 for part in parts)
    return by_counts(most, len(parts) - most), (
        f"mistakes make more than 90% of the rise in {most} of {len(parts)} runs in which it "
        f"rises; from {min(parts):.0%} to {max(parts):.0%}"
    )


def norms_cross(values: Values) -> Verdict:
    """Is the last layer of FL-3 the larger one early and the smaller one late?"""
    ratio = "last-layer norm, FL-3 / cross-entropy"
    places = [name.removesuffix(f": {ratio}, last epoch") for name in values]
    places = [place for place in places if f"{place}: {ratio}, last epoch" in values]
    ends = [[values[f"{p}: {ratio}, {when}"] for when in ("largest", "last epoch")] for p in places]
    crossed = sum(largest > 1.0 > last for largest, last in ends)
    smaller = sum(last < 1.0 for _, last in ends)
    at_first = sum(values[f"{place}: {ratio}, first epoch"] > 1.0 for place in places)
    return by_counts(crossed, len(ends) - crossed), (
        f"larger in some epoch and smaller in the last on {crossed} of {len(ends)} networks; "
        f"larger after the first epoch on {at_first}, smaller in the last on {smaller}"
    )


def map_by_data(values: Values) -> Verdict:
    """Does the map lower the error with many images, and raise it with few?"""
    many = [(-high, -low) for low, high in _map_intervals(values, "resnet8, 8000 images")]
    few = _map_intervals(values, "resnet8, 500 images")
    verdicts = [by_interval(*interval) for interval in (*many, *few)]
    sure, against = verdicts.count(HOLDS), verdicts.count(FAILS)
    added = [_map_adds(values, f"resnet8, {n} images") for n in (500, 8000)]
    return _by_most(sure, against, len(verdicts)), (
        f"points of ECE that the map adds, ResNet-8: {_listed(added[0])} with 500 images, "
        f"{_listed(added[1])} with 8000; two data sets, three seeds, gamma 1 to 3; surely so in "
        f"{sure} of {len(verdicts)}, surely the other way in {against}"
    )


def gamma_by_size(values: Values) -> Verdict:
    """Does the best gamma grow with the network?"""
    small, *large = (
        _best_gammas(values, f"cifar10-jpeg, {network}, 2000 images")
        for network in ("resnet8", "resnet20", "resnet44")
    )
    verdict, evidence = _larger_gammas([*large[0], *large[1]], [*small, *small])
    return verdict, (
        f"{evidence}: ResNet-20 and ResNet-44 against ResNet-8, 2000 images of CIFAR-10, seed by "
        "seed"
    )


def gamma_by_data(values: Values) -> Verdict:
    """Does the best gamma grow as images become fewer?"""
    verdict, evidence = _larger_gammas(
        *(_best_gammas(values, f"resnet8, {n} images") for n in (500, 8000))
    )
    return verdict, f"{evidence}: 500 images against 8000, ResNet-8, two data sets, seed by seed"


def focal_temperature_gain(values: Values) -> Verdict:
    """Does focal temperature scaling have the smaller ECE, at the same predictions?"""
    return _gain(values, "gain in ECE of focal temperature over temperature, %")


def choice_by_error(values: Values) -> Verdict:
    """Is (gamma, T) better chosen by ECE than by NLL?"""
    return _gain(values, "gain in ECE of choosing by ECE over NLL, focal temperature, %")


def temperature_falls(values: Values) -> Verdict:
    """Is the T of networks trained with gamma 3 below that of cross-entropy?"""
    against = values["settings in which T of fl-3 is not below that of ce"]
    n = values["settings in which every loss is finished"]
    return by_counts(n - against, against), (
        f"T of FL-3 is below that of cross-entropy on {n - against:.0f} of {n:.0f} data sets and "
        "networks, one seed each"
    )


def temperatures_on_a_line(values: Values) -> Verdict:
    """Do the best temperatures lie on a straight line over the gamma of the map?"""
    n = values["networks"]
    straight = [
        values[f"R² of T over gamma, T chosen by {c}: networks above 0.95"] for c in CHOICES
    ]
    median = [values[f"R² of T over gamma, T chosen by {c}: median"] for c in CHOICES]
    verdict = by_counts(min(straight), n - min(straight))
    return verdict, (
        f"R² of a line above 0.95 on {straight[0]:.0f} of {n:.0f} public networks by ECE (median "
        f"{median[0]:.3f}), on {straight[1]:.0f} by NLL ({median[1]:.3f})"
    )


def worse_on_tables(values: Values) -> Verdict:
    """Has focal loss the larger ECE on most tables, and does the map bring it down?"""
    n, shown, fair = values["data sets"], [], True
    for setting in ("MLP, stopped", "MLP, to the end"):
        name = f"{setting}, FL-3"
        larger = values[f"{name}: data sets with a larger ECE than CE"]
        helped = values[f"{name}: data sets on which the map lowers ECE"]
        low, high = (values[f"{name}: {end} end of the change by the map, %"] for end in ENDS)
        fair = fair and larger > n / 2 and high < 0.0
        shown.append(
            f"{setting}: FL-3 worse than cross-entropy on {larger:.0f} of {n:.0f}, the map helps "
            f"on {helped:.0f} and changes ECE by {low:+.1f} to {high:+.1f} points"
        )
    return (HOLDS if fair else OPEN), "; ".join(shown) + "; five divisions each"


def map_on_tables(values: Values) -> Verdict:
    """Does the map help more with many rows than with few, and less after overfitting?"""
    shares = {
        (setting, rows): values[f"{setting}, FL-3: share helped, {rows} rows"]
        for setting in ("MLP, stopped", "MLP, to the end")
        for rows in ("many", "few")
    }
    stopped, trained_on = ([v for (s, _), v in shares.items() if s.endswith(e)] for e in SETTINGS)
    fair = stopped[0] > stopped[1] and trained_on[0] > trained_on[1]
    fair = fair and all(b < a for a, b in zip(stopped, trained_on, strict=True))
    listed = ", ".join(f"{s}, {r} rows: {share:.0%}" for (s, r), share in shares.items())
    n = values["data sets"]
    return (HOLDS if fair else FAILS), f"share of {n:.0f} tables on which the map helps: {listed}"


def _gain(values: Values, name: str) -> Verdict:
    shown = []
    for family in ("CIFAR-10", "CIFAR-100", "All"):
        gain, n = values[f"{family}: {name}"], values[f"{family}: networks"]
        low, high = (values[f"{family}: {name}: 95% {end}"] for end in ("from", "to"))
        shown.append(f"{family}: {gain:.0f}% ({low:.0f} to {high:.0f}; {n:.0f} networks)")
    verdict = by_interval(low, high)
    return verdict, f"{'; '.join(shown)}; predictions changed: {values[CHANGED]:.0f}"


CHANGED = "predictions changed by any method"
CHOICES = ("ECE", "NLL")
ENDS = ("low", "high")
SETTINGS = ("stopped", "to the end")


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
    """Is the first gamma mostly the larger one?"""
    larger, smaller = (
        sum(sign * (a - b) > 0 for a, b in zip(first, second, strict=True)) for sign in (1, -1)
    )
    return by_counts(larger, smaller), (
        f"the gamma with the smallest ECE without the map is larger in {larger} pairs of runs, "
        f"smaller in {smaller}, the same in {len(first) - larger - smaller}"
    )


def _listed(numbers: list[float], form: str = "+.1f") -> str:
    return " and ".join(f"{number:{form}}" for number in numbers)


CLAIMS = (
    Claim(
        "focal loss calibrates better than cross-entropy before temperature scaling",
        f"{MUKHOTI}, Table 1",
        "loss-tables",
        smaller_error("FL-3", "cross-entropy"),
    ),
    Claim(
        "FLA-53 beats a fixed gamma",
        f"{MUKHOTI}, Sec. 5",
        "loss-tables",
        smaller_error("FLA-53", "FL-3"),
    ),
    Claim(
        "the optimal T of focal losses is near 1",
        f"{MUKHOTI}, Table 1",
        "loss-tables",
        temperature_near_one,
    ),
    Claim(
        "focal losses keep sure predictions after temperature scaling",
        f"{MUKHOTI}, Table 6",
        "loss-tables",
        sure_predictions_kept,
    ),
    Claim(
        "late in training the test NLL rises through the mistakes alone",
        f"{MUKHOTI}, Fig. 1",
        "dynamics",
        rise_from_mistakes,
    ),
    Claim(
        "the last layer of the focal loss is larger early and smaller late",
        f"{MUKHOTI}, Fig. 3h",
        "dynamics",
        norms_cross,
    ),
    Claim(
        "the map helps where data is plentiful and hurts where the network overfits",
        f"{CHAROENPHAKDEE}, Fig. 5",
        "map-on-images",
        map_by_data,
    ),
    Claim(
        "the same on tables",
        f"{CHAROENPHAKDEE}, Sec. 6.2",
        "many-data-sets",
        map_on_tables,
    ),
    Claim(
        "on most data sets focal loss is worse than cross-entropy, and the map mends it",
        f"{CHAROENPHAKDEE}, Sec. 6.3",
        "many-data-sets",
        worse_on_tables,
    ),
    Claim(
        "larger networks need a larger gamma",
        f"{CHAROENPHAKDEE}, Fig. 5",
        "map-on-images",
        gamma_by_size,
    ),
    Claim(
        "fewer data need a larger gamma",
        f"{CHAROENPHAKDEE}, Fig. 5",
        "map-on-images",
        gamma_by_data,
    ),
    Claim(
        "focal temperature scaling beats temperature scaling in ECE at equal accuracy",
        f"{KOMISARENKO}, Table 1",
        "focal-temperature",
        focal_temperature_gain,
    ),
    Claim(
        "choosing by ECE gains about 20% over choosing by NLL",
        f"{KOMISARENKO}, Sec. 5",
        "focal-temperature",
        choice_by_error,
    ),
    Claim(
        "the optimal T falls as the gamma of training grows",
        f"{KOMISARENKO}, Fig. 8",
        "focal-temperature-trained",
        temperature_falls,
    ),
    Claim(
        "T and the gamma of the map lie on a line",
        f"{KOMISARENKO}, Fig. 8",
        "temperature-line",
        temperatures_on_a_line,
    ),
)
