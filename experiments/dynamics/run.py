"""The measurements after each epoch: the paper's figures, and numbers for its statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from experiments.dynamics import pictures
from experiments.dynamics.networks import Runs, networks, pairs
from experiments.dynamics.pictures import Record
from experiments.kept import epoch_at
from experiments.results import Result
from experiments.tables import Table
from experiments.trained.runs import TrainedRun, title

PLAIN, FOCAL = "ce", "fl-3"
"""The two losses that are compared."""
FOUR = ("ce", "fl-1", "fl-2", "fl-3")
"""The losses of the paper's Fig. 3."""
MOMENTS = ("early", "middle", "late")

Numbers = dict[str, float]


@dataclass(frozen=True)
class Rise:
    """How the test NLL rises from its lowest epoch to the last.

    The NLL is a sum of two parts, that of the right and that of the wrong samples:
    ``(1 - error) * nll_correct + error * nll_wrong``.

    Attributes:
        epoch: The lowest, counted from 1.
        total: By how much the NLL rises.
        from_wrong: By how much its part of the wrong samples does.
        mean_correct: By how much the mean NLL of the correct samples does.
        mean_wrong: By how much that of the wrong samples does; 0 if there are none in either epoch.
    """

    epoch: float
    total: float
    from_wrong: float
    mean_correct: float
    mean_wrong: float

    @classmethod
    def of(cls, records: Sequence[Record]) -> Rise:
        """The rise in the records of the test set."""
        tests = [record["test"] for record in records]
        lowest = min(range(len(tests)), key=lambda epoch: tests[epoch]["nll"])
        first, last = tests[lowest], tests[-1]
        wrong_in_both = first["error"] > 0.0 < last["error"]
        return cls(
            epoch=lowest + 1,
            total=last["nll"] - first["nll"],
            from_wrong=part_of_wrong(last) - part_of_wrong(first),
            mean_correct=last["nll_correct"] - first["nll_correct"],
            mean_wrong=last["nll_wrong"] - first["nll_wrong"] if wrong_in_both else 0.0,
        )

    @classmethod
    def mean(cls, rises: Sequence[Rise]) -> Rise:
        """The means over several seeds."""
        return cls(**over_seeds([asdict(rise) for rise in rises]))


def run(parameters: Mapping[str, Any]) -> Result:
    """Curves for every network, and counts over all of them."""
    found, unfinished = networks(parameters)
    values: Numbers = {}
    rises, norms = [], []
    figures: dict[str, Figure] = {}
    for (data, network), runs in found.items():
        where, file = f"{data}, {network}", f"{data}-{network}"
        figures |= {f"{file}-{name}": each for name, each in drawn(where, runs, parameters).items()}
        for loss, seeds in runs.items():
            rises.append([data, network, title(loss), *rise_cells(values, where, seeds)])
        at_the_end(values, where, runs)
        if PLAIN in runs:
            in_top_bin(values, where, runs[PLAIN])
        both = pairs(runs, FOCAL, PLAIN)
        if both:
            moments = parameters["gradients_at"]
            compared = over_seeds([against_plain(*pair, moments) for pair in both])
            values |= {f"{where}: {name}": value for name, value in compared.items()}
            norms.append([data, network, str(len(both)), *norm_cells(compared, both)])
    counts(values, [f"{data}, {network}" for data, network in found], parameters["sure"])
    tables = {
        "rise": Table(
            "Test NLL from its lowest epoch to the last, and how much of the rise is of mistakes",
            [
                "data",
                "network",
                "loss",
                "seeds",
                "lowest at",
                "of",
                "rise",
                "of mistakes",
                "NLL of correct",
                "NLL of wrong",
            ],
            rises,
        ),
        "norms": Table(
            "FL-3 / cross-entropy: L2 norm of the last layer, and median gradient norm",
            [
                "data",
                "network",
                "seeds",
                "norm, first epoch",
                "first third",
                "largest",
                "last",
                "epochs above 1",
                *GRADIENT_HEAD,
            ],
            norms,
        ),
    }
    return Result(values, tables, figures, NOTES, unfinished)


GRADIENT_HEAD = ("gradient, early", "middle", "late")


