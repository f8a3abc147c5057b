"""Checks that several modules of data sets, networks and recipes share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calibrant import _inputs
from calibrant._types import Array
from calibrant.errors import CalibrantError


def folder_of(value: Any, name: str, page: str) -> Path:
    """The folder (or file) that a data set is read from."""
    if value is None:
        raise CalibrantError(
            f"{name} is read from files; found no folder. Get them from {page} and pass the folder"
        )
    return _inputs.path(value, f"the folder of {name}")


def layer_size(value: Any, name: str) -> int:
    """The size of a layer, or of what it takes."""
    return _inputs.whole_number(value, name, allowed=range(1, 2**31))


def share_left_out(value: Any, name: str) -> float:
    """A share of a layer that dropout leaves out."""
    number = _inputs.finite_number(value, name)
    if not 0.0 <= number < 1.0:
        raise CalibrantError(
            f"{name} must be at least 0 and below 1; found {number:g}. 0 leaves nothing out"
        )
    return number


def images(values: Array, channels: int, *, smallest: int = 1) -> None:
    """Images that a network takes."""
    shape = tuple(values.shape)
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
            f"{shape[2]}x{shape[3]}. Enlarge them, or take a network with fewer stages"
        )


def n_classes(value: Any) -> int:
    """A number of classes to tell apart."""
    return _inputs.whole_number(value, "n_classes", allowed=range(2, 2**31))


def several(values: Any, name: str, *, count: int | None = None) -> tuple[Any, ...]:
    """A list, of ``count`` entries if that is given."""
    right = isinstance(values, list | tuple) and count in (None, len(values))
    if not right:
        wanted = "a list" if count is None else f"a list of {count} numbers"
        raise CalibrantError(
            f"{name} must be {wanted}; found {_inputs.described(values)}. Write it in brackets"
        )
    return tuple(values)


def yes_or_no(value: Any, name: str) -> None:
    """True or False, and nothing that counts as one of them."""
    if not isinstance(value, bool):
        raise CalibrantError(
            f"{name} must be true or false; found {_inputs.described(value)}. Pass one of them"
        )
