"""Recipes and runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from calibrant._checks.values import described, whole_number
from calibrant.errors import CalibrantError


def finite_loss(loss: float, epoch: int) -> None:
    """A training loss that is still a number."""
    if not math.isfinite(loss):
        raise CalibrantError(
            f"the training loss must stay finite; found {loss} in epoch {epoch}. Take a smaller "
            "learning rate, or shorten gradients with clip_norm"
        )


def rising_epochs(steps: Any, epochs: int) -> None:
    """Epochs at which something changes, in order and within the run."""
    for step in several(steps, "steps"):
        whole_number(step, "steps", allowed=range(1, 2**31))
    if any(a >= b for a, b in pairwise(steps)) or (steps and steps[-1] >= epochs):
        raise CalibrantError(
            f"steps must rise and stay below the {epochs} epochs of the run; found "
            f"{', '.join(map(str, steps))}. Leave out those that never come"
        )


def several(values: Any, name: str, *, count: int | None = None) -> tuple[Any, ...]:
    """A list, of ``count`` entries if that is given."""
    right = isinstance(values, list | tuple) and count in (None, len(values))
    if not right:
        wanted = "a list" if count is None else f"a list of {count} numbers"
        raise CalibrantError(
            f"{name} must be {wanted}; found {described(values)}. Write it in brackets"
        )
    return tuple(values)


def yes_or_no(value: Any, name: str) -> None:
    """True or False, and nothing that counts as one of them."""
    if not isinstance(value, bool):
        raise CalibrantError(
            f"{name} must be true or false; found {described(value)}. Pass one of them"
        )


def text(value: Any, name: str) -> None:
    """A name, as text."""
    if not isinstance(value, str) or not value:
        raise CalibrantError(f"{name} must be a name; found {described(value)}. Pass one as text")


def is_own_code(model: Any) -> bool:
    """Whether a network is named as ``package.module:function``, which is imported and called."""
    return isinstance(model, str) and ":" in model


def registered_network(model: Any, own_model: str | None, where: str, remedy: str) -> None:
    """A network that a file may name: one of calibrant's, or the one that the caller names too."""
    if is_own_code(model) and model != own_model:
        given = "" if own_model is None else f", and {own_model!r} was given"
        raise CalibrantError(
            f"{where} may name networks of calibrant only; found {model!r}, which is code to "
            f"import and run{given}. {remedy}"
        )


def plain_options(value: Any, name: str) -> None:
    """Options by name that JSON can hold."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise CalibrantError(
            f"{name} must be options by name; found {described(value)}. "
            f"Pass {{'option': value}}, or write --set {name}.OPTION=VALUE"
        )
    try:
        json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CalibrantError(
            f"{name} must be what JSON can hold, since the run is known by it; found "
            f"{described(dict(value))} ({error}). Pass numbers, strings and lists"
        ) from error


def momentum_for_nesterov(momentum: float) -> None:
    """Some momentum to look ahead with."""
    if momentum == 0.0:
        raise CalibrantError(
            "nesterov needs a momentum above 0; found 0. Pass momentum=0.9, say, or leave it out"
        )


def reduced_loss(reduction: str) -> None:
    """A loss that is one number for a batch."""
    if reduction == "none":
        raise CalibrantError(
            "a loss to train with must be one number; found reduction='none'. Pass 'mean' or 'sum'"
        )


def samples_for_processes(name: str, found: int, processes: int) -> None:
    """At least one sample in each step for every process."""
    if found < processes:
        raise CalibrantError(
            f"{name} must be at least the number of processes, {processes}; found {found}. "
            "Use fewer devices, or more samples"
        )


def kind_of_network(model: str, takes: Sequence[str], data: str, kind: str) -> None:
    """A network for this kind of data."""
    if kind not in takes:
        raise CalibrantError(
            f"the network {model} takes {' or '.join(takes)}; found {kind} in {data}. "
            "Choose another network"
        )


def shape_of_logits(shape: Sequence[int], n_rows: int, n_classes: int) -> None:
    """One row of logits for each target, one column for each class."""
    if tuple(shape) != (n_rows, n_classes):
        raise CalibrantError(
            f"the network must give logits of shape ({n_rows}, {n_classes}) for {n_rows} targets "
            f"and {n_classes} classes; found {tuple(shape)}. Build it for this data set"
        )


@contextmanager
def refusing(what: str, remedy: str) -> Iterator[None]:
    """Whatever somebody else's code raises becomes one line that says of what."""
    try:
        yield
    except Exception as error:  # no telling what it raises
        reason = " ".join(str(error).split())[:200].rstrip(". ") or type(error).__name__
        raise CalibrantError(f"{what}: {reason}. {remedy}") from error


def axis_of_grid(values: Sequence[Any], name: str) -> None:
    """Something to run."""
    if not values:
        raise CalibrantError(
            f"{name} of a grid must have an entry; found an empty list. Name what is to be run"
        )


def section_of_grid(value: Any, name: str) -> None:
    """Names and values, as a section of a file has them."""
    if not isinstance(value, Mapping):
        raise CalibrantError(
            f"{name} of a grid must be names with values; found {described(value)}. "
            f"Write a section [{name}]"
        )


def entry(values: Mapping[str, Any], name: str) -> None:
    """Something of this name."""
    if name not in values:
        raise CalibrantError(
            f"it must have {name}; found {', '.join(map(str, values)) or 'nothing'}"
        )


def not_with(options: Sequence[str], other: str, remedy: str) -> None:
    """No options that another one leaves without effect."""
    if options:
        raise CalibrantError(f"{other} goes without {', '.join(options)}; found it given. {remedy}")


def field_without_option(name: str, remedy: str | None) -> None:
    """A field of a recipe that is set in no other way."""
    if remedy is not None:
        raise CalibrantError(f"{name} is not among the settings of a recipe; found it. {remedy}")
