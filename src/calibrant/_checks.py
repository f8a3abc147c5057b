"""The one place where values are refused.

Public functions call these once and trust the result from there on. Every message says what was
wrong, what was found and what to do. A check returns the value in the form the library computes
with: half-precision arrays come back as float32, lists as NumPy arrays.
"""

from __future__ import annotations

import difflib
import importlib.util
import math
import numbers
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_array_api_obj

from calibrant._types import Array

PICTURES = (".png", ".svg", ".pdf")

TWO_COLUMNS = {
    "logits": "np.stack([np.zeros_like(s), s], axis=-1) for a binary score s",
    "probs": "np.stack([1 - p, p], axis=-1) for a binary probability p",
}


def logits(values: Any) -> Array:
    """Real scores, class axis last; -inf marks an absent class, NaN and +inf are refused."""
    array = _floating(values, "logits")
    _class_axis(array, "logits", TWO_COLUMNS["logits"])
    xp = array_namespace(array)
    # The row maximum alone tells all three: NaN passes through it, +inf is it, and -inf is it
    # only where every class is absent.
    top = xp.max(array, axis=-1)
    _refuse(
        xp.isnan(top),
        "logits must not hold NaN; found NaN in {where}. "
        "Look for a division by zero or an overflow in the model that made them",
    )
    _refuse(
        top == float("inf"),
        "logits must be below +inf; found +inf in {where}. "
        "Clip the scores, or use -inf on the other classes to rule them out",
    )
    _refuse(
        top == -float("inf"),
        "logits must leave at least one class possible; found only -inf in {where}. "
        "Unmask the classes the row may take, or drop the row",
    )
    return array


def probs(values: Any, *, tolerance: float | None = None) -> Array:
    """Probability vectors, class axis last: in [0, 1] and summing to 1 within rounding.

    ``tolerance`` is that of the type the values came in, where they have been widened since.
    """
    values = as_array(values, "probs")
    array = _floating(values, "probs")
    _class_axis(array, "probs", TWO_COLUMNS["probs"])
    xp = array_namespace(array)
    total = xp.sum(array, axis=-1)
    _refuse(
        xp.isnan(total),
        "probs must not hold NaN; found NaN in {where}. "
        "Look for a 0/0 in the normalisation that made them",
    )
    _refuse(
        xp.min(array, axis=-1) < 0,
        "probs must not be negative; found {found:.4g} in {where}. "
        "If these are logits, turn them into probabilities with a softmax first",
        found=xp.min(array, axis=-1),
    )
    tolerance = sum_tolerance(values) if tolerance is None else tolerance
    _refuse(
        xp.abs(total - 1.0) > tolerance,
        f"probs rows must sum to 1 within {tolerance:.1g}; {{where}} sums to {{found:.6g}}. "
        "If these are logits, turn them into probabilities with a softmax first; "
        "if they are counts or scores, divide each row by its sum",
        found=total,
    )
    return array


def sum_tolerance(given: Array) -> float:
    """How far a row of probabilities may be from summing to 1, by the precision it came in.

    Probabilities printed with a few digits pass (a CSV file of ten classes with five decimals is
    off by up to 5e-5), and so do half-precision ones, whose rounding alone is larger than that.
    """
    xp = array_namespace(given)
    floating = xp.isdtype(given.dtype, "real floating")
    return max(1e-4, 2.0 * float(xp.finfo(given.dtype).eps)) if floating else 1e-4


def unit_interval(values: Any, name: str) -> Array:
    """Numbers between 0 and 1, of any shape."""
    array = _floating(values, name)
    xp = array_namespace(array)
    inside = (array >= 0) & (array <= 1)  # False for NaN
    if not bool(xp.all(inside)):
        found = float(array[~inside][0])
        raise ValueError(
            f"{name} must lie between 0 and 1; found {found:.6g}. Pass probabilities, not logits"
        )
    return array


def labels(values: Any, scores: Array, *, ignored: int | None = None) -> Array:
    """Class indices 0..K-1, one for each row of ``scores``, in the array library of ``scores``."""
    xp = array_namespace(scores)
    values = as_array(values, "labels")
    own = array_namespace(values)
    _one_per_row(
        values,
        scores,
        "labels",
        "Drop any extra axis, or take argmax over one-hot labels: labels.argmax(axis=1)",
    )
    if not own.isdtype(values.dtype, "integral") and math.prod(values.shape) > 0:
        raise TypeError(
            f"labels must be integers; found {values.dtype}. "
            "Pass class indices 0..K-1 (labels.astype(int) if they are whole numbers)"
        )
    if own is not xp:
        values = xp.asarray(as_numpy(values).astype(np.int64), device=device(scores))
    values = xp.astype(values, xp.int64, copy=False)
    n_classes = scores.shape[-1]
    outside = (values < 0) | (values >= n_classes)
    if ignored is not None:
        outside = outside & (values != ignored)
    _refuse(
        outside,
        f"labels must be between 0 and {n_classes - 1} for {n_classes} classes; "
        "found {found:.0f} in {where}. Count classes from 0, and drop rows without a label "
        "(a metric leaves them out with ignore_label=)",
        found=values,
    )
    return values


