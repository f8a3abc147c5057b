"""Checks of arrays: scores, labels, weights, and numbers whose range depends on an array's type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant._array_api import array_namespace, device, is_array_api_obj
from calibrant._inputs.values import described, finite_number, holds, whole_number
from calibrant._types import Array
from calibrant.errors import CalibrantError

TWO_COLUMNS = {
    "logits": "np.stack([np.zeros_like(s), s], axis=-1) for a binary score s",
    "probs": "np.stack([1 - p, p], axis=-1) for a binary probability p",
}

PLAIN = (np.dtype(np.float64), np.dtype(np.float32))
"""Types that need no conversion."""

# --- conversion ---


def as_numpy(array: Array) -> npt.NDArray[Any]:
    """The same numbers as a NumPy array, without a copy if they are in main memory."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
    return np.asarray(array)


def as_array(values: Any, name: str) -> Array:
    """``values`` if they are an array of a known library, else as a NumPy array."""
    if isinstance(values, np.ma.MaskedArray):
        raise CalibrantError(
            f"{name} must not be a masked array: its mask would be lost. "
            "Drop the masked rows, or mark absent classes with a logit of -inf"
        )
    return values if is_array_api_obj(values) else rectangular(values, name)


def rectangular(values: Any, name: str) -> npt.NDArray[Any]:
    """Numbers as a NumPy array, with the same number in each row."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, dtype=object)  # ragged
    if array.dtype == object or array.dtype.kind in "USV":
        raise CalibrantError(
            f"{name} must be a rectangular array of numbers; found {described(values)}. "
            "Pass a NumPy array or a torch tensor"
        )
    return array


def floating(values: Any, name: str) -> Array:
    """A real floating array of at least float32; integers become float64."""
    if type(values) is np.ndarray and values.dtype in PLAIN:  # at once: a service sends single rows
        return values
    array = as_array(values, name)
    xp = array_namespace(array)
    if xp.isdtype(array.dtype, "real floating"):
        if isinstance(array, np.ndarray) and not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        narrow = xp.finfo(array.dtype).bits < 32
        return xp.astype(array, xp.float32) if narrow else array
    if xp.isdtype(array.dtype, "integral"):
        return xp.astype(array, xp.float64)
    raise CalibrantError(
        f"{name} must be real numbers; found dtype {array.dtype}. Convert them to float"
    )


def refuse(bad: Array, message: str, found: Array | None = None) -> None:
    """Raise CalibrantError if any entry of ``bad`` is True.

    In ``message``, ``{where}`` is the row of the first one and ``{found}`` the entry of ``found``.
    """
    xp = array_namespace(bad)
    if not bool(xp.any(bad)):
        return
    shape = tuple(bad.shape)
    first = int(xp.argmax(xp.astype(xp.reshape(bad, (-1,)), xp.int8)))
    place = tuple(int(i) for i in np.unravel_index(first, shape)) if shape else ()
    count = int(xp.sum(xp.astype(bad, xp.int64)))
    where = "the row" if not place else f"row {place[0] if len(place) == 1 else place}"
    where += f" ({count} in all)" if count > 1 else ""
    value = None if found is None else float(found[place])
    raise CalibrantError(message.format(where=where, found=value) + ".")


# --- scores ---


def dense(values: Any, name: str) -> None:
    """Refuse tensors of torch whose values are not all in memory."""
    if hasattr(values, "is_meta") and (values.is_meta or "strided" not in str(values.layout)):
        found = "a tensor on the device meta" if values.is_meta else f"the layout {values.layout}"
        raise CalibrantError(
            f"{name} must be a dense tensor with values; found {found}. Call to_dense(), or "
            "compute them on another device"
        )


def unchecked_scores(values: Any, name: str) -> Array:
    """Real numbers with a class axis; the values themselves are not checked."""
    array = floating(values, name)
    shape = tuple(array.shape)
    if len(shape) == 0 or shape[-1] < 2:
        raise CalibrantError(
            f"{name} must have two or more classes on the last axis; found shape {shape}. "
            f"Pass one column for each class: {TWO_COLUMNS[name]}"
        )
    return array


def logits(values: Any) -> Array:
    """Real scores, class axis last; -inf marks an absent class, NaN and +inf are refused."""
    array = unchecked_scores(values, "logits")
    xp = array_namespace(array)
    # The row maximum is NaN if the row has a NaN, +inf if it has a +inf, and -inf if every class is
    # absent.
    top = xp.max(array, axis=-1)
    if bool(xp.all(xp.isfinite(top))):
        return array
    refuse(
        xp.isnan(top),
        "logits must not contain NaN; found NaN in {where}. "
        "Look for a division by zero or an overflow in the model",
    )
    refuse(
        top == float("inf"),
        "logits must be below +inf; found +inf in {where}. "
        "Clip the scores, or rule out the other classes with -inf",
    )
    refuse(
        top == -float("inf"),
        "logits must leave at least one class possible; found only -inf in {where}. "
        "Unmask the classes that are possible, or drop the row",
    )
    return array


def probs(values: Any, *, tolerance: float | None = None) -> Array:
    """Probability vectors, class axis last: in [0, 1] and summing to 1 within rounding.

    ``tolerance`` is that of the original type, if the values have been converted since.
    """
    values = as_array(values, "probs")
    array = unchecked_scores(values, "probs")
    xp = array_namespace(array)
    total = xp.sum(array, axis=-1)
    refuse(
        xp.isnan(total),
        "probs must not contain NaN; found NaN in {where}. "
        "Look for a division of 0 by 0 in their normalisation",
    )
    lowest = xp.min(array, axis=-1)
    tolerance = sum_tolerance(values) if tolerance is None else tolerance
    if array.shape[-1] == 2 and bool(xp.any(lowest < 0)):
        # One column p was completed to 1 - p and p: name p, which is what the user knows.
        refuse(
            (array[..., 1] > 1) & (xp.abs(total - 1.0) <= tolerance),
            "probs must be between 0 and 1; found {found:.4g} in {where}. "
            "Divide percentages by 100; if these are logits, call them so",
            found=array[..., 1],
        )
    refuse(
        lowest < 0,
        "probs must not be negative; found {found:.4g} in {where}. "
        "If these are logits, pass them as logits=",
        found=lowest,
    )
    refuse(
        xp.abs(total - 1.0) > tolerance,
        f"probs rows must sum to 1 within {tolerance:.1g}; found {{found:.6g}} in {{where}}. "
        "If these are logits, pass them as logits=; "
        "if they are counts or scores, divide each row by its sum",
        found=total,
    )
    return array


def sum_tolerance(values: Array) -> float:
    """How far the sum of a row of probabilities may be from 1, given the type of the array.

    Probabilities printed with a few digits pass (a CSV file of ten classes with five decimals is
    off by up to 5e-5), and so do half-precision ones, whose rounding alone is larger than that.
    """
    xp = array_namespace(values)
    floating = xp.isdtype(values.dtype, "real floating")
    return max(1e-4, 2.0 * float(xp.finfo(values.dtype).eps)) if floating else 1e-4


def logits_of_network(output: Any) -> Any:
    """The logits in the output of a network."""
    if holds(output, "logits"):
        output = output["logits"]
    elif getattr(output, "logits", None) is not None:
        output = output.logits
    elif isinstance(output, tuple | list) and output:
        output = output[0]
    if not is_array_api_obj(output):
        raise CalibrantError(
            f"the network must return logits; found {described(output)}. Return a tensor, or an "
            "object with .logits"
        )
    return output


# --- labels and weights ---


def labels(values: Any, scores: Array, *, ignored: int | None = None) -> Array:
    """Class indices 0..K-1, one for each row of ``scores``, in the array library of ``scores``."""
    if values is None:
        raise CalibrantError("labels are needed; found none. Pass one class index for each row")
    xp = array_namespace(scores)
    values = as_array(values, "labels")
    own = array_namespace(values)
    _one_per_row(
        values,
        scores,
        "labels",
        "Drop extra axes, or take the argmax over one-hot labels: labels.argmax(axis=1)",
    )
    if not own.isdtype(values.dtype, "integral") and math.prod(values.shape) > 0:
        raise CalibrantError(
            f"labels must be integers; found {values.dtype}. "
            "Pass class indices 0..K-1 (labels.astype(int) if they are whole numbers)"
        )
    if own is not xp:
        values = xp.asarray(as_numpy(values).astype(np.int64), device=device(scores))
    values = xp.astype(values, xp.int64, copy=False)
    n_classes = scores.shape[-1]
    if math.prod(values.shape) == 0 or 0 <= xp.min(values) <= xp.max(values) < n_classes:
        return values  # found in half the time of a look at each
    outside = (values < 0) | (values >= n_classes)
    if ignored is not None:
        outside = outside & (values != ignored)
    refuse(
        outside,
        f"labels must be between 0 and {n_classes - 1} for {n_classes} classes; "
        "found {found:.0f} in {where}. Count classes from 0, and drop rows without a label "
        "(metrics leave them out with ignore_label=)",
        found=values,
    )
    return values


def ignored_label(value: Any) -> int | None:
    """A whole number that marks rows to leave out, or None."""
    if value is None:
        return None
    return whole_number(value, "ignore_label", allowed=range(-(2**62), 2**62))


def all_ignored(labels: Any, ignored: int | None) -> bool:
    """Whether every label of a batch is ignored."""
    if ignored is None or labels is None:
        return False
    return bool((as_numpy(as_array(labels, "labels")) == ignored).all())


def possible_labels(
    flat: npt.NDArray[Any], labels: npt.NDArray[np.int64], present: npt.NDArray[np.bool_]
) -> None:
    """No label at a logit of -inf in the rows ``present``: no map could make it probable."""
    refuse(
        (flat[np.arange(len(flat)), labels] == -np.inf) & present,
        "the true class must be possible; found a logit of -inf at the label of {where}. "
        "Unmask the class, or leave the row out of the fit",
    )


def two_or_more_classes(n_classes: int) -> None:
    """At least two classes among the labels; scikit-learn's checks look for the word "class"."""
    if n_classes < 2:
        raise CalibrantError(
            f"y must have two or more classes; found {n_classes} class. "
            "Add samples of other classes"
        )


