"""Checks that several modules of data sets, networks and recipes share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from calibrant import _inputs
from calibrant._types import Array
from calibrant.errors import CalibrantError


def layer_size(value: Any, name: str) -> int:
    """A size of a layer or of its input."""
    return _inputs.whole_number(value, name, allowed=range(1, 2**31))


def n_classes(value: Any) -> int:
    """A number of classes of a network."""
    return _inputs.whole_number(value, "n_classes", allowed=range(2, 2**31))


def fraction_below_one(value: Any, name: str) -> float:
    """A number in [0, 1), such as a dropout probability or a momentum."""
    number = _inputs.finite_number(value, name)
    if not 0.0 <= number < 1.0:
        raise CalibrantError(
            f"{name} must be at least 0 and below 1; found {number:g}. Pass 0 to leave it out"
        )
    return number


def check_images(images: Array, channels: int, *, smallest: int = 1) -> None:
    """Refuse inputs that an image network cannot take."""
    shape = tuple(images.shape)
    if len(shape) != 4:
        raise CalibrantError(
            f"images must have the shape (n, channels, height, width); found {shape}. "
            "A single image is a batch of one: image[None]"
        )
    if shape[1] != channels:
        raise CalibrantError(
            f"the network takes images of {channels} channels; found {shape[1]} in {shape}. "
            f"Build it with in_channels={shape[1]}"
        )
    if min(shape[2:]) < smallest:
        raise CalibrantError(
            f"the network takes images of at least {smallest}x{smallest} pixels; found "
            f"{shape[2]}x{shape[3]}. Enlarge them, or use a network with fewer stages"
        )


def as_tuple(values: Any, name: str, *, count: int | None = None) -> tuple[Any, ...]:
    """A list or tuple as a tuple, of ``count`` entries if that is given."""
    if not (isinstance(values, list | tuple) and count in (None, len(values))):
        expected = "a list" if count is None else f"a list of {count} numbers"
        raise CalibrantError(
            f"{name} must be {expected}; found {_inputs.described(values)}. Write it in brackets"
        )
    return tuple(values)


def check_bool(value: Any, name: str) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool):
        raise CalibrantError(
            f"{name} must be true or false; found {_inputs.described(value)}. Pass one of them"
        )


def is_own_code(model: Any) -> bool:
    """Whether a network is given as ``package.module:function``: code to import and call."""
    return isinstance(model, str) and ":" in model


def plain_options(value: Any, name: str) -> None:
    """Options by name that JSON can represent."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise CalibrantError(
            f"{name} must be options by name; found {_inputs.described(value)}. "
            f"Pass {{'option': value}}, or write --set {name}.OPTION=VALUE"
        )
    try:
        json.dumps(dict(value), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CalibrantError(
            f"{name} must be representable as JSON, which identifies the run; found "
            f"{_inputs.described(dict(value))} ({error}). Pass numbers, strings and lists"
        ) from error


def field_without_option(name: str, remedy: str | None) -> None:
    """A field of a recipe that no other option sets."""
    if remedy is not None:
        raise CalibrantError(f"{name} is not a setting of a recipe. {remedy}")


def registered_network(model: Any, own_model: str | None, where: str, remedy: str) -> None:
    """A network that a file may name: one of calibrant, or the one that the caller names too."""
    if is_own_code(model) and model != own_model:
        given = "" if own_model is None else f", and {own_model!r} was given"
        raise CalibrantError(
            f"{where} may only name networks of calibrant; found {model!r}, which is code to "
            f"import and run{given}. {remedy}"
        )
