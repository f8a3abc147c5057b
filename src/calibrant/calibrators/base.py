"""What every calibrator is: an estimator with a fit report, plain state, and one pure map.

A calibrator is three things that subclasses write, and nothing else:

- ``_fit(data)``: from checked samples to a :class:`Fitted`, which holds the *state*: a few named
  numbers and arrays;
- ``_log_probs(logits, state)``: from logits and the state to calibrated log-probabilities, a pure
  function over the array API, so that one formula serves NumPy, PyTorch and exported files;
- ``STATE``: the names and shapes of the state, which is what is saved and checked on loading.
"""

from __future__ import annotations

import inspect
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device

from calibrant import _checks
from calibrant._numerics.logspace import floored_log_of_probs
from calibrant._numerics.precision import narrowed, widened
from calibrant._types import Array
from calibrant.calibrators.fit_report import CalibrationWarning, Evidence, FitReport

if TYPE_CHECKING:
    from calibrant.calibrators.linear.solver import Rows
    from calibrant.calibrators.temperature.criterion import Evaluator
    from calibrant.calibrators.top_rest.solver import AtTemperature
    from calibrant.calibrators.torch_layer import CalibratorModule

Floats: TypeAlias = npt.NDArray[np.float64]
State: TypeAlias = Mapping[str, Any]
"""Numbers as floats, the rest as arrays of the library that the logits are in."""

Shapes: TypeAlias = Mapping[str, tuple[str, ...]]

PROBS_FLOOR = 2.0**-24
"""Probabilities below this (6e-8) count as this where a calibrator is given ``probs``: no map could
move the logarithm of the exact zeros that a random forest gives."""

FEW_SAMPLES = 100
BLOCK_ENTRIES = 1 << 18
"""Entries handled at a time: they and what is computed from them stay in the processor's cache."""


class Samples(Protocol):
    """What a fit may ask of samples without having them all in one place.

    :class:`FitData` answers from rows in memory. `scale` answers the same for samples that lie in
    many files, by adding up what each part of them says.
    """

    def __len__(self) -> int: ...

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    @property
    def weight(self) -> Floats | None:
        """One for each row; None is 1 everywhere."""

    @property
    def accuracy(self) -> float:
        """Share of rows that are right."""

    @property
    def n_classes_seen(self) -> int:
        """How many classes have a sample."""

    @property
    def labels_on_top(self) -> bool:
        """Whether no label has a smaller logit than another class of its row."""

    def means(self, values_of: Callable[..., Any], *arguments: Any) -> tuple[float, ...]:
        """Means of ``values_of(samples, *arguments)``: some values, each with one entry a row."""

    def summed(self, sums_of: Callable[..., Any], *arguments: Any) -> Any:
        """``sums_of(samples, *arguments)``, where that is a sum over rows."""

    def mapped(self, change: Callable[[FitData], FitData]) -> Samples:
        """The samples after ``change``, which looks at one row at a time."""

    def some_rows(self, about: int) -> Samples:
        """About so many rows, evenly spread; they show roughly what all of them do."""

    def listed(self, values_of: Callable[[FitData], Floats]) -> Floats:
        """``values_of(samples)``, any number of values a row."""

    def in_units(self, *, log_probs: bool) -> Any:
        """What the linear calibrators are fitted on."""

    def evaluator(self, criterion: str, *, n_bins: int, focal_gamma: float) -> Evaluator:
        """What computes a criterion on these samples."""


class NotFittedError(ValueError, AttributeError):
    """A calibrator that was asked for probabilities before it was fitted."""