def sample_weight(values: Any, scores: Array) -> npt.NDArray[np.float64] | None:
    """Weights that are finite and not negative, one for each row of ``scores``."""
    if values is None:
        return None
    weight = as_numpy(_floating(values, "sample_weight")).astype(np.float64)
    _one_per_row(weight, scores, "sample_weight", "Pass one weight for each label")
    _refuse(
        ~(weight >= 0) | (weight == np.inf),
        "sample_weight must be finite and not negative; found {found} in {where}. "
        "Use 0 to leave a row out",
        found=weight,
    )
    # Beyond this, numbers are not counted one by one any more, and sums might overflow.
    largest = weight.max(initial=0.0)
    return weight / largest if largest > 2.0**53 else weight


def something_to_measure(n: int) -> None:
    """At least one sample."""
    if n == 0:
        raise ValueError(
            "there must be at least one sample to measure; found none. "
            "Check the input, and whether every label is ignored or every weight 0"
        )


def same_shape(**arrays: npt.NDArray[Any]) -> None:
    """Two arrays, given by their names, of the same shape."""
    (first, a), (second, b) = arrays.items()
    if a.shape != b.shape:
        raise ValueError(
            f"{first} and {second} must have the same shape; found {a.shape} and {b.shape}. "
            "Pass one entry of each for every sample"
        )


def same_count(what: str, first: int | None, second: int | None) -> None:
    """Parts that are added up must agree in the number of ``what``; None is not known."""
    if first != second:
        raise ValueError(
            f"parts that are added up must have the same {what}; found {first} and {second}. "
            "Count them one by one"
        )


def same_classes(scores: Array, expected: int) -> None:
    """As many classes as a calibrator was fitted on."""
    if scores.shape[-1] != expected:
        raise ValueError(
            f"this calibrator was fitted on {expected} classes; found {scores.shape[-1]}. "
            "Pass the output of the same model, classes on the last axis"
        )


def possible_labels(
    flat: npt.NDArray[Any], labels: npt.NDArray[np.int64], present: npt.NDArray[np.bool_]
) -> None:
    """No true class masked by -inf in the rows ``present``: no map could make it probable."""
    _refuse(
        (flat[np.arange(len(flat)), labels] == -np.inf) & present,
        "the true class must be possible; found a logit of -inf at the label of {where}. "
        "Unmask the class, or leave the row out of the fit",
    )


def truths(values: Any, name: str) -> npt.NDArray[np.bool_]:
    """Yes or no: booleans, or the numbers 0 and 1."""
    array = as_numpy(values) if is_array_api_obj(values) else _as_numpy(values, name)
    if array.dtype != np.bool_:
        strange = (array != 0) & (array != 1)
        _refuse(strange, f"{name} must be 0 or 1; found {{found:g}} in {{where}}", found=array)
    return array.astype(np.bool_)


def one_of(**arguments: Any) -> tuple[str, Any]:
    """The name and value of the one argument that is not None."""
    given = [name for name, value in arguments.items() if value is not None]
    if len(given) != 1:
        names = " or ".join(arguments)
        raise TypeError(
            f"exactly one of {names} is needed; found {' and '.join(given) or 'neither'}. "
            "Probabilities and scores before the softmax are told apart by name, never guessed"
        )
    return given[0], arguments[given[0]]


def scores(values: Any, name: str) -> npt.NDArray[Any]:
    """Real scores with a class axis as a NumPy array, whose values nobody has looked at yet."""
    array = as_numpy(_floating(values, name))
    _class_axis(array, name, TWO_COLUMNS[name])
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array


