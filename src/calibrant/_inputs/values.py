"""Checks of numbers, names and options, and of installed packages."""

from __future__ import annotations

import difflib
import importlib.util
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._types import RandomState
from calibrant.errors import CalibrantError, MissingExtraError

SHOWN = 5
"""Most names in a message."""


def text(value: Any, name: str) -> None:
    """A non-empty string."""
    if not isinstance(value, str) or not value:
        raise CalibrantError(f"{name} must be a name; found {described(value)}. Pass a string")


@contextmanager
def refusing(what: str, remedy: str) -> Iterator[None]:
    """Turn any exception of somebody else's code into one line."""
    try:
        yield
    except Exception as error:  # it may raise anything
        reason = " ".join(str(error).split())[:200].rstrip(". ") or type(error).__name__
        raise CalibrantError(f"{what}: {reason}. {remedy}") from error


def one_of(**arguments: Any) -> tuple[str, Any]:
    """The name and value of the only argument that is not None."""
    given = [name for name, value in arguments.items() if value is not None]
    if len(given) != 1:
        names = " or ".join(arguments)
        raise CalibrantError(
            f"exactly one of {names} is needed; found {' and '.join(given) or 'neither'}. "
            "Say by name whether the scores are logits or probabilities: it is never guessed"
        )
    return given[0], arguments[given[0]]


def whole_number(value: Any, name: str, *, allowed: range) -> int:
    """A whole number in ``allowed``, such as a number of classes or bins."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise CalibrantError(
            f"{name} must be a whole number; found {described(value)}. "
            f"Pass an int from {allowed.start} to {allowed.stop - 1}"
        )
    if value not in allowed:
        raise CalibrantError(
            f"{name} must be from {allowed.start} to {allowed.stop - 1}; found {value}. "
            "Choose a number in that range"
        )
    return int(value)


def level(value: Any, remedy: str = "For 95% pass 0.95") -> float:
    """A level strictly between 0 and 1."""
    number = finite_number(value, "level")
    if not 0.0 < number < 1.0:
        raise CalibrantError(f"level must be strictly between 0 and 1; found {number:g}. {remedy}")
    return number


def choice(value: Any, name: str, allowed: Sequence[str]) -> str:
    """One of the ``allowed`` names."""
    if value not in allowed:
        close = difflib.get_close_matches(str(value), allowed, n=1)
        remedy = f"Did you mean {close[0]!r}?" if close else "Choose one of these"
        raise CalibrantError(
            f"{name} must be one of {', '.join(allowed)}; found {value!r}. {remedy}"
        )
    return str(value)


def parameter(name: str, owner: str, known: Sequence[str], *, kind: str = "parameter") -> None:
    """The name of a parameter (or another ``kind`` of option) of ``owner``."""
    if name not in known:
        has = f"It has {', '.join(known)}" if known else "It has none"
        raise CalibrantError(f"{owner} has no {kind} {name!r}. {has}")


def finite_number(value: Any, name: str) -> float:
    """A finite number, as a float."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool | np.bool_):
        raise CalibrantError(f"{name} must be a number; found {described(value)}. Pass a float")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise CalibrantError(f"{name} must be finite; found {number}. Pass a finite float")
    return number


def values_to_try(
    values: Any, name: str, *, lowest: float, highest: float
) -> npt.NDArray[np.float64]:
    """A sequence of numbers to choose from, sorted and without repetitions."""
    try:
        numbers = sorted({finite_number(value, name) for value in values})
    except TypeError:
        numbers = []
    if not numbers or numbers[0] < lowest or numbers[-1] > highest:
        raise CalibrantError(
            f"{name} must be one or more numbers from {lowest:g} to {highest:g}; found "
            f"{described(values)}. Pass them as a sequence"
        )
    return np.array(numbers)


def is_missing(value: Any) -> bool:
    """Whether a value is none: None, NaN, NaT or pandas.NA."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ArithmeticError):  # pandas.NA is neither equal nor unequal to itself
        return True


def described(value: Any) -> str:
    """Type and first characters of a value, for a message."""
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def instance(value: Any, kind: type, name: str) -> None:
    """An object of class ``kind``."""
    if not isinstance(value, kind):
        raise CalibrantError(
            f"{name} must be a {kind.__name__}; found {described(value)}. Pass a {kind.__name__}"
        )


def installed(*packages: str, extra: str, purpose: str) -> None:
    """Packages that an optional part of the library needs."""
    missing = [name for name in packages if not is_found(name)]
    if missing:
        raise MissingExtraError(
            f"{purpose} needs {', '.join(packages)}; found no {', '.join(missing)}. "
            f"Run: pip install 'calibrant[{extra}]'"
        )


def above_zero(value: Any, name: str, remedy: str = "Pass a positive number") -> float:
    """A finite number above 0."""
    number = finite_number(value, name)
    if number <= 0.0:
        raise CalibrantError(f"{name} must be above 0; found {number:g}. {remedy}")
    return number


def strength(value: Any, name: str) -> float:
    """A finite positive weight of a penalty that keeps a fit finite."""
    return above_zero(
        value,
        name,
        "Without this penalty there may be no finite minimum; pass a small number such as 1e-6 for "
        "almost none",
    )


def not_negative(value: Any, name: str) -> float:
    """A finite number of at least 0."""
    number = finite_number(value, name)
    if number < 0.0:
        raise CalibrantError(f"{name} must be at least 0; found {number:g}. 0 turns it off")
    return number


def holds(outputs: Any, name: str) -> bool:
    """Whether ``outputs`` is a mapping with an entry of this name."""
    return isinstance(outputs, Mapping) and outputs.get(name) is not None


def is_found(module: str) -> bool:
    """Whether a module of this name can be found; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def seed_of(random_state: RandomState) -> int:
    """The seed of ``random_state``, which results store so that they can be repeated."""
    if random_state is None:
        random_state = np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    return whole_number(random_state, "random_state", allowed=range(2**63))


def shown(names: Sequence[Any]) -> str:
    """The first few names, for a message."""
    text = ", ".join(repr(name) for name in list(names)[:SHOWN])
    return text if len(names) <= SHOWN else f"{text}, ... ({len(names)} in all)"
