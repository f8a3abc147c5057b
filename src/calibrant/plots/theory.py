"""Plots of the focal theory: phi, the binary map, and the confidence relation."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calibrant import focal
from calibrant._numerics.logspace import sigmoid
from calibrant.plots.axes import given_or_current
from calibrant.plots.palette import GUIDE, INK, OVER, UNDER


def draw_theory(gamma: float, n_classes: int) -> Figure:
    """Figure of three plots for one gamma: gradient factor, binary map, confidence relation."""
    figure = Figure(figsize=(13.0, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plot_phi(gamma=gamma, ax=left)
    plot_binary_map(gamma=gamma, ax=middle)
    plot_confidence_relation(gamma=gamma, n_classes=n_classes, ax=right)
    return figure


def plot_phi(*, gamma: float, ax: Axes | None = None) -> Axes:
    """Plot phi over the probability, with the ranges of over- and under-confidence shaded."""
    ax = given_or_current(ax)
    p = np.linspace(0.0, 1.0, 1001)
    ax.plot(p, focal.phi(p, gamma=gamma), color=INK)
    ax.axhline(1.0, **GUIDE)
    if gamma > 0:
        tau_oc, tau_uc = focal.confidence_thresholds(gamma=gamma)
        ax.axvspan(0.0, tau_oc, color=OVER, alpha=0.2, label=f"over-confident to {tau_oc:.3f}")
        ax.axvspan(tau_uc, 1.0, color=UNDER, alpha=0.15, label=f"under-confident from {tau_uc:.3f}")
        ax.legend(loc="upper right", frameon=False)
    ax.set(
        xlim=(0, 1),
        ylim=(0, None),
        xlabel="probability p",
        ylabel=r"$\varphi(p)$: focal / cross-entropy gradient",
        title=rf"Gradient factor, $\gamma$ = {gamma:g}",
    )
    return ax


def plot_binary_map(*, gamma: float, ax: Axes | None = None) -> Axes:
    """Plot the two-class map between its two bounding temperatures."""
    ax = given_or_current(ax)
    logits = np.linspace(-12.0, 12.0, 1201)
    two_columns = np.stack([logits, np.zeros_like(logits)], axis=-1)
    q = sigmoid(logits)
    t_low, t_high = focal.temperature_bounds(gamma=gamma)
    ax.fill_between(
        q,
        sigmoid(logits / t_low),
        sigmoid(logits / t_high),
        color=UNDER,
        alpha=0.3,
        linewidth=0,
        label=f"temperatures {t_low:.3f} to {t_high:.3f}",
    )
    mapped = np.exp(focal.focal_log_probs(two_columns, gamma=gamma))[:, 0]
    ax.plot(q, mapped, color=INK, label="focal map")
    ax.plot([0, 1], [0, 1], **GUIDE)
    ax.legend(loc="upper left", frameon=False)
    ax.set(
        xlim=(0, 1),
        ylim=(0, 1),
        xlabel="output of the focal optimum",
        ylabel="true probability",
        title="Calibration map, two classes",
    )
    return ax


def plot_confidence_relation(*, gamma: float, n_classes: int, ax: Axes | None = None) -> Axes:
    """Plot the output of the optimum over the true top probability, with equal other classes."""
    ax = given_or_current(ax)
    even = 1.0 / n_classes
    truth = np.unique(
        np.r_[np.geomspace(even, 1.0, 150), np.linspace(even, 1.0, 150), 1.0 - 1e-6, 1.0]
    )
    # One row at a time: all rows of a hundred thousand classes would be large.
    output = np.array([_top_output(p, gamma, n_classes) for p in truth])
    ax.plot(truth, output, color=INK)
    ax.plot([even, 1.0], [even, 1.0], **GUIDE)
    ax.fill_between(truth, truth, output, where=output > truth, color=OVER, alpha=0.3, linewidth=0)
    ax.fill_between(truth, truth, output, where=output < truth, color=UNDER, alpha=0.2, linewidth=0)
    ax.set(
        xlim=(0, 1),
        ylim=(0, 1),
        xlabel="true top probability (others equal)",
        ylabel="output of the focal optimum",
        title=f"Confidence relation, {n_classes} classes",
    )
    return ax


def _top_output(posterior: float, gamma: float, n_classes: int) -> float:
    row = np.full(n_classes, (1.0 - posterior) / (n_classes - 1))
    row[0] = posterior
    return float(focal.inverse_focal_map(row, gamma=gamma).max())
