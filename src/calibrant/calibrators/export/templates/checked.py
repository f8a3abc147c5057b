"""The input check of an exported file."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
N_CLASSES = 3


def checked(logits: ArrayLike) -> tuple[Floats, np.dtype]:
    """The logits in double precision, and the dtype of the result: float32 or float64."""
    given = np.asarray(logits)
    s = given.astype(np.float64)
    if s.ndim == 0 or s.shape[-1] != N_CLASSES:
        raise ValueError(f"expected {N_CLASSES} classes on the last axis; found shape {s.shape}")
    if not np.isfinite(s.max(axis=-1)).all():
        raise ValueError("logits must not contain NaN, +inf or a row of only -inf")
    single = given.dtype.kind == "f" and given.dtype.itemsize <= 4
    return s, np.dtype(np.float32 if single else np.float64)
