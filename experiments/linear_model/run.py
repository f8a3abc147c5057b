"""Mukhoti et al. (2020), App. G, Figs 5 and 6: norms, and the confidence of mistakes."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, NullLocator
from torch import Tensor

import calibrant
from calibrant.losses import SigmoidFocalLoss
from calibrant.plots.palette import INK, look
from experiments.pictures import save
from experiments.tables import markdown

OUT = Path("out/linear-model")
GAMMAS = {"cross-entropy": 0.0, "focal loss": 1.0}
N_SAMPLES = 2000
WIDTH = 0.5
FLIPPED = 0.1
STEP = 0.1
N_RECORDED = 100
N_SHOWN = 120
"""Points in the pictures, which would be large with all of them."""

LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Probabilities between which the bands of the pictures lie."""
EXTENT = 2.6

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """One loss: the way of its weights, and what it says of the test set."""

    gamma: float
    iterations: npt.NDArray[np.int64]
    weights: Floats
    """(recorded, 2)."""
    logits: Floats
    labels: npt.NDArray[np.int64]

    @property
    def confidence(self) -> Floats:
        """That of the predicted class."""
        return np.asarray(1.0 / (1.0 + np.exp(-np.abs(self.logits))))

    @property
    def wrong(self) -> npt.NDArray[np.bool_]:
        """Where the prediction is not the label."""
        return np.asarray((self.logits > 0) != self.labels.astype(bool))

    @property
    def probs(self) -> Floats:
        """Of both classes."""
        return np.asarray(torch.softmax(self._two_logits(), -1).numpy())

    @property
    def mapped(self) -> Floats:
        """Those after the focal map of this gamma."""
        return np.asarray(
            calibrant.focal.focal_log_probs(self._two_logits(), gamma=self.gamma).exp()
        )

    def _two_logits(self) -> Tensor:
        return torch.tensor(np.stack([np.zeros_like(self.logits), self.logits], axis=-1))


