"""What the demo trains: a recipe on noisy digits, by the code behind ``calibrant train``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from calibrant._writing import write_whole
from calibrant.training import Recipe, recipe, train
from calibrant.training.datasets import DataSet, load
from calibrant.training.folders import RunFolder
from calibrant.training.run import fixed_gamma, loss_of

SHARES = {"val_share": 1 / 3, "test_share": 5 / 9}
"""A ninth is left to learn from: with so little to learn from, losses differ."""
LABEL_NOISE = 0.02
"""Share of all labels, of every part, drawn at random: what no network can know."""
HIDDEN = (256, 256)
EPOCHS, LEARNING_RATE = 50, 0.002
SOURCE = "calibrant demo"
"""What the configuration of a run says of where its recipe stands."""


def recipe_of(loss: str, *, seed: int, epochs: int = EPOCHS) -> Recipe:
    """How one network of the demo is trained."""
    return recipe(
        "digits",
        loss=loss,
        seed=seed,
        epochs=epochs,
        learning_rate=LEARNING_RATE,
        data_options={**SHARES, "label_noise": LABEL_NOISE},
        model_options={"hidden": list(HIDDEN)},
        source=SOURCE,
    )


def data_of(wanted: Recipe) -> DataSet:
    """The noisy digits of a recipe; they are the same for every loss."""
    return load(wanted.data, random_state=wanted.seed, **wanted.data_options)


def gamma_of(wanted: Recipe) -> float | None:
    """The gamma whose focal map belongs to the loss, if there is one."""
    return fixed_gamma(loss_of(wanted))


def train_network(
    wanted: Recipe, data: DataSet, folder: Path, file: Path, *, after_epoch: Callable[[], Any]
) -> None:
    """One run in ``folder``; what it says of the parts ``val`` and ``test`` is also in ``file``."""
    # So small a network has no use for more than a CPU, which gives the same numbers everywhere.
    train(wanted, folder, data=data, accelerator="cpu", on_epoch=lambda _: after_epoch())
    write_whole(file, RunFolder(folder).predictions.read_bytes())