def as_numpy(array: Array) -> npt.NDArray[Any]:
    """The same numbers as a NumPy array, without a copy where they are in memory already."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
    return np.asarray(array)


def gamma(value: Any, *, lowest: float, highest: float = math.inf, like: Array = None) -> float:
    """A finite focusing parameter not below ``lowest`` (and in the range of ``like``'s type)."""
    number = _number(value, "gamma")
    if number > highest:
        raise ValueError(f"gamma must be at most {highest:g}; found {number!r}. Use a smaller one")
    if number < lowest:
        what = {0.0: "focal loss", -1.0: "focal map"}[lowest]
        raise ValueError(
            f"gamma must be at least {lowest:g}; found {number!r}. "
            f"The {what} is defined for gamma >= {lowest:g}"
        )
    _within_type(number, "gamma", like, smallest=0.0)
    return number


def positive_gamma(value: Any) -> float:
    """A finite gamma above 0, for questions that have no answer at 0."""
    number = gamma(value, lowest=0.0)
    if number == 0.0:
        raise ValueError(
            "gamma must be above 0 here; found 0. At gamma = 0 the focal loss is cross-entropy, "
            "whose optimum is the posterior itself: neither under- nor over-confident anywhere"
        )
    return number


def temperature(value: Any, *, like: Array) -> float:
    """A finite temperature above 0, in the range of ``like``'s type."""
    number = _number(value, "temperature")
    if number <= 0.0:
        raise ValueError(
            f"temperature must be above 0; found {number:g}. "
            "Above 1 softens the probabilities, below 1 sharpens them"
        )
    smallest = float(array_namespace(like).finfo(like.dtype).smallest_normal)
    _within_type(number, "temperature", like, smallest=smallest)
    return number


def threshold(value: Any) -> float:
    """A probability p0 of at most 1/2, for which a gamma exists that a float can hold."""
    number = _number(value, "p0")
    if not 1e-300 <= number <= 0.5:
        raise ValueError(
            f"p0 must be above 0 (1e-300 at least) and at most 0.5; found {number:g}. No gamma > 0 "
            "has its gradients equal to those of cross-entropy at a probability outside this range"
        )
    return number


def whole_number(value: Any, name: str, *, allowed: range) -> int:
    """A whole number out of ``allowed``, such as a count of classes or bins."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(
            f"{name} must be a whole number; found {_describe(value)}. "
            f"Pass one from {allowed.start} to {allowed.stop - 1}"
        )
    if value not in allowed:
        raise ValueError(
            f"{name} must be from {allowed.start} to {allowed.stop - 1}; found {value}. "
            "Choose a count in that range"
        )
    return int(value)


def level(value: Any) -> float:
    """A confidence level strictly between 0 and 1."""
    number = _number(value, "level")
    if not 0.0 < number < 1.0:
        raise ValueError(
            f"level must lie strictly between 0 and 1; found {number:g}. For 95% pass 0.95"
        )
    return number


def ignored_label(value: Any) -> int | None:
    """A whole number that marks rows to leave out, or None."""
    if value is None:
        return None
    return whole_number(value, "ignore_label", allowed=range(-(2**62), 2**62))


def all_ignored(labels: Any, ignored: int | None) -> bool:
    """Whether a batch has nothing to count."""
    if ignored is None or labels is None:
        return False
    return bool((as_numpy(as_array(labels, "labels")) == ignored).all())


def picture_path(path: Path) -> Path:
    """A file name whose ending says how to draw it."""
    if path.suffix.lower() not in PICTURES:
        raise ValueError(
            f"a picture must end in {', '.join(PICTURES)}; found {str(path)!r}. Rename it"
        )
    return path


def choice(value: Any, name: str, allowed: Sequence[str]) -> str:
    """One of a few names."""
    if value not in allowed:
        close = difflib.get_close_matches(str(value), allowed, n=1)
        remedy = f"Did you mean {close[0]!r}?" if close else "Choose one of these"
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; found {value!r}. {remedy}")
    return str(value)


def given(value: Any, name: str) -> None:
    """Not left out."""
    if value is None:
        raise TypeError(f"{name} are needed; found none. Pass one for each row")


def parameter(name: str, owner: str, known: Sequence[str]) -> None:
    """A parameter that ``owner`` has."""
    if name not in known:
        has = f"It has {', '.join(known)}" if known else "It has none"
        raise ValueError(f"{owner} has no parameter {name!r}. {has}")


def _number(value: Any, name: str) -> float:
    if not isinstance(value, numbers.Real) or isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be a number; found {_describe(value)}. Pass a float")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite; found {number}. Pass an ordinary float")
    return number


def _within_type(number: float, name: str, like: Array, *, smallest: float) -> None:
    if like is None:
        return
    largest = float(array_namespace(like).finfo(like.dtype).max)
    if not smallest <= abs(number) <= largest:
        raise ValueError(
            f"{name} must be within the range of the array's type {like.dtype}; "
            f"found {number:g}. Use a wider type or a less extreme {name}"
        )


def _floating(values: Any, name: str) -> Array:
    """A real floating array of at least float32; whole numbers become the default float."""
    array = as_array(values, name)
    xp = array_namespace(array)
    if xp.isdtype(array.dtype, "real floating"):
        if isinstance(array, np.ndarray) and not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        narrow = xp.finfo(array.dtype).bits < 32
        return xp.astype(array, xp.float32) if narrow else array
    if xp.isdtype(array.dtype, "integral"):
        return xp.astype(array, xp.float64)
    raise TypeError(
        f"{name} must be real numbers; found dtype {array.dtype}. Convert them to float first"
    )


def as_array(values: Any, name: str) -> Array:
    """``values`` if they are an array of a known library, else as a NumPy array."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must not be a masked array, whose mask would be lost. "
            "Drop the masked rows; a logit of -inf marks an absent class"
        )
    return values if is_array_api_obj(values) else _as_numpy(values, name)


def _as_numpy(values: Any, name: str) -> Any:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, dtype=object)  # ragged
    if array.dtype == object or array.dtype.kind in "USV":
        raise TypeError(
            f"{name} must be a rectangular array of numbers; found {_describe(values)}. "
            "Pass a NumPy array or a torch tensor"
        )
    return array


def _class_axis(array: Array, name: str, two_columns: str) -> None:
    shape = tuple(array.shape)
    if len(shape) == 0 or shape[-1] < 2:
        raise ValueError(
            f"{name} must have two or more classes on the last axis; found shape {shape}. "
            f"Pass one column a class: {two_columns}"
        )


def _one_per_row(values: Array, scores: Array, name: str, remedy: str) -> None:
    expected = tuple(scores.shape[:-1])
    if tuple(values.shape) != expected:
        raise ValueError(
            f"{name} must have one entry per row, shape {expected}; found shape "
            f"{tuple(values.shape)} for scores of shape {tuple(scores.shape)}. {remedy}"
        )