def sample_weight(values: Any, scores: Array) -> npt.NDArray[np.float64] | None:
    """Finite weights of at least 0, one for each row of ``scores``."""
    if values is None:
        return None
    weight = as_numpy(floating(values, "sample_weight")).astype(np.float64)
    _one_per_row(weight, scores, "sample_weight", "Pass one weight for each label")
    refuse(
        ~(weight >= 0) | (weight == np.inf),
        "sample_weight must be finite and not negative; found {found} in {where}. "
        "Use 0 to leave a row out",
        found=weight,
    )
    # Above 2^53 whole numbers are no longer exact, and sums might overflow.
    largest = weight.max(initial=0.0)
    return weight / largest if largest > 2.0**53 else weight


def booleans(values: Any, name: str) -> npt.NDArray[np.bool_]:
    """Booleans, or the numbers 0 and 1."""
    array = as_numpy(values) if is_array_api_obj(values) else rectangular(values, name)
    if array.dtype != np.bool_:
        other = (array != 0) & (array != 1)
        remedy = "Write 1 for yes and 0 for no"
        refuse(
            other, f"{name} must be 0 or 1; found {{found:g}} in {{where}}. {remedy}", found=array
        )
    return array.astype(np.bool_)


def something_to_measure(n: int) -> None:
    """At least one sample."""
    if n == 0:
        raise CalibrantError(
            "there must be at least one sample to measure; found none. "
            "Check the input, and whether every label is ignored or every weight is 0"
        )


