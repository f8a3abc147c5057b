"""Mukhoti et al. (2020), Fig. 4a and Fig. 7: the gradient factor, and the optimal output."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from calibrant.focal import confidence_thresholds, focal_map, inverse_focal_map, phi
from calibrant.plots.palette import GUIDE, look
from experiments.pictures import save
from experiments.tables import markdown

OUT = Path("out/gradient-factor")
GAMMAS = (1.0, 2.0, 3.0, 5.0, 7.0)
DASHES = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))

Floats = npt.NDArray[np.float64]


def factor(p: Floats, gamma: float) -> Floats:
    """The focal gradient at ``p`` as a multiple of that of cross-entropy."""
    return np.asarray(phi(p, gamma=gamma))


def optimal_output(p: Floats, gamma: float) -> Floats:
    """What the focal loss wants a model of two classes to say where the truth is ``p``."""
    return np.asarray(inverse_focal_map(np.stack([p, 1.0 - p], axis=-1), gamma=gamma)[..., 0])


def draw_factor() -> Figure:
    """Fig. 4a: the factor over the probability of the true class."""
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    ax = figure.subplots()
    p = np.linspace(0.0, 1.0, 201)
    ax.axhline(1.0, **GUIDE)
    ax.text(0.6, 1.01, "cross-entropy", color="0.4", ha="center", va="bottom")
    for i, gamma in enumerate(GAMMAS):
        ax.plot(p, factor(p, gamma), **_style(i))
    ax.set(xlabel="probability $p$ of the true class", xlim=(0.0, 1.0), ylim=(0.0, 1.6))
    ax.set_ylabel(r"$\varphi(p)$ = gradient, focal / cross-entropy")
    ax.legend(frameon=False, loc="upper right")
    return figure


def draw_optimum() -> Figure:
    """Fig. 7: the optimal output over the true probability, for two classes."""
    figure = Figure(figsize=(4.2, 4.0), layout="constrained")
    ax = figure.subplots()
    # By the output and not by the truth: the curves are steep at both ends.
    q = np.linspace(0.0, 1.0, 201)
    outputs = np.stack([q, 1.0 - q], axis=-1)
    ax.plot(q, q, **GUIDE, label="cross-entropy")
    for i, gamma in enumerate(GAMMAS):
        p = np.asarray(focal_map(outputs, gamma=gamma))[:, 0]
        ax.plot(p, q, **_style(i))
    ax.set(xlabel="true probability $p$", ylabel="output $q$ with the smallest expected loss")
    ax.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), aspect="equal")
    ax.legend(frameon=False)
    return figure


def _style(i: int) -> dict[str, Any]:
    """Of the curve of gamma number ``i``; dots of the usual width would be faint."""
    label = rf"$\gamma$ = {GAMMAS[i]:g}"
    return {"color": look(i).color, "linestyle": DASHES[i], "linewidth": 1.8, "label": label}


def table() -> str:
    """The figures behind the pictures."""
    head = ["gamma", "phi is largest at p", "phi = 1 at p", "phi(0.5)", "phi(0.9)", "q for p = 0.9"]
    cells = []
    for gamma in GAMMAS:
        peak, crossing = confidence_thresholds(gamma=gamma)
        half, sure = factor(np.array([0.5, 0.9]), gamma)
        (said,) = optimal_output(np.array([0.9]), gamma)
        numbers = (peak, crossing, half, sure, said)
        cells.append([f"{gamma:g}", *(f"{number:.4f}" for number in numbers)])
    return markdown(head, cells)


def main(argv: list[str] | None = None) -> None:
    """Print the table and draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="where the pictures go")
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    arguments = parser.parse_args(argv)
    print(table())
    save(draw_factor(), arguments.out / f"gradient-factor.{arguments.format}")
    save(draw_optimum(), arguments.out / f"optimal-output.{arguments.format}")


if __name__ == "__main__":
    main()
