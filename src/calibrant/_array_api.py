"""The library of an array, from array-api-compat.

``torch.compile`` warns about the caches in these functions of array-api-compat, so a torch tensor
does not reach them. NumPy follows the standard itself since version 2.1, and its own ``clip`` takes
a tenth of the time on a single row. For a single number Python's own functions take a tenth of the
time of NumPy's, so that a formula written for arrays is also fast for one Python float.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import array_api_compat
import numpy as np

from calibrant._types import Array

NUMPY_FOLLOWS_THE_STANDARD = hasattr(np, "astype")


def _clip(x: float, *, min: float = -math.inf, max: float = math.inf) -> float:  # noqa: A002
    return min if x < min else max if x > max else x


OF_A_FLOAT = SimpleNamespace(
    abs=abs,
    clip=_clip,
    exp=math.exp,
    finfo=np.finfo,
    log=lambda x: math.log(x) if x > 0.0 else -math.inf,
    log1p=math.log1p,
    logaddexp=lambda x, y: max(x, y) + math.log1p(math.exp(-abs(x - y))),
    maximum=max,
    minimum=min,
    where=lambda condition, x, y: x if condition else y,
    zeros_like=lambda x: 0.0,
)
"""The functions of the standard that formulas of one finite number need."""


def array_namespace(array: Array) -> Any:
    """The functions of the array API standard for ``array``, or for one float."""
    if type(array) is float:
        return OF_A_FLOAT
    if _is_tensor(array):
        from array_api_compat import torch

        return torch
    if NUMPY_FOLLOWS_THE_STANDARD and isinstance(array, np.ndarray):
        return np
    return array_api_compat.array_namespace(array)


def device(array: Array) -> Any:
    """The device that ``array`` is on."""
    return array.device if _is_tensor(array) else array_api_compat.device(array)


def is_array_api_obj(value: Any) -> bool:
    """Whether ``value`` is an array of a known library."""
    return _is_tensor(value) or array_api_compat.is_array_api_obj(value)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "detach")
