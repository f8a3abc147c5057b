"""Data sets of JPEG files: Tiny ImageNet, and a JPEG version of CIFAR-10."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import _inputs
from calibrant._writing import written_whole
from calibrant.errors import CalibrantError
from calibrant.training.datasets.base import DataSet
from calibrant.training.datasets.cifar import CIFAR10_CLASSES
from calibrant.training.datasets.images import HoldOut, Pool, hold_out_images
from calibrant.training.datasets.sources import (
    Files,
    PublishedFile,
    damaged,
    npz_arrays,
    reading,
    tar_members,
)

TINY = PublishedFile(
    "tiny-imagenet-200.zip",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "90528d7ca1a48142e341f4ef8d21d0de",
)
TINY_FOLDER = "tiny-imagenet-200"
JPEG = PublishedFile("cifar10_jpegq75.tar.xz", "the place where you got this form of the data")

SPLITS = ("train", "test")
MANY = 10_000
"""Images from which decoding takes long enough to keep the result."""


def read_tiny_imagenet(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    val_size: int = 10000,
    augment: str = "crop-flip",
) -> DataSet:
    """Tiny ImageNet: 90000 / 10000 / 10000 images of 64 x 64 in 200 classes, as paper 2 splits it.

    The published validation images are the test split; the published test images have no labels.
    The folder holds ``tiny-imagenet-200.zip`` or its extracted folder. Needs Pillow.

    Reference: Y. Le and X. Yang, Tiny ImageNet visual recognition challenge (2015).
    """
    files = Files.of("tinyimagenet", folder, TINY.page)
    digest = hashlib.sha256()
    with _tiny_files(files) as (read, names, path):
        with reading(path, "Tiny ImageNet"):
            classes = sorted(read("wnids.txt").decode().split())
            words = dict(line.split("\t", 1) for line in read("words.txt").decode().splitlines())
            notes = read("val/val_annotations.txt").decode().splitlines()
            truth = {f"val/images/{line.split()[0]}": line.split()[1] for line in notes}
        train = {name: name.split("/")[1] for name in names if name.startswith("train/")}
        test = {name: truth.get(name, "none") for name in names if name.startswith("val/")}
        number = {wnid: i for i, wnid in enumerate(classes)}
        _complete(path, train, classes)
        if unknown := sorted(set(truth) ^ set(test)):
            raise damaged(
                path, f"has {unknown[0]} in only one of val/images and val_annotations.txt"
            )
        _complete(path, test, classes)
        pools = [
            _pool(split, chosen, number, read, 64, path, digest)
            for split, chosen in (("train", train), ("validation", test))
        ]
    if path.is_dir():
        files.note_folder(path, digest.hexdigest(), len(train) + len(test))
    return hold_out_images(
        HoldOut(seed, limit, val_size, augment),
        files,
        [words.get(wnid, wnid) for wnid in classes],
        *pools,
        published=(100000, 10000),
    )


def read_cifar10_jpeg(
    folder: Path | None,
    *,
    seed: int,
    limit: int | None,
    val_size: int = 5000,
    augment: str = "crop-flip",
    class_share: float = 1.0,
) -> DataSet:
    """CIFAR-10 from ``train/<class>/<number>.jpg`` and ``test/...`` in a ``.tar.xz``: lossy images.

    Needs Pillow. Results on these images are not comparable with those on CIFAR-10 itself.
    """
    files = Files.of("cifar10-jpeg", folder, JPEG.page)
    path = files.single(JPEG)
    pools = _decoded_once(files.read[path.name]["sha256"], partial(_cifar10_jpeg_pools, path))
    return hold_out_images(
        HoldOut(seed, limit, val_size, augment, class_share),
        files,
        CIFAR10_CLASSES,
        *pools,
        published=(50000, 10000),
        notes=["JPEG-compressed, not the lossless original"],
    )


def _cifar10_jpeg_pools(path: Path) -> list[Pool]:
    """The images of both splits."""
    contents = dict(tar_members(path, lambda name: name.endswith(".jpg")))
    number = {name: i for i, name in enumerate(CIFAR10_CLASSES)}
    pools = []
    for split in SPLITS:
        names = sorted(name for name in contents if name.startswith(f"{split}/"))
        chosen = {name: name.split("/")[1] for name in names}
        _complete(path, chosen, CIFAR10_CLASSES)
        pools.append(_pool(split, chosen, number, contents.pop, 32, path))
    return pools


def _decoded_once(digest: str, decode: Callable[[], list[Pool]]) -> list[Pool]:
    """The images of the archive with this SHA-256, which are kept decoded in the user's cache.

    Every run of a grid reads them, and decoding takes as long as some epochs of a small network.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    stored = cache / "calibrant" / f"{digest}.npz"
    with contextlib.suppress(OSError, CalibrantError, KeyError):  # none yet, or damaged
        arrays = npz_arrays(stored)
        return [
            Pool(split, arrays[f"{split}_pixels"], arrays[f"{split}_labels"]) for split in SPLITS
        ]
    pools = decode()
    if sum(len(pool.labels) for pool in pools) >= MANY:
        arrays = {f"{pool.name}_pixels": pool.pixels for pool in pools}
        arrays |= {f"{pool.name}_labels": pool.labels for pool in pools}
        with contextlib.suppress(OSError, CalibrantError):  # a cache is no reason to fail
            stored.parent.mkdir(parents=True, exist_ok=True)
            with written_whole(stored) as temporary:
                np.savez(temporary, allow_pickle=False, **arrays)
    return pools


