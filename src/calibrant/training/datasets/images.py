"""Images stored as bytes and normalised by batch, and their augmentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant import _inputs
from calibrant.training.datasets.base import Augment, DataSet, Split
from calibrant.training.datasets.sources import Files, size_notes
from calibrant.training.datasets.splitting import Rows, hold_out, share_of_each_class

AUGMENTATIONS = ("crop-flip", "crop", "none")


@dataclass(frozen=True)
class Pool:
    """All images of one source, from which splits take rows.

    Attributes:
        name: Source of the images, for the ids: ``"train"``, ``"test"``, ...
        pixels: (n, channels, height, width) uint8.
        labels: (n,) int64.
    """

    name: str
    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


class ImageSplit(Split):
    """Rows of a pool; batches are float32, ``(pixel - mean) / sd`` for each channel."""

    def __init__(self, pool: Pool, rows: Rows, mean: Tensor, sd: Tensor) -> None:
        self.pixels = torch.from_numpy(pool.pixels)
        self.rows = torch.from_numpy(np.ascontiguousarray(rows))
        self.labels = torch.from_numpy(np.ascontiguousarray(pool.labels[rows]))
        self.ids = np.array([f"{pool.name}/{row}" for row in rows], dtype=np.str_)
        self.mean = mean.reshape(-1, 1, 1)
        self.sd = sd.reshape(-1, 1, 1)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """(m, channels, height, width) float32 and (m,) int64."""
        pixels = self.pixels[self.rows[indices]].to(torch.float32)
        return pixels.sub_(self.mean).div_(self.sd), self.labels[indices]


class CropAndFlip:
    """Random crop of the padded image, and a horizontal flip with probability 1/2.

    The padding is black, as if the original pixels were padded with 0 before normalisation.

    Args:
        fill: (channels,) value of a black pixel after normalisation.
        padding: Largest shift, in pixels.
        flip: Whether to flip horizontally.

    Examples:
        >>> import torch
        >>> change = CropAndFlip(fill=torch.zeros(3), padding=4)
        >>> images = torch.ones(128, 3, 32, 32)
        >>> change(images, torch.Generator().manual_seed(1)).shape
        torch.Size([128, 3, 32, 32])
    """

    def __init__(self, *, fill: Tensor, padding: int = 4, flip: bool = True) -> None:
        self.fill = fill
        self.padding = padding
        self.flip = flip

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Augmented images; takes two draws per image from ``generator``, three with ``flip``."""
        n, channels, height, width = inputs.shape
        pad = self.padding
        padded = inputs.new_empty(n, channels, height + 2 * pad, width + 2 * pad)
        padded[:] = self.fill.to(inputs).reshape(-1, 1, 1)
        padded[:, :, pad : pad + height, pad : pad + width] = inputs
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view of every shift
        down, right = (self._draws(2 * pad + 1, inputs, generator) for _ in range(2))
        changed = windows[torch.arange(n, device=inputs.device), :, down, right]
        if self.flip:
            flipped = self._draws(2, inputs, generator) == 1
            changed = torch.where(flipped[:, None, None, None], changed.flip(3), changed)
        return changed

    @staticmethod
    def _draws(n_values: int, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """A random integer from 0 to n_values - 1 for each image."""
        size = (len(inputs),)
        drawn = torch.randint(n_values, size, generator=generator, device=generator.device)
        return drawn.to(inputs.device)


def image_data_set(
    name: str,
    class_names: Sequence[str],
    rows: Mapping[str, tuple[Pool, Rows]],
    *,
    limit: int | None,
    augment: str,
    record: Mapping[str, Any],
) -> DataSet:
    """Splits out of pools, normalised by the training split after ``limit``."""
    augment = _inputs.choice(augment, "augment", AUGMENTATIONS)
    pool, train = rows["train"]
    mean, sd = _mean_and_sd(pool, train[:limit])
    shift, scale = (torch.tensor(values, dtype=torch.float32) for values in (mean, sd))
    splits: dict[str, Any] = {
        split: ImageSplit(*chosen, shift, scale)
        for split, chosen in {**rows, "train": (pool, train[:limit])}.items()
    }
    change: Augment | None = None
    if augment != "none":
        change = CropAndFlip(fill=-shift / scale, flip=augment == "crop-flip")
    return DataSet(
        name=name,
        kind="images",
        input_shape=tuple(pool.pixels.shape[1:]),
        class_names=tuple(class_names),
        **splits,
        record={
            **record,
            "normalisation": {
                "formula": "(pixel - mean) / sd per channel, from the training split only",
                "mean": mean.tolist(),
                "sd": sd.tolist(),
            },
            "augmentation": augment,
        },
        augment=change,
    )


class HoldOut(NamedTuple):
    """How published training images become a training and a validation split."""

    seed: int
    limit: int | None
    val_size: int
    augment: str
    class_share: float = 1.0
    """Share of the training images of each class that is kept; the other splits stay whole."""


def hold_out_images(
    wanted: HoldOut,
    source: Files,
    class_names: Sequence[str],
    train: Pool,
    test: Pool,
    *,
    published: tuple[int, int],
    notes: Sequence[str] = (),
) -> DataSet:
    """A data set published as a training and a test set: the first gives the validation images.

    ``published`` has the sizes of the two sets; other sizes are noted in the record.
    """
    rows, held = hold_out(len(train), wanted.val_size, wanted.seed)
    rows = share_of_each_class(train.labels, rows, wanted.class_share)
    if wanted.class_share < 1.0:
        notes = [*notes, f"{wanted.class_share:.4g} of the training images of each class"]
    return image_data_set(
        source.data_set,
        class_names,
        {"train": (train, rows), "val": (train, held), "test": (test, np.arange(len(test)))},
        limit=wanted.limit,
        augment=wanted.augment,
        record={
            "files": source.read,
            "split": f"val: {len(held)} of the {len(train)} published training images, drawn by "
            f"the seed; test: the {len(test)} published {test.name} images",
            "notes": [*notes, *size_notes((len(train), len(test)), published)],
        },
    )


def _mean_and_sd(pool: Pool, rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and sd per channel, from exact counts of the 256 values; a constant channel has sd 1."""
    counts = np.zeros((pool.pixels.shape[1], 256), dtype=np.int64)
    for start in range(0, len(rows), 1024):
        block = pool.pixels[rows[start : start + 1024]]
        for channel, count in enumerate(counts):
            count += np.bincount(block[:, channel].reshape(-1), minlength=256)
    values = np.arange(256)
    total = counts.sum(axis=1)
    mean = counts @ values / total
    sd = np.sqrt((counts * (values - mean[:, None]) ** 2).sum(axis=1) / total)
    return mean, np.where(sd > 0, sd, 1.0)
