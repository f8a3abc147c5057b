"""What is fitted: classifiers, classes and held-out samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrant.errors import CalibrantError


def known_classes(found: Sequence[Any], known: Sequence[Any]) -> None:
    """No label that a classifier was not trained on."""
    unknown = [label for label in found if label not in known]
    if unknown:
        raise CalibrantError(
            f"labels must be classes of the fitted estimator; found {unknown[0]!r}, which is not "
            f"one of its {len(known)}. Train the estimator on all classes, or leave the rows out"
        )


def all_classes_to_train(classes: Sequence[Any], trained: Sequence[Any]) -> None:
    """Every class in the training part of a fold: a score for a class never seen says nothing."""
    missing = [label for label in classes if label not in trained]
    if missing:
        raise CalibrantError(
            "every class must be in the training part of every fold; class "
            f"{missing[0]!r} is missing in one. Add samples of it, or choose another cv"
        )


def each_row_once(counts: npt.NDArray[np.intp]) -> None:
    """Folds that test every row exactly once."""
    if not (counts == 1).all():
        row = int(np.argmax(counts != 1))
        raise CalibrantError(
            f"cv must put every row into a test part exactly once; found row {row} there "
            f"{counts[row]} times. Use a number of folds, or a splitter such as StratifiedKFold"
        )


def has_output(estimator: Any, names: Sequence[str]) -> str:
    """The first of the methods ``names`` that a fitted classifier has."""
    for name in names:
        if hasattr(estimator, name):
            return name
    raise CalibrantError(
        f"the estimator must have {' or '.join(names)}; {type(estimator).__name__} has not. "
        "Pass a classifier that gives one score for each class"
    )


def scores_of_pairs(*, or_else: bool) -> None:
    """Scores of pairs of classes are of no use, unless there is something else to take."""
    if not or_else:
        raise CalibrantError(
            "decision_function must give one column for each class; found "
            "decision_function_shape='ovo', one for each pair of classes. "
            "Set decision_function_shape='ovr', or pass scores='predict_proba'"
        )


def one_column_a_class(values: npt.NDArray[Any], name: str, n_classes: int) -> None:
    """Scores of a classifier in the form that a softmax takes."""
    if values.ndim != 2 or values.shape[1] != n_classes:
        raise CalibrantError(
            f"{name} must give one column for each of the {n_classes} classes; found shape "
            f"{values.shape}. Set decision_function_shape='ovr', or pass scores='predict_proba'"
        )


def enough_to_hold_out(n: int) -> None:
    """Items to train on and items to hold out."""
    if n < 2:
        raise CalibrantError(
            f"there must be two or more items to divide into training and validation; found {n}. "
            "Look whether the files are complete"
        )
