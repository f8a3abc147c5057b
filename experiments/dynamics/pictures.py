"""Figures 1 to 4 of Mukhoti et al. (2020), from the measurements after each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calibrant.plots.palette import GUIDE, INK, OVER, QUIET, UNDER, look
from experiments.kept import epoch_at
from experiments.trained.runs import Floats, TrainedRun, title

Record = dict[str, Any]

ORDER = (("ce",), ("fl-3",), ("fla-53",), ("brier",), ("mmce", "mmce-published"), ("adafocal",))
"""The losses that are drawn, each with one look in all pictures; eleven lines could not be told
apart. Of several names the first that was trained."""

PANELS = (
    ("nll", "test NLL", 1.0),
    ("nll_correct", "test NLL, correct samples", 1.0),
    ("nll_wrong", "test NLL, wrong samples", 1.0),
    ("entropy_wrong", "entropy, wrong samples", 1.0),
    ("true_prob_correct", "true-class probability, correct", 1.0),
    ("true_prob_wrong", "true-class probability, wrong", 1.0),
    ("ece", "test ECE, %", 100.0),
)


def series(records: Sequence[Record], part: str, quantity: str) -> Floats:
    """One quantity over the epochs; a gap where there are no such samples."""
    found = [record[part][quantity] for record in records]
    return np.array([np.nan if value is None else value for value in found])


def overfitting(where: str, run: TrainedRun) -> Figure:
    """Fig. 1: NLL and entropy of correct and wrong samples, errors, ECE."""
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    figure.suptitle(f"{where}, {title(run.recipe.loss)}", fontsize="medium")
    left, middle, right = figure.subplots(1, 3)
    epochs = np.arange(1, len(run.records) + 1)
    for ax, part in ((left, "train"), (middle, "test")):
        for ending, color, words in (
            ("", INK, "all"),
            ("_correct", UNDER, "correct"),
            ("_wrong", OVER, "wrong"),
        ):
            nll = series(run.records, part, f"nll{ending}")
            ax.plot(epochs, nll, color=color, label=f"NLL, {words}")
            if ending:
                entropy = series(run.records, part, f"entropy{ending}")
                ax.plot(epochs, entropy, color=color, linestyle=":", label=f"entropy, {words}")
        ax.set(title=f"{'training' if part == 'train' else part} samples", ylim=(0.0, None))
        _epochs(ax, run)
    left.legend(
        frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0.0, -0.2), ncols=2
    )
    for part, quantity, words, color, dashes in (
        ("train", "error", "training error", INK, "-"),
        ("test", "error", "test error", OVER, "--"),
        ("test", "ece", "test ECE", "#009e73", "-."),
    ):
        values = 100.0 * series(run.records, part, quantity)
        right.plot(epochs, values, color=color, linestyle=dashes, label=words)
    right.set(title="errors, %", ylim=(0.0, None))
    _epochs(right, run)
    right.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0.0, -0.2))
    return figure


def reliability(where: str, run: TrainedRun, moments: Sequence[float]) -> Figure:
    """Fig. 2: accuracy and number of training samples in 25 bins of confidence."""
    figure = Figure(figsize=(10.0, 4.6), layout="constrained")
    figure.suptitle(f"{where}, {title(run.recipe.loss)}: training samples", fontsize="medium")
    rows = figure.subplots(2, len(moments), sharex=True, sharey="row", squeeze=False)
    for above, below, moment in zip(*rows, moments, strict=True):
        place = epoch_at(moment, len(run.records))
        bins = run.records[place]["train"]["reliability"]
        count = np.array(bins["count"])
        n_bins = len(count)
        middles = (np.arange(n_bins) + 0.5) / n_bins
        accuracy = [np.nan if value is None else value for value in bins["accuracy"]]
        above.bar(middles, accuracy, width=0.9 / n_bins, color=INK)
        above.plot([0.0, 1.0], [0.0, 1.0], **GUIDE)
        above.set(title=f"epoch {place + 1}", xlim=(0.0, 1.0), ylim=(0.0, 1.0))
        below.bar(middles, 100.0 * count / count.sum(), width=0.9 / n_bins, color=QUIET)
        below.set(xlabel="confidence", ylim=(0.0, 100.0), xticks=(0.0, 0.5, 1.0))
    rows[0][0].set_ylabel("accuracy")
    rows[1][0].set_ylabel("samples, %")
    return figure


def losses(where: str, runs: Mapping[str, TrainedRun]) -> Figure:
    """Fig. 3: the same quantities under each loss, and the norm of the last layer."""
    figure = Figure(figsize=(11.0, 5.2), layout="constrained")
    figure.suptitle(where, fontsize="medium")
    axes = figure.subplots(2, 4).ravel()
    for i, names in enumerate(ORDER):
        loss = next((name for name in names if name in runs), None)
        if loss is None:
            continue
        run, (color, linestyle, _) = runs[loss], look(i)
        style = {"color": color, "linestyle": linestyle, "linewidth": 1.6, "label": title(loss)}
        epochs = np.arange(1, len(run.records) + 1)
        for ax, (quantity, words, scale) in zip(axes, PANELS, strict=False):
            ax.plot(epochs, scale * series(run.records, "test", quantity), **style)
            ax.set_title(words, fontsize="small")
        norms = [record["weight_norm"] for record in run.records]
        axes[-1].plot(epochs, norms, **style)
    axes[-1].set_title("L2 norm, last layer", fontsize="small")
    for ax in axes:
        _epochs(ax, next(iter(runs.values())))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    return figure


def gradients(where: str, runs: Mapping[str, TrainedRun], moments: Sequence[float]) -> Figure:
    """Figs 4b to 4d: gradient norms of single training samples."""
    figure = Figure(figsize=(10.0, 3.2), layout="constrained")
    figure.suptitle(f"{where}: training samples", fontsize="medium")
    axes = figure.subplots(1, len(moments), sharey=True)
    for ax, moment in zip(axes, moments, strict=True):
        for i, loss in enumerate(("ce", "fl-3")):
            run = runs[loss]
            place = epoch_at(moment, len(run.records))
            counts = np.array(run.records[place]["train"]["gradient_norm"]["count"])
            inner = np.array(run.folder.stored()["gradient_norm_exponents"])
            step = inner[1] - inner[0]
            # The open bins at both ends are drawn as wide as the others.
            edges = np.concatenate([[inner[0] - step], inner, [inner[-1] + step]])
            ax.stairs(
                100.0 * counts / counts.sum(),
                edges,
                color=look(i).color,
                linestyle=look(i).linestyle,
                linewidth=1.6,
                label=title(loss),
            )
            ax.set(title=f"epoch {place + 1}", xlabel="gradient norm, power of ten")
    axes[0].set_ylabel("samples, %")
    axes[-1].legend(frameon=False)
    return figure


def _epochs(ax: Axes, run: TrainedRun) -> None:
    """The axis of a picture over epochs, with a line where the learning rate falls."""
    for step in run.recipe.steps:
        ax.axvline(step + 0.5, **GUIDE)
    ax.set_xlabel("epoch")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