def drawn(where: str, runs: Runs, parameters: Mapping[str, Any]) -> dict[str, Figure]:
    """The pictures of one network, of its first seed."""
    first = {loss: seeds[0] for loss, seeds in runs.items()}
    if max(len(seeds) for seeds in runs.values()) > 1:
        where = f"{where}, seed {next(iter(first.values())).recipe.seed}"
    figures = {"losses": pictures.losses(where, first)}
    if PLAIN in first:
        plain, moments = first[PLAIN], parameters["reliability_at"]
        figures["overfitting"] = pictures.overfitting(where, plain)
        figures["reliability"] = pictures.reliability(where, plain, moments)
    if PLAIN in first and FOCAL in first:
        figures["gradients"] = pictures.gradients(where, first, parameters["gradients_at"])
    return figures


def over_seeds(seeds: Sequence[Mapping[str, float]]) -> Numbers:
    """The mean of each number over the seeds."""
    return {name: fmean(each[name] for each in seeds) for name in seeds[0]}


def part_of_wrong(test: Mapping[str, Any]) -> float:
    """The contribution of the wrong samples to the mean NLL."""
    return float(test["error"] * test["nll_wrong"]) if test["error"] > 0.0 else 0.0


def rise_cells(values: Numbers, where: str, seeds: Sequence[TrainedRun]) -> list[str]:
    """The rise with one loss, as values and as cells (Figs 1b, 3a to 3c)."""
    rises = [Rise.of(run.records) for run in seeds]
    rise = Rise.mean(rises)
    name = f"{where}, {title(seeds[0].recipe.loss)}"
    values[f"{name}: rise of the test NLL after its lowest epoch"] = rise.total
    values[f"{name}: rise of the mean NLL of wrong samples"] = rise.mean_wrong
    cells = [
        str(len(seeds)),
        spread([each.epoch for each in rises], ".0f"),
        str(len(seeds[0].records)),
        spread([each.total for each in rises], ".4f"),
    ]
    if rise.total <= 0.0:
        return [*cells, "", "", ""]
    share = rise.from_wrong / rise.total
    values[f"{name}: part of that rise from mistakes"] = share
    values[f"{name}: rise of the mean NLL of correct samples"] = rise.mean_correct
    return [
        *cells,
        f"{100.0 * share:.0f} %",
        f"{rise.mean_correct:+.4f}",
        f"{rise.mean_wrong:+.4f}",
    ]


def spread(seeds: Sequence[float], form: str) -> str:
    """The mean over the seeds, with the smallest and the largest where they differ."""
    low, mean, high = (f"{each:{form}}" for each in (min(seeds), fmean(seeds), max(seeds)))
    return mean if low == high else f"{mean} ({low} to {high})"


def at_the_end(values: Numbers, where: str, runs: Runs) -> None:
    """Training error, and confidence of correct predictions, with each loss of Fig. 3."""
    for loss in (loss for loss in FOUR if loss in runs):
        last = [run.records[-1] for run in runs[loss]]
        name = f"{where}, {title(loss)}"
        values[f"{name}: training error %, last epoch"] = fmean(
            100.0 * each["train"]["error"] for each in last
        )
        values[f"{name}: confidence of correct test samples, last epoch"] = fmean(
            each["test"]["true_prob_correct"] for each in last
        )


def in_top_bin(values: Numbers, where: str, plain: Sequence[TrainedRun]) -> None:
    """How many training samples are in the highest of 25 bins of confidence (Fig. 2)."""
    for word, epoch in (("first", 0), ("last", -1)):
        bins = [run.records[epoch]["train"]["reliability"]["count"] for run in plain]
        name = f"{where}, cross-entropy: training samples with confidence above 0.96, {word} epoch"
        values[name] = fmean(count[-1] / sum(count) for count in bins)


