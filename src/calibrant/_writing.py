"""Atomic writing: files and folders appear complete or not at all.

A file is written to a private folder in the same place, ``.calibrant-MACHINE-PID-TOKEN.tmp``, and
renamed when it is complete. The private folder is always removed, unless the process is killed. Its
owner holds a lock on it, which the system releases when the process ends. So a later writer that
gets the lock knows that the owner is dead, and removes the folder.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import platform
import re
import secrets
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from calibrant import _inputs

if sys.platform != "win32":
    import fcntl

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path, renamed to ``path`` when the block ends without an error.

    A reader never sees a partial file, and an error leaves an existing file untouched. The new file
    takes over the permissions of the old one. A link is followed.

    Examples:
        >>> import tempfile, pathlib
        >>> target = pathlib.Path(tempfile.mkdtemp()) / "result.txt"
        >>> with written_whole(target) as temporary:
        ...     _ = temporary.write_text("done")
        >>> target.read_text()
        'done'
    """
    target = _file_at(path)
    with _private_folder(target) as folder:
        # Plotting libraries infer the format from the extension, so the name stays.
        temporary = folder / target.name
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        _keep_permissions(target, temporary)
        os.replace(temporary, target)
        _sync_names(target.parent)


def write_whole(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write ``content`` to a file by :func:`written_whole`."""
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def folder_written_whole(target: Path) -> Iterator[Path]:
    """A temporary folder, renamed to the new folder ``target`` in the same way."""
    with _private_folder(target) as folder:
        temporary = folder / target.name
        temporary.mkdir()
        yield temporary
        os.rename(temporary, target)
        _sync_names(target.parent)


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Raise now what :func:`written_whole` would raise after a long computation."""
    with _private_folder(_file_at(path)):
        pass


def refuse_foreign(path: Path, is_ours: Callable[[Path], bool], what: str) -> None:
    """Refuse to overwrite a file that is neither empty nor recognised by ``is_ours``."""
    if path.is_file() and path.stat().st_size > 0 and not is_ours(path):
        raise FileExistsError(
            f"expected {path} to be new, or {what} that calibrant wrote; found another file. "
            "Choose another name, or overwrite it with --force (force=True)"
        )


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist; refuse one that is not writable."""
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _private_folder(folder / "file"):
        pass


def sweep(folder: Path) -> None:
    """Remove the private folders in ``folder`` whose owners are dead."""
    if sys.platform == "win32":  # it has no such locks
        return
    left: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = [Path(entry.path) for entry in entries if _OURS.fullmatch(entry.name)]
    for private in left:
        with contextlib.suppress(OSError):  # its owner is alive, or another process removes it
            handle = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.geteuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(private)
            finally:
                os.close(handle)


def _machine() -> str:
    """An identifier of the system that holds the locks; containers of one system share it.

    Systems that share a network disk may not share locks.
    """
    try:
        known_by = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        known_by = platform.node()
    return f"{zlib.crc32(known_by.encode()):08x}"


_MACHINE = _machine()
_OURS = re.compile(rf"\.calibrant-{_MACHINE}-[0-9]+-[0-9a-f]{{16}}\.tmp")
_sweep_once = functools.lru_cache(sweep)


def _file_at(path: str | os.PathLike[str]) -> Path:
    """The target of ``path``; refused if no file can be written there."""
    given = _inputs.path(path, "the output")
    with _explained(given):
        target = Path(os.path.realpath(given))
        folder = os.path.realpath(given.parent)
        if folder == "/dev" or f"{folder}/".startswith("/proc/"):
            raise FileExistsError(
                f"cannot write to {given}: it is a device or a stream, not a file. "
                "Choose another name"
            )
        if target.is_symlink():
            raise FileExistsError(
                f"cannot write to {given}: it is a link to itself. "
                "Remove it, or choose another name"
            )
        if target.is_dir():
            raise IsADirectoryError(f"cannot write to {given}: it is a folder. Name a file in it")
        if target.exists() and not target.is_file():
            raise FileExistsError(f"cannot write to {given}: it is not a file. Choose another name")
        if not target.parent.is_dir():
            missing = target.parent if given.parent.is_dir() else given.parent
            raise FileNotFoundError(
                f"cannot write {given}: there is no folder {missing}. Make it first"
            )
    return target


@contextlib.contextmanager
def _private_folder(target: Path) -> Iterator[Path]:
    """A locked folder next to ``target``, removed at the end."""
    _sweep_once(target.parent)
    with _explained(target.parent):
        folder, lock = _locked_folder(target.parent)
    try:
        yield folder
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        reason = os.strerror(error.errno)
        full = OSError(f"cannot write {target}: {reason}. Make room, or choose another disk")
        full.errno = error.errno  # so that an enclosing block reports its own target too
        raise full from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into one line that names the path."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # raised by this module
            raise
        refusal = f"cannot write to {path}: {error.strerror}. Choose another folder"
        raise type(error)(refusal) from error


def _locked_folder(parent: Path) -> tuple[Path, int | None]:
    """A new private folder and the handle that holds its lock."""
    while True:
        name = f".calibrant-{_MACHINE}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
        folder = parent / name
        folder.mkdir(mode=0o700)
        if sys.platform == "win32":
            return folder, None
        # Another process may remove the folder before it is locked. Then make a new one.
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a disk without locks, on which sweep does nothing
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                return folder, handle
            os.close(handle)


def _keep_permissions(old: Path, new: Path) -> None:
    """Give a file the mode and, if possible, the owner of the file that it replaces."""
    with contextlib.suppress(FileNotFoundError):
        found = old.stat()
        if hasattr(os, "chown"):
            with contextlib.suppress(PermissionError):
                os.chown(new, found.st_uid, found.st_gid)
        new.chmod(found.st_mode & 0o7777)


def _sync_names(folder: Path) -> None:
    """Flush the entries of a folder to disk, if the file system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
