"""The library of an array, from array-api-compat.

``torch.compile`` warns about the caches in these functions of array-api-compat, so a torch tensor
does not reach them. NumPy follows the standard itself since version 2.1, and its own ``clip`` takes
a tenth of the time on a single row.
"""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np

from calibrant._types import Array

NUMPY_FOLLOWS_THE_STANDARD = hasattr(np, "astype")


def array_namespace(array: Array) -> Any:
    """The functions of the array API standard for ``array``."""
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
