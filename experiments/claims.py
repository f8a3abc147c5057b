"""The papers' empirical claims, judged by the published results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.catalogue import Experiment
from experiments.judges import (
    FITS,
    SCALED,
    SMOOTHED,
    best_fixed_gamma,
    choice_by_error,
    focal_temperature_gain,
    focal_temperature_on_authors_networks,
    gamma_by_data,
    gamma_by_size,
    line_keeps_the_gain,
    map_after,
    map_by_data,
    map_corrects,
    map_on_a_tenth,
    map_on_authors_networks,
    map_on_tables,
    norms_cross,
    rise_from_mistakes,
    smaller_error,
    sure_predictions_kept,
    temperature_by_error,
    temperature_falls,
    temperature_near_one,
    temperatures_on_a_line,
    worse_on_tables,
)
from experiments.verdicts import UNTESTED, Verdict

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
        rule: What decides, and what is counted.
        changed: The verdict before the last change of its rule, and why it changed.
    """

    says: str
    source: str
    experiments: tuple[str, ...]
    judge: Callable[..., Verdict]
    rule: str
    changed: str = ""

    def judged(self, published: Mapping[str, Experiment]) -> Verdict:
        """The verdict by the published runs."""
        values = []
        for name in self.experiments:
            result = published[name].published() if name in published else None
            if result is None:
                return UNTESTED, f"`python -m experiments {name}` has not been published"
            values.append(result["values"])
        verdict, evidence = self.by(values)
        by = ", ".join(f"`{name}`" for name in self.experiments)
        return verdict, f"{evidence} ({by})"

    def by(self, values: Sequence[Mapping[str, float]]) -> Verdict:
        """The verdict by some values, of which runs may be missing or older than the claim."""
        try:
            return self.judge(*values)
        except KeyError as absent:
            return UNTESTED, f"the results lack {absent}"


TRAINED = ("loss-tables", "newsgroups-losses", "sst-losses")
"""Networks trained here, those on texts for as many epochs as in the paper."""
FITTED_NETWORKS = (
    f"share of the networks that fit with every loss compared (training error below {FITS:g}%, by "
    "400 or 1000 samples); one seed, on SST the means of five; texts for as many epochs as in the "
    "paper"
)
OF_CURVES = (
    f"share of the networks that fit (training error below {FITS:g}% after the last epoch), one "
    "seed each"
)
PAIRED = (
    f"{FITTED_NETWORKS}; a network counts if its 95% interval, on the same test samples or over "
    "the seeds of SST, excludes 0; in part from two on each side"
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
PUBLIC = "95% intervals of resampled images and of resampled data sets (9) and networks (43)"
AUTHORS = (
    "95% intervals of test images, resampled for all networks at once; four networks in each part; "
    "says nothing about other networks"
)
NINE = "nine networks were counted, of which most do not fit"

CLAIMS = (
    Claim(
        "focal loss calibrates better than cross-entropy before temperature scaling",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "digits-losses"),
        smaller_error("FL-3", "cross-entropy"),
        PAIRED,
        "held in part: networks were counted that fit with cross-entropy alone, and the same "
        "recipes trained on another machine gave two networks on each side",
    ),
    Claim(
        "FLA-53 beats the Brier loss before temperature scaling",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "digits-losses"),
        smaller_error("FLA-53", "Brier"),
        PAIRED,
        "held in part: networks were counted that fit with cross-entropy alone",
    ),
    Claim(
        "FLA-53 beats MMCE before temperature scaling",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "digits-losses"),
        smaller_error("FLA-53", "MMCE, published"),
        f"{PAIRED}; MMCE as the authors' code computes it (`mmce-published`)",
        "had no verdict",
    ),
    Claim(
        "FLA-53 beats a fixed gamma",
        f"{MUKHOTI}, Sec. 5",
        (*TRAINED, "digits-losses"),
        smaller_error("FLA-53", "FL-3"),
        PAIRED,
    ),
    Claim(
        "3 is the best fixed gamma of 1, 2 and 3",
        f"{MUKHOTI}, Sec. 6",
        (*TRAINED, "digits-losses"),
        best_fixed_gamma,
        FITTED_NETWORKS,
        "had no verdict",
    ),
    Claim(
        "the optimal T of focal losses is near 1",
        f"{MUKHOTI}, Table 1",
        (*TRAINED, "authors-networks"),
        temperature_near_one,
        FITTED_NETWORKS,
        f"did not hold: {NINE}",
    ),
    Claim(
        "T selected by ECE has a smaller ECE than T selected by NLL",
        f"{MUKHOTI}, Sec. 6",
        ("focal-temperature", "authors-focal-temperature"),
        temperature_by_error,
        f"{PUBLIC}; bins with equal numbers of samples, where the paper's have equal widths",
        "had no verdict",
    ),
    Claim(
        "focal losses keep sure predictions after temperature scaling",
        f"{MUKHOTI}, Table 6",
        TRAINED,
        sure_predictions_kept,
        FITTED_NETWORKS,
        f"held in part: {NINE}",
    ),
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
