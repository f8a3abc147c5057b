"""Charoenphakdee et al. (2021), Figs 1 and 2, Theorem 8 and footnote 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.focal import confidence_bias, confidence_thresholds, gamma_for_threshold
from experiments.confidence_regions.drawing import draw_factor, draw_relation, posterior_of
from experiments.confidence_regions.outputs import (
    all_of_three_classes,
    gamma_near_uniform,
    largest_gamma,
    one_above,
    one_below,
    random_outputs,
)
from experiments.results import Result
from experiments.tables import Table

Floats = npt.NDArray[np.float64]

SMALL = np.r_[np.geomspace(1e-300, 1e-3, 600), np.linspace(1e-3, 0.25, 200)]
"""Probabilities of the one class that is below the others."""


def run(parameters: Mapping[str, Any]) -> Result:
    """Thresholds, a search for exceptions, and the classes and gammas of over-confidence."""
    gammas, marked, many = (parameters[key] for key in ("gammas", "marked_gamma", "many_classes"))
    oc, uc = confidence_thresholds(gamma=marked)
    searched = exceptions(parameters)
    values = {
        f"Fig. 1: largest phi at, gamma {marked:g}": oc,
        f"Fig. 1: phi = 1 at, gamma {marked:g}": uc,
        **{name: others for name, (_, others) in searched.items()},
        **few_classes(parameters),
    }
    rows = []
    for gamma in gammas:
        oc, uc = confidence_thresholds(gamma=gamma)
        turn, excess, where = over_confidence(gamma, many)
        rows.append([f"{gamma:g}", *(f"{each:.4f}" for each in (oc, uc, turn, excess, where))])
        values[f"Fig. 2b: output at which over- turns under-confident, gamma {gamma:g}"] = turn
        values[f"Fig. 2b: largest over-confidence, gamma {gamma:g}"] = excess
    head = ["gamma", "phi is largest at", "phi = 1 at", "turns at", "largest excess", "at output"]
    regions = Table(f"Over-confidence of {many} classes, all but one of them equal", head, rows)
    pictures = {
        "confidence-regions": draw_factor(gammas, marked),
        "confidence-relation": draw_relation(gammas, many),
    }
    cells = [[name, *map(str, counts)] for name, counts in searched.items()]
    tables = {
        "regions": regions,
        "few-classes": table_of_few_classes(),
        "search": Table("The search for exceptions", ["", "looked at", "found"], cells),
    }
    return Result(values, tables, pictures, notes(parameters))


def exceptions(parameters: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Theorem 8 and its corollaries: number of cases, and of exceptions."""
    rng = np.random.default_rng(parameters["seed"])
    n_gammas = parameters["n_threshold_gammas"]
    pairs = [confidence_thresholds(gamma=g) for g in np.geomspace(1e-6, 100.0, n_gammas)]
    others = sum(not 0.0 < oc < uc < 0.5 for oc, uc in pairs)
    found = {"Thm 8.1: gammas without 0 < tau_oc < tau_uc < 0.5": (n_gammas, others)}
    for n_classes in parameters["n_classes"]:
        probs = random_outputs(parameters["n_numbers"] // n_classes, n_classes, rng)
        # What is uniform over some classes and 0 elsewhere, to rounding, is no case of the theorem.
        top = probs.max(axis=1)
        probs = probs[(np.minimum(probs, top[:, None] - probs) > 1e-13).any(axis=1)]
        top = probs.max(axis=1)
        for gamma in parameters["searched_gammas"]:
            oc, uc = confidence_thresholds(gamma=gamma)
            bias = np.asarray(confidence_bias(probs, gamma=gamma))
            is_two = np.full(len(top), n_classes == 2)
            for name, said, sign in (
                ("Thm 8.2: outputs up to tau_oc that are not over-confident", top <= oc, 1),
                ("Thm 8.3: outputs from tau_uc that are not under-confident", top >= uc, -1),
                ("Cor. 9: outputs above 0.5 that are not under-confident", top > 0.5, -1),
                ("Cor. 10: outputs of two classes that are not under-confident", is_two, -1),
            ):
                seen, others = found.get(name, (0, 0))
                found[name] = (seen + int(said.sum()), others + int((bias[said] != sign).sum()))
    return found


def few_classes(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Footnote 2: the fewest classes that can be over-confident, and the largest gamma."""
    nearest, grid = parameters["nearest"], all_of_three_classes(parameters["n_grid"])
    near = {k: largest_gamma(one_above(np.array([1 / k + nearest]), k)) for k in range(2, 7)}
    anywhere = {k: largest_gamma(one_below(SMALL, k)) for k in range(2, 5)}
    return {
        "footnote 2: fewest classes with over-confidence near 1/K": next(
            k for k in count(2) if near[k] > 0.0
        ),
        "footnote 2: largest gamma for it, 5 classes, by the sign of the bias": near[5],
        "footnote 2: largest gamma for it, 5 classes, in closed form": gamma_near_uniform(5),
        "footnote 2: fewest classes with over-confidence anywhere": next(
            k for k in count(2) if anywhere[k] > 0.0
        ),
        "4 classes, three equal and one tiny: largest gamma with over-confidence": anywhere[4],
        "4 classes: gamma whose tau_uc is 1/3": gamma_for_threshold(1 / 3),
        "3 classes: over-confident outputs on a grid of all": sum(
            int((np.asarray(confidence_bias(grid, gamma=gamma)) > 0).sum())
            for gamma in parameters["searched_gammas"]
        ),
    }


def over_confidence(gamma: float, n_classes: int) -> tuple[float, float, float]:
    """The gamma at which one class among equals stops being over-confident; the largest excess."""
    from scipy.optimize import brentq, minimize_scalar

    def excess(top: float) -> float:
        return top - float(posterior_of(np.array([top]), gamma, n_classes)[0])

    _, uc = confidence_thresholds(gamma=gamma)
    turn = brentq(excess, 2.0 / n_classes, uc, xtol=1e-14)
    best = minimize_scalar(lambda top: -excess(top), bounds=(1.0 / n_classes, turn))
    return turn, excess(best.x), best.x


def table_of_few_classes() -> Table:
    """For each number of classes the gammas that allow over-confidence."""
    rows = []
    for k in (3, 4, 5, 6, 8, 10, 100):
        near = gamma_near_uniform(k)
        rest = gamma_for_threshold(1 / (k - 1))
        rows.append([str(k), *(f"{each:.4f}" if each > 0 else "none" for each in (near, rest))])
    head = ["classes", "near 1/K, gamma below", "K - 1 equal and one tiny, gamma below"]
    return Table("Gammas that allow an over-confident optimum", head, rows)


def notes(parameters: Mapping[str, Any]) -> Sequence[str]:
    """What was searched."""
    classes = ", ".join(map(str, parameters["n_classes"]))
    return [
        f"Searched: {len(parameters['searched_gammas'])} gammas from "
        f"{min(parameters['searched_gammas']):g} to {max(parameters['searched_gammas']):g}; random "
        f"outputs of {classes} classes, {parameters['n_numbers']} numbers each, a third with "
        "classes that share the top.",
        "In Fig. 2b all classes are equal but one: what the largest output stands for depends on "
        "the others, and the paper does not say which it took.",
    ]
