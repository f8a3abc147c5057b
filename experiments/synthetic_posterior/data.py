"""Three normal classes on a line, with their true probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Normals:
    """Equally frequent classes, each normal around its mean with standard deviation 1."""

    means: Sequence[float]

    def draw(self, n: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """Inputs and labels."""
        labels = rng.integers(len(self.means), size=n)
        return np.asarray(self.means)[labels] + rng.normal(size=n), labels

    def joint(self, x: Floats) -> Floats:
        """The density p(x, y), classes on the last axis."""
        apart = x[:, None] - np.asarray(self.means)
        return np.asarray(np.exp(-(apart**2) / 2) / np.sqrt(2 * np.pi) / len(self.means))

    def posterior(self, x: Floats) -> Floats:
        """The true p(y | x)."""
        joint = self.joint(x)
        return np.asarray(joint / joint.sum(axis=1, keepdims=True))