def draw_samples(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Points of the four clusters, and labels of which a tenth is flipped."""
    corners = rng.choice([-1.0, 1.0], size=(N_SAMPLES, 2))
    points = corners + WIDTH * rng.normal(size=corners.shape)
    labels = (corners[:, 0] > 0) ^ (rng.random(N_SAMPLES) < FLIPPED)
    return torch.tensor(points), torch.tensor(labels.astype(np.int64))


def train(gamma: float, n_iterations: int) -> Run:
    """Gradient descent on all samples, from weights of 0."""
    rng = np.random.default_rng(0)
    (points, labels), (test, test_labels) = draw_samples(rng), draw_samples(rng)
    loss = SigmoidFocalLoss(gamma=gamma)
    weights = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    kept = set(np.unique(np.geomspace(1, n_iterations, N_RECORDED).astype(int)).tolist())
    recorded = {0: np.zeros(2)}
    for i in range(1, n_iterations + 1):
        (gradient,) = torch.autograd.grad(loss(points @ weights, labels), weights)
        with torch.no_grad():
            weights -= STEP * gradient
        if i in kept:
            recorded[i] = weights.detach().numpy().copy()
    return Run(
        gamma,
        np.array(list(recorded)),
        np.array(list(recorded.values())),
        (test @ weights).detach().numpy(),
        test_labels.numpy(),
    )


def draw_norms(runs: dict[str, Run], points: Floats) -> Figure:
    """Fig. 5: norms of logits and weights by iteration."""
    figure = Figure(figsize=(7.6, 3.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, (name, run) in enumerate(runs.items()):
        color, linestyle, _ = look(i)
        style: dict[str, Any] = {"color": color, "linestyle": linestyle, "label": name}
        logits = points @ run.weights.T
        left.plot(run.iterations, np.sqrt((logits**2).mean(axis=0)), **style)
        right.plot(run.iterations, np.linalg.norm(run.weights, axis=1), **style)
        last = int(run.iterations[-1])
    for ax, what in ((left, "logits, root mean square"), (right, "norm of the weights")):
        ax.set_title(what, fontsize="medium")
        ax.set(xlabel="iteration", xscale="log", xlim=(1, last), ylim=(0.0, None))
        ticks = [1, 10, 100, 1000, last]
        ax.set_xticks(ticks, [str(tick) for tick in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_locator(MultipleLocator(0.5))
    left.legend(frameon=False)
    return figure


def draw_mistakes(runs: dict[str, Run], points: Floats) -> Figure:
    """Fig. 6: the confidence of mistakes, and where each model decides."""
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    first, *others = figure.subplots(1, 1 + len(runs))
    bins = np.linspace(0.5, 1.0, 11)
    for i, (name, run) in enumerate(runs.items()):
        color, linestyle, _ = look(i)
        mistakes = run.confidence[run.wrong]
        style: dict[str, Any] = {"color": color, "linestyle": linestyle, "label": name}
        first.hist(mistakes, bins=bins, histtype="step", linewidth=1.8, **style)
    first.set_title("mistakes on the test set", fontsize="medium")
    first.set(xlabel="confidence", ylabel="samples", xlim=(0.5, 1.0), box_aspect=1.0)
    figure.legend(frameon=False, loc="outside lower left", ncols=2)
    for ax, (name, run) in zip(others, runs.items(), strict=True):
        bands = _draw_decisions(ax, run, points[:N_SHOWN])
        ax.set_title(name, fontsize="medium")
    others[0].set_ylabel("$x_2$")
    others[1].tick_params(labelleft=False)
    where: dict[str, Any] = {"ax": others, "spacing": "uniform", "shrink": 0.82}
    key = figure.colorbar(bands, label="probability of label 1", **where)
    key.set_ticks(list(key.get_ticks()), labels=[f"{level:g}" for level in LEVELS])
    handles, labels = others[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower right", ncols=2)
    return figure


def _draw_decisions(ax: Axes, run: Run, points: Floats) -> Any:
    """What a model says in the plane, and the test samples; returns the bands."""
    corners = np.array([-EXTENT, EXTENT])
    x, y = np.meshgrid(corners, corners)
    # Lines of equal logit are straight, so that four corners give them exactly.
    logits = run.weights[-1][0] * x + run.weights[-1][1] * y
    inner = np.log(LEVELS[1:-1]) - np.log1p(-np.array(LEVELS[1:-1]))
    levels = [-1e3, *inner, 1e3]
    shades = colormaps["RdBu"](np.linspace(0.3, 0.7, len(levels) - 1))
    bands = ax.contourf(x, y, logits, levels=levels, colors=shades)
    ax.contour(x, y, logits, levels=[0.0], colors=INK, linestyles="--", linewidths=1.0)
    for label, color, marker in ((0, "#7f1d1d", "o"), (1, INK, "^")):
        shown = points[run.labels[: len(points)] == label]
        style: dict[str, Any] = {"color": color, "markersize": 3.5, "markeredgewidth": 0.0}
        ax.plot(*shown.T, marker, label=f"label {label}", **style)
    ax.set(xlim=(-EXTENT, EXTENT), ylim=(-EXTENT, EXTENT), xlabel="$x_1$", box_aspect=1.0)
    return bands


def table(runs: dict[str, Run]) -> str:
    """The figures behind the pictures."""
    head = [
        "loss",
        "norm of weights",
        "direction, degrees",
        "error %",
        "confidence of mistakes: mean",
        "above 0.9, %",
        "ECE %",
        "after the map",
    ]
    cells = []
    for name, run in runs.items():
        final, mistakes = run.weights[-1], run.confidence[run.wrong]
        cells.append(
            [
                name,
                f"{np.linalg.norm(final):.3f}",
                f"{np.degrees(np.arctan2(final[1], final[0])):+.2f}",
                f"{100 * run.wrong.mean():.2f}",
                f"{mistakes.mean():.3f}",
                f"{100 * (mistakes > 0.9).mean():.1f}",
                f"{100 * calibrant.ece(run.probs, run.labels):.2f}",
                f"{100 * calibrant.ece(run.mapped, run.labels):.2f}",
            ]
        )
    return markdown(head, cells)


def main(argv: list[str] | None = None) -> None:
    """Train both models, print the table and draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=OUT, help="where the pictures go")
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    runs = {name: train(gamma, arguments.iterations) for name, gamma in GAMMAS.items()}
    print(table(runs))
    rng = np.random.default_rng(0)
    draw_samples(rng)
    points = draw_samples(rng)[0].numpy()  # the test set again
    save(draw_norms(runs, points), arguments.out / f"linear-model-norms.{arguments.format}")
    save(draw_mistakes(runs, points), arguments.out / f"linear-model-mistakes.{arguments.format}")


if __name__ == "__main__":
    main()
