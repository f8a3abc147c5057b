"""Which Parquet files a path stands for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from calibrant.errors import CalibrantError

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What the folder of rows without a value is named after."""


def files_at(path: Path) -> list[Path]:
    """The Parquet file at ``path``, or those in the folder and its subfolders, in path order."""
    if path.is_dir():
        files = parquet_files(path)
        if not files:
            raise CalibrantError(
                f"expected .parquet files in {path} or its subfolders, found none. "
                "Choose another folder"
            )
        return files
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}. Check the path")
    if path.suffix.lower() != ".parquet":
        raise CalibrantError(
            f"expected a .parquet file or a folder of them, got {str(path)!r}. Write it as Parquet"
        )
    return [path]


def parquet_files(folder: Path) -> list[Path]:
    """All Parquet files in a folder and its subfolders, except hidden and temporary ones.

    Links are followed, and a file with several names is listed once, so that no row counts twice.
    Broken links that end in ``.parquet`` or have no extension are listed too, so that reading
    refuses them.
    """
    found: dict[object, Path] = {}
    for inside in _folders(folder):
        for path in sorted(_visible(inside), key=lambda path: (path.is_symlink(), path)):
            ending = path.suffix.lower()
            if ending == ".parquet" and path.is_file():
                found.setdefault(_identity(path), path)
            elif ending in (".parquet", "") and path.is_symlink() and not path.exists():
                found[path] = path
    return sorted(found.values())


def partitions_of(file: Path) -> dict[str, str | None]:
    """The columns that the folders of a file are named after, as Hive and Spark write them.

    Examples:
        >>> partitions_of(Path("logs/country=FR/day=2026-10-01/0.parquet"))
        {'country': 'FR', 'day': '2026-10-01'}
    """
    named = (folder.partition("=") for folder in file.parent.parts)
    return {
        name: None if value == NO_VALUE else unquote(value)
        for name, equals, value in named
        if name and equals
    }


def _identity(file: Path) -> object:
    """What all names of one file have in common."""
    status = file.stat()
    # Some file systems have no inode numbers, but those with hard links do.
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 else file.resolve()


def _folders(root: Path) -> Iterator[Path]:
    """A folder and its subfolders, also through links; each once, by its own name if possible.

    So links that lead back or to a sibling neither loop for ever nor count rows twice.
    """
    seen: set[Path] = set()
    own, linked = [root], list[Path]()
    while own or linked:
        folder = (own or linked).pop()
        if folder.resolve() in seen:
            continue
        seen.add(folder.resolve())
        yield folder
        for path in sorted(_visible(folder), reverse=True):
            if path.is_dir():
                (linked if path.is_symlink() else own).append(path)


def _visible(folder: Path) -> Iterator[Path]:
    """The entries of a folder, except hidden and temporary ones."""
    return (path for path in folder.iterdir() if not path.name.startswith((".", "_")))
