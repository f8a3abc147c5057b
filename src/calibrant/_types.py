"""Type aliases shared by signatures."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""An array of any library that follows the array API standard (NumPy, PyTorch, ...)."""

RandomState: TypeAlias = "int | np.random.Generator | None"
"""A seed, a generator to draw one from, or None for a new seed in each call."""