@contextlib.contextmanager
def _tiny_files(files: Files) -> Iterator[tuple[Callable[[str], bytes], list[str], Path]]:
    """A function that reads a file by name, the sorted names of the images, and their location."""
    for root in (files.folder / TINY_FOLDER, files.folder):
        if (root / "wnids.txt").is_file():
            found = [*root.glob("train/*/images/*.JPEG"), *root.glob("val/images/*.JPEG")]
            yield partial(_read, root), sorted(p.relative_to(root).as_posix() for p in found), root
            return
    path = files.need([TINY.name, TINY_FOLDER], TINY)
    if path.is_dir():
        raise damaged(path, "lacks wnids.txt")
    files.note(path, TINY)
    prefix = f"{TINY_FOLDER}/"
    with contextlib.ExitStack() as stack:
        with reading(path, "a .zip archive"):
            archive = stack.enter_context(zipfile.ZipFile(path))
        inside = [name.removeprefix(prefix) for name in archive.namelist()]
        names = sorted(name for name in inside if name.endswith(".JPEG"))
        wanted = [name for name in names if not name.startswith("test/")]
        yield (lambda name: archive.read(prefix + name)), wanted, path


def _read(root: Path, name: str) -> bytes:
    if not (root / name).is_file():
        raise damaged(root, f"lacks {name}")
    return (root / name).read_bytes()


def _complete(path: Path, chosen: Mapping[str, str], classes: Sequence[str]) -> None:
    """Refuse classes of different sizes: the published ones are equal, half-extracted ones not."""
    counts = Counter(chosen.values())
    if unknown := sorted(set(counts) - set(classes)):
        raise damaged(path, f"has images of {unknown[0]!r}, which is not one of its classes")
    numbers = sorted(counts[name] for name in classes)
    if numbers[0] != numbers[-1] or numbers[0] == 0:
        raise damaged(path, f"has {numbers[0]} images of one class and {numbers[-1]} of another")


def _pool(
    split: str,
    classes: Mapping[str, str],
    number: Mapping[str, int],
    read: Callable[[str], bytes],
    size: int,
    path: Path,
    digest: Any = None,
) -> Pool:
    """Decode the images of a mapping from file name to class; ``digest`` is updated with them."""
    _inputs.installed("PIL", extra="images", purpose="reading JPEG files")
    pixels = np.empty((len(classes), 3, size, size), dtype=np.uint8)
    with reading(path, "images"):
        for row, name in enumerate(classes):
            content = read(name)
            pixels[row] = _decoded(content, name, size, path)
            if digest is not None:
                digest.update(f"{name}\0{len(content)}\0".encode())
                digest.update(content)
    labels = np.array([number[label] for label in classes.values()], dtype=np.int64)
    return Pool(split, pixels, labels)


def _decoded(content: bytes, name: str, size: int, path: Path) -> NDArray[np.uint8]:
    """(3, size, size) RGB pixels of an image; a grey one is converted."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
            if image.size != (size, size):
                raise damaged(path, f"has an image of {image.size} pixels, {name}")
            rows: NDArray[np.uint8] = np.asarray(image.convert("RGB"))
            return rows.transpose(2, 0, 1)
    except (OSError, SyntaxError) as error:
        raise damaged(path, f"has an image that cannot be decoded, {name}") from error
