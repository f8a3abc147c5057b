"""Data sets of many files, and where they are worked on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from calibrant._checks.values import installed
from calibrant.errors import CalibrantError


def parquet_file(path: Path) -> Path:
    """A Parquet file that is there."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}. Check the path")
    if path.suffix.lower() != ".parquet":
        raise CalibrantError(
            f"data sets are Parquet, a .parquet file or a folder of them; found {str(path)!r}. "
            "Write it as Parquet"
        )
    return path


def packages_of(scheduler: object) -> None:
    """Dask, where the work is done on a cluster, and not on this machine."""
    if scheduler is not None and not (isinstance(scheduler, str) and scheduler == "local"):
        installed("dask", "distributed", extra="scale", purpose="working on a cluster")


def some_files(folder: Path, n_files: int) -> None:
    """A folder that holds Parquet files, at any depth."""
    if n_files == 0:
        raise CalibrantError(
            f"{folder} holds no .parquet files, nor do the folders in it. Name another folder"
        )


def some_rows_in(where: str, n_rows: int, n_skipped: int) -> int:
    """A data set that has rows; ``n_skipped`` files of it were left out."""
    if n_rows == 0:
        left_out = f" besides {n_skipped} files that were left out" if n_skipped else ""
        raise CalibrantError(f"{where} has no rows{left_out}. Write at least one")
    return n_rows


def some_rows_left(where: str, n_rows: int, skipped: object) -> None:
    """Rows that are left after bad ones were left out."""
    if n_rows == 0:
        raise CalibrantError(f"{where} has no row that can be used. {skipped}")


def same_columns(file: str, found: str, other_file: str, expected: str) -> NoReturn:
    """Refuse a file with other columns, and so perhaps other classes, than the first."""
    raise CalibrantError(
        f"{file}: the files of a data set must have the same columns; found {found} here and "
        f"{expected} in {other_file}. Write them alike"
    )


MOST_HELD = 1 << 30


def columns_that_fit(where: str, n_columns: int, held: int) -> None:
    """Columns of which a page each, ``held`` bytes in all, leaves room for the work."""
    if held > MOST_HELD:
        raise CalibrantError(
            f"{where}: a reader holds a page of every column, which is {held / 1e9:.1f} GB for "
            f"{n_columns} columns of scores. Write them as one column of lists, called logits or "
            "probs, or in smaller row groups"
        )


class ChangedFileError(OSError):
    """A file that is not what it was when the data set was opened.

    It is never left out, as a bad row is: earlier passes have counted its rows.
    """


def same_footer(where: str, expected: int, found: int) -> None:
    """A row group that is as it was when the data set was opened."""
    if found != expected:
        raise ChangedFileError(
            f"{where} has changed while it was being read: it had {expected} rows; found {found}. "
            "Wait until it is written, and start again"
        )


def still_there(where: str, error: Exception) -> NoReturn:
    """Refuse a file whose footer was read, and which cannot be opened any more."""
    reason = (
        "found none" if isinstance(error, FileNotFoundError) else "its footer cannot be read again"
    )
    raise ChangedFileError(
        f"{where} has changed while it was being read: there was a file; {reason}. Start again "
        "when it is whole, and let workers see the same folders as this process"
    ) from error


def same_rows(where: str, expected: int, found: int) -> None:
    """A pass over a data set that has found as many usable rows as the first."""
    if found != expected:
        raise ChangedFileError(
            f"{where} has changed while it was being read: it had {expected} usable rows; found "
            f"{found}. Wait until its files are written, and start again"
        )


def known_scheduler(scheduler: object, error: Exception | None = None) -> NoReturn:
    """Refuse what is not the address of a scheduler that answers."""
    reason = "" if error is None else f" ({' '.join(str(error).split())[:160]})"
    raise CalibrantError(
        f"the scheduler must be 'local', or the address of one that answers; found "
        f"{scheduler!r}{reason}. Start one with dask scheduler, and name tcp://HOST:8786, say"
    )


def scalable_method(name: str, known: Sequence[str]) -> None:
    """A method whose fit is made of sums over rows."""
    if name not in known:
        raise CalibrantError(
            f"over a data set these methods can be fitted: {', '.join(known)}; found {name!r}. "
            "Choose one of them, or fit on a sample that fits into memory"
        )


def new_folder(path: Path, *, apart_from: Path) -> Path:
    """A folder that is not there yet, in one that is; not inside the one that is read."""
    if os.path.lexists(path):
        raise FileExistsError(
            f"{path} is there already, and a data set is written as a new folder. "
            "Name another, or remove it"
        )
    if apart_from.is_dir() and path.resolve().is_relative_to(apart_from.resolve()):
        raise CalibrantError(
            f"{path} lies in {apart_from}, which is read, and would be read with it the next "
            "time. Name a folder beside it"
        )
    if not path.resolve().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write to. Make it first")
    return path


def workers_died(last: object) -> NoReturn:
    """Refuse to go on where a task has ended every worker that it was given to."""
    raise ChildProcessError(
        "a worker must finish its task; found one task that was given to several workers, each of "
        f"which died, most likely out of memory; {' '.join(str(last).split())[:200]}. Give the "
        "workers more memory, or look at their logs"
    ) from (last if isinstance(last, Exception) else None)


def importable_task(error: Exception) -> NoReturn:
    """Refuse code that a worker process cannot import."""
    raise CalibrantError(
        "worker processes run only what they can import; found a function or class that they "
        f"cannot ({' '.join(str(error).split())[:160]}). Define it at the top level of a module, "
        "not in a script or a notebook, or leave out scheduler="
    ) from error


def search_in_few_passes(search: str) -> None:
    """A search that looks at many points in one pass over the data."""
    if search == "refine":
        raise CalibrantError(
            "over a data set the search is 'grid' or 'line', which need few passes; found "
            "'refine'. Leave it out, or fit on a sample that fits into memory"
        )


def count_of_classes(found: int | None, expected: int) -> None:
    """A data set of as many classes as a calibrator was fitted on."""
    if found != expected:
        raise CalibrantError(
            f"this calibrator was fitted on {expected} classes; found {found}. "
            "Use the predictions of the same model"
        )