def _refuse(bad: Array, message: str, found: Array | None = None) -> None:
    """Raise ValueError with the place of the first True of ``bad`` (and ``found`` there)."""
    xp = array_namespace(bad)
    if not bool(xp.any(bad)):
        return
    shape = tuple(bad.shape)
    first = int(xp.argmax(xp.astype(xp.reshape(bad, (-1,)), xp.int8)))
    place = tuple(int(i) for i in np.unravel_index(first, shape)) if shape else ()
    where = "the row" if not place else f"row {place[0] if len(place) == 1 else place}"
    value = None if found is None else float(found[place])
    count = int(xp.sum(xp.astype(bad, xp.int64)))
    rows = f" ({count} such rows in all)" if count > 1 else ""
    raise ValueError(message.format(where=where, found=value) + rows + ".")


def _describe(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def logits_unseen(values: Any) -> Array:
    """Real scores with a class axis, in their own library, whose values nobody has looked at."""
    array = _floating(values, "logits")
    _class_axis(array, "logits", TWO_COLUMNS["logits"])
    return array


def same_scores(first_kind: str, first: Array, second_kind: str, second: Array) -> None:
    """Samples to fit on and samples to measure on must come from one model, in one form."""
    if first_kind != second_kind:
        raise ValueError(
            f"what is fitted on and what is measured on must be of one kind; found {first_kind} "
            f"and {second_kind}. Pass both as logits or both as probs"
        )
    if first.shape[-1] != second.shape[-1]:
        raise ValueError(
            "what is fitted on and what is measured on must have the same classes; found "
            f"{first.shape[-1]} and {second.shape[-1]} of them. Pass the output of one model"
        )


def instance(value: Any, kind: type, name: str) -> None:
    """An object of ``kind``, made already."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}; found {_describe(value)}. Make one")


def installed(*packages: str, extra: str, purpose: str) -> None:
    """The packages that an optional part of the library needs."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"{purpose} needs {', '.join(packages)}; found no {', '.join(missing)}. "
            f"Run: pip install 'calibrant[{extra}]'"
        )


def two_or_more_classes(n_classes: int) -> None:
    """Labels to tell apart; the word class is what scikit-learn's own checks look for."""
    if n_classes < 2:
        raise ValueError(
            f"there must be two or more classes to tell apart; found {n_classes} class in y. "
            "Give samples of the other classes too"
        )


def known_classes(found: Sequence[Any], known: Sequence[Any]) -> None:
    """No label that a classifier was not trained on."""
    unknown = [label for label in found if label not in known]
    if unknown:
        raise ValueError(
            f"labels must be classes of the fitted estimator; found {unknown[0]!r}, which is not "
            f"one of its {len(known)}. Train the estimator on all classes, or leave the rows out"
        )


def all_classes_to_train(classes: Sequence[Any], trained: Sequence[Any]) -> None:
    """Every class in the training part of a fold: a score for a class never seen says nothing."""
    missing = [label for label in classes if label not in trained]
    if missing:
        raise ValueError(
            "every class must be in the training part of every fold; class "
            f"{missing[0]!r} is missing in one. Add samples of it, or choose another cv"
        )


def each_row_once(counts: npt.NDArray[np.intp]) -> None:
    """Folds that test every row exactly once."""
    if not (counts == 1).all():
        row = int(np.argmax(counts != 1))
        raise ValueError(
            f"cv must put every row into a test part exactly once; found row {row} there "
            f"{counts[row]} times. Use a number of folds, or a splitter such as StratifiedKFold"
        )


def has_output(estimator: Any, names: Sequence[str]) -> str:
    """The first of the methods ``names`` that a fitted classifier has."""
    for name in names:
        if hasattr(estimator, name):
            return name
    raise TypeError(
        f"the estimator must have {' or '.join(names)}; {type(estimator).__name__} has not. "
        "Pass a classifier that gives one score for each class"
    )


def scores_of_pairs(*, or_else: bool) -> None:
    """Scores of pairs of classes are of no use, unless there is something else to take."""
    if not or_else:
        raise ValueError(
            "decision_function must give one column for each class; found "
            "decision_function_shape='ovo', one for each pair of classes. "
            "Set decision_function_shape='ovr', or pass scores='predict_proba'"
        )


def one_column_a_class(values: npt.NDArray[Any], name: str, n_classes: int) -> None:
    """Scores of a classifier in the form that a softmax takes."""
    if values.ndim != 2 or values.shape[1] != n_classes:
        raise ValueError(
            f"{name} must give one column for each of the {n_classes} classes; found shape "
            f"{values.shape}. Set decision_function_shape='ovr', or pass scores='predict_proba'"
        )


def strength(value: Any, name: str) -> float:
    """A finite weight above 0 of a penalty that keeps a fit finite."""
    number = _number(value, name)
    if number <= 0.0:
        raise ValueError(
            f"{name} must be above 0; found {number:g}. Without this penalty there may be no "
            "finite minimum; pass a small number such as 1e-6 for almost none"
        )
    return number


def no_parameter_missing(missing: Sequence[str], method: str, owner: str) -> None:
    """A method that can be made from its name alone."""
    if missing:
        arguments = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(
            f"{method} needs {' and '.join(missing)}; found the name {method!r} alone. "
            f"Pass the calibrator itself: method={owner}({arguments})"
        )


