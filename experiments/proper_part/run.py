"""Sec. 3.1, Props 1 and 2, Fig. 1: the focal optimum, the map and the proper part of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from calibrant.focal import (
    focal_log_probs,
    focal_loss,
    focal_map,
    inverse_focal_map,
    phi,
    proper_focal_loss,
)
from calibrant.plots.palette import GUIDE, look
from experiments.results import Result
from experiments.tables import Table

Floats = npt.NDArray[np.float64]
LOSSES_SHOWN = (0.5, 3.0)
MAPS_SHOWN = (-0.5, 0.5, 1.0, 3.0, 10.0)


def run(parameters: Mapping[str, Any]) -> Result:
    """Check every statement on a grid of probabilities, and draw Fig. 1."""
    truth, parts = parameters["positives"], parameters["parts"]
    p = np.arange(1, parts) / parts
    rows = np.stack([p, 1.0 - p], axis=-1)
    values: dict[str, float] = {}

    # Sec. 3.1: 80 of 100 samples are positive; what should a model say?
    said = minimiser(truth, parameters["example_gamma"])
    values["prediction with the smallest focal loss, 80 % positive, gamma 2"] = said
    values["prediction with the smallest cross-entropy, 80 % positive"] = minimiser(truth, 0.0)
    grid = parameters["example_gammas"]
    gammas = np.geomspace(grid["smallest"], grid["largest"], grid["count"])
    predictions = np.array([optimum(truth, gamma) for gamma in gammas])
    values["largest prediction, gammas from 0.001 to 100000"] = predictions[0]
    values["smallest prediction, gammas from 0.001 to 100000"] = predictions[-1]
    values["gammas at which the prediction does not fall"] = count(np.diff(predictions) >= 0.0)

    not_convex = wrong_side = not_rising = not_proper = loss_wrong_side = 0
    difference = 0.0
    for gamma in parameters["gammas"]:
        # Prop. 1: the slope of the loss is -phi(p)/p, and convex means that it rises.
        not_convex += count(np.diff(np.asarray(phi(p, gamma=gamma)) / p) >= 0.0)
        # Prop. 2: the map as printed, that it is a bijection, and on which side it lies.
        mapped = np.asarray(focal_map(rows, gamma=gamma))[:, 0]
        difference = max(difference, float(np.abs(mapped - printed_map(p, gamma)).max()))
        not_rising += count(np.diff(log_odds(rows, gamma)) <= 0.0)
        wrong_side += count((mapped - p)[p > 0.5] <= 0.0)
        # Prop. 2: the expected loss at every truth is smallest where the prediction is the truth.
        positive = np.asarray(proper_focal_loss(rows, np.zeros(len(p), int), gamma=gamma))
        risk = p[:, None] * positive + (1.0 - p[:, None]) * positive[::-1]
        not_proper += count(risk.argmin(axis=1) != np.arange(len(p)))
        # Fig. 1, left: lower than the focal loss below 1/2, higher above.
        plain = np.asarray(focal_loss(np.log(rows), np.zeros(len(p), int), gamma=gamma))
        loss_wrong_side += count(np.sign(positive - plain)[p != 0.5] != side(p))
    values["steps at which the slope of the loss does not rise (Prop. 1)"] = not_convex
    values["largest difference between the printed map and focal_map (Prop. 2)"] = difference
    values["steps at which the map does not rise (Prop. 2)"] = not_rising
    values["truths at which the proper part is not smallest (Prop. 2)"] = not_proper
    values["probabilities above 1/2 that the map does not raise, gamma > 0"] = wrong_side
    values["probabilities at which the proper part is on the wrong side of the focal loss"] = (
        loss_wrong_side
    )

    rows_of_table = []
    for gamma in parameters["negative_gammas"]:
        mapped = np.asarray(focal_map(rows, gamma=gamma))[:, 0]
        raised = count((mapped - p)[p > 0.5] >= 0.0)
        falls = count(np.diff(log_odds(rows, gamma)) <= 0.0)
        values[f"probabilities above 1/2 that the map does not lower, gamma {gamma:g}"] = raised
        rows_of_table.append([f"{gamma:g}", str(raised), str(falls)])
    head = ["gamma", "does not lower", "steps down"]
    title = f"The map with a negative gamma, probabilities in steps of 1/{parts}"
    tables = {"negative-gammas": Table(title, head, rows_of_table)}
    return Result(values, tables, {"proper-part": draw(p)})


def count(found: npt.NDArray[np.bool_]) -> int:
    """The number of true values."""
    return int(np.count_nonzero(found))


def minimiser(truth: float, gamma: float) -> float:
    """The prediction with the smallest expected loss, by search."""

    def expected(prediction: float) -> float:
        logits = np.log([[prediction, 1.0 - prediction]] * 2)
        positive, negative = focal_loss(logits, np.array([0, 1]), gamma=gamma)
        return float(truth * positive + (1.0 - truth) * negative)

    found = minimize_scalar(
        expected, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-10}
    )
    return float(found.x)


def optimum(truth: float, gamma: float) -> float:
    """The same from the inverse of the map."""
    return float(inverse_focal_map(np.array([truth, 1.0 - truth]), gamma=gamma)[0])


def printed_map(q: Floats, gamma: float) -> Floats:
    """The map of Prop. 2 for two classes, as in the paper."""
    ratio = ((1.0 - q) - gamma * q * np.log(q)) / (q - gamma * (1.0 - q) * np.log(1.0 - q))
    return np.asarray(1.0 / (1.0 + ((1.0 - q) / q) ** gamma * ratio))


def log_odds(rows: Floats, gamma: float) -> Floats:
    """Log-odds of the map of two classes; they stay precise where the map is 1."""
    log_probs = np.asarray(focal_log_probs(np.log(rows), gamma=gamma))
    return np.asarray(log_probs[:, 0] - log_probs[:, 1])


def side(p: Floats) -> Floats:
    """-1 for probabilities below 1/2 and 1 for those above, without 1/2 itself."""
    return np.asarray(np.sign(p[p != 0.5] - 0.5))


def draw(p: Floats) -> Figure:
    """Fig. 1: losses of a positive sample, and the map."""
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    rows, positive = np.stack([p, 1.0 - p], axis=-1), np.zeros(len(p), int)
    left.plot(p, -np.log(p), **GUIDE, label="cross-entropy")
    for i, gamma in enumerate(LOSSES_SHOWN):
        plain = focal_loss(np.log(rows), positive, gamma=gamma)
        proper = proper_focal_loss(rows, positive, gamma=gamma)
        color = look(i).color
        left.plot(p, plain, "--", color=color, label=rf"focal, $\gamma$ = {gamma:g}")
        left.plot(p, proper, color=color, label=rf"its proper part, $\gamma$ = {gamma:g}")
    left.set(xlabel="probability of the true class", ylabel="loss", xlim=(0.0, 1.0))
    left.set_ylim(0.0, 3.0)
    left.legend(frameon=False)
    right.plot([0.0, 1.0], [0.0, 1.0], **GUIDE, label=r"$\gamma$ = 0")
    for i, gamma in enumerate(MAPS_SHOWN):
        mapped = np.asarray(focal_map(rows, gamma=gamma))[:, 0]
        style = look(i)
        label = rf"$\gamma$ = {gamma:g}"
        right.plot(p, mapped, style.linestyle, color=style.color, label=label)
    right.set(xlabel="probability before the map", ylabel="probability after the map")
    right.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
    right.legend(frameon=False)
    return figure
