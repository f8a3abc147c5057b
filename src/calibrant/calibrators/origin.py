"""Where a fitted calibrator comes from: when, by which program, from which samples."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._registry import entry_points, package_of
from calibrant._version import __version__
from calibrant.errors import CalibrantError

PLUGINS = "calibrant.calibrators"
"""Group of the entry points of plug-ins."""
KINDS = ("logits", "probs")
MOST_HASHED = 1 << 20
"""Numbers of an array that are hashed, so that a fingerprint takes milliseconds."""
MOST_NESTED = 20


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """The samples of a fit."""

    n: int
    """Number of samples, without rows of weight 0."""
    sha256: str | None = None
    """SHA-256 of scores, labels and weights. Of more than a million scores, evenly spaced rows are
    hashed."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """The package outside calibrant that a method is part of."""

    module: str
    """Module of its class."""
    package: str | None = None
    """Name and version, if the package declares the method as an entry point."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a fitted calibrator comes from. What an old file does not say is None."""

    created: str | None = None
    """Time of the fit in UTC, such as 2026-01-31T12:00:00Z; that of the environment variable
    SOURCE_DATE_EPOCH if it is set."""
    calibrant: str | None = None
    """Version of calibrant that fitted it."""
    plugin: Plugin | None = None
    """The plug-in that the method is part of; None for a method of calibrant."""
    input: str | None = None
    """What it was fitted on, ``"logits"`` or ``"probs"``."""
    source: str | None = None
    """Where the probabilities of a language model's log came from, such as ``"verbal"``."""
    data: Fingerprint | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Whatever was given to ``save``: JSON values by name."""

    def with_data(
        self,
        kind: str,
        scores: npt.NDArray[Any],
        labels: npt.NDArray[Any],
        weight: npt.NDArray[Any] | None = None,
    ) -> Origin:
        """The same with the kind of input and the fingerprint of the samples."""
        rows = scores.reshape(-1, scores.shape[-1])
        every = slice(None, None, hashed_stride(*rows.shape))
        weight = None if weight is None else weight[every]
        return self.with_hashed(kind, rows.shape, rows[every], labels[every], weight)

    def with_hashed(
        self,
        kind: str,
        shape: tuple[int, int],
        scores: npt.NDArray[Any],
        labels: npt.NDArray[Any],
        weight: npt.NDArray[Any] | None = None,
    ) -> Origin:
        """:meth:`with_data` of scores of this shape, from every :func:`hashed_stride`-th row."""
        # The same for single and double precision, and on every machine.
        digest = hashlib.sha256(repr(shape).encode())
        for array, dtype in ((scores, "<f8"), (labels, "<i8"), (weight, "<f8")):
            if array is not None:
                digest.update(np.ascontiguousarray(array, dtype=dtype).data)
        return replace(self, input=kind, data=Fingerprint(n=shape[0], sha256=digest.hexdigest()))


def hashed_stride(n_rows: int, width: int) -> int:
    """The distance of the rows that are hashed."""
    return max(1, n_rows * width // MOST_HASHED)


def origin_of_fit(method: type, name: str, n: int) -> Origin:
    """The origin of a calibrator that is being fitted on ``n`` samples."""
    plugin = None
    if method.__module__.partition(".")[0] != "calibrant":
        found = entry_points(PLUGINS).get(name)
        package = None if found is None else package_of(found)
        plugin = Plugin(module=method.__module__, package=package)
    return Origin(created=_now(), calibrant=__version__, plugin=plugin, data=Fingerprint(n=n))


def _now() -> str:
    text = os.environ.get("SOURCE_DATE_EPOCH") or str(int(time.time()))
    try:
        return f"{datetime.fromtimestamp(int(text), UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        raise CalibrantError(
            f"SOURCE_DATE_EPOCH must be seconds since 1970; found {text[:60]!r}. Unset it"
        ) from None


def check_metadata(metadata: Any) -> dict[str, Any]:
    """A dict of JSON values, which can be saved and shown."""
    if not isinstance(metadata, Mapping) or not _is_json(dict(metadata), MOST_NESTED):
        raise CalibrantError(
            "metadata must be a dict of JSON values by name: text, finite numbers, true, false, "
            f"null, lists and dicts; found {type(metadata).__name__} with another kind of value. "
            "Convert it to text"
        )
    return dict(metadata)


def _is_json(value: Any, deep: int) -> bool:
    if isinstance(value, dict):
        return deep > 0 and all(
            isinstance(name, str) and _is_json(each, deep - 1) for name, each in value.items()
        )
    if isinstance(value, list):
        return deep > 0 and all(_is_json(each, deep - 1) for each in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < 2**63
    return value is None or isinstance(value, str)