def ending_of_format(name: str, ending: str, path: Path, others: Sequence[str]) -> None:
    """A file whose name does not say that it is of another format."""
    if path.suffix.lower() != ending and path.suffix.lower() in others:
        raise ValueError(
            f"the format {name} is written to {ending} files; found {path.name!r}. "
            f"Rename it, or leave the format out, which {path.suffix.lower()} tells"
        )


def ignored_index(value: Any) -> int:
    """A whole number that marks targets of a loss which do not count."""
    return whole_number(value, "ignore_index", allowed=range(-(2**62), 2**62))


def class_weights(values: Any) -> Array:
    """One weight for each class as a torch tensor of floats, finite and not negative; or None."""
    if values is None:
        return None
    if not (hasattr(values, "is_floating_point") and values.is_floating_point()):
        raise TypeError(
            f"weight must be a tensor of floats, one for each class; found {_describe(values)}. "
            "Pass torch.tensor([...])"
        )
    if values.ndim != 1:
        raise ValueError(
            f"weight must have one entry for each class; found shape {tuple(values.shape)}. "
            "Pass a tensor with one axis"
        )
    _refuse(
        ~((values >= 0) & (values < math.inf)),
        "weight must be finite and not negative; found {found} in {where}. Use 0 to leave a class "
        "out",
        found=values,
    )
    return values


def label_smoothing(value: Any) -> float:
    """A share of a target's mass."""
    number = _number(value, "label_smoothing")
    if not 0.0 <= number <= 1.0:
        raise ValueError(
            f"label_smoothing must lie between 0 and 1; found {number:g}. The papers use 0.1"
        )
    return number


def soft_targets(logits: Array, target: Array, ignored: int) -> None:
    """Class probabilities for every logit, none of which could be ignored by its index."""
    if tuple(logits.shape) != tuple(target.shape):
        raise ValueError(
            f"targets that are probabilities must have the shape of the logits, "
            f"{tuple(logits.shape)}; found {tuple(target.shape)}. "
            "Pass class indices as integers: target.long()"
        )
    if ignored >= 0:
        raise ValueError(
            f"ignore_index is for targets that are class indices; found {ignored} and targets "
            "that are probabilities. Leave ignore_index out, and give ignored rows no mass"
        )


def same_shape_targets(logits: Array, target: Array) -> None:
    """One target for each binary logit."""
    if tuple(logits.shape) != tuple(target.shape):
        raise ValueError(
            f"targets must have the shape of the logits, {tuple(logits.shape)}; found "
            f"{tuple(target.shape)}. Pass one target, 0 to 1, for each logit"
        )


def signed_gamma(value: Any, *, like: Array) -> float:
    """A finite gamma of a policy; below 0 it is that of the inverse focal loss."""
    number = _number(value, "gamma")
    _within_type(number, "gamma", like, smallest=0.0)
    return number


def one_weight_a_class(weight: Array, n_classes: int) -> None:
    """Class weights that fit the logits."""
    if len(weight) != n_classes:
        raise ValueError(
            f"weight must have one entry for each class; found {len(weight)} for logits of "
            f"{n_classes} classes. Pass a tensor of {n_classes}"
        )


def gammas_of_policy(gammas: Any, p: Array, owner: str, *, finite: bool) -> Array:
    """What a policy of one's own returns for p: finite gammas, one for each or one for all."""
    xp = array_namespace(p)
    if isinstance(gammas, (int, float)):
        gammas = xp.full_like(p, gammas)
    shape = getattr(gammas, "shape", None)
    if shape is None or shape not in ((), p.shape):
        found = type(gammas).__name__ if shape is None else f"shape {tuple(shape)}"
        raise ValueError(
            f"a policy must return a tensor with one gamma for each p, or one number for all; "
            f"found {found} from {owner} for p of shape {tuple(p.shape)}"
        )
    if finite and not bool(xp.all(xp.isfinite(gammas))):
        raise ValueError(
            f"a policy must return finite gammas; found NaN or infinity from {owner}. "
            "Look at its forward(p), where p may be 0 or 1"
        )
    return xp.astype(gammas, p.dtype)


def rising_thresholds(values: Sequence[Any], *, n_gammas: int) -> tuple[float, ...]:
    """Probabilities in rising order, one fewer than gammas."""
    thresholds = tuple(_number(value, "thresholds") for value in values)
    rising = all(a < b for a, b in pairwise(thresholds))
    if not (rising and all(0.0 < t < 1.0 for t in thresholds)):
        raise ValueError(
            f"thresholds must rise and lie strictly between 0 and 1; found {thresholds}. "
            "Sort them, and put each in once"
        )
    _one_gamma_more("thresholds", len(thresholds), n_gammas)
    return thresholds


def boundaries(
    fractions: Sequence[Any] | None, epochs: Sequence[Any] | None, *, n_gammas: int
) -> tuple[float, ...]:
    """Where the gammas of a schedule change, in parts of the run or in epochs."""
    name, values = one_of_boundaries(fractions, epochs)
    found = tuple(_number(value, name) for value in values)
    rising = all(a < b for a, b in pairwise(found))
    highest = 1.0 if name == "fractions" else math.inf
    if not (rising and all(0.0 < value < highest for value in found)):
        limits = "between 0 and 1" if name == "fractions" else "above 0"
        raise ValueError(f"{name} must rise and lie {limits}; found {found}. Sort them")
    _one_gamma_more(name, len(found), n_gammas)
    return found


