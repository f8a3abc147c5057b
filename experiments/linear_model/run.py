"""Mukhoti et al. (2020), App. G, Figs 5 and 6: norms, and the confidence of mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import calibrant
from experiments.linear_model.clusters import Clusters, Run, train
from experiments.linear_model.drawing import draw_mistakes, draw_norms
from experiments.results import Result
from experiments.tables import Table

HEAD = [
    "loss",
    "norm of weights",
    "direction, degrees",
    "error %",
    "confidence of mistakes: mean",
    "above 0.9, %",
    "ECE %",
    "after the map",
]


def run(parameters: Mapping[str, Any]) -> Result:
    """Train both losses on clusters that are near and on clusters that are far."""
    torch.set_num_threads(1)
    values: dict[str, float] = {}
    tables: dict[str, Table] = {}
    runs: dict[str, dict[str, Run]] = {}
    for name in ("near", "far"):
        clusters = Clusters(**parameters[name])
        runs[name] = {
            loss: train(gamma, parameters["n_iterations"], clusters, parameters["step"])
            for loss, gamma in parameters["gammas"].items()
        }
        title = (
            f"Clusters at ±{clusters.corner:g} of width {clusters.width:g}, "
            f"{100 * clusters.flipped:g}% of labels flipped"
        )
        rows = [[loss, *map(_cell, measured(each))] for loss, each in runs[name].items()]
        tables[name] = Table(title, HEAD, rows)
        values |= {f"{name}: {what}": found for what, found in compared(runs[name]).items()}
    pictures = {
        "linear-model-norms": draw_norms(runs["near"]),
        "linear-model-mistakes": draw_mistakes(runs["near"]),
    }
    return Result(values, tables, pictures)


def measured(run: Run) -> list[float]:
    """One row of the table: a number for each column after the first."""
    final, mistakes = run.weights[-1], run.confidence[run.wrong]
    return [
        float(np.linalg.norm(final)),
        float(np.degrees(np.arctan2(final[1], final[0]))),
        100 * float(run.wrong.mean()),
        float(mistakes.mean()),
        100 * float((mistakes > 0.9).mean()),
        100 * calibrant.ece(run.probs, run.labels),
        100 * calibrant.ece(run.mapped, run.labels),
    ]


def compared(runs: Mapping[str, Run]) -> dict[str, float]:
    """The paper's statements about the two losses, as numbers."""
    plain, focal = runs.values()
    norm, direction, error, sure, above, ece, _ = measured(plain)
    focal_norm, focal_direction, _, focal_sure, focal_above, focal_ece, mapped = measured(focal)
    return {
        "norm of the weights, cross-entropy": norm,
        "norm of the weights, focal loss": focal_norm,
        "degrees between the directions": abs(direction - focal_direction),
        "test samples decided differently": int((plain.wrong != focal.wrong).sum()),
        "error %, cross-entropy": error,
        "mean confidence of mistakes, cross-entropy": sure,
        "mean confidence of mistakes, focal loss": focal_sure,
        "mistakes above 90% confidence, %, cross-entropy": above,
        "mistakes above 90% confidence, %, focal loss": focal_above,
        "ECE %, cross-entropy": ece,
        "ECE %, focal loss": focal_ece,
        "ECE %, focal loss after the map": mapped,
    }


def _cell(number: float) -> str:
    return f"{number:.3f}"
