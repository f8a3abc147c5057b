"""Writing calibrators as versioned JSON files: plain numbers, no code.

    {"format": "calibrant-calibrator", "version": 2, "method": "temperature",
     "created": "2026-01-31T12:00:00Z", "calibrant": "0.1.0", "plugin": null,
     "n_classes": 10, "classes": null, "input": "logits",
     "data": {"n": 5000, "sha256": "9f86d0..."}, "metadata": {"model": "resnet"},
     "params": {"criterion": "nll"}, "state": {"temperature": 1.35},
     "report": {"n_samples": 5000, ...}}

``method`` is a name in ``CALIBRATORS``, ``params`` are the arguments of its constructor, ``state``
are the fitted numbers in the shapes of the method's ``STATE``, and ``report`` is
``report_.to_saved_dict()``. ``classes`` are the names of the classes, and the entries from
``created`` to ``metadata`` are ``origin_``. A method made of others, such as ``auto``, also has
``parts``: a list of ``method``, ``params`` and ``state``. A grouped calibrator also has ``groups``:
its ``columns``, and their ``values`` for each group. One that was fitted on a log of a language
model also has its ``source``. Version 1 had neither ``classes`` nor an
origin; it is still read. Any other version is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant._writing import write_whole
from calibrant.calibrators.origin import check_metadata
from calibrant.errors import CalibrantError

if TYPE_CHECKING:
    from calibrant.calibrators.base import Calibrator

FORMAT = "calibrant-calibrator"
VERSION = 2


def save(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted calibrator. The file is complete or does not appear."""
    write_whole(path, content_of(calibrator, metadata))


def digest_of(calibrator: Calibrator) -> str:
    """The SHA-256 of the file to which a calibrator is saved, or from which it was loaded."""
    return hashlib.sha256(content_of(calibrator)).hexdigest()


def content_of(calibrator: Calibrator, metadata: Mapping[str, Any] | None = None) -> bytes:
    """The content of the file."""
    calibrator._check_params()
    origin = asdict(calibrator.origin_)
    if metadata is not None:
        origin["metadata"] = check_metadata(metadata)
    fitted = _fitted(calibrator)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "method": fitted.pop("method"),
        **{name: origin[name] for name in ("created", "calibrant", "plugin")},
        "n_classes": calibrator.n_classes_,
        "classes": calibrator.class_names(),
        **{name: origin[name] for name in ("input", "data", "metadata")},
        **fitted,
        "report": calibrator.report_.to_saved_dict(),
    }
    if origin["source"] is not None:
        content["source"] = origin["source"]
    if calibrator.parts_:
        content["parts"] = [_fitted(part) for part in calibrator.parts_]
    if calibrator.group_columns_:
        content["groups"] = {
            "columns": calibrator.group_columns_,
            "values": calibrator.group_keys_,
        }
    for label in content["classes"] or ():
        if not isinstance(label, str | int | float):
            raise CalibrantError(
                f"a calibrator is saved with labels of text or numbers; found {label!r}. Fit it on "
                "such labels"
            )
    try:
        text = json.dumps(content, indent=1, allow_nan=False, default=_plain)
    except ValueError as error:
        raise CalibrantError(
            f"a calibrator is saved as finite numbers; {one_line(error)}. "
            "Fit it on logits whose differences are finite in their dtype"
        ) from None
    for each in (calibrator, *calibrator.parts_):
        refusal = each._refuse_state(each.state_)
        if refusal is not None:
            raise CalibrantError(f"this calibrator cannot be saved: {refusal}. Fit it again")
    return f"{text}\n".encode()


def _fitted(calibrator: Calibrator) -> dict[str, Any]:
    return {
        "method": calibrator.NAME,
        "params": calibrator.get_params(),
        "state": calibrator.state_,
    }


def is_calibrator(path: Path) -> bool:
    """Whether a file is a calibrator written by some version of :func:`save`."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def _plain(value: Any) -> Any:
    """NumPy arrays and numbers as Python lists and numbers."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise CalibrantError(
        f"a calibrator is saved as plain numbers and text; found {type(value).__name__}. "
        "Pass plain values to its constructor, and labels as text or numbers"
    )


def one_line(error: Exception) -> str:
    """The message of ``error`` on one line of at most 160 printable characters."""
    text = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    text = " ".join(text.split())
    printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return printable[:160].rstrip(".")
