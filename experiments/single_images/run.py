"""Confidence on images that all losses classify correctly, and that none does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure

import calibrant
from calibrant.training.datasets import DataSet, load
from experiments.loss_tables.measuring import best_temperature, top
from experiments.results import Result
from experiments.tables import Table
from experiments.trained.runs import Floats, Labels, TrainedRun, finished, missing, title

BRIGHTEST = {"digits": 16.0}
"""Largest pixel value, if not 255."""
STAGES = ("before", "after")

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Answers:
    """Predictions of one network on the test images, before and after temperature scaling."""

    predicted: Labels
    confidence: dict[str, Floats]

    @classmethod
    def of(cls, run: TrainedRun, tenths: Sequence[int]) -> Answers:
        """Predictions with T as in the paper: the smallest ECE on the validation set."""
        t = best_temperature(run.val.logits, run.val.labels, calibrant.ece, tenths)
        confidence = {"before": top(run.test.logits), "after": top(run.test.logits / t)}
        return cls(run.test.logits.argmax(axis=1), confidence)


def run(parameters: Mapping[str, Any]) -> Result:
    """Mean confidences over all such images, and a picture of some drawn at random."""
    found = finished(parameters["grids"], parameters["folder"])
    values: dict[str, float] = {}
    rows, figures = [], {}
    losses = parameters["losses"]
    for (data, network), runs in found.items():
        if data not in parameters["data"] or not set(losses) <= set(runs):
            continue
        of_losses = {loss: runs[loss] for loss in losses}
        answers = {loss: Answers.of(each, parameters["tenths"]) for loss, each in of_losses.items()}
        labels = runs[losses[0]].test.labels
        correct = np.stack([each.predicted == labels for each in answers.values()])
        groups = {
            "all correct": np.flatnonzero(correct.all(axis=0)),
            "all wrong": np.flatnonzero(~correct.any(axis=0)),
        }
        for group, places in groups.items():
            values[f"{data}, {network}: test images {group}"] = len(places)
        for loss, each in answers.items():
            cells = []
            for group, places in groups.items():
                for stage in STAGES:
                    mean = float(each.confidence[stage][places].mean()) if len(places) else None
                    cells.append("none" if mean is None else f"{mean:.4f}")
                    if mean is not None:
                        name = f"{data}, {network}, {title(loss)}: mean confidence where {group}"
                        values[f"{name}, {stage} T"] = mean
            rows.append([data, network, title(loss), *cells])
        chosen = [drawn(places, parameters) for places in groups.values()]
        figures[f"{data}-{network}"] = picture(of_losses[losses[0]], answers, chosen)
    counts(values, [f"{data}, {network}" for data, network in found])
    table = Table(
        "Mean confidence over the test images that all four networks classify correctly or wrongly",
        ["data", "network", "loss", *(f"{g}, {s} T" for g in ("correct", "wrong") for s in STAGES)],
        rows,
    )
    unfinished = missing(parameters["grids"], found)
    return Result(values, {"confidence": table}, figures, unfinished=unfinished)


def counts(values: dict[str, float], places: Sequence[str]) -> None:
    """On how many networks the focal loss is less confident where all are correct or wrong."""
    for group in ("correct", "wrong"):
        for stage in STAGES:
            name = "{}, {}: mean confidence where all {}, {} T"
            pairs = [
                [values.get(name.format(p, title(loss), group, stage)) for loss in ("fla-53", "ce")]
                for p in places
            ]
            there = [(a, b) for a, b in pairs if a is not None and b is not None]
            values[f"networks compared where all {group}, {stage} T"] = len(there)
            values[f"FLA-53 less sure than cross-entropy where all {group}, {stage} T"] = sum(
                a < b for a, b in there
            )


def drawn(places: Rows, parameters: Mapping[str, Any]) -> Rows:
    """Some of the images, drawn by the seed."""
    rng = np.random.default_rng(parameters["seed"])
    return np.sort(rng.permutation(places)[: parameters["images"]])


def picture(run: TrainedRun, answers: Mapping[str, Answers], chosen: Sequence[Rows]) -> Figure:
    """The images, each with all losses' predictions before and after temperature scaling."""
    data = load_once(run.recipe.data, run.job.data_folder, run.recipe.seed, run.recipe.limit)
    columns = max(map(len, chosen))
    figure = Figure(figsize=(2.7 * columns, 7.2), layout="constrained")
    figure.suptitle(
        f"{run.recipe.data}, {run.recipe.model}: confidence before and after temperature scaling",
        fontsize="medium",
    )
    axes = figure.subplots(2, columns, squeeze=False)
    for line, places in zip(axes, chosen, strict=True):
        for ax in line:
            ax.set_axis_off()
        for ax, place in zip(line, places, strict=False):
            image = pixels(data, run.test.ids[place])
            ax.imshow(image, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
            words = [f"true: {data.class_names[run.test.labels[place]]}"]
            for loss, each in answers.items():
                said = data.class_names[each.predicted[place]]
                before, after = (each.confidence[stage][place] for stage in STAGES)
                words.append(f"{title(loss)}: {said}\n    {before:.4f}, after T {after:.4f}")
            ax.text(
                0.0, -0.04, "\n".join(words), transform=ax.transAxes, va="top", fontsize="small"
            )
    return figure


@cache
def load_once(name: str, folder: str | None, seed: int, limit: int | None) -> DataSet:
    """The data set of the runs, cached: two networks share it."""
    return load(name, folder, random_state=seed, limit=limit)


def pixels(data: DataSet, name: str) -> Floats:
    """One test image with values from 0 to 1, for matplotlib."""
    (place,) = np.flatnonzero(data.test.ids == name)
    inputs, _ = data.test.batch(torch.tensor([place]))
    scale = data.record["normalisation"]
    mean, sd = (np.array(scale[what])[:, None, None] for what in ("mean", "sd"))
    image = (inputs[0].numpy() * sd + mean) / BRIGHTEST.get(data.name, 255.0)
    shown: Floats = np.clip(np.moveaxis(image, 0, -1), 0.0, 1.0)
    return shown
