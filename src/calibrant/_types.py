"""Names for types that signatures share."""

from __future__ import annotations

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""An array of any library that follows the array API standard (NumPy, PyTorch, ...)."""
