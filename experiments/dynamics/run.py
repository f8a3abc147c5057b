"""The measurements after each epoch: the paper's figures, and numbers for its statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.dynamics import pictures
from experiments.dynamics.pictures import Record
from experiments.kept import epoch_at
from experiments.results import Result
from experiments.tables import Table
from experiments.trained.runs import TrainedRun, finished, missing, title

PLAIN, FOCAL = "ce", "fl-3"
"""The two losses that the paper compares."""


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
    """

    epoch: int
    total: float
    from_wrong: float
    mean_correct: float

    @classmethod
    def of(cls, records: Sequence[Record]) -> Rise:
        """The rise in the records of the test set."""
        tests = [record["test"] for record in records]
        lowest = min(range(len(tests)), key=lambda epoch: tests[epoch]["nll"])
        first, last = tests[lowest], tests[-1]
        return cls(
            epoch=lowest + 1,
            total=last["nll"] - first["nll"],
            from_wrong=part_of_wrong(last) - part_of_wrong(first),
            mean_correct=last["nll_correct"] - first["nll_correct"],
        )


def run(parameters: Mapping[str, Any]) -> Result:
    """Curves for every network, and counts over all of them."""
    found = finished(parameters["grids"], parameters["folder"])
    values: dict[str, float] = {}
    rises, norms, figures = [], [], {}
    for (data, network), runs in found.items():
        where, file = f"{data}, {network}", f"{data}-{network}"
        for loss, each in runs.items():
            rises.append([data, network, title(loss), *rise_cells(values, where, each)])
        figures[f"{file}-losses"] = pictures.losses(where, runs)
        if PLAIN in runs:
            plain = runs[PLAIN]
            figures[f"{file}-overfitting"] = pictures.overfitting(where, plain)
            moments = parameters["reliability_at"]
            figures[f"{file}-reliability"] = pictures.reliability(where, plain, moments)
            in_top_bin(values, where, plain)
        if PLAIN in runs and FOCAL in runs:
            moments = parameters["gradients_at"]
            figures[f"{file}-gradients"] = pictures.gradients(where, runs, moments)
            norms.append([data, network, *norm_cells(values, where, runs, moments)])
            error = runs[FOCAL].records[-1]["train"]["error"]
            values[f"{where}, FL-3: training error %, last epoch"] = 100.0 * error
            confidence(values, where, runs)
    counts(values, [f"{data}, {network}" for data, network in found], parameters["sure"])
    tables = {
        "rise": Table(
            "Test NLL from its lowest epoch to the last, and how much of the rise is of mistakes",
            ["data", "network", "loss", "lowest at", "of", "rise", "of mistakes", "NLL of correct"],
            rises,
        ),
        "norms": Table(
            "FL-3 / cross-entropy: L2 norm of the last layer, and median gradient norm",
            [
                "data",
                "network",
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
    return Result(values, tables, figures, [NOTE], missing(parameters["grids"], found))


GRADIENT_HEAD = ("gradient, early", "middle", "late")


def part_of_wrong(test: Mapping[str, Any]) -> float:
    """The contribution of the wrong samples to the mean NLL."""
    return float(test["error"] * test["nll_wrong"]) if test["error"] > 0.0 else 0.0


def rise_cells(values: dict[str, float], where: str, run: TrainedRun) -> list[str]:
    """The rise of one run, as values and as cells (Figs 1b, 3a to 3c)."""
    rise = Rise.of(run.records)
    name = f"{where}, {title(run.recipe.loss)}"
    values[f"{name}: rise of the test NLL after its lowest epoch"] = rise.total
    share = ""
    if rise.total > 0.0:
        values[f"{name}: part of that rise from mistakes"] = rise.from_wrong / rise.total
        values[f"{name}: rise of the mean NLL of correct samples"] = rise.mean_correct
        share = f"{100.0 * rise.from_wrong / rise.total:.0f} %"
    epochs = str(len(run.records))
    cells = [str(rise.epoch), epochs, f"{rise.total:.4f}", share]
    return [*cells, f"{rise.mean_correct:+.4f}" if rise.total > 0.0 else ""]


def norm_cells(
    values: dict[str, float], where: str, runs: Mapping[str, TrainedRun], moments: Sequence[float]
) -> list[str]:
    """Focal against plain: norms of the last layer and of its gradients (Figs 3h, 4b to 4d)."""
    pairs = list(zip(runs[FOCAL].records, runs[PLAIN].records, strict=True))
    ratios = [focal["weight_norm"] / plain["weight_norm"] for focal, plain in pairs]
    larger = sum(ratio > 1.0 for ratio in ratios)
    values[f"{where}: last-layer norm, FL-3 / cross-entropy, first epoch"] = ratios[0]
    third = ratios[: -(-len(ratios) // 3)]
    early = sum(third) / len(third)
    values[f"{where}: last-layer norm, FL-3 / cross-entropy, mean of the first third"] = early
    values[f"{where}: last-layer norm, FL-3 / cross-entropy, last epoch"] = ratios[-1]
    values[f"{where}: last-layer norm, FL-3 / cross-entropy, largest"] = max(ratios)
    values[f"{where}: epochs in which FL-3 has the larger last-layer norm"] = larger
    cells = [f"{ratio:.4f}" for ratio in (ratios[0], early, max(ratios), ratios[-1])]
    cells.append(f"{larger} of {len(ratios)}")
    for word, moment in zip(("early", "middle", "late"), moments, strict=True):
        focal, plain = pairs[epoch_at(moment, len(pairs))]
        medians = [r["train"]["gradient_norm"]["median"] for r in (focal, plain)]
        ratio = medians[0] / medians[1]
        values[f"{where}: median gradient norm, FL-3 / cross-entropy, {word}"] = ratio
        cells.append(f"{ratio:.3f}")
    return cells


def confidence(values: dict[str, float], where: str, runs: Mapping[str, TrainedRun]) -> None:
    """Confidence of correct and wrong predictions (Figs 3d to 3f)."""
    pairs = list(zip(runs[FOCAL].records, runs[PLAIN].records, strict=True))
    wrong = [
        (f["test"], p["test"]) for f, p in pairs if f["test"]["error"] * p["test"]["error"] > 0
    ]
    for quantity, words in (
        ("entropy_wrong", "entropy of wrong test samples"),
        ("true_prob_wrong", "true-class probability of wrong test samples"),
    ):
        higher = sum(focal[quantity] > plain[quantity] for focal, plain in wrong)
        name = f"{where}: share of epochs in which FL-3 has the higher {words}"
        values[name] = higher / len(wrong)
    for loss in (PLAIN, FOCAL):
        last = runs[loss].records[-1]["test"]
        values[f"{where}, {title(loss)}: confidence of correct test samples, last epoch"] = last[
            "true_prob_correct"
        ]


def in_top_bin(values: dict[str, float], where: str, plain: TrainedRun) -> None:
    """How many training samples are in the highest of 25 bins of confidence (Fig. 2).

    And how many are wrong at the end: the paper speaks of networks that have fitted all of them.
    """
    name = f"{where}, cross-entropy: training error %, last epoch"
    values[name] = 100.0 * plain.records[-1]["train"]["error"]
    for word, record in (("first", plain.records[0]), ("last", plain.records[-1])):
        count = record["train"]["reliability"]["count"]
        name = f"{where}, cross-entropy: training samples with confidence above 0.96, {word} epoch"
        values[name] = count[-1] / sum(count)


def counts(values: dict[str, float], places: Sequence[str], sure: float) -> None:
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
    right = of("{}, FL-3: confidence of correct test samples, last epoch")
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
            x > sure for (x,) in right
        ),
    }


NOTE = (
    "Measured on 1000 samples of the training and of the test set after each epoch (digits: on "
    "all), so a mean over the mistakes is one over some dozens to hundreds of samples."
)
