"""Recover a known posterior from the output of an optimal focal-trained model.

The problem is one-dimensional, with three classes of known densities, so the true class
probabilities are known everywhere. An optimal model trained with focal loss does not output them.
One temperature cannot correct its output; the focal calibration map does, without any data. (After
Charoenphakdee et al. 2021, Fig. 3, with the optimum in place of the trained network.)

    python examples/recover_posterior.py --out out/demo.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import norm

from calibrant import ece
from calibrant.focal import focal_map, inverse_focal_map
from calibrant.metrics import kl_to_posterior

Floats = npt.NDArray[np.float64]

GAMMAS = (1.0, 5.0)
PRIOR = np.array([0.4, 0.35, 0.25])
MEAN = np.array([-2.0, 0.5, 2.5])
WIDTH = np.array([1.0, 0.7, 1.2])
N_SAMPLES = 20_000
N_BINS = 10
SEED = 0
COLOURS = ("#1f4e79", "#c0504d", "#6a8f3a")


def posterior(x: Floats) -> Floats:
    """True class probabilities at the points ``x``."""
    joint: Floats = PRIOR * norm.pdf(x[:, None], MEAN, WIDTH)
    return np.asarray(joint / joint.sum(axis=-1, keepdims=True))


def sample(rng: np.random.Generator, n: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Points and labels drawn from the problem."""
    labels = rng.choice(3, size=n, p=PRIOR)
    return rng.normal(MEAN[labels], WIDTH[labels]), labels


def scale_by_temperature(output: Floats, labels: npt.NDArray[np.int64]) -> tuple[float, Floats]:
    """The temperature with the smallest log loss on these samples, and the scaled output."""
    logits, rows = np.log(output), np.arange(len(labels))

    def log_loss(log_t: float) -> float:
        return -float(log_softmax(logits / np.exp(log_t), axis=-1)[rows, labels].mean())

    temperature = float(np.exp(minimize_scalar(log_loss, bounds=(-5, 5), method="bounded").x))
    return temperature, np.exp(log_softmax(logits / temperature, axis=-1))


def main() -> None:
    """Print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/demo.png"), help="path of the figure")
    out: Path = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)

    x, labels = sample(np.random.default_rng(SEED), N_SAMPLES)
    truth = posterior(x)
    line = np.linspace(-5.5, 6.5, 601)
    true_line = posterior(line)

    print(f"Three classes, {N_SAMPLES} samples, seed {SEED}: the true probabilities are known.")
    print(f"\n{'':<41}{'KL to truth':>12}{'ECE %':>8}")
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    axes = figure.subplots(len(GAMMAS), 3, sharex=True, sharey=True)
    for row, gamma in zip(axes, GAMMAS, strict=True):
        output = inverse_focal_map(truth, gamma=gamma)
        temperature, scaled = scale_by_temperature(output, labels)
        output_line = inverse_focal_map(true_line, gamma=gamma)
        scaled_line = output_line ** (1 / temperature)
        scaled_line /= scaled_line.sum(axis=-1, keepdims=True)
        stages = (
            ("focal optimum, as it is", output, output_line),
            (f"temperature scaling, T = {temperature:.3f}", scaled, scaled_line),
            ("focal map", focal_map(output, gamma=gamma), focal_map(output_line, gamma=gamma)),
        )
        for ax, (name, probs, probs_line) in zip(row, stages, strict=True):
            kl, error = kl_to_posterior(probs, truth), ece(probs, labels, n_bins=N_BINS)
            print(f"gamma {gamma:g}  {name:<32}{kl:>12.6f}{100 * error:>8.2f}")
            for k, colour in enumerate(COLOURS):
                ax.plot(line, true_line[:, k], color="0.65", linestyle="--", linewidth=1.2)
                ax.plot(line, probs_line[:, k], color=colour, linewidth=1.8)
            ax.set(title=f"$\\gamma$ = {gamma:g}: {name}\nKL {kl:.6f}, ECE {100 * error:.2f}%")
    for ax in axes[-1]:
        ax.set(xlabel="x", ylim=(0, 1.02))
    for ax in axes[:, 0]:
        ax.set(ylabel="class probability (dashed: true)")
    figure.savefig(out, dpi=130)
    noise = ece(truth, labels, n_bins=N_BINS)
    print(f"{'the true probabilities':<41}{0.0:>12.6f}{100 * noise:>8.2f}  (sampling noise)")
    print(f"\nFigure: {out}")


if __name__ == "__main__":
    main()
