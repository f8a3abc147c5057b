"""Networks: their sizes, their inputs and what they put out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import is_array_api_obj

from calibrant._checks.arrays import rectangular
from calibrant._checks.values import described, finite_number, holds, whole_number
from calibrant._types import Array
from calibrant.errors import CalibrantError


def layer_size(value: Any, name: str) -> int:
    """The size of a layer, or of what it takes."""
    return whole_number(value, name, allowed=range(1, 2**31))


def share_left_out(value: Any, name: str) -> float:
    """A share of a layer that dropout leaves out."""
    number = finite_number(value, name)
    if not 0.0 <= number < 1.0:
        raise CalibrantError(
            f"{name} must be at least 0 and below 1; found {number:g}. 0 leaves nothing out"
        )
    return number


def depth_of_resnet(depth: Any) -> int:
    """n of a depth 6n+2."""
    number = whole_number(depth, "depth", allowed=range(8, 10_000))
    if number % 6 != 2:
        below = number - (number - 2) % 6
        raise CalibrantError(
            f"depth must be 6n+2, for three stages of n blocks of two layers; found {number}. "
            f"Take {below} or {below + 6}"
        )
    return number // 6


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


def inputs_of_size(values: Array, n_features: int) -> None:
    """Inputs (n, ...) of so many numbers each."""
    size = math.prod(values.shape[1:])
    if values.ndim < 2 or size != n_features:
        raise CalibrantError(
            f"the network takes inputs of {n_features} numbers; found the shape "
            f"{tuple(values.shape)}. Build it with n_features={size}"
        )


def embeddings(values: Any, n_words: Any) -> npt.NDArray[np.float32] | None:
    """One vector for each token id; None where ``n_words`` says how many there are."""
    if (values is None) == (n_words is None):
        raise CalibrantError(
            "exactly one of embeddings and n_words is needed; found "
            f"{'neither' if values is None else 'both'}. Pass the word vectors, or the number of "
            "token ids for vectors that are learnt from nothing"
        )
    if values is None:
        return None
    array = np.asarray(rectangular(values, "embeddings"), dtype=np.float32)
    if array.ndim != 2 or 0 in array.shape:
        raise CalibrantError(
            f"embeddings must have the shape (words, dimensions); found {array.shape}. Give one "
            "row for each token id, row 0 for padding"
        )
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise CalibrantError(
            f"embeddings must be finite; found NaN or infinity in row {row}. Put zeros, or small "
            "noise, where a word has no vector"
        )
    return array


def token_ids(tokens: Array, n_words: int) -> None:
    """Token ids that a table of words has."""
    # On a GPU the look would wait for all that is under way.
    if tokens.device.type != "cpu" or tokens.numel() == 0:
        return
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= n_words:
        raise CalibrantError(
            f"token ids must be from 0 to {n_words - 1}, one row of the word vectors each; found "
            f"{low if low < 0 else high}. Build the network with the vocabulary of the data"
        )


def n_classes(value: Any) -> int:
    """A number of classes to tell apart."""
    return whole_number(value, "n_classes", allowed=range(2, 2**31))


def options_of_network(options: Mapping[str, Any], name: str, known: Mapping[str, bool]) -> None:
    """Options that a network has, with all that it needs (where ``known`` says true)."""
    has = f"It has {', '.join(known)}" if known else "It has none"
    for option in options:
        if option not in known:
            raise CalibrantError(f"the network {name} has no option {option!r}. {has}")
    missing = [option for option, needed in known.items() if needed and option not in options]
    if missing:
        raise CalibrantError(
            f"the network {name} needs {', '.join(missing)}; found "
            f"{', '.join(options) or 'no options'}. Pass {missing[0]}=..."
        )


def last_linear_layer(sizes: Mapping[str, int], n_classes: int, wanted: str | None) -> str:
    """The name of the layer that gives the logits, out of all linear layers."""
    if wanted is not None:
        if wanted not in sizes:
            raise CalibrantError(
                f"classifier must name a linear layer of the network; found {wanted!r}. It has "
                f"{', '.join(sizes) or 'none'}"
            )
        return wanted
    fitting = [name for name, size in sizes.items() if size == n_classes]
    if not fitting:
        found = ", ".join(f"{name} ({size})" for name, size in list(sizes.items())[-3:])
        raise CalibrantError(
            f"the network has no linear layer of {n_classes} outputs; found {found or 'none'} at "
            "its end. Build it for that many classes, or say where it is with classifier="
        )
    return fitting[-1]


def logits_of_network(output: Any) -> Any:
    """The logits in what a network returns."""
    if holds(output, "logits"):
        output = output["logits"]
    elif getattr(output, "logits", None) is not None:
        output = output.logits
    elif isinstance(output, tuple | list) and output:
        output = output[0]
    if not is_array_api_obj(output):
        raise CalibrantError(
            f"the network must return logits; found {described(output)}. Return a tensor, or an "
            "object with .logits"
        )
    return output