@dataclass(frozen=True)
class FitData:
    """Checked samples: what ``_fit`` works on."""

    logits: npt.NDArray[Any]
    """(n, K), float32 or float64; -inf is an absent class, never the labelled one."""
    labels: npt.NDArray[np.int64]
    """(n,)"""
    weight: Floats | None
    """(n,), all above 0; None is 1 everywhere."""

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.logits.shape[1])

    @cached_property
    def right(self) -> npt.NDArray[np.bool_]:
        """Whether the largest logit of each row is that of its label."""
        right: npt.NDArray[np.bool_] = self.logits.argmax(axis=1) == self.labels
        return right

    def mean(self, values: npt.NDArray[Any]) -> float:
        """Weighted mean of one value a sample."""
        if self.weight is None:
            return float(values.mean())
        share = self.weight / self.weight.sum()  # first, so that large values do not overflow
        return float(share @ values)

    def blocks(self) -> Iterator[slice]:
        """Rows in parts small enough for the processor's cache."""
        return row_blocks(len(self), self.n_classes)

    # What follows, and the number of classes, are what `Samples` asks for.

    @property
    def accuracy(self) -> float:
        """Share of rows that are right."""
        return self.mean(self.right)

    @property
    def n_classes_seen(self) -> int:
        """How many classes have a sample."""
        return len(np.unique(self.label_classes))

    @cached_property
    def labels_on_top(self) -> bool:
        """Whether no label has a smaller logit than another class of its row."""
        # A label that is not the first largest logit may tie with it; the first row mostly says no.
        missed = np.flatnonzero(~self.right)
        return all(self.logits[i, self.labels[i]] == self.logits[i].max() for i in missed)

    def means(self, values_of: Callable[..., Any], *arguments: Any) -> tuple[float, ...]:
        """Means of ``values_of(samples, *arguments)``: some values, each with one entry a row."""
        return tuple(self.mean(values) for values in values_of(self, *arguments))

    def summed(self, sums_of: Callable[..., Any], *arguments: Any) -> Any:
        """``sums_of(samples, *arguments)``, where that is a sum over rows."""
        return sums_of(self, *arguments)

    def mapped(self, change: Callable[[FitData], FitData]) -> FitData:
        """The samples after ``change``, which looks at one row at a time."""
        return change(self)

    def some_rows(self, about: int) -> FitData:
        """About so many rows, evenly spread; they show roughly what all of them do."""
        if len(self) <= 2 * about:
            return self
        stride = len(self) // about
        weight = None if self.weight is None else self.weight[::stride]
        return FitData(self.logits[::stride], self.labels[::stride], weight)

    def listed(self, values_of: Callable[[FitData], Floats]) -> Floats:
        """``values_of(samples)``, any number of values a row."""
        return values_of(self)

    # What is computed of each row. `TopRows`, which knows some of the classes only, does it in its
    # own way.

    def rows(self, which: slice) -> Self:
        """Some of the rows, copied."""
        weight = None if self.weight is None else self.weight[which].copy()
        return replace(
            self, logits=self.logits[which].copy(), labels=self.labels[which].copy(), weight=weight
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, which have no weights, one after the other."""
        logits = np.concatenate([part.logits for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        return replace(parts[0], logits=logits, labels=labels)

    @property
    def label_classes(self) -> npt.NDArray[np.int64]:
        """The class of each label."""
        return self.labels

    def log_odds(self, gamma: float, beta: float) -> Floats:
        """Log odds of the top class of each row, after the map."""
        from calibrant.calibrators.temperature.kernels import log_odds_of_rows

        log_odds = np.empty(len(self))
        log_odds_of_rows(self.logits, beta, gamma, log_odds)
        return log_odds

    def mapped_rows(self, gamma: float, beta: float) -> tuple[Floats, Floats, Floats]:
        """Of Psi^gamma(softmax(b s)): log odds of the top class, log-probability of the label.

        And its squared distance to the one-hot label.
        """
        from calibrant.calibrators.temperature.kernels import map_rows

        log_odds, true_log_prob, distances = (np.empty(len(self)) for _ in range(3))
        map_rows(self.logits, self.labels, beta, gamma, log_odds, true_log_prob, distances)
        return log_odds, true_log_prob, distances

    def temperature_rows(self, beta: float) -> Floats:
        """Cross-entropy of softmax(b s), its slope, curvature and third derivative by log b."""
        from calibrant.calibrators.temperature.kernels import temperature_rows

        out = np.empty((4, len(self)))
        temperature_rows(self.logits, self.labels, beta, out)
        return out

    def node_sums(self, gammas: Floats, nodes: Floats) -> Floats:
        """The sums of the confidences at every gamma and log T."""
        from calibrant.calibrators.temperature.grid_pruning import node_log_odds_of

        return node_log_odds_of(self, gammas, nodes, keep=False)[1]

    def in_units(self, *, log_probs: bool) -> Rows:
        """What the linear calibrators are fitted on."""
        from calibrant.calibrators.linear.solver import Rows

        return Rows.of(self, log_probs=log_probs)

    def at_best_temperature(self) -> AtTemperature:
        """What top-rest scaling is fitted on."""
        from calibrant.calibrators.top_rest.solver import Problem

        return Problem.of(self)

    def evaluator(self, criterion: str, *, n_bins: int, focal_gamma: float) -> Evaluator:
        """What computes a criterion on these samples."""
        from calibrant.calibrators.temperature.criterion import Evaluator

        return Evaluator(self, criterion, n_bins=n_bins, focal_gamma=focal_gamma)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What ``_fit`` returns: the state, and what the report says of the way to it."""

    state: dict[str, Any]
    criterion: str
    before: float
    after: float
    accuracy_after: float | None = None
    """Where it is known already."""
    gradient: float | None = None
    at_bound: str | None = None
    evaluations: int = 0
    n_parameters: int = 0
    """How many numbers were fitted, for the warning of too few samples."""
    warnings: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    """What was compared, where the method chooses among others."""


class Calibrator(ABC):
    """Turns logits into calibrated probabilities.

    Every calibrator has ``fit(logits, labels, sample_weight=None)``, ``predict_proba`` and
    ``predict_log_proba``, takes ``probs=`` in place of logits, NumPy arrays and torch tensors, and
    follows the conventions of scikit-learn: the constructor only stores, results end in ``_``.

    Attributes:
        report_: A :class:`FitReport`.
        n_classes_: Number of classes.
    """

    NAME: ClassVar[str]
    """Name in ``CALIBRATORS``, on the command line and in files."""
    STATE: ClassVar[Shapes]
    """Shape of each part of the state: () a number, ("K",) one for each class; other letters stand
    for sizes of their own, the same wherever the letter is."""
    KEEPS_ARGMAX: ClassVar[bool] = False
    """Whether the predicted class can never change."""
    PER_CLASS: ClassVar[bool] = True
    """Whether something is fitted for each class, so that all of them must occur."""
    CHOOSES: ClassVar[bool] = False
    """Whether it chooses among methods, so that its report has evidence for one of them."""
    IN_DOUBLE: ClassVar[bool] = True
    """Whether logits in single precision are widened for the map, so that NumPy, torch and exported
    files agree. A map that keeps the predicted class says False, and sees to both by itself:
    rounding its result afterwards could tie two classes."""

    state_: dict[str, Any]
    report_: FitReport
    n_classes_: int

    @abstractmethod
    def _fit(self, data: Any) -> Fitted:
        """Find the state from :class:`FitData`, or from any :class:`Samples` where it can."""

    @abstractmethod
    def _log_probs(self, logits: Array, state: State) -> Array:
        """Calibrated log-probabilities of checked logits; no checks, no branches on logits."""

    def _probs(self, logits: Array, state: State) -> Array:
        """Calibrated probabilities; where there is a way that is better than e^log p."""
        return array_namespace(logits).exp(self._log_probs(logits, state))

    def _probs_are_compiled(self, state: State) -> bool:
        """Whether ``_probs`` goes through NumPy arrays row by row, without copies of them all."""
        return False

    def fit(
        self,
        logits: Array = None,
        labels: Array = None,
        sample_weight: Array = None,
        *,
        probs: Array = None,
    ) -> Self:
        """Fit on held-out samples: not those the model was trained on.

        Args:
            logits: Scores before the softmax, classes on the last axis; -inf is an absent class.
            labels: Class indices, one for each row.
            sample_weight: One weight for each row.
            probs: Probabilities, for models that give no logits. Entries below 6e-8 count as 6e-8.

        Returns:
            The calibrator itself; ``report_`` says how it went, and what speaks against it.
        """
        data = checked_samples(logits, labels, sample_weight, probs=probs)
        self._check_params()
        return self.fit_samples(data)

    def fit_samples(self, data: Samples) -> Self:
        """:meth:`fit` on samples and with parameters that were checked before."""
        fitted = self._fit(data)
        self.state_ = fitted.state
        self.n_classes_ = data.n_classes
        self.report_ = self._report(data, fitted)
        for message in self.report_.warnings:
            warnings.warn(f"{self.NAME}: {message}", CalibrationWarning, stacklevel=3)
        return self

    def predict_proba(self, logits: Array = None, *, probs: Array = None) -> Array:
        """Calibrated probabilities of ``logits`` (or ``probs=``), in their array library."""
        return self._apply(self._probs, _scores(logits, probs))

    def predict_log_proba(self, logits: Array = None, *, probs: Array = None) -> Array:
        """Their logarithms, exact also where the probability itself would be 0 or 1."""
        return self._apply(self._log_probs, _scores(logits, probs))

    def predict(self, logits: Array = None, *, probs: Array = None) -> Array:
        """The most probable class of each row."""
        log_probs = self.predict_log_proba(logits, probs=probs)
        return array_namespace(log_probs).argmax(log_probs, axis=-1)

    def as_module(self) -> CalibratorModule:
        """This calibrator as a torch layer, from logits to calibrated log-probabilities.

        Log-probabilities are logits: what follows a network's last layer, or its loss, can go on
        as before.
        """
        self._need_fit()
        from calibrant.calibrators.torch_layer import CalibratorModule

        return CalibratorModule(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a versioned JSON file; ``calibrant.load`` reads it back."""
        self._need_fit()
        from calibrant.calibrators.saving import save

        save(self, path)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given, by name."""
        return {name: getattr(self, name) for name in self._param_names()}

    def set_params(self, **params: Any) -> Self:
        """Change what the constructor was given."""
        for name in params:
            _checks.parameter(name, type(self).__name__, self._param_names())
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({params})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "state_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks for before it looks whether something is fitted."""
        from sklearn.utils import Tags, TargetTags  # type: ignore[import-untyped]

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def _check_params(self) -> None:
        """Refuse what the constructor was given and cannot be used."""
        return

    def _refuse_state(self, state: State) -> str | None:
        """Why a state of the right shapes, read from a file, cannot be used; None where it can."""
        return None

    @classmethod
    def _param_names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def _need_fit(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"this {type(self).__name__} has not been fitted. "
                "Call fit(logits, labels) first, or calibrant.load a saved one"
            )

    def _apply(self, transform: Callable[[Array, State], Array], logits: Array) -> Array:
        self._need_fit()
        _checks.same_classes(logits, self.n_classes_)
        if not isinstance(logits, np.ndarray):
            inner = self._inner(logits)
            return narrowed(transform(inner, state_like(self.state_, inner)), logits)
        rows = np.ascontiguousarray(logits.reshape(-1, logits.shape[-1]))
        state = state_like(self.state_, self._inner(rows[:0]))
        if transform == self._probs and self._probs_are_compiled(state):
            return transform(rows, state).reshape(logits.shape)
        out = np.empty_like(rows)
        with np.errstate(over="ignore"):
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
            (after,) = data.means(self._right_after)
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

    def _right_after(self, data: FitData) -> tuple[npt.NDArray[np.bool_]]:
        """Whether the calibrated class of each row is its label."""
        calibrated = self._apply(self._log_probs, data.logits)
        return (calibrated.argmax(axis=1) == data.labels,)

    def _doubts(self, data: Samples, n_parameters: int) -> Iterator[str]:
        if n_parameters > 0 and len(data) < FEW_SAMPLES:
            yield (
                f"fitted on {len(data)} samples only; below {FEW_SAMPLES} the result is mostly "
                "noise, so collect more before trusting it."
            )
        elif len(data) < n_parameters:
            yield (
                f"{n_parameters} numbers were fitted on {len(data)} samples; "
                "a method with fewer, such as temperature, is safer here."
            )
        missing = data.n_classes - data.n_classes_seen
        if self.PER_CLASS and missing:
            yield (
                f"{missing} of {data.n_classes} classes have no sample to fit on; "
                "their probabilities are a guess."
            )


def state_like(state: State, logits: Array) -> State:
    """The state as arrays of the library, type and device of ``logits``; numbers as they are."""
    xp = array_namespace(logits)
    return {
        name: value
        if isinstance(value, float)
        else xp.asarray(value, dtype=_dtype_for(value, logits, xp), device=device(logits))
        for name, value in state.items()
    }


def _dtype_for(value: npt.NDArray[Any], logits: Array, xp: Any) -> Any:
    return xp.int64 if value.dtype.kind == "i" else logits.dtype


def row_blocks(n_rows: int, n_classes: int) -> Iterator[slice]:
    """Slices of rows with about ``BLOCK_ENTRIES`` entries each."""
    step = max(1, BLOCK_ENTRIES // n_classes)
    for start in range(0, n_rows, step):
        yield slice(start, start + step)


def _scores(logits: Array, probs: Array) -> Array:
    """Checked logits; of probabilities, their logarithms above the floor."""
    kind, given = _checks.one_of(logits=logits, probs=probs)
    if kind == "logits":
        checked = _checks.logits(given)
    else:
        checked = floored_log_of_probs(_checks.probs(given), PROBS_FLOOR)
    if isinstance(checked, np.ndarray) and checked.dtype.itemsize > 8:
        return checked.astype(np.float64)  # compiled passes know no longer floats
    return checked


def checked_samples(
    logits: Array = None, labels: Array = None, sample_weight: Array = None, *, probs: Array = None
) -> FitData:
    """The arguments of ``fit``, checked; rows without weight are left out."""
    scores = _scores(logits, probs)
    flat = _checks.as_numpy(scores).reshape(-1, scores.shape[-1])
    _checks.given(labels, "labels")
    checked = _checks.as_numpy(_checks.labels(labels, scores)).reshape(-1)
    weight = _checks.sample_weight(sample_weight, scores)
    weight = None if weight is None else weight.reshape(-1)
    present = np.full(len(flat), True) if weight is None else weight > 0
    _checks.something_to_measure(int(present.sum()))
    _checks.possible_labels(flat, checked, present)
    if not present.all():
        flat, checked = flat[present], checked[present]
        weight = None if weight is None else weight[present]
    return FitData(np.ascontiguousarray(flat), checked, weight)
