"""``calibrant theory``: the effect of the focal loss on probabilities, for one gamma."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from calibrant import _inputs, focal
from calibrant._writing import refuse_unwritable, written_whole
from calibrant.cli.options import OUTPUT, json_option
from calibrant.errors import CalibrantError

POSTERIORS = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
THRESHOLDS = (0.1, 0.2, 0.25, 0.3, 0.4)
MOST_CLASSES = 100_000
SIDES = {-1: "under-confident", 0: "exact", 1: "over-confident"}


@click.command()
@click.option("--gamma", type=float, default=3.0, show_default=True, help="Focusing parameter.")
@click.option(
    "--classes", "n_classes", type=int, default=2, show_default=True, help="Number of classes."
)
@click.option(
    "--posterior",
    "posteriors",
    type=float,
    multiple=True,
    metavar="P",
    help="True probability of the top class; the other classes share the rest. Repeatable.",
)
@click.option(
    "--threshold",
    "thresholds",
    type=float,
    multiple=True,
    metavar="P0",
    help="Print the gamma whose gradient equals that of cross-entropy at P0. Repeatable.",
)
@json_option
@click.option(
    "--plot",
    "plot_path",
    type=OUTPUT,
    metavar="FILE",
    help="Plot of phi, the binary map and the confidence relation (.png, .svg or .pdf).",
)
def theory(
    gamma: float,
    n_classes: int,
    posteriors: tuple[float, ...],
    thresholds: tuple[float, ...],
    as_json: bool,
    plot_path: Path | None,
) -> None:
    """Print how the focal loss distorts a model's probabilities.

    The optimum of the focal loss is not the true class probabilities: it is under-confident in
    clear cases and, with many classes, over-confident in unclear ones. Prints the distortion for
    one gamma, and the gamma whose gradient equals that of cross-entropy at some probabilities.

    \b
    Examples:
      calibrant theory --gamma 3
      calibrant theory --gamma 1 --classes 1000 --posterior 0.05
      calibrant theory --threshold 0.2
      calibrant theory --gamma 2 --plot theory.png
    """
    if plot_path is not None:
        refuse_unwritable(_inputs.picture_path(plot_path))
    facts = theory_of(gamma, n_classes, posteriors or None, thresholds or THRESHOLDS)
    if plot_path is not None:
        from calibrant.plots import theory as plots

        with written_whole(plot_path) as temporary:
            plots.draw_theory(facts["gamma"], facts["n_classes"]).savefig(temporary, dpi=150)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        click.echo("\n".join(_lines(facts)))
        if plot_path is not None:
            click.echo(f"\nPlot written to {plot_path}")


def theory_of(
    gamma: float,
    n_classes: int,
    posteriors: tuple[float, ...] | None,
    thresholds: tuple[float, ...],
) -> dict[str, Any]:
    """Everything that the command prints, as plain data."""
    gamma = _inputs.gamma(gamma, lowest=0.0)
    n_classes = _inputs.whole_number(n_classes, "n_classes", allowed=range(2, MOST_CLASSES + 1))
    if posteriors is None:  # the top class has at least the share of an even split
        posteriors = tuple(p for p in POSTERIORS if p >= 1.0 / n_classes)
    tau_oc, tau_uc = focal.confidence_thresholds(gamma=gamma) if gamma > 0 else (None, None)
    t_low, t_high = focal.temperature_bounds(gamma=gamma)
    closest = (
        focal.closest_temperature(gamma=gamma, n_classes=n_classes) if n_classes <= 4 else None
    )
    return {
        "gamma": gamma,
        "n_classes": n_classes,
        "over_confident_up_to": tau_oc,
        "under_confident_from": tau_uc,
        "binary_temperature_bounds": [t_low, t_high],
        "closest_temperature": closest,
        "optimum": [_optimum(posterior, gamma, n_classes) for posterior in posteriors],
        "gamma_for_threshold": [
            {"p0": p0, "gamma": focal.gamma_for_threshold(p0)} for p0 in thresholds
        ],
    }


def _optimum(posterior: float, gamma: float, n_classes: int) -> dict[str, Any]:
    """The focal optimum where the top class has ``posterior`` and the others share the rest."""
    top = float(_inputs.unit_interval(posterior, "posterior"))
    if top < 1.0 / n_classes:
        raise CalibrantError(
            f"posterior of the top class must be at least 1/{n_classes} for {n_classes} classes; "
            f"found {top:g}. Raise it, or pass more --classes"
        )
    truth = np.full(n_classes, (1.0 - top) / (n_classes - 1))
    truth[0] = top
    output = focal.inverse_focal_map(truth, gamma=gamma)
    side = SIDES[int(focal.confidence_bias(output, gamma=gamma))]
    return {"posterior": top, "output": float(output[0]), "output_is": side}


def _lines(facts: dict[str, Any]) -> list[str]:
    gamma, n_classes = facts["gamma"], facts["n_classes"]
    lines = [f"Focal loss with gamma = {gamma:g}, {n_classes} classes", ""]
    if facts["over_confident_up_to"] is None:
        lines += ["gamma = 0 is cross-entropy: its optimum is the posterior."]
    else:
        never = "" if facts["over_confident_up_to"] > 1 / n_classes else "  (below an even split)"
        lines += [
            "The top probability of an optimal model is",
            f"  over-confident   up to  {facts['over_confident_up_to']:.6f}{never}",
            f"  under-confident  from   {facts['under_confident_from']:.6f}",
            "  in between, it depends on the other classes.",
        ]
    t_low, t_high = facts["binary_temperature_bounds"]
    lines += ["", "The calibration map that undoes this, compared with temperature scaling"]
    lines += [f"  two classes: between T = {t_low:.4f} and T = {t_high:.4f} at every logit"]
    if facts["closest_temperature"] is None:
        lines += ["  closest single temperature: only known for 2 to 4 classes"]
    else:
        lines += [f"  closest single temperature: T = {facts['closest_temperature']:.4f}"]
    lines += ["", "The optimum for a true top probability, the other classes sharing the rest"]
    lines += ["  truth     model"]
    lines += [
        f"  {row['posterior']:<9.4g} {row['output']:.6f}   {row['output_is']}"
        for row in facts["optimum"]
    ]
    lines += ["", "The gamma whose gradient equals that of cross-entropy at p0"]
    lines += [
        f"  p0 = {row['p0']:<6g} gamma = {row['gamma']:.4f}" for row in facts["gamma_for_threshold"]
    ]
    return lines
