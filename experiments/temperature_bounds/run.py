"""Prop. 3 and Fig. 3: the proved temperatures around the binary focal map, and the tightest ones.

A temperature T scales the logit s to s / T, and the map takes it to logit(FC(s)). So the map lies
below or above that of T where logit(FC(s)) / s, its effective inverse temperature, does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from calibrant.focal import focal_log_probs, temperature_bounds
from calibrant.plots.palette import look
from experiments.results import Result
from experiments.tables import Table

Floats = npt.NDArray[np.float64]


def run(parameters: Mapping[str, Any]) -> Result:
    """Compare the bounds with the tightest ones on the paper's grid of logits."""
    per_one = parameters["steps_of_logit"]
    logits = np.arange(1, round(parameters["largest_logit"] * per_one) + 1) / per_one
    gamma = parameters["example_gamma"]
    values: dict[str, float] = {}

    low, high = temperature_bounds(gamma=gamma)
    values["proved lower T, gamma 4"] = low
    values["proved upper T, gamma 4"] = high
    tight_low, tight_high = tightest(logits, gamma)
    per_unit = parameters["steps_of_temperature"]
    values["tightest lower T in steps of 0.001, gamma 4"] = (
        math.floor(tight_low * per_unit) / per_unit
    )
    values["tightest upper T in steps of 0.001, gamma 4"] = (
        math.ceil(tight_high * per_unit) / per_unit
    )
    values["tightest lower T, gamma 4"] = tight_low
    values["tightest upper T, gamma 4"] = tight_high
    rounded_low, rounded_high = tightest_of_rounded(logits, gamma, per_unit)
    values["tightest lower T, Eq. 1 as printed in double precision, logits above 0"] = rounded_low
    values["tightest upper T, Eq. 1 as printed in double precision, logits above 0"] = rounded_high
    far = np.geomspace(1e-3, parameters["far_logit"], 20_001)
    values["tightest lower T, gamma 4, logits to 1000"] = tightest(far, gamma)[0]

    outside, printed, inverted = 0, 0, 0
    rows = []
    for gamma in parameters["gammas"]:
        low, high = temperature_bounds(gamma=gamma)
        tight_low, tight_high = tightest(logits, gamma)
        both_sides = np.concatenate([-logits[::-1], logits])
        inverse = effective_inverse_temperature(both_sides, gamma)
        outside += int(np.count_nonzero((inverse > 1.0 / low) | (inverse < 1.0 / high)))
        # As printed, the factors of the logit are 1/(gamma + 1) and 1/(gamma + 1 - log ...).
        printed += int(np.count_nonzero((low < inverse) & (inverse < high)))
        inverted += int(np.count_nonzero((1.0 / low < inverse) & (inverse < 1.0 / high)))
        numbers = (low, high, high - low, tight_low, tight_high, tight_high - tight_low)
        rows.append([f"{gamma:g}", *(f"{number:.4f}" for number in numbers)])
    values["logits at which the map is outside the proved bounds, all gammas"] = outside
    values["logits at which the inequality holds as printed, all gammas"] = printed
    name = "logits at which the inequality holds with inverses in the printed order, all gammas"
    values[name] = inverted

    head = ["gamma", "proved T", "to", "width", "tightest T", "to", "width"]
    title = f"Temperatures around the map, logits to {parameters['largest_logit']:g}"
    notes = [
        "The proved lower T cannot be raised for all logits: the tightest one goes to it as the "
        "logits grow.",
    ]
    pictures = {"temperature-bounds": draw(logits[::20])}
    return Result(values, {"bounds": Table(title, head, rows)}, pictures, notes)


def effective_inverse_temperature(logits: Floats, gamma: float) -> Floats:
    """logit(FC(s)) / s, in log space: precise also where FC(s) is 0 or 1."""
    rows = np.stack([logits, np.zeros_like(logits)], axis=-1)
    log_probs = np.asarray(focal_log_probs(rows, gamma=gamma))
    return np.asarray((log_probs[:, 0] - log_probs[:, 1]) / logits)


def tightest(logits: Floats, gamma: float) -> tuple[float, float]:
    """The largest lower and the smallest upper temperature that hold at all these logits."""
    inverse = effective_inverse_temperature(logits, gamma)
    return 1.0 / float(inverse.max()), 1.0 / float(inverse.min())


def tightest_of_rounded(logits: Floats, gamma: float, per_one: int) -> tuple[float, float]:
    """The same from probabilities by the paper's Eq. 1, where large logits are rounded to 1."""
    q = 1.0 / (1.0 + np.exp(-logits))
    q = q[q < 1.0]

    def unscaled(q: Floats) -> Floats:
        return np.asarray(1.0 / ((1.0 - q) ** gamma * (gamma * np.log(q) / (1.0 - q) - 1.0 / q)))

    mapped = unscaled(q) / (unscaled(q) + unscaled(1.0 - q))
    tried = np.arange(1, per_one + 1) / per_one
    curves = [1.0 / (1.0 + np.exp(-logits[: len(q)] / t)) for t in tried]
    below = [t for t, curve in zip(tried, curves, strict=True) if np.all(curve >= mapped)]
    above = [t for t, curve in zip(tried, curves, strict=True) if np.all(curve <= mapped)]
    return float(max(below)), float(min(above))


def draw(logits: Floats) -> Figure:
    """Fig. 3: the bounds and their width over gamma."""
    gammas = np.linspace(0.05, 10.0, 100)
    proved = np.array([temperature_bounds(gamma=gamma) for gamma in gammas])
    found = np.array([tightest(logits, gamma) for gamma in gammas])
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, (name, bounds) in enumerate({"proved": proved, "tightest": found}.items()):
        color, line, _ = look(i)
        left.plot(gammas, bounds[:, 0], line, color=color, label=f"{name}, lower and upper")
        left.plot(gammas, bounds[:, 1], line, color=color)
        right.plot(gammas, bounds[:, 1] - bounds[:, 0], line, color=color, label=name)
    left.set(xlabel=r"$\gamma$", ylabel="temperature", xlim=(0.0, 10.0), ylim=(0.0, 1.0))
    right.set(xlabel=r"$\gamma$", ylabel="width between the two", xlim=(0.0, 10.0))
    right.set_ylim(bottom=0.0)
    left.legend(frameon=False)
    right.legend(frameon=False)
    return figure
