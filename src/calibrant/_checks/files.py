"""Files: their names, their endings and what is in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy.typing as npt

from calibrant._checks.values import described, installed
from calibrant.errors import CalibrantError

PICTURES = (".png", ".svg", ".pdf")


def path(value: Any, name: str) -> Path:
    """A path that names something: Python takes an empty one for the current folder."""
    if not isinstance(value, str | os.PathLike):
        raise CalibrantError(
            f"{name} must be a str or a Path; found {described(value)}. Pass 'predictions.npz', say"
        )
    text = os.fsdecode(value)
    if not text or "\0" in text:
        raise CalibrantError(
            f"{name} must be the name of a file or folder; found {text!r}. "
            "Name one; the current folder is '.'"
        )
    return Path(text)


def picture_path(path: Path) -> Path:
    """A file name whose ending says how to draw it, where there is something to draw with."""
    if path.suffix.lower() not in PICTURES:
        raise CalibrantError(
            f"a picture must end in {', '.join(PICTURES)}; found {str(path)!r}. Rename it"
        )
    installed("matplotlib", extra="plots", purpose="drawing a picture")
    return path


def ending_of_format(name: str, ending: str, path: Path, others: Sequence[str]) -> None:
    """A file whose name does not say that it is of another format."""
    if path.suffix.lower() != ending and path.suffix.lower() in others:
        raise CalibrantError(
            f"the format {name} is written to {ending} files; found {path.name!r}. "
            f"Rename it, or leave the format out, which {path.suffix.lower()} tells"
        )


def page_path(path: Path) -> Path:
    """A file name for an HTML page, in a folder that is there."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise CalibrantError(f"a report is written as .html; found {str(path)!r}. Rename it")
    # Now, and not after long fits.
    if not path.parent.is_dir():
        raise CalibrantError(f"there is no folder {path.parent} to write to. Make it first")
    return path


def one_name_each(
    names: Sequence[Any] | npt.NDArray[Any] | None, name: str, of: str, n: int
) -> None:
    """As many ids as rows, or class names as classes, where there are any."""
    if names is not None and len(names) != n:
        raise CalibrantError(
            f"{name} must have one entry for each of the {n} {of}; found {len(names)}. "
            "Name all of them, or none"
        )


def same_class_names(
    file: str, found: Sequence[str], other_file: str, expected: Sequence[str]
) -> None:
    """Files that name the same classes in the same order."""
    if len(found) != len(expected):
        differ = f"found {len(found)} names here and {len(expected)}"
    else:
        pairs = enumerate(zip(found, expected, strict=True))
        number, pair = next((each for each in pairs if each[1][0] != each[1][1]), (None, None))
        if pair is None:
            return
        differ = f"found {pair[0]!r} for class {number} here and {pair[1]!r}"
    raise CalibrantError(
        f"{file}: the files of a folder must name their classes alike, in one order; {differ} in "
        f"{other_file}. Write them alike"
    )


def file_there(file: Path, error: FileNotFoundError) -> NoReturn:
    """Refuse a file of a folder that is not there, or a link to one that is not."""
    link = f" is a link to {os.readlink(file)}, which" if file.is_symlink() else ""
    raise FileNotFoundError(f"{file}{link} is not there. Put it there, or remove it") from error


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Refusals of values say which file or argument they are of."""
    try:
        yield
    except CalibrantError as refusal:
        raise CalibrantError(f"{where}: {refusal}") from refusal


def some_scores(logits: Any, probs: Any) -> None:
    """Scores of every class, of one kind or the other."""
    if logits is None and probs is None:
        raise CalibrantError(
            "a calibrator needs the scores of all classes; found confidence only. "
            "Write logits or probs"
        )


def some_labels(labels: Any) -> None:
    """Labels, whatever they are."""
    if labels is None:
        raise CalibrantError(
            "labels are needed; found none. Add an array labels (or a column label)"
        )
