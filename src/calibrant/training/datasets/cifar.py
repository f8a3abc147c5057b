"""CIFAR-10 and CIFAR-100, in the python and the binary version, as archives or extracted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import CalibrantError
from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.images import HoldOut, Pool, hold_out_images
from calibrant.training.datasets.pickles import StoredArray, read_plain_pickle
from calibrant.training.datasets.sources import Files, PublishedFile, damaged, reading, tar_members

PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
PIXELS = 3 * 32 * 32

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_NAMES = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout
tulip turtle wardrobe whale willow_tree wolf woman worm"""
CIFAR100_CLASSES = tuple(_NAMES.split())


@dataclass(frozen=True)
class Version:
    """One of the two forms in which a CIFAR set is published.

    Attributes:
        archive: File to download.
        folder: Folder that it extracts to.
        train: Files with training images, in order.
        test: File with test images.
        labels: Key of the labels in a pickle; None for the binary version.
        label_bytes: Bytes before the pixels of an image; the last of them is the class.
    """

    archive: PublishedFile
    folder: str
    train: tuple[str, ...]
    test: str
    labels: str | None = None
    label_bytes: int = 0


_FIVE = tuple(f"data_batch_{i}" for i in range(1, 6))
VERSIONS = {
    "cifar10": (
        Version(
            PublishedFile("cifar-10-python.tar.gz", PAGE, "c58f30108f718f92721af3b95e74349a"),
            "cifar-10-batches-py",
            _FIVE,
            "test_batch",
            labels="labels",
        ),
        Version(
            PublishedFile("cifar-10-binary.tar.gz", PAGE, "c32a1d4ab5d03f1284b67883e8d87530"),
            "cifar-10-batches-bin",
            tuple(f"{name}.bin" for name in _FIVE),
            "test_batch.bin",
            label_bytes=1,
        ),
    ),
    "cifar100": (
        Version(
            PublishedFile("cifar-100-python.tar.gz", PAGE, "eb9058c3a382ffc7106e4002c42a8d85"),
            "cifar-100-python",
            ("train",),
            "test",
            labels="fine_labels",
        ),
        Version(
            PublishedFile("cifar-100-binary.tar.gz", PAGE, "03b5dce01913d631647c71ecec9e9cb8"),
            "cifar-100-binary",
            ("train.bin",),
            "test.bin",
            label_bytes=2,
        ),
    ),
}


def read_cifar(
    name: str,
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    val_size: int = 5000,
    augment: str = "crop-flip",
    class_share: float = 1.0,
) -> DataSet:
    """CIFAR-10 or CIFAR-100: 45000 / 5000 / 10000 images, the papers' split.

    The folder holds the archive of the python or the binary version, or its extracted folder.
    ``class_share=0.1`` keeps a tenth of the training images of each class: paper 3's CIFAR10-s.

    Reference: A. Krizhevsky, Learning multiple layers of features from tiny images (2009).
    """
    files = Files.of(name, folder, PAGE)
    classes = CIFAR10_CLASSES if name == "cifar10" else CIFAR100_CLASSES
    version, place = _found(files, VERSIONS[name])
    pieces = {
        file: _decoded(place, content, file, version, len(classes))
        for file, content in _contents(files, place, version)
    }
    return hold_out_images(
        HoldOut(seed, limit, val_size, augment, class_share),
        files,
        classes,
        _pool("train", [pieces[file] for file in version.train]),
        _pool("test", [pieces[version.test]]),
        published=(50000, 10000),
    )


def _found(files: Files, versions: Sequence[Version]) -> tuple[Version, Path]:
    """The version found: in its own folder, directly in this one, or as an archive."""
    for version in versions:
        for place in (files.folder / version.folder, files.folder):
            if (place / version.test).is_file() and (place / version.train[0]).is_file():
                return version, place
    for version in versions:
        archive = files.find(version.archive.name)
        if archive is not None:
            return version, archive
    names = [name for version in versions for name in (version.archive.name, version.folder)]
    raise files.missing(names, versions[0].archive)


def _contents(files: Files, place: Path, version: Version) -> Iterator[tuple[str, bytes]]:
    """Name and content of each image file."""
    wanted = (*version.train, version.test)
    if place.is_dir():
        for name in wanted:
            path = files.need([str((place / name).relative_to(files.folder))], version.archive)
            files.note(path)
            yield name, path.read_bytes()
        return
    files.note(place, version.archive)
    missing = set(wanted)
    for name, content in tar_members(place, lambda name: Path(name).name in wanted):
        missing.discard(Path(name).name)
        yield Path(name).name, content
    if missing:
        raise damaged(place, f"lacks {', '.join(sorted(missing))}")


def _decoded(
    place: Path, content: bytes, file: str, version: Version, n_classes: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(n, 3072) pixels and (n,) labels of one file."""
    path = place / file if place.is_dir() else place
    if version.labels is None:
        size = version.label_bytes + PIXELS
        if len(content) % size or not content:
            raise damaged(path, f"has {len(content)} bytes in {file}, not a multiple of {size}")
        rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
        pixels = rows[:, version.label_bytes :]
        labels = rows[:, version.label_bytes - 1].astype(np.int64)
    else:
        with reading(path, "a CIFAR pickle"):
            pixels, labels = _unpickled(content, version.labels)
    if labels.size and not 0 <= labels.min() <= labels.max() < n_classes:
        raise damaged(path, f"has a label outside 0 to {n_classes - 1} in {file}")
    return pixels, labels


def _unpickled(content: bytes, key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    stored: dict[str, Any] = read_plain_pickle(content)
    if not isinstance(stored.get("data"), StoredArray) or not isinstance(stored.get(key), list):
        raise CalibrantError(f"it has no array 'data' or no list {key!r}")
    pixels = stored["data"].bytes_of((-1, PIXELS))
    labels = stored[key]
    if not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise CalibrantError("a label is not a small integer")
    if len(labels) != len(pixels) or not labels:
        raise CalibrantError(f"it has {len(pixels)} images and {len(labels)} labels")
    return pixels, np.array(labels, dtype=np.int64)


def _pool(name: str, pieces: Sequence[tuple[NDArray[np.uint8], NDArray[np.int64]]]) -> Pool:
    pixels = np.concatenate([pixels for pixels, _ in pieces]).reshape(-1, 3, 32, 32)
    return Pool(name, pixels, np.concatenate([labels for _, labels in pieces]))
