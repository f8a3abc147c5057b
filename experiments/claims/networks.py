"""Which of the networks trained here fit, and which count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from experiments.claims.claim import FITS, Values

LAST = ", last epoch"
TEXTS = ("20newsgroups, ", "sst-binary, ")
"""Data sets on which the paper's networks are trained for as many epochs as in the paper."""

COUNTED = (
    "One seed, on SST the means of five. Texts for as many epochs as in the paper. Counted is the "
    "share of the networks that support the claim"
)
"""The end of a rule on the networks trained here."""


def fitted(values: Values, *losses: str, epoch: str = "") -> dict[str, list[float]]:
    """The networks that fit with every one of the losses, with these training errors.

    In percent, after the epoch whose predictions are measured, or after the ``epoch`` of that name.
    """
    ending = f", {losses[0]}: training error %{epoch}"
    places = [name.removesuffix(ending) for name in values if name.endswith(ending)]
    errors = {
        place: [
            values.get(f"{place}, {loss}: training error %{epoch}", math.inf) for loss in losses
        ]
        for place in places
    }
    return {place: each for place, each in errors.items() if max(each) < FITS}


def listed(training_errors: Mapping[str, Sequence[float]]) -> str:
    """The networks that fit, with their training errors."""
    shown = (
        f"{place} {' / '.join(f'{error:.1f}' for error in errors)}%"
        for place, errors in training_errors.items()
    )
    return f"training errors: {'; '.join(shown)}" if training_errors else "none fits"


def with_long_runs(tables: Values, *long: Values) -> Values:
    """The networks trained here, those on texts for as many epochs as in the paper."""
    others = {name: value for name, value in tables.items() if not name.startswith(TEXTS)}
    for each in long:
        others |= {name: value for name, value in each.items() if name.startswith(TEXTS)}
    return others
