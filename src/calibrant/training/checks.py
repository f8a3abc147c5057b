"""Checks that several modules of data sets, networks and recipes share."""

from __future__ import annotations

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
