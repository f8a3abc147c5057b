"""Files and folders that appear whole or not at all.

What is written stands in a private folder beside its place, ``.calibrant-MACHINE-PID-TOKEN.tmp``,
and is renamed when it is complete. The private folder is removed whatever happens, except when the
process is killed. Its owner holds a lock on it, which the system releases with the process. So a
later writer that gets the lock knows that the owner is dead, and removes the folder.
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
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from calibrant import _inputs

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside ``path``, renamed to it when the block ends without an error.

    A reader never sees half a file, and an error leaves what stood there before untouched. A file
    that is replaced passes on its permissions; a link stays, and what it points to is written.

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
        # The ending stays, because plotting libraries choose the format by it.
        temporary = folder / target.name
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        _keep_permissions(target, temporary)
        os.replace(temporary, target)
        _sync_names(target.parent)


def write_whole(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write a file from memory in this way."""
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def folder_written_whole(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target``, a new folder, renamed to it in the same way."""
    with _private_folder(target) as folder:
        temporary = folder / target.name
        temporary.mkdir()
        yield temporary
        os.rename(temporary, target)
        _sync_names(target.parent)


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Raise now what :func:`written_whole` would raise after long work."""
    with _private_folder(_file_at(path)):
        pass


def refuse_foreign(path: Path, is_ours: Callable[[Path], bool], what: str) -> None:
    """Raise if a file would be lost that ``is_ours`` does not know; an empty one is no loss."""
    if path.is_file() and path.stat().st_size > 0 and not is_ours(path):
        raise FileExistsError(
            f"expected {path} to be new, or {what} that calibrant wrote; found another file. "
            "Choose another name, or replace it with --force (force=True)"
        )


def make_folder(folder: Path) -> None:
    """Make a folder if it is missing, and refuse one that cannot be written to."""
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _private_folder(folder / "file"):
        pass


def sweep(folder: Path) -> None:
    """Remove the private folders in ``folder`` whose owners are dead."""
    if fcntl is None:
        return
    left: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = [Path(entry.path) for entry in entries if _OURS.fullmatch(entry.name)]
    for private in left:
        with contextlib.suppress(OSError):  # its owner lives, or another process sweeps it
            handle = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.geteuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(private)
            finally:
                os.close(handle)


def _machine() -> str:
    """Which system the locks are of: a network disk may be shared by several that share no locks.

    Containers of one system share it.
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
    """Where ``path`` leads, unless no file can be written there."""
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
                f"cannot write to {given}: it is a link that leads back to itself. "
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
    """A locked folder beside ``target``, removed at the end."""
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
        full.errno = error.errno  # what this file is a part of names itself in the same way
        raise full from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What the system refuses becomes one line that names the path."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # one of ours
            raise
        refusal = f"cannot write to {path}: {error.strerror}. Choose another folder"
        raise type(error)(refusal) from error


def _locked_folder(parent: Path) -> tuple[Path, int | None]:
    """A new private folder, and the handle that holds its lock."""
    while True:
        name = f".calibrant-{_MACHINE}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
        folder = parent / name
        folder.mkdir(mode=0o700)
        if fcntl is None:
            return folder, None
        # A sweeper that comes before the lock takes the owner for dead. Then make another.
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a disk without locks, where nobody sweeps
                fcntl.flock(handle, fcntl.LOCK_EX)
            if folder.exists():
                return folder, handle
            os.close(handle)


def _keep_permissions(old: Path, new: Path) -> None:
    """Give a file the mode of the one that it replaces, and where possible its owner."""
    with contextlib.suppress(FileNotFoundError):
        found = old.stat()
        if hasattr(os, "chown"):
            with contextlib.suppress(PermissionError):
                os.chown(new, found.st_uid, found.st_gid)
        new.chmod(found.st_mode & 0o7777)


def _sync_names(folder: Path) -> None:
    """Have the names in a folder on the disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