def against_plain(focal: TrainedRun, plain: TrainedRun, moments: Sequence[float]) -> Numbers:
    """FL-3 against cross-entropy: norms, and the mistakes of the test set (Figs 3d, f, h, 4)."""
    records = list(zip(focal.records, plain.records, strict=True))
    ratios = [one["weight_norm"] / other["weight_norm"] for one, other in records]
    norm = "last-layer norm, FL-3 / cross-entropy"
    found = {
        f"{norm}, first epoch": ratios[0],
        f"{norm}, mean of the first third": fmean(ratios[: -(-len(ratios) // 3)]),
        f"{norm}, last epoch": ratios[-1],
        f"{norm}, largest": max(ratios),
        "epochs in which FL-3 has the larger last-layer norm": sum(x > 1.0 for x in ratios),
    }
    for word, moment in zip(MOMENTS, moments, strict=True):
        both = [each["train"]["gradient_norm"] for each in records[epoch_at(moment, len(records))]]
        for statistic in ("median", "mean"):
            name = f"{statistic} gradient norm, FL-3 / cross-entropy, {word}"
            found[name] = both[0][statistic] / both[1][statistic]
    tests = [(one["test"], other["test"]) for one, other in records]
    wrong = [(one, other) for one, other in tests if one["error"] * other["error"] > 0.0]
    for quantity, words in (
        ("entropy_wrong", "entropy of wrong test samples"),
        ("true_prob_wrong", "true-class probability of wrong test samples"),
    ):
        higher = sum(one[quantity] > other[quantity] for one, other in wrong)
        found[f"share of epochs in which FL-3 has the higher {words}"] = higher / len(wrong)
    return found


def norm_cells(compared: Numbers, both: Sequence[tuple[TrainedRun, TrainedRun]]) -> list[str]:
    """Norms of the last layer and of its gradients as cells (Figs 3h, 4b to 4d)."""
    norm = "last-layer norm, FL-3 / cross-entropy"
    gradient = "median gradient norm, FL-3 / cross-entropy"
    moments = ("first epoch", "mean of the first third", "largest", "last epoch")
    larger = compared["epochs in which FL-3 has the larger last-layer norm"]
    return [
        *(f"{compared[f'{norm}, {each}']:.4f}" for each in moments),
        f"{larger:g} of {len(both[0][0].records)}",
        *(f"{compared[f'{gradient}, {each}']:.3f}" for each in MOMENTS),
    ]


def counts(values: Numbers, places: Sequence[str], sure: float) -> None:
    """The paper's statements as counts over the networks."""

    def of(*templates: str) -> list[tuple[float, ...]]:
        rows = [[values.get(text.format(place)) for text in templates] for place in places]
        return [tuple(v for v in row if v is not None) for row in rows if None not in row]

    rise = "{}, %s: rise of the test NLL after its lowest epoch"
    norm = "{}: last-layer norm, FL-3 / cross-entropy, %s epoch"
    gradient = "{}: median gradient norm, FL-3 / cross-entropy, %s"
    entropy = "{}: share of epochs in which FL-3 has the higher entropy of wrong test samples"
    rises = of(rise % "cross-entropy")
    shares = of("{}, cross-entropy: part of that rise from mistakes")
    norms = of(norm % "first", norm % "last")
    at_some_time = of("{}: last-layer norm, FL-3 / cross-entropy, largest", norm % "last")
    sure_of = "{}, %s: confidence of correct test samples, last epoch"
    values |= {
        "networks": len(places),
        "test NLL rises after its lowest epoch, cross-entropy": sum(x > 0.0 for (x,) in rises),
        "of these: all of the rise is of mistakes": sum(x >= 1.0 for (x,) in shares),
        "test NLL rises less with FL-3 than with cross-entropy": sum(
            x < y for x, y in of(rise % "FL-3", rise % "cross-entropy")
        ),
        "last-layer norm larger with FL-3 after the first epoch": sum(x > 1.0 for x, _ in norms),
        "last-layer norm smaller with FL-3 after the last epoch": sum(y < 1.0 for _, y in norms),
        "last-layer norm larger with FL-3 after the first epoch, smaller after the last": sum(
            x > 1.0 > y for x, y in norms
        ),
        "last-layer norm larger with FL-3 in any epoch, smaller after the last": sum(
            x > 1.0 > y for x, y in at_some_time
        ),
        "median gradient norm, FL-3 / cross-entropy: smaller late than early": sum(
            y < x for x, y in of(gradient % "early", gradient % "late")
        ),
        "entropy of wrong samples higher with FL-3 in every epoch": sum(
            x == 1.0 for (x,) in of(entropy)
        ),
        f"correct samples still above {sure:g} with FL-3 after the last epoch": sum(
            x > sure for (x,) in of(sure_of % "FL-3")
        ),
        f"correct samples still above {sure:g} with all four losses after the last epoch": sum(
            min(each) > sure for each in of(*(sure_of % title(loss) for loss in FOUR))
        ),
    }


NOTES = (
    "Measured on 400 to 1000 samples of the training and of the test set after each epoch (digits: "
    "on all), so a mean over the mistakes is one over some dozens to hundreds of samples.",
    "On texts the networks are trained for as many epochs as in the paper. Numbers of several "
    "seeds are means, with the smallest and the largest in brackets; a ratio is one of two runs "
    "with the same seed. The pictures show the first seed.",
)
