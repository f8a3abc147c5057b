"""The effect of the map on networks that fit CIFAR10-s: a tenth of each class, 200 epochs."""

from __future__ import annotations

from experiments.map_on_images.run import run

__all__ = ["run"]
