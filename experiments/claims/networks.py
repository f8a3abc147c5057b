"""Which of the networks trained here fit, and which count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from experiments.claims.claim import FITS, Values
from experiments.verdicts import by_networks, counted, data_of

LAST = ", last epoch"
TRAINING_ERROR = ": training error %"
COUNTED = (
    "One seed, on SST the means of five. Texts for as many epochs as in the paper, ResNet-8 on "
    "images until it fits. Counted is the share of the networks that support the claim. Counted by "
    "data sets, each on the side of most of its networks or on none, the verdict must be the same"
)
"""The end of a rule on the networks trained here."""


def fitted(values: Values, *losses: str, epoch: str = "") -> dict[str, list[float]]:
    """The networks that fit with every one of the losses, with these training errors.

    In percent, after the epoch whose predictions are measured, or after the ``epoch`` of that name.
    """
    ending = f", {losses[0]}{TRAINING_ERROR}{epoch}"
    places = [name.removesuffix(ending) for name in values if name.endswith(ending)]
    errors = {
        place: [values.get(f"{place}, {loss}{TRAINING_ERROR}{epoch}", math.inf) for loss in losses]
        for place in places
    }
    return {place: each for place, each in errors.items() if max(each) < FITS}


def judged(supporting: Sequence[str], places: Iterable[str]) -> tuple[str, str]:
    """The verdict of fitted networks that support a claim or do not, and their numbers."""
    every = list(places)
    against = [place for place in every if place not in supporting]
    data, of_all = (len({*map(data_of, some)}) for some in (supporting, every))
    return by_networks(supporting, against), (
        f"{counted(len(supporting), len(every))} fitted networks, on {data} of {of_all} data sets"
    )


def listed(training_errors: Mapping[str, Sequence[float]]) -> str:
    """The networks that fit, with their training errors."""
    shown = (
        f"{place} {' / '.join(f'{error:.1f}' for error in errors)}%"
        for place, errors in training_errors.items()
    )
    return f"training errors: {'; '.join(shown)}" if training_errors else "none fits"


def with_long_runs(short: Values, *long: Values) -> Values:
    """The networks trained here: where there are longer runs of a network, those."""
    found = dict(short)
    for each in long:
        places = {", ".join(n.split(", ")[:2]) for n in each if n.endswith(TRAINING_ERROR)}
        of_places = tuple(f"{place}{mark}" for place in places for mark in (",", ":"))
        found = {name: value for name, value in found.items() if not name.startswith(of_places)}
        found |= {name: value for name, value in each.items() if name.startswith(of_places)}
    return found
