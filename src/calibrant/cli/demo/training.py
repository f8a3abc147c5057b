"""Four small networks on the digits of scikit-learn, in a plain PyTorch loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch import Tensor, nn

from calibrant.files import Predictions
from calibrant.losses import LOSSES

N_TRAIN, N_VAL = 200, 600
MISLABELLED = 0.02
"""Part of all labels, of every part, drawn at random: what no model can know."""
EPOCHS = 150
BATCH, HIDDEN, RATE = 64, 256, 1e-3
CLASS_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Digits:
    """Images in a random order, the first ``N_TRAIN`` to train on, then ``N_VAL`` held out."""

    images: Tensor
    labels: Tensor
    ids: npt.NDArray[np.int64]
    """Places in ``load_digits``."""
    n_changed: int
    """Labels that are not those of the data set."""

    def part(self, name: str) -> slice:
        """The rows of ``train``, ``val`` or ``test``."""
        ends = {"train": (0, N_TRAIN), "val": (N_TRAIN, N_TRAIN + N_VAL)}
        return slice(*ends.get(name, (N_TRAIN + N_VAL, len(self.labels))))

    def size(self, name: str) -> int:
        """How many rows a part has."""
        return len(self.labels[self.part(name)])


def noisy_digits(seed: int) -> Digits:
    """The digits, a few of the labels replaced by random ones."""
    rng = np.random.default_rng(seed)
    images, truth = load_digits(return_X_y=True)
    drawn = rng.random(len(truth)) < MISLABELLED
    labels = np.where(drawn, rng.integers(0, 10, len(truth)), truth)
    order = rng.permutation(len(labels))
    return Digits(
        images=torch.tensor(images[order] / 16.0, dtype=torch.float32),
        labels=torch.tensor(labels[order]),
        ids=order,
        n_changed=int((labels != truth).sum()),
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Steps this small are faster on one, and give the same numbers everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def train(
    name: str, digits: Digits, *, seed: int, epochs: int, after_epoch: Callable[[], Any]
) -> dict[str, Predictions]:
    """Train a network with the loss ``name``; what it says of the parts ``val`` and ``test``."""
    rng = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = nn.Sequential(
            *(nn.Linear(64, HIDDEN), nn.ReLU()),
            *(nn.Linear(HIDDEN, HIDDEN), nn.ReLU()),
            nn.Linear(HIDDEN, 10),
        )
    loss = LOSSES[name]()  # in the place of nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    x, y, val = digits.images, digits.labels, digits.part("val")
    for epoch in range(epochs):
        loss.start_epoch(epoch, epochs)
        for batch in torch.split(torch.randperm(N_TRAIN, generator=rng), BATCH):
            optimizer.zero_grad()
            loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            loss.update(model(x[val]), y[val])  # for AdaFocal
        after_epoch()
    with torch.no_grad():
        logits = model(x).numpy()
    return {part: _predictions(logits, digits, part) for part in ("val", "test")}


def _predictions(logits: npt.NDArray[np.float32], digits: Digits, part: str) -> Predictions:
    rows = digits.part(part)
    return Predictions(
        logits=logits[rows],
        labels=digits.labels[rows].numpy(),
        ids=digits.ids[rows],
        class_names=CLASS_NAMES,
    )
