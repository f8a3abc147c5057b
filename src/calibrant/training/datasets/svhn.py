"""SVHN, the 32 x 32 crops: the published ``.mat`` files, or three splits in one ``.npz``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import CalibrantError
from calibrant.training import checks
from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.images import HoldOut, Pool, hold_out_images, image_data_set
from calibrant.training.datasets.sources import Files, PublishedFile, damaged, npz_arrays, reading
from calibrant.training.datasets.splitting import StableRandom

PAGE = "http://ufldl.stanford.edu/housenumbers"
DIGITS = tuple(str(digit) for digit in range(10))
TRAIN = PublishedFile("train_32x32.mat", PAGE, "e26dedcc434d2e4c54c9b2d4a06d8373")
TEST = PublishedFile("test_32x32.mat", PAGE, "eb5a983be6a315427106f1b164d9cef3")
EXTRA = PublishedFile("extra_32x32.mat", PAGE, "a93ce644f1a588dc4d68dda5feec44a7")
SUBSET = PublishedFile("svhn32_subset.npz", "the place where you got this form of the data")


def read_svhn(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    val_size: int = 6000,
    extra: bool = False,
    augment: str = "crop",
) -> DataSet:
    """SVHN: 67257 / 6000 / 26032 images; with the extra ones 598388 / 6000 / 26032.

    Paper 3 does not say how it holds out a validation set; 6000 is the number of Guo et al.,
    On calibration of modern neural networks (2017). Training images are cropped at random and not
    flipped: a mirrored digit is not a digit.

    Reference: Y. Netzer et al., Reading digits in natural images with unsupervised feature
    learning (2011).
    """
    checks.check_bool(extra, "extra")
    files = Files.of("svhn", folder, PAGE)
    pools = [_mat(files, file) for file in ((TRAIN, EXTRA) if extra else (TRAIN,))]
    train = Pool(
        "train",
        np.concatenate([pixels for pixels, _ in pools]) if extra else pools[0][0],
        np.concatenate([labels for _, labels in pools]),
    )
    test = Pool("test", *_mat(files, TEST))
    return hold_out_images(
        HoldOut(seed, limit, val_size, augment),
        files,
        DIGITS,
        train,
        test,
        published=(604388 if extra else 73257, 26032),
        notes=["with the extra training images"] if extra else [],
    )


def read_svhn_subset(
    folder: Path | None, *, seed: int, limit: int | None, augment: str = "crop"
) -> DataSet:
    """A subset of SVHN in one ``.npz``: arrays ``train_x``, ``train_y``, ``val_x``, ... .

    Images are uint8 (n, height, width, channels); the splits are those of the file.
    """
    files = Files.of("svhn-subset", folder, SUBSET.page)
    path = files.single(SUBSET)
    stored = npz_arrays(path)
    with reading(path, "images and labels"):
        pools = {name: _stored_pool(stored, name) for name in ("train", "val", "test")}
    rows = {name: (pool, np.arange(len(pool))) for name, pool in pools.items()}
    order = StableRandom(seed).permutation(len(pools["train"]))
    return image_data_set(
        "svhn-subset",
        DIGITS,
        {**rows, "train": (pools["train"], order)},
        limit=limit,
        augment=augment,
        record={
            "files": files.read,
            "split": "as in the file; the seed shuffles the training split",
            "notes": ["a subset of SVHN, not the published set"],
        },
    )


def _stored_pool(stored: Any, name: str) -> Pool:
    pixels, labels = stored[f"{name}_x"], stored[f"{name}_y"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or labels.shape != pixels.shape[:1]:
        raise CalibrantError(f"{name}_x must be uint8 (n, height, width, channels), {name}_y (n,)")
    if not (labels.dtype.kind in "iu" and len(labels) and labels.max() <= 9 and labels.min() >= 0):
        raise CalibrantError(f"{name}_y must be digits 0 to 9")
    return Pool(name, np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), labels.astype(np.int64))


def _mat(files: Files, published: PublishedFile) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """X (32, 32, 3, n) and y (n, 1), in which class 10 is the digit 0."""
    from scipy.io import loadmat

    path = files.need([published.name], published)
    files.note(path, published)
    with reading(path, "a MATLAB file"):
        stored = loadmat(path, variable_names=["X", "y"])
        pixels, labels = stored["X"], stored["y"].reshape(-1)
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, len(labels)) or not len(labels):
        raise damaged(
            path,
            f"must have X of bytes (32, 32, 3, n) and n labels y; found X {pixels.dtype} "
            f"{pixels.shape} and {len(labels)} labels",
        )
    if labels.dtype.kind not in "iuf":
        raise damaged(path, f"must have labels y that are numbers; found the type {labels.dtype}")
    broken = np.flatnonzero(labels != np.floor(labels))  # NaN too
    if len(broken):
        row = broken[0]
        raise damaged(
            path, f"must have whole numbers as labels y; found {labels[row]} in row {row}"
        )
    if not 1 <= labels.min() <= labels.max() <= 10:
        raise damaged(path, f"has labels from {labels.min()} to {labels.max()}, not 1 to 10")
    return np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), labels.astype(np.int64) % 10
