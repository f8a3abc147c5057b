"""MNIST and Fashion-MNIST: IDX files, compressed or not."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.images import HoldOut, Pool, hold_out_images
from calibrant.training.datasets.sources import Files, PublishedFile, damaged, opened, reading

MNIST_PAGE = "http://yann.lecun.com/exdb/mnist (mirror: ossci-datasets.s3.amazonaws.com/mnist)"
FASHION_PAGE = (
    "https://github.com/zalandoresearch/fashion-mnist (data/fashion; or on Debian: apt install "
    "dataset-fashion-mnist)"
)
FASHION_FOLDER = Path("/usr/share/datasets/fashion-mnist")
"""Folder of the Debian package ``dataset-fashion-mnist``."""

DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_MD5 = {
    "mnist": {
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    },
}
_FOLDERS = ("", "raw/", "MNIST/raw/", "FashionMNIST/raw/")


def read_mnist(
    name: str,
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    val_size: int = 5000,
    augment: str | None = None,
) -> DataSet:
    """MNIST or Fashion-MNIST: 55000 / 5000 / 10000 grey images of 28 x 28.

    Without a folder, Fashion-MNIST is read from its Debian package if that is installed. Training
    images of clothes are cropped and flipped at random; digits are not.

    References: Y. LeCun et al., Gradient-based learning applied to document recognition (1998);
    H. Xiao et al., Fashion-MNIST (2017), arXiv:1708.07747.
    """
    fashion = name == "fashion-mnist"
    page = FASHION_PAGE if fashion else MNIST_PAGE
    if fashion and folder is None and FASHION_FOLDER.is_dir():
        folder = FASHION_FOLDER
    if augment is None:
        augment = "crop-flip" if fashion else "none"
    files = Files.of(name, folder, page)
    return hold_out_images(
        HoldOut(seed, limit, val_size, augment),
        files,
        CLOTHES if fashion else DIGITS,
        _pool(files, "train", page),
        _pool(files, "t10k", page),
        published=(60000, 10000),
    )


def _pool(files: Files, prefix: str, page: str) -> Pool:
    images = _array(files, f"{prefix}-images-idx3-ubyte", 3, page)
    labels = _array(files, f"{prefix}-labels-idx1-ubyte", 1, page)
    if len(images) != len(labels):
        raise damaged(
            files.folder, f"holds {len(images)} images and {len(labels)} labels of {prefix}"
        )
    if labels.max(initial=0) > 9:
        raise damaged(files.folder, f"holds the label {labels.max()} of {prefix}, above 9")
    pool_name = "train" if prefix == "train" else "test"
    return Pool(pool_name, images[:, None], labels.astype(np.int64))


def _array(files: Files, name: str, axes: int, page: str) -> NDArray[np.uint8]:
    """Data of an IDX file, after two zeros, the type (8), the number of axes and their lengths."""
    published = PublishedFile(f"{name}.gz", page, _MD5[files.data_set][name])
    spellings = (name, name.replace("-idx", ".idx"))
    names = [f"{sub}{n}{end}" for sub in _FOLDERS for n in spellings for end in (".gz", "")]
    found = files.find(*names)
    if found is None:
        raise files.missing([published.name, name], published)
    files.note(found, published)
    with reading(found, "an IDX file"), opened(found) as file:
        content = file.read()
    start = 4 + 4 * axes
    if len(content) < start or content[:4] != bytes([0, 0, 8, axes]):
        raise damaged(found, f"does not start like an IDX file of bytes with {axes} axes")
    shape = struct.unpack(f">{axes}I", content[4:start])
    wanted = int(np.prod(shape, dtype=object))
    if len(content) - start != wanted or wanted == 0:
        raise damaged(
            found, f"must have {wanted} bytes for the shape {shape}; it has {len(content) - start}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape).copy()
