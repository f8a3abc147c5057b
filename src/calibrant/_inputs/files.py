"""Files: their names, their endings and what is in them."""

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


def page_path(path: Path) -> Path:
    """A file name for an HTML page, in a folder that is there."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise CalibrantError(f"a report is written as .html; found {str(path)!r}. Rename it")
    # Now, and not after long fits.
    if not path.parent.is_dir():
        raise CalibrantError(f"there is no folder {path.parent} to write to. Make it first")
    return path