def one_of_boundaries(
    fractions: Sequence[Any] | None, epochs: Sequence[Any] | None
) -> tuple[str, Sequence[Any]]:
    """Either of the two ways to say when a gamma changes."""
    if fractions is not None and epochs is not None:
        raise TypeError("a schedule takes fractions or epochs; found both. Leave one out")
    return ("epochs", epochs) if epochs is not None else ("fractions", fractions or ())


def _one_gamma_more(name: str, n_steps: int, n_gammas: int) -> None:
    if n_gammas != n_steps + 1:
        raise ValueError(
            f"there must be one gamma more than {name}; found {n_gammas} gammas and {n_steps} "
            f"{name}. The last gamma is for what is above the last of them"
        )


def length_of_run(epoch: int, n_epochs: Any) -> int:
    """How many epochs a run has, for a schedule in parts of it."""
    if n_epochs is None:
        raise TypeError(
            "a schedule in fractions of the run needs n_epochs; found none. Call "
            "start_epoch(epoch, n_epochs) (in Lightning: set max_epochs), or give the schedule in "
            "epochs="
        )
    length = whole_number(n_epochs, "n_epochs", allowed=range(1, 2**53))
    if epoch >= length:
        raise ValueError(
            f"epoch must be below n_epochs; found {epoch} of {length}. Count epochs from 0"
        )
    return length


def above_zero(value: Any, name: str) -> float:
    """A finite number above 0."""
    number = _number(value, name)
    if number <= 0.0:
        raise ValueError(f"{name} must be above 0; found {number:g}. Pass a positive number")
    return number


def not_negative(value: Any, name: str) -> float:
    """A finite number of at least 0."""
    number = _number(value, name)
    if number < 0.0:
        raise ValueError(f"{name} must be at least 0; found {number:g}. 0 leaves it out")
    return number


def limits_of_gamma(
    lowest: Any, highest: Any, start: Any, switch: float
) -> tuple[float, float, float]:
    """Limits on both sides of where AdaFocal's gamma changes its sign, and a start in between."""
    low, high = _number(lowest, "lowest"), _number(highest, "highest")
    begin = _number(start, "start")
    if not (low <= -switch and switch <= high):
        raise ValueError(
            f"lowest and highest must enclose -switch and switch; found {low:g} and {high:g} "
            f"around {switch:g}. AdaFocal's are -2, 20 and 0.2"
        )
    if not (low <= begin <= high and abs(begin) >= switch):
        raise ValueError(
            f"start must lie between {low:g} and {high:g} and no closer to 0 than {switch:g}; "
            f"found {begin:g}. AdaFocal's is 1"
        )
    return low, high, begin


def fixed_gamma(value: Any) -> float:
    """A gamma that is a number, for a map that belongs to it."""
    if not isinstance(value, float):
        raise ValueError(
            "the focal map needs a gamma that is a number; found a policy, whose optimum has no "
            "such map. Fit a calibrator on validation data"
        )
    return value


def validation_output(outputs: Any) -> tuple[Any, Any]:
    """The logits and labels that a Lightning ``validation_step`` has returned."""
    missing = [name for name in ("logits", "labels") if not _holds(outputs, name)]
    if missing:
        found = f"the keys {', '.join(map(str, outputs))}" if isinstance(outputs, Mapping) else None
        raise ValueError(
            "CalibrationCallback needs the logits and labels of the validation step; found "
            f"{found or _describe(outputs)}. Return {{'logits': logits, 'labels': labels}} from "
            "validation_step"
        )
    return outputs["logits"], outputs["labels"]


def _holds(outputs: Any, name: str) -> bool:
    return isinstance(outputs, Mapping) and outputs.get(name) is not None


