"""Checks of paths and of the contents of prediction files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calibrant._inputs.values import described, installed
from calibrant.errors import CalibrantError

PICTURES = (".png", ".svg", ".pdf")


def path(value: Any, name: str) -> Path:
    """A path that is not empty; Python would take an empty one for the current folder."""
    if not isinstance(value, str | os.PathLike):
        raise CalibrantError(
            f"{name} must be a str or a Path; found {described(value)}. "
            "Pass a name such as 'predictions.npz'"
        )
    text = os.fsdecode(value)
    if not text or "\0" in text:
        raise CalibrantError(
            f"{name} must be the name of a file or folder; found {text!r}. "
            "The current folder is '.'"
        )
    return Path(text)


def picture_path(path: Path) -> Path:
    """A file name with the extension of a picture; matplotlib must be installed."""
    if path.suffix.lower() not in PICTURES:
        raise CalibrantError(
            f"a picture must end in {', '.join(PICTURES)}; found {str(path)!r}. "
            "Use one of these extensions"
        )
    installed("matplotlib", extra="plots", purpose="drawing a picture")
    return path


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Add the file or argument to the messages of checks."""
    try:
        yield
    except CalibrantError as refusal:
        raise CalibrantError(f"{where}: {refusal}") from refusal


def some_scores(logits: Any, probs: Any) -> None:
    """Scores of all classes, as logits or as probabilities."""
    if logits is None and probs is None:
        raise CalibrantError(
            "a calibrator needs the scores of all classes; found confidence only. "
            "Add logits or probs to the file"
        )


def some_labels(labels: Any) -> None:
    """Labels of any kind."""
    if labels is None:
        raise CalibrantError(
            "labels are needed; found none. Add an array named labels (or a column named label), "
            "or name theirs with --label"
        )


def page_path(path: Path) -> Path:
    """A file name for an HTML page, in a folder that exists."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise CalibrantError(f"a report is written as .html; found {str(path)!r}. Rename it")
    # Check it now, not after long fits.
    if not path.parent.is_dir():
        raise CalibrantError(f"there is no folder {path.parent} to write to. Create it first")
    return path
