"""Mukhoti et al. (2020), Fig. 4a and Fig. 7: the gradient factor, and the optimal output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from calibrant.focal import (
    confidence_thresholds,
    focal_map,
    gamma_for_threshold,
    inverse_focal_map,
    phi,
)
from calibrant.plots.palette import GUIDE, look
from experiments.gradient_factor import claims
from experiments.results import Result
from experiments.tables import Table

DASHES = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))

Floats = npt.NDArray[np.float64]


def run(parameters: Mapping[str, Any]) -> Result:
    """The numbers behind both figures, and a search for exceptions to the paper's statements."""
    gammas, n = parameters["gammas"], parameters["n_probabilities"]
    rng = np.random.default_rng(parameters["seed"])
    random = [
        {"n_classes": k, "n": parameters["n_random"], "rng": rng} for k in parameters["n_classes"]
    ]
    p0s = np.linspace(
        parameters["lowest_threshold"], parameters["highest_threshold"], parameters["n_thresholds"]
    )
    solved = np.array([gamma_for_threshold(p0) for p0 in p0s])
    _, crossing = confidence_thresholds(gamma=5.0)
    values = {
        "Prop. 1: largest relative difference of focal gradient and factor times gradient": max(
            claims.gradients_apart(gammas, **each) for each in random
        ),
        "g(0.19, 5)": float(phi(np.float64(0.19), gamma=5.0)),
        "p with g(p, 5) = 1": crossing,
        "g(0.5, 7)": float(phi(np.float64(0.5), gamma=7.0)),
        "Prop. 2: gamma for p0 = 0.19": gamma_for_threshold(0.19),
        "Prop. 2: gamma for p0 = 0.2": gamma_for_threshold(0.2),
        "Prop. 2: gamma for p0 = 0.25": gamma_for_threshold(0.25),
        "Prop. 2: largest relative difference of the closed form and the solved equation": float(
            np.abs(claims.closed_form(p0s, -1) / solved - 1.0).max()
        ),
        "Prop. 2: largest |gamma| by the other branch, p0 < 0.5": float(
            np.abs(claims.closed_form(p0s, 0)).max()
        ),
        "Prop. 2: argument of W at p0 = 0.5": float(claims.argument_of_w(np.array([0.5]))[0]),
        "Prop. 2: exceptions to g < 1 for p >= p0, gamma >= gamma*": claims.not_held_back(
            p0s, parameters["multiples"], n
        ),
        "Prop. 2: exceptions to g > 1 for p < p0, gamma = gamma*": claims.not_pulled_harder(p0s, n),
        "Fig. 7: truths whose focal optimum has no more entropy": claims.less_entropy(gammas, n),
        "App. H: exceptions to FL >= CE - gamma H(q)": sum(
            claims.below_the_bound(gammas, **each) for each in random
        ),
    }
    for gamma in gammas:
        (said,) = optimal_output(np.array([0.9]), gamma)
        values[f"Fig. 7: optimal output for p = 0.9, gamma {gamma:g}"] = said
    pictures = {"gradient-factor": draw_factor(gammas), "optimal-output": draw_optimum(gammas)}
    notes = [
        f"Prop. 2 was looked at for {len(p0s)} thresholds from {p0s[0]:g} to {p0s[-1]:g}, "
        f"{len(parameters['multiples'])} gammas and {n} probabilities each; "
        f"Fig. 7 for {n} truths and {len(gammas)} gammas; Prop. 1 and "
        f"App. H for {parameters['n_random']} random cases of each gamma and each of "
        f"{', '.join(map(str, parameters['n_classes']))} classes."
    ]
    return Result(values, {"factor": table(gammas)}, pictures, notes)


def factor(p: Floats, gamma: float) -> Floats:
    """The focal gradient at ``p`` as a multiple of that of cross-entropy."""
    return np.asarray(phi(p, gamma=gamma))


def optimal_output(p: Floats, gamma: float) -> Floats:
    """The focal optimum of two classes if the truth is ``p``."""
    return np.asarray(inverse_focal_map(np.stack([p, 1.0 - p], axis=-1), gamma=gamma)[..., 0])


def draw_factor(gammas: Sequence[float]) -> Figure:
    """Fig. 4a: the factor over the probability of the true class."""
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    ax = figure.subplots()
    p = np.linspace(0.0, 1.0, 201)
    ax.axhline(1.0, **GUIDE)
    ax.text(0.6, 1.01, "cross-entropy", color="0.4", ha="center", va="bottom")
    for i, gamma in enumerate(gammas):
        ax.plot(p, factor(p, gamma), **_style(i, gamma))
    ax.set(xlabel="probability $p$ of the true class", xlim=(0.0, 1.0), ylim=(0.0, 1.6))
    ax.set_ylabel(r"$\varphi(p)$ = gradient, focal / cross-entropy")
    ax.legend(frameon=False, loc="upper right")
    return figure


def draw_optimum(gammas: Sequence[float]) -> Figure:
    """Fig. 7: the optimal output over the true probability, for two classes."""
    figure = Figure(figsize=(4.2, 4.0), layout="constrained")
    ax = figure.subplots()
    # By the output and not by the truth: the curves are steep at both ends.
    q = np.linspace(0.0, 1.0, 201)
    outputs = np.stack([q, 1.0 - q], axis=-1)
    ax.plot(q, q, **GUIDE, label="cross-entropy")
    for i, gamma in enumerate(gammas):
        p = np.asarray(focal_map(outputs, gamma=gamma))[:, 0]
        ax.plot(p, q, **_style(i, gamma))
    ax.set(xlabel="true probability $p$", ylabel="output $q$ with the smallest expected loss")
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
    ax.legend(frameon=False)
    return figure


def _style(i: int, gamma: float) -> dict[str, Any]:
    """Style of curve ``i``; dots of the usual width would be faint."""
    label = rf"$\gamma$ = {gamma:g}"
    return {"color": look(i).color, "linestyle": DASHES[i], "linewidth": 1.8, "label": label}


def table(gammas: Sequence[float]) -> Table:
    """The figures behind the pictures."""
    head = ["gamma", "phi is largest at p", "phi = 1 at p", "phi(0.5)", "phi(0.9)", "q for p = 0.9"]
    cells = []
    for gamma in gammas:
        peak, crossing = confidence_thresholds(gamma=gamma)
        half, sure = factor(np.array([0.5, 0.9]), gamma)
        (said,) = optimal_output(np.array([0.9]), gamma)
        numbers = (peak, crossing, half, sure, said)
        cells.append([f"{gamma:g}", *(f"{number:.4f}" for number in numbers)])
    return Table("The gradient factor phi and the optimal output q", head, cells)
