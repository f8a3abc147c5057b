"""Training of the demo: the recipe of digits as it is, with the code of ``calibrant train``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from calibrant._writing import write_whole
from calibrant.training import Recipe, recipe, train
from calibrant.training.datasets import DataSet, load
from calibrant.training.folders import RunFolder
from calibrant.training.run import fixed_gamma, loss_of

SOURCE = "calibrant demo"
"""Source of the recipe in the configuration of a run."""


def recipe_of(loss: str, *, seed: int, **changes: Any) -> Recipe:
    """The recipe of one network: that of ``calibrant train digits``."""
    return recipe("digits", loss=loss, seed=seed, source=SOURCE, **changes)


def data_of(wanted: Recipe) -> DataSet:
    """The digits of a recipe, the same for every loss."""
    return load(wanted.data, random_state=wanted.seed, **wanted.data_options)


def gamma_of(wanted: Recipe) -> float | None:
    """The fixed gamma of the loss, if it has one."""
    return fixed_gamma(loss_of(wanted))


def train_network(
    wanted: Recipe, data: DataSet, folder: Path, file: Path, *, after_epoch: Callable[[], Any]
) -> None:
    """Train in ``folder``, and copy the predictions on ``val`` and ``test`` to ``file``."""
    # A CPU is enough for such a small network, and gives the same numbers everywhere.
    train(wanted, folder, data=data, accelerator="cpu", on_epoch=lambda _: after_epoch())
    write_whole(file, RunFolder(folder).predictions.read_bytes())
