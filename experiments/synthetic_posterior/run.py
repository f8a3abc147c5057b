"""Charoenphakdee et al. (2021), Fig. 3: raw outputs, temperature scaling and the map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import calibrant
from calibrant.metrics import kl_to_posterior
from experiments.results import Result
from experiments.synthetic_posterior.data import Floats, Normals
from experiments.synthetic_posterior.drawing import Panel, draw
from experiments.synthetic_posterior.training import logits_of, train
from experiments.tables import Table

SHOWN = np.linspace(-5.0, 5.0, 401)
"""Inputs of the pictures."""


def run(parameters: Mapping[str, Any]) -> Result:
    """Train every loss with every seed; measure its outputs raw, scaled and mapped."""
    torch.set_num_threads(1)
    data = Normals(parameters["means"])
    found: dict[tuple[float, str], list[tuple[float, ...]]] = {}
    panels: list[Panel] = []
    for seed in parameters["seeds"]:
        rng = np.random.default_rng(seed)
        (x, y), (x_val, y_val), (x_test, y_test) = (
            data.draw(parameters[part], rng) for part in ("n_train", "n_validation", "n_test")
        )
        truth = data.posterior(x_test)
        for gamma in parameters["gammas"]:
            network = train(x, y, gamma=gamma, seed=seed, parameters=parameters)
            scaled = calibrant.TemperatureScaling(criterion="nll")
            scaled.fit(logits_of(network, x_val), y_val)
            logits = logits_of(network, x_test)
            for way, calibrator in ways(gamma, scaled).items():
                probs = calibrator(logits)
                numbers = (
                    100 * calibrant.error_rate(probs, y_test),
                    kl_to_posterior(probs, truth),
                    100 * calibrant.ece(probs, y_test, n_bins=parameters["n_bins"]),
                    100 * float((probs.argmax(1) != truth.argmax(1)).mean()),
                    100 * float((probs.max(1) < truth.max(1)).mean()),
                )
                found.setdefault((gamma, way), []).append(numbers)
                if seed == parameters["seeds"][0]:
                    shown = calibrator(logits_of(network, SHOWN))
                    panels.append(Panel(gamma, way, shown, *numbers[:3]))
    picture = draw(data, SHOWN, panels)
    tables = {"synthetic": table(found, len(parameters["seeds"]))}
    return Result(values(found), tables, {"synthetic-posterior": picture})


def ways(
    gamma: float, scaled: calibrant.TemperatureScaling
) -> dict[str, Callable[[Floats], Floats]]:
    """Outputs raw, scaled and mapped; for cross-entropy the paper shows only the raw ones."""

    def raw(logits: Floats) -> Floats:
        return np.asarray(np.exp(calibrant.focal.focal_log_probs(logits, gamma=0.0)))

    def mapped(logits: Floats) -> Floats:
        return np.asarray(np.exp(calibrant.focal.focal_log_probs(logits, gamma=gamma)))

    if gamma == 0.0:
        return {"raw": raw}
    return {"raw": raw, "temperature": scaled.predict_proba, "map": mapped}


def values(found: Mapping[tuple[float, str], list[tuple[float, ...]]]) -> dict[str, float]:
    """Means over the seeds, and in how many runs the paper's order does not hold."""
    named: dict[str, float] = {}
    for (gamma, way), runs in found.items():
        error, kl, ece, undecided, under = np.mean(runs, axis=0)
        who = f"gamma {gamma:g}, {way}" if gamma else "cross-entropy"
        if way == "raw":
            named[f"ERR %, {who}"] = error
            named[f"decisions that are not the best, %, {who}"] = undecided
            named[f"inputs with confidence below the truth, %, {who}"] = under
        named[f"KLD, {who}"] = kl
        named[f"ECE %, {who}"] = ece
    gammas = sorted({gamma for gamma, _ in found if gamma})
    raw = [np.array(found[gamma, "raw"]) for gamma in (0.0, *gammas)]
    named["runs whose KLD or ECE does not grow with gamma"] = sum(
        int((after[:, 1:3] <= before[:, 1:3]).any(axis=1).sum()) for before, after in pairwise(raw)
    )
    for what, column in (("KLD", 1), ("ECE", 2)):
        named[f"runs whose {what} is not smaller after the map than after a temperature"] = sum(
            mapped[column] >= scaled[column]
            for gamma in gammas
            for mapped, scaled in zip(found[gamma, "map"], found[gamma, "temperature"], strict=True)
        )
    return named


def table(found: Mapping[tuple[float, str], list[tuple[float, ...]]], n_seeds: int) -> Table:
    """Each panel of the figure: mean and standard deviation over the seeds."""
    rows = []
    for (gamma, way), runs in found.items():
        mean, spread = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1)
        digits = (2, 4, 2, 2, 1)
        cells = [f"{m:.{d}f} ± {s:.{d}f}" for m, s, d in zip(mean, spread, digits, strict=True)]
        rows.append([f"{gamma:g}", way, *cells])
    head = ["gamma", "", "ERR %", "KLD", "ECE %", "not the best decision %", "below the truth %"]
    return Table(f"Mean and standard deviation of {n_seeds} seeds", head, rows)