def several_of(values: Any, name: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """Some of a few names."""
    if isinstance(values, str):
        raise TypeError(
            f"{name} must be a sequence of names; found the string {values!r}. Pass [{values!r}]"
        )
    return tuple(choice(value, name, allowed) for value in values)


def one_ignored_index(found: set[int]) -> int:
    """The label that all losses of a module leave out; torch's own where there are none."""
    if len(found) > 1:
        raise ValueError(
            "the losses of a module must have the same ignore_index; found "
            f"{' and '.join(map(str, sorted(found)))}. Pass ignore_label= to CalibrationCallback"
        )
    return next(iter(found), -100)


def trainer_loss(loss: Any, *, binary: bool) -> None:
    """A loss whose targets are those that the Hugging Face Trainer counts."""
    if binary:
        raise TypeError(
            f"TrainerLoss is for losses of class indices; found {type(loss).__name__}. Pass a "
            "function of your own as compute_loss_func, which calls it"
        )
    if loss.ignore_index != -100:
        raise ValueError(
            "ignore_index must be -100, since the Trainer counts all other labels; found "
            f"{loss.ignore_index}. Mark labels that do not count with -100"
        )


def no_other_smoothing(factor: float) -> None:
    """No smoothing that the Hugging Face Trainer would leave out."""
    if factor != 0.0:
        raise ValueError(
            "the Trainer smooths no labels where it is given a loss; found "
            f"label_smoothing_factor={factor:g}. Pass label_smoothing={factor:g} to the loss"
        )


def trainer_labels(labels: Any) -> Any:
    """Class indices that the Hugging Face Trainer has found among its inputs."""
    if labels is None:
        raise ValueError(
            "the loss needs labels; found none among the inputs. Call the column of the data set "
            "'labels'"
        )
    if labels.is_floating_point():
        raise TypeError(
            f"labels must be class indices; found {labels.dtype} of shape {tuple(labels.shape)}, "
            "each number of which the Trainer would count as a target. Pass integers, or a "
            "function of your own as compute_loss_func"
        )
    return labels


def shares_of_parts(val_share: Any, test_share: Any) -> tuple[float, float]:
    """(test, val) shares of a data set that leave something to train on."""
    val, test = _number(val_share, "val_share"), _number(test_share, "test_share")
    if not (val > 0.0 and test > 0.0 and val + test < 1.0):
        raise ValueError(
            f"val_share and test_share must be above 0 and below 1 together; found {val:g} and "
            f"{test:g}. Pass 0.2 and 0.2, say"
        )
    return test, val


def no_empty_part(n_rows: int, sizes: Sequence[int]) -> None:
    """Enough rows for a test, a validation and a training part."""
    if min(sizes) < 1:
        raise ValueError(
            f"each part must have a row; found {n_rows} rows in all, which give {sizes[2]} for "
            f"training, {sizes[1]} for validation and {sizes[0]} for testing. Use more rows or "
            "other shares"
        )


def folder_of(value: Any, name: str, page: str) -> Path:
    """The folder (or file) that a data set is read from."""
    if value is None:
        raise TypeError(
            f"{name} is read from files; found no folder. Get them from {page} and pass the folder"
        )
    if not isinstance(value, str | os.PathLike):
        raise TypeError(
            f"the folder of {name} must be a str or a Path; found {_describe(value)}. "
            "Pass 'data', say"
        )
    return Path(os.fsdecode(value))


def option(name: str, owner: str, known: Sequence[str]) -> None:
    """An option that a data set has."""
    if name not in known:
        has = f"It has {', '.join(known)}" if known else "It has none"
        raise TypeError(f"the data set {owner} has no option {name!r}. {has}")


def layer_size(value: Any, name: str) -> int:
    """The size of a layer, or of what it takes."""
    return whole_number(value, name, allowed=range(1, 2**31))


def share_left_out(value: Any, name: str) -> float:
    """A share of a layer that dropout leaves out."""
    number = _number(value, name)
    if not 0.0 <= number < 1.0:
        raise ValueError(
            f"{name} must be at least 0 and below 1; found {number:g}. 0 leaves nothing out"
        )
    return number


def depth_of_resnet(depth: Any) -> int:
    """n of a depth 6n+2."""
    number = whole_number(depth, "depth", allowed=range(8, 10_000))
    if number % 6 != 2:
        below = number - (number - 2) % 6
        raise ValueError(
            f"depth must be 6n+2, for three stages of n blocks of two layers; found {number}. "
            f"Take {below} or {below + 6}"
        )
    return number // 6


def images(values: Array, channels: int, *, smallest: int = 1) -> None:
    """Images that a network takes."""
    shape = tuple(values.shape)
    if len(shape) != 4:
        raise ValueError(
            f"images must have the shape (n, channels, height, width); found {shape}. "
            "A single image is a batch of one: image[None]"
        )
    if shape[1] != channels:
        raise ValueError(
            f"the network takes images of {channels} channels; found {shape[1]} in {shape}. "
            f"Build it with in_channels={shape[1]}"
        )
    if min(shape[2:]) < smallest:
        raise ValueError(
            f"the network takes images of at least {smallest}x{smallest} pixels; found "
            f"{shape[2]}x{shape[3]}. Enlarge them, or take a network with fewer stages"
        )


def inputs_of_size(values: Array, n_features: int) -> None:
    """Inputs (n, ...) of so many numbers each."""
    size = math.prod(values.shape[1:])
    if values.ndim < 2 or size != n_features:
        raise ValueError(
            f"the network takes inputs of {n_features} numbers; found the shape "
            f"{tuple(values.shape)}. Build it with n_features={size}"
        )


def embeddings(values: Any, n_words: Any) -> npt.NDArray[np.float32] | None:
    """One vector for each token id; None where ``n_words`` says how many there are."""
    if (values is None) == (n_words is None):
        raise TypeError(
            "exactly one of embeddings and n_words is needed; found "
            f"{'neither' if values is None else 'both'}. Pass the word vectors, or the number of "
            "token ids for vectors that are learnt from nothing"
        )
    if values is None:
        return None
    array = np.asarray(_as_numpy(values, "embeddings"), dtype=np.float32)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"embeddings must have the shape (words, dimensions); found {array.shape}. Give one "
            "row for each token id, row 0 for padding"
        )
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise ValueError(
            f"embeddings must be finite; found NaN or infinity in row {row}. Put zeros, or small "
            "noise, where a word has no vector"
        )
    return array


