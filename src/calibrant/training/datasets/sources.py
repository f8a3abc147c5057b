"""Files of a data set: found, hashed, and refused in one line where missing or damaged."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import CalibrantError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Official:
    """A file as its makers publish it.

    Attributes:
        name: the file's name.
        page: where it is to be had.
        md5: its checksum, where its makers or the libraries that fetch it state one.
        sha256: the same of another kind.
    """

    name: str
    page: str
    md5: str | None = None
    sha256: str | None = None


@dataclass
class Files:
    """Where the files of a data set are looked for, and which have been read.

    Attributes:
        folder: the folder to look in, or the file itself.
        data_set: its name, for the messages.
        read: what goes into the record: the name of each file read, its SHA-256, and whether it
            has the checksum of the published one, where there is one.
    """

    folder: Path
    data_set: str
    read: dict[str, dict[str, Any]] = field(default_factory=dict)

    def find(self, *names: str) -> Path | None:
        """The first of these that is there, or ``folder`` itself if it is one of them."""
        for name in names:
            if self.folder.is_file() and self.folder.name == Path(name).name:
                return self.folder
            if (self.folder / name).exists():
                return self.folder / name
        return None

    def need(self, names: Sequence[str], official: Official) -> Path:
        """The first of ``names`` that is there; :class:`FileNotFoundError` says where to get it."""
        found = self.find(*names)
        if found is None:
            raise FileNotFoundError(self.missing(names, official))
        return found

    def missing(self, names: Sequence[str], official: Official) -> str:
        """What is missing, where it is to be had, how to know it, and where to put it."""
        sums = (("MD5", official.md5), ("SHA-256", official.sha256))
        checksum = "".join(f" ({kind} {value})" for kind, value in sums if value)
        where = str(self.folder)
        if not self.folder.exists():
            where += ", which does not exist yet"
        others = [name for name in names if name != official.name]
        also = f" ({' or '.join(others)} will do as well)" if others else ""
        return (
            f"{self.data_set} needs {official.name}, which is not in {where}. Get it from "
            f"{official.page}{checksum} and put it there{also}"
        )

    def note(self, path: Path, official: Official | None = None) -> None:
        """Write down a file that is read; ``official`` is the published one it should be."""
        if path.is_dir():
            raise damaged(path, "is a folder, where a file is looked for")
        sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                sha256.update(chunk)
                md5.update(chunk)
        entry: dict[str, Any] = {"sha256": sha256.hexdigest()}
        if official is not None and official.name == path.name:
            known = {value for value in (official.md5, official.sha256) if value}
            if known:
                entry["has_the_published_checksum"] = not known.isdisjoint(
                    (md5.hexdigest(), sha256.hexdigest())
                )
        self.read[path.name] = entry

    def note_folder(self, path: Path, digest: str, count: int) -> None:
        """Write down a folder of ``count`` files, hashed together."""
        self.read[path.name] = {"files": count, "sha256_of_names_and_contents": digest}


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Whatever the decoder of a format raises becomes one line that names the file."""
    try:
        yield
    except (DamagedFileError, FileNotFoundError, PermissionError, ImportError):
        raise
    except MemoryError as error:
        raise CalibrantError(f"{path} does not fit into memory. Use a machine with more") from error
    except Exception as error:  # decoders of damaged bytes raise anything
        reason = " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__
        raise damaged(path, f"cannot be read as {what}: {reason}") from error


class DamagedFileError(CalibrantError):
    """A file whose bytes are not what its format says."""


def damaged(path: Path, why: str) -> DamagedFileError:
    """The error that says in one line what is wrong with a file."""
    return DamagedFileError(
        f"{path} {why}. It is damaged, cut short or of another kind: download or copy it again"
    )


def opened(path: Path) -> BinaryIO:
    """A file to read from, unpacked on the way if its name ends in ``.gz`` or ``.xz``."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    return path.open("rb")


def npz_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file; objects in it are never unpickled."""
    with reading(path, "an .npz file"), path.open("rb") as file:
        if not zipfile.is_zipfile(file):  # of which NumPy would say how to unpickle it
            raise CalibrantError("it is no .zip archive of arrays")
        file.seek(0)
        stored = np.load(file, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise CalibrantError("it holds a single array without a name")
        with stored:
            return dict(stored)


def unlike_published(found: Sequence[int], published: Sequence[int]) -> list[str]:
    """A note for the record, unless the parts have the sizes they were published with."""
    if tuple(found) == tuple(published):
        return []
    sizes = [" / ".join(str(size) for size in counts) for counts in (found, published)]
    return [f"the files hold {sizes[0]} items; as published they hold {sizes[1]}"]


def tar_members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each wanted file in a ``.tar``, ``.tar.gz`` or ``.tar.xz``.

    Nothing is unpacked to disk. The archive is read to its end, where its checksum stands.
    """
    with reading(path, "an archive"), opened(path) as file:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                if member.isfile() and wanted(member.name):
                    stream = archive.extractfile(member)
                    if stream is not None:
                        yield member.name.removeprefix("./"), stream.read()
        while file.read(_CHUNK):
            pass


def text_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, without the empty ones."""
    with reading(path, "lines of UTF-8 text"), opened(path) as file:
        text = file.read().decode("utf-8")
    return [line for line in text.split("\n") if line.strip()]
