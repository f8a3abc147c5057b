"""``.npz``: a zip of ``.npy`` arrays, read in blocks of rows and never unpickled."""

from __future__ import annotations

import math
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import CalibrantError
from calibrant.files.layout import SCORES, Asked, find_layout
from calibrant.files.predictions import Block, cleaned, decoding

_ZIP = "an .npz file"
_CHUNK = 1 << 20  # bytes decompressed at once


class NpzSource:
    """One part of an ``.npz`` file: the constructor checks headers, ``blocks`` reads rows."""

    n_classes: int | None = None  # no place for it

    def __init__(self, path: Path, part: str | None, where: str, asked: Asked) -> None:
        self.path = path
        self.where = where
        with ExitStack() as stack:
            archive = stack.enter_context(_opened(path, where))
            arrays = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
            self.layout = find_layout(arrays, part=part, where=where, table=False, asked=asked)
            members = self._members(archive, stack)
            if "scores" in members and members["scores"].shape[1:] in ((), (1,)):
                self.layout = replace(self.layout, single=True)
            self.layout = replace(self.layout, multilabel=self._is_multilabel(members))
            self.rows: int | None = self._checked_rows(members)
            self.class_names = self._class_names(archive, members)

    def blocks(self, rows: int | None) -> Iterator[Block]:
        """The rows in order, ``rows`` at a time (None: all at once)."""
        total = self.rows or 0
        with ExitStack() as stack:
            archive = stack.enter_context(_opened(self.path, self.where))
            members = self._members(archive, stack)
            for start in range(0, total, rows or total):
                count = min(rows or total, total - start)
                raw = {role: member.take(count) for role, member in members.items()}
                yield cleaned(raw, self.layout, where=self.where, first_row=start)
            for member in members.values():
                member.finish()

    def _members(self, archive: zipfile.ZipFile, stack: ExitStack) -> dict[str, _Member]:
        names = dict(self.layout.roles)
        if self.layout.scores:
            (names["scores"],) = self.layout.scores
        return {
            role: stack.enter_context(_opened_member(archive, name, self.where))
            for role, name in names.items()
        }

    def _is_multilabel(self, members: dict[str, _Member]) -> bool:
        """Whether the labels are numbers, one for each of several columns of the scores."""
        if "labels" not in members or self.layout.kind not in SCORES:
            return False
        labels = members["labels"]
        columns = labels.shape[1] if len(labels.shape) == 2 else 1
        same = labels.shape == members["scores"].shape
        return columns > 1 and same and labels.dtype.kind in "biuf"

    def _checked_rows(self, members: dict[str, _Member]) -> int:
        first = members["scores" if "scores" in members else "confidence"]
        for role, member in members.items():
            wanted = 2 if role in ("scores", "classes") else 1
            if role == "scores" and self.layout.single:
                wanted = max(1, len(member.shape))
            if role == "labels" and self.layout.multilabel:
                wanted = 2
            if len(member.shape) != wanted:
                axes = "(rows, classes)" if wanted == 2 else "(rows,)"
                raise CalibrantError(
                    f"{self.where}: {member.name} must have the shape {axes}; found "
                    f"{member.shape}. {_RANK_FIX.get(role, 'Drop or add an axis')}"
                )
        for member in members.values():
            if member.shape[0] != first.shape[0]:
                raise CalibrantError(
                    f"{self.where}: {member.name} and {first.name} must have one entry per row; "
                    f"found {member.shape[0]} and {first.shape[0]}. Save them from the same rows"
                )
        if first.shape[0] == 0:
            raise CalibrantError(f"{self.where}: {first.name} has no rows. Save at least one")
        return first.shape[0]

    def _class_names(
        self, archive: zipfile.ZipFile, members: dict[str, _Member]
    ) -> tuple[str, ...] | None:
        if self.layout.class_names is None:
            return None
        with _opened_member(archive, self.layout.class_names, self.where) as member:
            n_classes = None
            if "scores" in members:
                n_classes = 2 if self.layout.single else members["scores"].shape[1]
            if len(member.shape) != 1 or n_classes not in (None, member.shape[0]):
                raise CalibrantError(
                    f"{self.where}: {member.name} must have one name per class"
                    f"{'' if n_classes is None else f', {n_classes} in all'}; found the shape "
                    f"{member.shape}. Save one string per class"
                )
            if member.dtype.kind not in "US":
                raise CalibrantError(
                    f"{self.where}: {member.name} must be strings; found the type "
                    f"{member.dtype}. Save np.array([...], dtype=str)"
                )
            names = member.take(member.shape[0])
            member.finish()
        if names.dtype.kind == "S":
            with decoding(self.where, _ZIP):
                names = np.char.decode(names, "utf-8")
        return tuple(str(name) for name in names)


