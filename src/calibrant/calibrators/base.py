"""The base class of calibrators: an estimator with a fit report, plain state and one pure map.

A subclass defines three things:

- ``_fit(data)``: from checked samples to a :class:`Fitted`, which holds the *state*: a few named
  numbers and arrays;
- ``_log_probs(logits, state)``: from logits and the state to calibrated log-probabilities, a pure
  function over the array API, so that one formula serves NumPy, PyTorch and exported files;
- ``STATE``: the names and shapes of the state, which is saved, and checked on loading.
"""

from __future__ import annotations

import copy
import inspect
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrant import _inputs
from calibrant._array_api import array_namespace, device
from calibrant._numerics.logspace import sum_of_row
from calibrant._numerics.precision import narrowed, widened
from calibrant._types import Array
from calibrant.calibrators.data import (
    MOST_SPREAD,
    NEARLY_TIED,
    FitData,
    Floats,
    Samples,
    extremes,
    given_scores,
    row_blocks,
    rows_with_weight,
    samples_of,
    to_logits,
)
from calibrant.calibrators.fit_report import CalibrationWarning, Evidence, FitReport
from calibrant.calibrators.origin import Origin, origin_of_fit
from calibrant.calibrators.saving import save
from calibrant.errors import CalibrantError

if TYPE_CHECKING:
    from calibrant.calibrators.torch_layer import CalibratorModule

State: TypeAlias = Mapping[str, Any]
"""Numbers as floats; arrays in the array library of the logits."""

Shapes: TypeAlias = Mapping[str, tuple[str, ...]]

FEW_SAMPLES = 100


class NotFittedError(CalibrantError, AttributeError):
    """A calibrator was used before it was fitted."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What ``_fit`` returns: the state, and what the report says about the fit."""

    state: dict[str, Any]
    criterion: str
    before: float
    after: float
    accuracy_after: float | None = None
    """Computed by :class:`Calibrator` if it is None."""
    gradient: float | None = None
    at_bound: str | None = None
    evaluations: int = 0
    n_parameters: int = 0
    """How many numbers were fitted, for the warning about too few samples."""
    warnings: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    """The methods compared, if the method selects one of several."""
    parts: tuple[Calibrator, ...] = ()
    """The fitted calibrators that it is made of, if it is made of others."""


def fitted_number(name: str) -> Any:
    """The number of this name in the state, as a property."""
    return property(lambda calibrator: float(calibrator.state_[name]))


def fitted_array(name: str) -> Any:
    """The array of this name in the state, as a property."""
    return property(lambda calibrator: np.asarray(calibrator.state_[name]))


