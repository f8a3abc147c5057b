"""Fig. 8 of the paper from the logits of two of its networks: which images, and how sure."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

import calibrant
from calibrant.training.datasets.cifar import CIFAR10_CLASSES
from experiments.loss_tables.measuring import best_temperature
from experiments.results import Result
from experiments.scoreboard.networks import Network
from experiments.tables import Table
from experiments.trained.runs import Floats, Labels, title

STAGES = ("before", "after")
FIGURE = Path(__file__).with_name("figure_8.csv")

ByLoss = Mapping[str, Sequence[Floats]]
"""Probabilities of every test image before and after temperature scaling, by loss."""


class Shown(NamedTuple):
    """What the figure prints of an image: its label, and by loss prediction and confidences."""

    label: str
    predicted: dict[str, str]
    confidences: dict[str, list[str]]


def run(parameters: Mapping[str, Any]) -> Result:
    """Find the eight images in the test set, and compare every confidence."""
    probs: dict[str, list[Floats]] = {}
    labels: Labels
    for loss, name in parameters["networks"].items():
        network = Network.of(Path(parameters["folder"]) / f"{name}.npz")
        t = best_temperature(*network.part("val"), calibrant.ece, parameters["tenths"])
        logits, labels = network.part("test")
        probs[loss] = [softmax(logits / by, axis=1) for by in (1.0, t)]
    values: dict[str, float] = {}
    rows = []
    for number, shown in printed().items():
        away = distances(shown, probs, labels)
        first, second = np.argsort(away, kind="stable")[:2]
        image = f"image {number} ({shown.label})"
        values[f"{image}: number in the test set"] = int(first)
        for loss, of_loss in probs.items():
            here = [float(stage[first].max()) for stage in of_loss]
            texts = shown.confidences[loss]
            for stage, value in zip(STAGES, here, strict=True):
                values[f"{image}, {title(loss)}: confidence {stage} T"] = value
            predicted = CIFAR10_CLASSES[of_loss[0][first].argmax()]
            rows.append(
                [
                    *(str(first), shown.label, title(loss), predicted, shown.predicted[loss]),
                    *(f"{x:.5f} ({text})" for x, text in zip(here, texts, strict=True)),
                    *(f"{each:.5f}" if each < np.inf else "none" for each in away[[first, second]]),
                ]
            )
    return Result(values=values, tables={"images": table(rows)}, notes=NOTES)


def printed() -> dict[int, Shown]:
    """The images of the figure."""
    found: dict[int, Shown] = {}
    with FIGURE.open(newline="") as file:
        for row in csv.DictReader(file):
            shown = found.setdefault(int(row["image"]), Shown(row["label"], {}, {}))
            shown.predicted[row["loss"]] = row["predicted"]
            shown.confidences[row["loss"]] = [row[stage] for stage in STAGES]
    return found


def distances(shown: Shown, probs: ByLoss, labels: Labels) -> Floats:
    """How far the confidences of every test image are from the printed ones, in the mean.

    Infinite for images of another label, and where a network predicts another class.
    """
    fits = labels == CIFAR10_CLASSES.index(shown.label)
    away = np.zeros(len(labels))
    for loss, of_loss in probs.items():
        fits &= of_loss[0].argmax(axis=1) == CIFAR10_CLASSES.index(shown.predicted[loss])
        for stage, text in zip(of_loss, shown.confidences[loss], strict=True):
            away += np.abs(stage.max(axis=1) - float(text))
    found: Floats = np.where(fits, away / (len(STAGES) * len(probs)), np.inf)
    return found


def table(rows: Sequence[Sequence[str]]) -> Table:
    """A row for each image and loss."""
    return Table(
        "Fig. 8: confidence here (printed), for the test image that is nearest to the printed "
        "numbers",
        [
            *("test image", "label", "loss", "predicted", "printed", "before T", "after T"),
            *("mean difference", "of the next image"),
        ],
        [list(row) for row in rows],
    )


NOTES = (
    "Of the test images with the printed label whose two predictions are the printed ones, the one "
    "with the nearest confidences, by the mean difference of the four. Cross-entropy and MMCE, the "
    "other two columns of the figure, are not among the networks at hand.",
)