_RANK_FIX = {
    "scores": "Save one row per sample and one column per class",
    "labels": "Drop any extra axis, or take argmax over one-hot labels; multi-label files have one "
    "column per label, as many as the scores",
}


@dataclass
class _Member:
    """One array in the zip: its header, and its rows in order."""

    name: str
    where: str
    stream: IO[bytes]
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    row: int = 0
    whole: NDArray[Any] | None = None

    def take(self, count: int) -> NDArray[Any]:
        """The next ``count`` rows.

        The rows of an array in Fortran order are scattered over the file, so it is held whole.
        """
        if not self.fortran:
            return self._filled((count, *self.shape[1:]))
        if self.whole is None:
            self.whole = self._filled(self.shape[::-1]).T
        rows = self.whole[self.row : self.row + count]
        self.row += count
        return np.ascontiguousarray(rows)

    def finish(self) -> None:
        """Read to the end, where the zip checks its checksum."""
        with decoding(self.where, _ZIP):
            self.stream.read(1)

    def _filled(self, shape: tuple[int, ...]) -> NDArray[Any]:
        with decoding(self.where, _ZIP):
            array = np.empty(shape, dtype=self.dtype)
            if array.nbytes == 0:
                return array
            missing = array.reshape(-1).view(np.uint8)
            while missing.size:
                chunk = self.stream.read(min(_CHUNK, missing.size))
                if not chunk:
                    raise EOFError(f"{self.name} ends too early")
                missing[: len(chunk)] = np.frombuffer(chunk, dtype=np.uint8)
                missing = missing[len(chunk) :]
            if array.dtype.kind == "U":
                _refuse_code_points(array, self.name)
        return array


@contextmanager
def _opened_member(archive: zipfile.ZipFile, name: str, where: str) -> Iterator[_Member]:
    with ExitStack() as stack:
        with decoding(where, _ZIP):
            info = archive.getinfo(f"{name}.npy")
            stream = stack.enter_context(archive.open(info))
            shape, fortran, dtype, header = _header(stream)
        if dtype.hasobject:
            raise CalibrantError(
                f"{where}: {name} holds Python objects, which are never unpickled. Save it as an "
                "array of numbers or strings (np.asarray(..., dtype=...))"
            )
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or info.file_size != header + size:
            raise CalibrantError(
                f"{where}: {name} must have {size} bytes for the shape {shape} of "
                f"{dtype}; found {info.file_size - header}. The file is damaged: write or "
                "copy it again"
            )
        yield _Member(name, where, stream, shape, fortran, dtype)


def _refuse_code_points(text: NDArray[Any], name: str) -> None:
    """Refuse code points beyond Unicode, which NumPy does not check."""
    numbers = text.reshape(-1).view(np.dtype(np.uint32).newbyteorder(text.dtype.byteorder))
    largest = int(numbers.max(initial=0))
    if largest > sys.maxunicode:
        raise CalibrantError(f"{name} must be text; found the code point {largest:#x}")


def _opened(path: Path, where: str) -> zipfile.ZipFile:
    with path.open("rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        raise CalibrantError(
            f"{where} is a single .npy array with the extension .npz. "
            "Save it with np.savez(path, logits=..., labels=...)"
        )
    with decoding(where, _ZIP):
        return zipfile.ZipFile(path)


def _header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """(shape, Fortran order, dtype, length of the header) of a ``.npy`` stream."""
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(stream)
    if version not in read:
        raise CalibrantError(f"a .npy header of version {version} holds no plain numbers")
    with warnings.catch_warnings():  # headers written by Python 2 warn, but are read
        warnings.simplefilter("ignore")
        shape, fortran, dtype = read[version](stream)
    return shape, fortran, dtype, stream.tell()
