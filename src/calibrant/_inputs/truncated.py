"""Checks of truncated rows, of which only the largest logits are known."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from calibrant._inputs.arrays import as_numpy
from calibrant.errors import CalibrantError

(
    FINE,
    NOT_A_NUMBER,
    NO_SUCH_CLASS,
    CLASS_TWICE,
    NO_NORMALISER,
    NO_SUCH_LABEL,
    LABEL_UNKNOWN,
    LABEL_TOO_LARGE,
    LABEL_IMPOSSIBLE,
    NOTHING_POSSIBLE,
    TOO_MUCH_KNOWN,
    TOO_LITTLE_KNOWN,
) = range(12)
"""What can be wrong with a row, in the order of the checks."""


class TruncatedArrays(NamedTuple):
    """Truncated rows as arrays of consistent shapes; arrays that were not given are empty."""

    logits: npt.NDArray[Any]
    classes: npt.NDArray[np.int64]
    normaliser: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    label_logits: npt.NDArray[np.float64]
    precision: float
    """The lowest relative precision among the types of the logits."""


def truncated_arrays(
    logits: Any, classes: Any, labels: Any, normaliser: Any, label_logits: Any, n_classes: int
) -> TruncatedArrays:
    """Arrays of consistent shapes and types; their values are not checked."""
    given = _numbers(logits, "top_logits", "f")
    if given.ndim != 2 or given.size == 0:
        raise CalibrantError(
            f"top_logits must have the shape (rows, k), with at least one row and one class; found "
            f"{given.shape}. Pass the k largest logits of each row"
        )
    n, k = given.shape
    if k > n_classes:
        raise CalibrantError(
            f"top_logits must not have more columns than there are classes; found k = {k} of "
            f"{n_classes}. Correct n_classes"
        )
    of_classes = _of_shape(_numbers(classes, "top_classes", "iu"), "top_classes", (n, k))
    none = np.empty(0)
    floats = {}
    for name, values in (("normaliser", normaliser), ("label_logits", label_logits)):
        floats[name] = (
            none if values is None else _of_shape(_numbers(values, name, "f"), name, (n,))
        )
    precisions = [np.finfo(each.dtype).eps for each in (given, *floats.values()) if each.size]
    whole = np.empty(0, dtype=np.int64)
    if labels is not None:
        whole = _of_shape(_numbers(labels, "labels", "iu"), "labels", (n,)).astype(np.int64)
    return TruncatedArrays(
        logits=np.ascontiguousarray(given, dtype=np.float64),
        classes=np.ascontiguousarray(of_classes.astype(np.int64, copy=False)),
        normaliser=np.zeros(n) if normaliser is None else floats["normaliser"].astype(np.float64),
        labels=np.where(whole < 0, -2, whole),  # -1 stands for no label
        label_logits=floats["label_logits"].astype(np.float64),
        precision=float(max(precisions)),
    )


def usable_truncated_rows(
    verdicts: npt.NDArray[np.int64], given: TruncatedArrays, n_classes: int
) -> None:
    """Raise for the first unusable row; ``verdicts`` says what is wrong with each row."""
    bad = np.flatnonzero(verdicts)
    if len(bad) == 0:
        return
    row, verdict = int(bad[0]), int(verdicts[bad[0]])
    alike = int((verdicts == verdict).sum())
    logits, classes = given.logits[row].astype(np.float64), given.classes[row]
    label = int(given.labels[row]) if len(given.labels) else None
    normaliser = float(given.normaliser[row])
    share = float(np.exp(np.sort(logits)[::-1] - normaliser).sum())
    wrong = {
        NOT_A_NUMBER: "logits must be numbers below +inf; found "
        f"{logits[~(logits < np.inf)][:1]}. Log the output of the network, -inf for absent classes",
        NO_SUCH_CLASS: f"classes must be 0 to {n_classes - 1}; found "
        f"{classes[(classes < 0) | (classes >= n_classes)][:1]}. Number them like the labels",
        CLASS_TWICE: f"classes of a row must be distinct; found {_twice(classes)} twice. "
        "Log each of the k largest logits once",
        NO_NORMALISER: f"the normaliser must be finite; found {normaliser}. Log the logsumexp of "
        "all logits",
        NO_SUCH_LABEL: f"labels must be 0 to {n_classes - 1}; found {label}. Number the classes "
        "from 0",
        LABEL_UNKNOWN: f"the label {label} is not among the known classes, and its logit is not "
        f"known; {alike} rows are like this. Log it as label_logit (label_logprob for "
        "log-probabilities), or leave such rows out with skip_bad, which biases the fit",
        LABEL_TOO_LARGE: "the label's logit must not be above the smallest of the k largest; found "
        f"{_at(given.label_logits, row)} above {logits.min():.6g}. Log the largest logits of the "
        "row",
        LABEL_IMPOSSIBLE: f"the label {label} has probability 0. Drop the row or correct it",
        NOTHING_POSSIBLE: "no class is possible. Drop the row",
        TOO_MUCH_KNOWN: f"the probabilities of the known classes must sum to at most 1; found "
        f"{share:.6g}. Compute the normaliser over all classes, at T = 1 and in the units of the "
        "logits",
        TOO_LITTLE_KNOWN: "no unknown class may be more probable than the least probable known "
        f"one; found a probability of only {share:.6g} in {len(classes)} of {n_classes} classes. "
        "Log the k largest logits, and the normaliser of the same logits",
    }
    raise BadRowsError(f"row {row}: {wrong[verdict]}", bad)


class BadRowsError(CalibrantError):
    """Some rows cannot be used; ``rows`` are their indices."""

    def __init__(self, message: str, rows: npt.NDArray[np.intp]) -> None:
        super().__init__(message)
        self.rows = rows


def every_class_known(what: str) -> NoReturn:
    """Refuse an operation that truncated rows do not allow."""
    raise CalibrantError(
        f"{what} needs the logits of all classes; found only the largest ones of each row. "
        "Write them as Parquet, and fit temperature or focal-temperature"
    )


def _numbers(values: Any, name: str, kinds: str) -> npt.NDArray[Any]:
    array = as_numpy(values)
    longer = array.dtype.kind == "f" and array.dtype.itemsize > 8
    if "f" in kinds and (longer or array.dtype.kind in "iu"):
        array = array.astype(np.float64)
    if array.dtype.kind not in kinds:
        what = "numbers" if "f" in kinds else "whole numbers"
        raise CalibrantError(f"{name} must be {what}; found dtype {array.dtype}. Convert them")
    return array


def _of_shape(array: npt.NDArray[Any], name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if array.shape != shape:
        raise CalibrantError(
            f"{name} must have the shape {shape}, to match top_logits; found {array.shape}. "
            "Take them from the same rows"
        )
    return array


def _twice(classes: npt.NDArray[np.int64]) -> int:
    values, counts = np.unique(classes, return_counts=True)
    return int(values[counts.argmax()])


def _at(values: npt.NDArray[np.float64], row: int) -> str:
    return f"{values[row]:.6g}" if len(values) else "none"


def number_of_classes(found: int | None, given: int | None, where: str) -> int:
    """The number of classes, which truncated rows do not show."""
    if found is None and given is None:
        raise CalibrantError(
            f"{where} holds the largest logits of each row but not the number of classes. "
            "Pass n_classes= (--classes on the command line)"
        )
    if found is not None and given is not None and found != given:
        raise CalibrantError(
            f"{where} has {found} classes; found n_classes = {given}. Omit it, or correct it"
        )
    number = given if found is None else found
    assert number is not None
    return number