class Calibrator(ABC):
    """A map from logits to calibrated probabilities.

    Every calibrator has ``fit(logits, labels, sample_weight=None)``, ``predict_proba`` and
    ``predict_log_proba``. They take NumPy arrays or torch tensors, and ``probs=`` instead of
    logits. The conventions are those of scikit-learn: the constructor only stores its arguments,
    and fitted attributes end in ``_``.

    Attributes:
        report_: A :class:`FitReport`.
        origin_: An :class:`Origin`: date, version and fingerprint of the samples.
        n_classes_: Number of classes.
    """

    NAME: ClassVar[str]
    """Name in ``CALIBRATORS``, on the command line and in files."""
    STATE: ClassVar[Shapes]
    """Shape of each part of the state: () for a number, ("K",) for one number per class. Any other
    letter is a size of its own, the same wherever the letter occurs."""
    KEEPS_ARGMAX: ClassVar[bool] = False
    """Whether the predicted class can never change."""
    PER_CLASS: ClassVar[bool] = True
    """Whether something is fitted for each class, so that every class should occur."""
    CHOOSES: ClassVar[bool] = False
    """Whether it selects one of several methods, so that its report has evidence."""
    NUMPY_SOURCE: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """For a plug-in that can be exported as a Python file: the functions to write into it, the last
    ``predict_proba(logits)``. The state is there as constants in capital letters."""
    IN_DOUBLE: ClassVar[bool] = True
    """Whether single-precision logits are widened for the map, so that NumPy, torch and exported
    files agree. A map that keeps the predicted class says False and ensures both itself: rounding
    its result afterwards could tie two classes."""

    LARGEST: ClassVar[float] = math.inf
    """No array of a fitted state comes near this; a file with larger numbers, which could overflow,
    is refused."""

    state_: dict[str, Any]
    parts_: tuple[Calibrator, ...] = ()
    report_: FitReport
    origin_: Origin = Origin()
    n_classes_: int
    named_classes_: tuple[Any, ...] | None = None
    group_columns_: tuple[str, ...] = ()
    group_keys_: tuple[tuple[str, ...], ...] = ()
    """The columns that it reads besides the scores, and their values for each group it knows."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A class with another map does not inherit the map of one row, only the one made of it."""
        super().__init_subclass__(**options)
        own = vars(cls).keys()
        if own & {"_log_probs", "_probs"} and not own & {"_row_scores", "_row_probs"}:
            for name in ("_row_scores", "_row_probs"):
                setattr(cls, name, getattr(Calibrator, name))

    @property
    def classes_(self) -> tuple[Any, ...]:
        """The label of each class, in the order of the columns."""
        return tuple(range(self.n_classes_)) if self.named_classes_ is None else self.named_classes_

    @classes_.setter
    def classes_(self, labels: tuple[Any, ...] | None) -> None:
        self.named_classes_ = labels

    @abstractmethod
    def _fit(self, data: Samples) -> Fitted:
        """Find the state from samples, in memory or in files."""

    @abstractmethod
    def _log_probs(self, logits: Array, state: State) -> Array:
        """Calibrated log-probabilities of checked logits, without branches on their values."""

    def _row_scores(self, row: Floats, state: State) -> Floats:
        """Log-probabilities of one row without masked classes, up to a number added to all of them.

        What the next part needs; overridden where this takes a fraction of the time.
        """
        scores: Floats = self._log_probs(row[np.newaxis], state)[0]
        return scores

    def _row_probs(self, row: npt.NDArray[Any], state: State) -> npt.NDArray[Any]:
        """``_probs`` of one row, in its type; no logits are further apart than ``MOST_SPREAD``."""
        if type(self)._row_scores is not Calibrator._row_scores:
            scores = self._row_scores(row.astype(np.float64, copy=False), state)
            weights = np.exp(scores - scores.item(scores.argmax()))
            if not (self.KEEPS_ARGMAX and np.count_nonzero(weights > NEARLY_TIED) > 1):
                weights /= sum_of_row(weights)
                return weights.astype(row.dtype, copy=False)
        return np.asarray(self._apply(self._probs, row[np.newaxis])[0])

    def _probs(self, logits: Array, state: State) -> Array:
        """Calibrated probabilities; overridden where something is better than exp(log p)."""
        return array_namespace(logits).exp(self._log_probs(logits, state))

    def _probs_are_compiled(self, state: State) -> bool:
        """Whether ``_probs`` processes NumPy arrays row by row, without copying them."""
        return False

    def fit(
        self,
        scores: Any = None,
        /,
        labels: Any = None,
        sample_weight: Array = None,
        *,
        logits: Any = None,
        probs: Any = None,
        positive: Any = None,
        classes: Any = None,
    ) -> Self:
        """Fit on held-out samples, which the model was not trained on.

        Args:
            scores: Logits: scores before the softmax, classes on the last axis; -inf masks a class.
                One column, or a one-dimensional array, is the positive class before the sigmoid.
                Rows that are probabilities are refused: pass ``probs=``.
            labels: One for each row: class indices, or names, which are those of the columns of a
                frame, or else sorted, as in scikit-learn.
            sample_weight: One weight for each row.
            logits: The scores by name; these are believed to be logits whatever they look like.
            probs: Probabilities instead of logits. Entries below 6e-8 are raised to 6e-8.
            positive: The positive class, if there is one column and the labels are not 0 and 1.
            classes: The label of each column, if labels are neither indices nor names of columns.

        Returns:
            The calibrator itself; ``report_`` describes the fit and holds its warnings.
        """
        given = given_scores(scores, logits, probs)
        data, names = samples_of(given, labels, sample_weight, classes=classes, positive=positive)
        self._check_params()
        self.fit_samples(data)
        return self._with_origin(given, data, names, sample_weight)

    def _with_origin(
        self,
        given: _inputs.Scores,
        data: FitData,
        names: tuple[Any, ...] | None,
        sample_weight: Array,
    ) -> Self:
        """Remember the classes and the fingerprint of the samples of a fit."""
        self.classes_ = names
        # Probabilities as they were given: the last digits of logarithms depend on the machine.
        hashed = data.logits
        if given.kind == "probs":
            rows = _inputs.as_numpy(given.values).reshape(-1, data.n_classes)
            hashed = rows_with_weight(rows, sample_weight, len(data))
        self.origin_ = self.origin_.with_data(given.kind, hashed, data.labels, data.weight)
        return self

    def fit_samples(self, data: Samples) -> Self:
        """:meth:`fit` without checks of samples and parameters."""
        fitted = self._fit(data)
        self.state_ = fitted.state
        self.parts_ = fitted.parts
        self.n_classes_ = data.n_classes
        self.classes_ = None
        self.report_ = self._report(data, fitted)
        self.origin_ = origin_of_fit(type(self), self.NAME, len(data))
        for message in self.report_.warnings:
            warnings.warn(f"{self.NAME}: {message}", CalibrationWarning, stacklevel=3)
        return self

    def with_state(self, state: dict[str, Any], n_classes: int) -> Self:
        """A fitted copy with a known state, without a report."""
        fitted = copy.copy(self)
        fitted.state_, fitted.n_classes_ = state, n_classes
        return fitted

    def predict_proba(self, scores: Any = None, /, *, logits: Any = None, probs: Any = None) -> Any:
        """Calibrated probabilities, in the form in which the scores come.

        Arrays stay in their library, one column stays one column, and a frame becomes a frame of
        the same kind. The columns of a frame are matched to ``classes_`` by name.
        """
        found = self._plain_probs(scores, logits) if probs is None else None
        if found is not None:
            return found
        given = self._given(scores, logits, probs)
        return given.restored(self._apply(self._probs, to_logits(given.kind, given.checked())))

    def predict_log_proba(
        self, scores: Any = None, /, *, logits: Any = None, probs: Any = None
    ) -> Any:
        """Calibrated log-probabilities, exact also where the probability rounds to 0 or 1."""
        given = self._given(scores, logits, probs)
        return given.restored(self._apply(self._log_probs, to_logits(given.kind, given.checked())))

    def predict(self, scores: Any = None, /, *, logits: Any = None, probs: Any = None) -> Array:
        """The most probable class of each row: its label, as in ``classes_``."""
        given = self._given(scores, logits, probs)
        return self._most_probable(
            self._apply(self._log_probs, to_logits(given.kind, given.checked()))
        )

    def _most_probable(self, log_probs: Array) -> Array:
        indices = array_namespace(log_probs).argmax(log_probs, axis=-1)
        if self.class_names() is None:
            return indices
        return _inputs.labels_of(self.classes_, _inputs.as_numpy(indices))

    def class_names(self) -> list[Any] | None:
        """The labels of the classes as a list; None if they are the indices 0, 1, ..."""
        indices = all(type(each) is int and each == k for k, each in enumerate(self.classes_))
        return None if indices else list(self.classes_)

    def predict_columns(
        self,
        kind: str,
        scores: npt.NDArray[Any],
        names: Sequence[str] | None,
        *,
        single: bool = False,
        groups: _inputs.Groups | None = None,
    ) -> npt.NDArray[Any]:
        """Calibrated probabilities of columns called ``names``, in the order of the columns.

        They are matched to ``classes_``. ``single`` says that only the last of two was given.
        ``groups`` are for a calibrator of groups.
        """
        options = {} if groups is None else {"groups": groups}
        named = names is not None and all(isinstance(each, str) for each in self.classes_)
        if names is None or not named or len(names) != self.n_classes_:
            return np.asarray(self.predict_proba(**{kind: scores}, **options))
        order = _inputs.column_order(names, self.classes_)
        if single and order[1] != 1:
            raise CalibrantError(
                f"this calibrator is for the probability of {self.classes_[1]!r}; found "
                f"{self.classes_[0]!r} as the positive class. Pass the other probability"
            )
        probs = self.predict_proba(**{kind: scores[:, order]}, **options)
        return np.asarray(probs[:, np.argsort(order)])

    def _given(self, scores: Any, logits: Any, probs: Any) -> _inputs.Scores:
        self._need_fit()
        return given_scores(scores, logits, probs, self.classes_)

    def as_module(self) -> CalibratorModule:
        """This calibrator as a torch layer, from logits to calibrated log-probabilities.

        Log-probabilities are logits, so whatever takes the logits of a network works unchanged.
        """
        self._need_fit()
        from calibrant.calibrators.torch_layer import CalibratorModule

        return CalibratorModule(self)

    def save(
        self, path: str | os.PathLike[str], *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Write a versioned JSON file, which ``calibrant.load`` reads.

        Args:
            path: The file; overwritten if it exists.
            metadata: JSON values by name to keep in the file, such as the name of the model. None
                keeps those that the calibrator was loaded with.
        """
        self._need_fit()
        save(self, path, metadata)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, by name."""
        return {name: getattr(self, name) for name in self._param_names()}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor."""
        for name in params:
            _inputs.parameter(name, type(self).__name__, self._param_names())
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({params})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")

    def __sklearn_tags__(self) -> Any:
        """scikit-learn reads the tags before it checks whether an estimator is fitted."""
        from sklearn.utils import Tags, TargetTags  # type: ignore[import-untyped]

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def _check_params(self) -> None:
        """Refuse arguments of the constructor that cannot be used."""
        return

    def _refuse_state(self, state: State) -> str | None:
        """Why a state of the correct shapes cannot be used, or None if it can."""
        for name, values in state.items():
            if not isinstance(values, float) and np.max(np.abs(values), initial=0.0) > self.LARGEST:
                return f"{name!r} holds a number beyond {self.LARGEST:g}"
        return None

    @classmethod
    def _param_names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def _need_fit(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"this {type(self).__name__} has not been fitted. "
                "Call fit(logits, labels), or load a fitted calibrator with calibrant.load"
            )

    def _plain_probs(self, scores: Any, named: Any) -> npt.NDArray[Any] | None:
        """The probabilities of logits that need no conversion; None if they do.

        The checks of all kinds of scores would take longer than a single row.
        """
        logits = named if scores is None else scores
        if not (
            (scores is None or named is None)
            and type(logits) is np.ndarray
            and logits.ndim == 2
            and len(logits) > 0
            and logits.dtype in _inputs.PLAIN
            and logits.shape[1] == getattr(self, "n_classes_", 0)
        ):
            return None
        row = logits[0]
        low, high = extremes(row)
        inside = scores is not None and 0.0 <= low <= high <= 1.0
        if inside and _inputs.look_like_probs(row):
            return None
        if len(logits) == 1 and high - low <= MOST_SPREAD:
            return self._row_probs(row, self.state_)[np.newaxis]
        if not np.isfinite(logits.max(axis=1)).all():
            return None
        return np.asarray(self._apply(self._probs, logits))

    @np.errstate(over="ignore")
    def _apply(self, transform: Callable[[Array, State], Array], logits: Array) -> Array:
        self._need_fit()
        _inputs.same_classes(logits, self.n_classes_)
        if not isinstance(logits, np.ndarray):
            inner = self._inner(logits)
            return narrowed(transform(inner, state_like(self.state_, inner)), logits)
        rows = np.ascontiguousarray(logits.reshape(-1, logits.shape[-1]))
        if transform == self._probs and self._probs_are_compiled(self.state_):
            return transform(rows, self.state_).reshape(logits.shape)
        state = state_like(self.state_, self._inner(rows[:0]))
        out = np.empty_like(rows)
        for block in row_blocks(len(rows), rows.shape[1]):
            out[block] = narrowed(transform(self._inner(rows[block]), state), rows)
        return out.reshape(logits.shape)

    def _inner(self, logits: Array) -> Array:
        """Logits in the type that the map is computed in."""
        return widened(logits) if self.IN_DOUBLE else logits

    def _report(self, data: Samples, fitted: Fitted) -> FitReport:
        before = after = data.accuracy
        if fitted.accuracy_after is not None:
            after = fitted.accuracy_after
        elif not self.KEEPS_ARGMAX:
            (after,) = data.means(self._correct_after)
        return FitReport(
            method=self.NAME,
            n_samples=len(data),
            n_classes=data.n_classes,
            criterion=fitted.criterion,
            before=fitted.before,
            after=fitted.after,
            gradient=fitted.gradient,
            at_bound=fitted.at_bound,
            evaluations=fitted.evaluations,
            accuracy_before=before,
            accuracy_after=after,
            warnings=(*fitted.warnings, *self._doubts(data, fitted.n_parameters)),
            evidence=fitted.evidence,
        )

    def _measured(self, data: FitData, *states: State) -> Iterator[npt.NDArray[Any]]:
        """The NLL of each row under each state; then whether the last state is correct."""
        losses, correct = np.empty(len(data)), np.empty(len(data), dtype=bool)
        for state in states:
            with np.errstate(over="ignore"):
                for block in data.blocks():
                    logits, labels = data.logits[block], data.labels[block]
                    log_probs = self._log_probs(logits.astype(np.float64), state)
                    losses[block] = -log_probs[np.arange(len(labels)), labels]
                    if state is states[-1]:  # in the type that predict_proba returns
                        correct[block] = narrowed(log_probs, logits).argmax(axis=1) == labels
            yield losses
        yield correct

    def _correct_after(self, data: FitData) -> tuple[npt.NDArray[np.bool_]]:
        """Whether the predicted class of each row after calibration is its label."""
        calibrated = self._apply(self._log_probs, data.logits)
        return (calibrated.argmax(axis=1) == data.labels,)

    def _doubts(self, data: Samples, n_parameters: int) -> Iterator[str]:
        if n_parameters > 0 and len(data) < FEW_SAMPLES:
            yield (
                f"fitted on {len(data)} samples only; below {FEW_SAMPLES} the result is mostly "
                "noise, so collect more samples."
            )
        elif len(data) < n_parameters:
            yield (
                f"{n_parameters} numbers were fitted on {len(data)} samples; "
                "a method with fewer parameters, such as temperature, is safer."
            )
        missing = data.n_classes - data.n_classes_seen
        if self.PER_CLASS and missing:
            yield (
                f"{missing} of {data.n_classes} classes have no sample; "
                "their probabilities are a guess."
            )


def state_like(state: State, logits: Array) -> State:
    """The state with arrays in the library, dtype and on the device of ``logits``."""
    plain = isinstance(logits, np.ndarray) and logits.dtype == np.float64
    if plain or all(isinstance(value, float) for value in state.values()):
        return state
    xp = array_namespace(logits)

    def converted(value: npt.NDArray[Any]) -> Array:
        dtype = xp.int64 if value.dtype.kind == "i" else logits.dtype
        return xp.asarray(value, dtype=dtype, device=device(logits))

    return {n: v if isinstance(v, float) else converted(v) for n, v in state.items()}
