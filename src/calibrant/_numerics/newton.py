"""Newton's method with shortened steps, for one problem or for many independent ones at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

SUFFICIENT = 1e-4
"""A step is accepted if the loss falls by this fraction of the first-order decrease (Armijo)."""


class LossPoint(Protocol):
    """A loss at one point, with whatever the next step needs."""

    @property
    def value(self) -> Any:
        """The loss: a number, or an array with one entry per problem."""


Point = TypeVar("Point", bound=LossPoint)


@dataclass(frozen=True)
class NewtonStep(Generic[Point]):
    """A step from one point."""

    to: Callable[[Any], Point]
    """The point after a fraction of the step, which has the shape of the loss."""
    decrease: Any
    """First-order decrease of the loss over the whole step: minus gradient times step."""
    accepts: Callable[[Point], bool] = lambda there: False
    """Whether a point that misses the sufficient decrease is accepted nevertheless."""


def damped_newton(
    here: Point,
    step_from: Callable[[Point], NewtonStep[Point] | None],
    *,
    lengths: Iterable[float],
    most_steps: int,
    retry: Callable[[Point], Point | None] = lambda _: None,
) -> Point:
    """The last point of Newton's method, whose steps are shortened until the loss falls enough.

    Args:
        here: The starting point.
        step_from: The step from a point; None ends the search.
        lengths: Fractions of a step that are tried, in this order, for each problem by itself.
        most_steps: Largest number of steps.
        retry: The point to continue from if no fraction is accepted; None ends the search.
    """
    for _ in range(most_steps):
        step = step_from(here)
        if step is None:
            break
        accepted = np.zeros(np.shape(here.value), dtype=bool)
        length = accepted.astype(float)
        for next_length in lengths:
            length = np.where(accepted, length, next_length)
            there = step.to(length)
            enough = here.value - SUFFICIENT * length * step.decrease
            accepted = (there.value <= enough) | step.accepts(there)
            if accepted.all():
                here = there
                break
        else:
            again = retry(here)
            if again is None:
                break
            here = again
    return here
