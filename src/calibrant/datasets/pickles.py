"""CIFAR's pickles, read without trusting them.

A pickle may name any function of any module and have it called. This reader gives it four names
and nothing of Python behind them: what NumPy arrays of bytes are written with becomes a plain
holder, whose content is looked at afterwards. Everything else a pickle names is refused before it
is imported.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")


class StoredArray:
    """What a pickle says of an array: its arguments and its state, not yet believed."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_of(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """The array, if it has this shape (-1: any length) and is of bytes."""
        _, found, dtype, fortran, raw = self.state
        if not (isinstance(dtype, StoredType) and dtype.code in ("u1", "|u1")):
            raise ValueError("an array is not of bytes (uint8)")
        known = [f if wanted == -1 else wanted for f, wanted in zip(found, shape, strict=False)]
        if len(found) != len(shape) or list(found) != known:
            raise ValueError(f"an array has the shape {found}, not {shape}")
        if isinstance(raw, str):
            raw = raw.encode("latin-1")
        array = np.frombuffer(raw, dtype=np.uint8)
        return array.reshape(found, order="F" if fortran else "C")


class StoredType:
    """What a pickle says of an array's type."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code.decode("latin-1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment, which bytes do not have."""


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in _MULTIARRAY and name == "_reconstruct":
            return StoredArray
        if module == "numpy" and name in ("ndarray", "dtype"):
            return StoredArray if name == "ndarray" else StoredType
        if module == "_codecs" and name == "encode":  # how Python 3 writes bytes for Python 2
            return lambda text, _: text.encode("latin-1")
        raise pickle.UnpicklingError(
            f"it asks for {module}.{name}, which has no place in a file of images"
        )


def read_plain_pickle(content: bytes) -> dict[str, Any]:
    """The dictionary in a pickle of plain values and arrays of bytes; nothing is executed.

    Strings of Python 2 are read as bytes; the keys come back as text.

    Examples:
        >>> import pickle
        >>> read_plain_pickle(pickle.dumps({"labels": [3, 1]}))
        {'labels': [3, 1]}
        >>> read_plain_pickle(pickle.dumps({"labels": print}))
        Traceback (most recent call last):
        _pickle.UnpicklingError: it asks for builtins.print, which has no place in a file of images
    """
    found = _Reader(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}, not a dictionary")
    return {
        key.decode("latin-1") if isinstance(key, bytes) else str(key): value
        for key, value in found.items()
    }