def token_ids(tokens: Array, n_words: int) -> None:
    """Token ids that a table of words has."""
    # On a GPU the look would wait for all that is under way.
    if tokens.device.type != "cpu" or tokens.numel() == 0:
        return
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= n_words:
        raise ValueError(
            f"token ids must be from 0 to {n_words - 1}, one row of the word vectors each; found "
            f"{low if low < 0 else high}. Build the network with the vocabulary of the data"
        )


def n_classes(value: Any) -> int:
    """A number of classes to tell apart."""
    return whole_number(value, "n_classes", allowed=range(2, 2**31))


def options_of_network(options: Mapping[str, Any], name: str, known: Mapping[str, bool]) -> None:
    """Options that a network has, with all that it needs (where ``known`` says true)."""
    has = f"It has {', '.join(known)}" if known else "It has none"
    for option in options:
        if option not in known:
            raise TypeError(f"the network {name} has no option {option!r}. {has}")
    missing = [option for option, needed in known.items() if needed and option not in options]
    if missing:
        raise TypeError(
            f"the network {name} needs {', '.join(missing)}; found "
            f"{', '.join(options) or 'no options'}. Pass {missing[0]}=..."
        )


def importable(module: str, name: str) -> None:
    """A module that is on this machine, for a network named ``name``."""
    try:
        found = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        raise ValueError(
            f"model {name!r} needs the module {module!r}; found none of that name. Write it as "
            "package.module:function, and run where Python finds the package"
        )


def factory(value: Any, name: str) -> None:
    """A function that makes networks."""
    if not callable(value):
        raise ValueError(
            f"model {name!r} must name a function that makes a network; found "
            f"{'nothing' if value is None else _describe(value)} there. Write it as "
            "package.module:function"
        )


def last_linear_layer(sizes: Mapping[str, int], n_classes: int, wanted: str | None) -> str:
    """The name of the layer that gives the logits, out of all linear layers."""
    if wanted is not None:
        if wanted not in sizes:
            raise ValueError(
                f"classifier must name a linear layer of the network; found {wanted!r}. It has "
                f"{', '.join(sizes) or 'none'}"
            )
        return wanted
    fitting = [name for name, size in sizes.items() if size == n_classes]
    if not fitting:
        found = ", ".join(f"{name} ({size})" for name, size in list(sizes.items())[-3:])
        raise ValueError(
            f"the network has no linear layer of {n_classes} outputs; found {found or 'none'} at "
            "its end. Build it for that many classes, or say where it is with classifier="
        )
    return fitting[-1]


def logits_of_network(output: Any) -> Any:
    """The logits in what a network returns."""
    if _holds(output, "logits"):
        output = output["logits"]
    elif getattr(output, "logits", None) is not None:
        output = output.logits
    elif isinstance(output, tuple | list) and output:
        output = output[0]
    if not is_array_api_obj(output):
        raise TypeError(
            f"the network must return logits; found {_describe(output)}. Return a tensor, or an "
            "object with .logits"
        )
    return output


def page_path(path: Path) -> Path:
    """A file name for an HTML page, in a folder that is there."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is written as .html; found {str(path)!r}. Rename it")
    # Now, and not after long fits.
    if not path.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} to write to. Make it first")
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a report is one file. Name another")
    if not os.access(path.resolve().parent, os.W_OK):
        raise ValueError(f"{path.parent} cannot be written to. Name a folder of your own")
    return path


def one_name_each(
    names: Sequence[Any] | npt.NDArray[Any] | None, name: str, of: str, n: int
) -> None:
    """As many ids as rows, or class names as classes, where there are any."""
    if names is not None and len(names) != n:
        raise ValueError(
            f"{name} must have one entry for each of the {n} {of}; found {len(names)}. "
            "Name all of them, or none"
        )


def enough_to_hold_out(n: int) -> None:
    """Items to train on and items to hold out."""
    if n < 2:
        raise ValueError(
            f"there must be two or more items to divide into training and validation; found {n}. "
            "Look whether the files are complete"
        )


def finite_loss(loss: float, epoch: int) -> None:
    """A training loss that is still a number."""
    if not math.isfinite(loss):
        raise ArithmeticError(
            f"the training loss must stay finite; found {loss} in epoch {epoch}. Take a smaller "
            "learning rate, or shorten gradients with clip_norm"
        )


def rising_epochs(steps: Sequence[Any], epochs: int) -> None:
    """Epochs at which something changes, in order and within the run."""
    for step in steps:
        whole_number(step, "steps", allowed=range(1, 2**31))
    if any(a >= b for a, b in pairwise(steps)) or (steps and steps[-1] >= epochs):
        raise ValueError(
            f"steps must rise and stay below the {epochs} epochs of the run; found "
            f"{', '.join(map(str, steps))}. Leave out those that never come"
        )


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Refusals of values say which file or argument they are of."""
    try:
        yield
    except (ValueError, TypeError) as refusal:
        raise ValueError(f"{where}: {refusal}") from refusal


def some_scores(logits: Any, probs: Any) -> None:
    """Scores of every class, of one kind or the other."""
    if logits is None and probs is None:
        raise ValueError(
            "a calibrator needs the scores of all classes; found confidence only. "
            "Write logits or probs"
        )


def some_labels(labels: Any) -> None:
    """Labels, whatever they are."""
    if labels is None:
        raise ValueError("labels are needed; found none. Add an array labels (or a column label)")