# --- arrays that belong together ---


def _one_per_row(values: Array, scores: Array, name: str, remedy: str) -> None:
    expected = tuple(scores.shape[:-1])
    if tuple(values.shape) != expected:
        raise CalibrantError(
            f"{name} must have one entry per row, shape {expected}; found shape "
            f"{tuple(values.shape)} for scores of shape {tuple(scores.shape)}. {remedy}"
        )


def same_shape(**arrays: npt.NDArray[Any]) -> None:
    """Two arrays of the same shape, passed by name."""
    (first, a), (second, b) = arrays.items()
    if a.shape != b.shape:
        raise CalibrantError(
            f"{first} and {second} must have the same shape; found {a.shape} and {b.shape}. "
            "Pass one entry of each for every sample"
        )


def same_count(what: str, first: int | None, second: int | None) -> None:
    """The same number of ``what`` in parts that are added up; None is unknown."""
    if first != second:
        raise CalibrantError(
            f"parts that are added up must have the same number of {what}; found {first} and "
            f"{second}. Evaluate them separately"
        )


def same_classes(scores: Array, expected: int) -> None:
    """As many classes as a calibrator was fitted on."""
    found = scores.shape[-1] if scores.shape else "a number"
    if found != expected:
        raise CalibrantError(
            f"this calibrator was fitted on {expected} classes; found {found}. "
            "Pass the output of the same model, classes on the last axis"
        )


def same_scores(first_kind: str, first: Array, second_kind: str, second: Array) -> None:
    """Validation and test scores of one kind and of the same number of classes."""
    if first_kind != second_kind:
        raise CalibrantError(
            f"the samples to fit and to test on must be of one kind; found {first_kind} and "
            f"{second_kind}. Pass both as logits or both as probs"
        )
    if first.shape[-1] != second.shape[-1]:
        raise CalibrantError(
            "the samples to fit and to test on must have the same number of classes; found "
            f"{first.shape[-1]} and {second.shape[-1]}. Pass the output of one model"
        )


# --- numbers ---


def unit_interval(values: Any, name: str) -> Array:
    """Numbers between 0 and 1, of any shape."""
    array = floating(values, name)
    xp = array_namespace(array)
    inside = (array >= 0) & (array <= 1)  # False for NaN
    if not bool(xp.all(inside)):
        found = float(array[~inside][0])
        raise CalibrantError(
            f"{name} must be between 0 and 1; found {found:.6g}. Pass probabilities, not logits"
        )
    return array


def gamma(value: Any, *, lowest: float, highest: float = math.inf, like: Array = None) -> float:
    """A finite focusing parameter in [lowest, highest] that the type of ``like`` can represent."""
    number = finite_number(value, "gamma")
    if number > highest:
        raise CalibrantError(
            f"gamma must be at most {highest:g}; found {number!r}. Use a smaller one"
        )
    if number < lowest:
        what = {0.0: "focal loss", -1.0: "focal map"}[lowest]
        raise CalibrantError(
            f"gamma must be at least {lowest:g}; found {number!r}. "
            f"The {what} is defined for gamma >= {lowest:g}"
        )
    within_type(number, "gamma", like, smallest=0.0)
    return number


def within_type(number: float, name: str, like: Array, *, smallest: float) -> None:
    """A number that the type of ``like`` can represent."""
    if like is None:
        return
    largest = float(array_namespace(like).finfo(like.dtype).max)
    if not smallest <= abs(number) <= largest:
        raise CalibrantError(
            f"{name} must be within the range of the array's type {like.dtype}; "
            f"found {number:g}. Use a wider type or a less extreme {name}"
        )
