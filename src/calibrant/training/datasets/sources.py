"""Files of a data set: located, hashed, and refused in one line if missing or damaged."""

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

from calibrant import _inputs
from calibrant.errors import CalibrantError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class PublishedFile:
    """A file as its authors publish it.

    Attributes:
        name: File name.
        page: Where to get it.
        md5: MD5 checksum, if its authors or the libraries that fetch it state one.
        sha256: SHA-256 checksum, likewise.
    """

    name: str
    page: str
    md5: str | None = None
    sha256: str | None = None


@dataclass
class Files:
    """The folder of a data set's files, and which of them have been read.

    Attributes:
        folder: Folder to look in, or the file itself.
        data_set: Name of the data set, for messages.
        read: For the record: name and SHA-256 of each file read, and whether it has the published
            checksum, if there is one.
    """

    folder: Path
    data_set: str
    read: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, data_set: str, folder: Any, page: str) -> Files:
        """The files in ``folder``, as the user passed it; they are published at ``page``."""
        if folder is None:
            raise CalibrantError(
                f"{data_set} is read from files; found no folder. Get them from {page} and pass "
                "the folder"
            )
        return cls(_inputs.path(folder, f"the folder of {data_set}"), data_set)

    def find(self, *names: str) -> Path | None:
        """The first of these that exists, or ``folder`` itself if it is one of them."""
        for name in names:
            if self.folder.is_file() and self.folder.name == Path(name).name:
                return self.folder
            if (self.folder / name).exists():
                return self.folder / name
        return None

    def need(self, names: Sequence[str], published: PublishedFile) -> Path:
        """The first of ``names`` that exists; :class:`FileNotFoundError` says where to get it."""
        found = self.find(*names)
        if found is None:
            raise self.missing(names, published)
        return found

    def single(self, published: PublishedFile) -> Path:
        """The only file of the data set: the path that was passed, or the one in that folder."""
        path = self.folder if self.folder.is_file() else self.need([published.name], published)
        self.note(path)
        return path

    def missing(self, names: Sequence[str], published: PublishedFile) -> FileNotFoundError:
        """The error for a missing file: where to get it, its checksum, where to put it."""
        sums = (("MD5", published.md5), ("SHA-256", published.sha256))
        checksum = "".join(f" ({kind} {value})" for kind, value in sums if value)
        where = str(self.folder)
        if not self.folder.exists():
            where += ", which does not exist yet"
        others = [name for name in names if name != published.name]
        also = f" ({' or '.join(others)} will do as well)" if others else ""
        return FileNotFoundError(
            f"{self.data_set} needs {published.name}, which is not in {where}. Get it from "
            f"{published.page}{checksum} and put it there{also}"
        )

    def note(self, path: Path, published: PublishedFile | None = None) -> None:
        """Record a file that is read; ``published`` is the one that it should be."""
        if path.is_dir():
            raise damaged(path, "is a folder; expected a file")
        sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                sha256.update(chunk)
                md5.update(chunk)
        entry: dict[str, Any] = {"sha256": sha256.hexdigest()}
        if published is not None and published.name == path.name:
            known = {value for value in (published.md5, published.sha256) if value}
            if known:
                entry["has_the_published_checksum"] = not known.isdisjoint(
                    (md5.hexdigest(), sha256.hexdigest())
                )
        self.read[path.name] = entry

    def note_folder(self, path: Path, digest: str, count: int) -> None:
        """Record a folder of ``count`` files, hashed together."""
        self.read[path.name] = {"files": count, "sha256_of_names_and_contents": digest}


@contextlib.contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn any exception of a decoder into one line that names the file."""
    try:
        yield
    except (DamagedFileError, FileNotFoundError, PermissionError, ImportError):
        raise
    except MemoryError as error:
        raise CalibrantError(
            f"{path} does not fit into memory. Use a machine with more memory"
        ) from error
    except Exception as error:  # decoders of damaged bytes raise anything
        reason = " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__
        raise damaged(path, f"cannot be read as {what}: {reason}") from error


class DamagedFileError(CalibrantError):
    """A file whose bytes do not follow its format."""


def damaged(path: Path, why: str) -> DamagedFileError:
    """The one-line error for a file that is not what it should be."""
    return DamagedFileError(
        f"{path} {why}. It is damaged, truncated or of another kind: download or copy it again"
    )


def opened(path: Path) -> BinaryIO:
    """Open a file for reading, decompressing ``.gz`` and ``.xz``."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    return path.open("rb")


def npz_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of an ``.npz`` file; its objects are never unpickled."""
    with reading(path, "an .npz file"), path.open("rb") as file:
        if not zipfile.is_zipfile(file):  # NumPy would advise to unpickle it
            raise CalibrantError("it is not a .zip archive of arrays")
        file.seek(0)
        stored = np.load(file, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise CalibrantError("it holds a single unnamed array")
        with stored:
            return dict(stored)


def size_notes(found: Sequence[int], published: Sequence[int]) -> list[str]:
    """A note for the record if the splits do not have their published sizes."""
    if tuple(found) == tuple(published):
        return []
    sizes = [" / ".join(str(size) for size in counts) for counts in (found, published)]
    return [f"the files hold {sizes[0]} items; the published ones {sizes[1]}"]


def tar_members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each wanted file in a ``.tar``, ``.tar.gz`` or ``.tar.xz``.

    Nothing is extracted to disk. The archive is read to its end, where its checksum is.
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


def text_lines(path: Path) -> list[tuple[int, str]]:
    """:func:`numbered_lines` of a UTF-8 file."""
    with reading(path, "lines of UTF-8 text"), opened(path) as file:
        return numbered_lines(file.read().decode("utf-8"))


def numbered_lines(text: str) -> list[tuple[int, str]]:
    """The lines that are not empty, each with its number among all lines, from 1."""
    return [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
