"""Charoenphakdee et al. (2021): the minimiser of the focal risk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from calibrant.focal import focal_log_probs, focal_map, inverse_focal_map
from experiments.focal_minimiser.minimising import expected_loss, minimise
from experiments.results import Result
from experiments.tables import Table

Floats = npt.NDArray[np.float64]


def run(parameters: Mapping[str, Any]) -> Result:
    """The example of the slides, and a search for exceptions to the theorems."""
    torch.set_num_threads(1)
    example, table = slides(parameters["truth"], parameters["shown_gammas"])
    values = {**example, **searched(parameters), **recovered(parameters)}
    classes, few = (
        ", ".join(map(str, parameters[key])) for key in ("n_classes", "minimised_classes")
    )
    notes = [
        f"Searched: {len(parameters['gammas'])} gammas from {min(parameters['gammas']):g} to "
        f"{max(parameters['gammas']):g}, random posteriors of {classes} classes, "
        f"{parameters['n_numbers']} numbers each.",
        f"Thm 11: {parameters['n_minimised']} random posteriors for each of {few} classes and "
        f"{len(parameters['minimised_gammas'])} gammas.",
    ]
    return Result(values, {"slides": table}, notes=notes)


def slides(truth: float, gammas: list[float]) -> tuple[dict[str, float], Table]:
    """Two classes: the focal optimum, and its value after the map."""
    posterior = np.array([truth, 1.0 - truth])
    values, rows = {}, []
    for gamma in gammas:
        output = np.asarray(inverse_focal_map(posterior, gamma=gamma))
        back = np.asarray(focal_map(output, gamma=gamma))
        values[f"output for a truth of {truth:g}, gamma {gamma:g}"] = output[0]
        values[f"the map of that output, gamma {gamma:g}"] = back[0]
        rows.append([f"{gamma:g}", f"{output[0]:.4f}", f"{back[0]:.4f}"])
    # The slides round one of them the other way.
    one = np.asarray(focal_map(np.array([0.78, 0.22]), gamma=1.0))
    values["the map of 0.78, gamma 1"] = one[0]
    title = f"Two classes of probabilities {truth:g} and {1 - truth:.1f}"
    return values, Table(title, ["gamma", "output", "after the map"], rows)


def searched(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Theorems 3 and 5, Propositions 6 and 12: number of exceptions."""
    rng = np.random.default_rng(parameters["seed"])
    order, proper, decision, apart, same = 0, 0, 0, 0.0, 0.0
    for n_classes in parameters["n_classes"]:
        truth = posteriors(parameters["n_numbers"] // n_classes, n_classes, rng)
        same = max(
            same, float(np.abs(np.asarray(inverse_focal_map(truth, gamma=0.0)) - truth).max())
        )
        flat = uniform_over_some(n_classes)
        for gamma in parameters["gammas"]:
            output = np.asarray(inverse_focal_map(truth, gamma=gamma))
            order += out_of_order(truth, output)
            at_truth, least = (expected_loss(q, truth, gamma) for q in (truth, output))
            proper += int((at_truth <= least).sum())
            mapped = np.asarray(focal_map(truth, gamma=gamma))
            decision += int((mapped.argmax(axis=1) != truth.argmax(axis=1)).sum())
            moved = np.asarray(inverse_focal_map(flat, gamma=gamma)) - flat
            apart = max(apart, float(np.abs(moved).max()))
    return {
        "Thm 3: pairs of classes out of order": order,
        "Thm 5: posteriors with no smaller loss elsewhere, gamma > 0": proper,
        "Thm 5: largest difference of minimiser and posterior, gamma = 0": same,
        "Prop. 6: largest difference where some classes are equal and the others 0": apart,
        "Prop. 12: outputs whose decision the map changes": decision,
    }


def recovered(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Theorem 11: minimise the loss by gradient descent and apply the map."""
    rng = np.random.default_rng(parameters["seed"])
    back, other = 0.0, np.inf
    for n_classes in parameters["minimised_classes"]:
        truth = rng.dirichlet(np.ones(n_classes), size=parameters["n_minimised"])
        for gamma in parameters["minimised_gammas"]:
            logits = minimise(truth, gamma)
            mapped, plain = (
                np.exp(np.asarray(focal_log_probs(logits, gamma=g))) for g in (gamma, 0.0)
            )
            back = max(back, float(np.abs(mapped - truth).max()))
            other = min(other, float(np.abs(plain - truth).max()))
    return {
        "Thm 11: largest difference of posterior and map of the minimiser": back,
        "the same without the map, smallest over classes and gammas": other,
    }


def posteriors(n: int, n_classes: int, rng: np.random.Generator) -> Floats:
    """Random rows from nearly one-hot to nearly flat, with every class possible."""
    spread = 10.0 ** rng.uniform(-0.5, 1.5, size=(n, 1))
    drawn = np.maximum(rng.gamma(spread, size=(n, n_classes)), 1e-12)
    return np.asarray(drawn / drawn.sum(axis=1, keepdims=True))


def uniform_over_some(n_classes: int) -> Floats:
    """For each number of possible classes, the row in which they are equal."""
    lower = np.tri(n_classes)
    return np.asarray(lower / lower.sum(axis=1, keepdims=True))


def out_of_order(truth: Floats, output: Floats) -> int:
    """Number of adjacent classes whose order in the output differs from the truth."""
    by_truth = np.argsort(truth, axis=1)
    steps, said = (
        np.diff(np.take_along_axis(each, by_truth, axis=1), axis=1) for each in (truth, output)
    )
    # Closer than that, both are the same number to rounding.
    apart = steps > 1e-12
    return int((said[apart] <= 0.0).sum())
